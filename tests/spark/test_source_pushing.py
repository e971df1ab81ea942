"""Filters of a DataFrame that reach the source."""

import re

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThan, Not
from pyspark.sql.functions import col, lit, to_timestamp

from peers.recorded import footer_alone, line
from trunkline import capture
from trunkline.capture import pruning
from trunkline.spark.source.batch import PushingReader, reader_of

START_S = 1_700_000_000


@pytest.fixture(scope="module")
def ten_segments(tmp_path_factory):
    """Ten segments of ten rows, received a second after each other."""
    path = tmp_path_factory.mktemp("pushing") / "capture"
    frames = (b"TWOFRAMES!", b"x")
    lines = [line(frames, (START_S + at) * 10**9 + 7, protocol="mc0") for at in range(100)]
    (path.parent / "lines.jsonl").write_text("".join(lines))
    capture.import_(path.parent / "lines.jsonl", path, segment_bytes=10 * len(b"".join(frames)))
    assert len(list(path.glob("*.parquet"))) == 10
    return path


def without_pages(path, segments, scratch):
    """A copy of a capture in which the rows of all other segments are zeros."""
    for at, segment in enumerate(sorted(path.glob("*.parquet"))):
        content = segment.read_bytes()
        (scratch / segment.name).write_bytes(content if at in segments else footer_alone(content))
    return str(scratch)


def is_second(at):
    return to_timestamp(lit(START_S + at))


@pytest.mark.parametrize(
    ("condition", "segments", "expected"),
    [
        (lambda: (col("seq") >= 23) & (col("seq") < 26), [2], [23, 24, 25]),
        (lambda: col("seq") == 55, [5], [55]),
        (lambda: (col("seq") > 97) & (col("n_frames") == 2), [9], [98, 99]),
        (lambda: col("received_at_ns") <= (START_S + 1) * 10**9 + 7, [0], [0, 1]),
        (lambda: col("seq") < 0, [], []),
    ],
)
def test_segments_that_filters_rule_out_are_not_read(session, ten_segments, tmp_path, condition, segments, expected):
    rows = session.read.format("trunkline").load(without_pages(ten_segments, segments, tmp_path)).where(condition())
    assert [row.seq for row in rows.select("seq").orderBy("seq").collect()] == expected


def test_times_are_compared_in_microseconds(session, ten_segments, tmp_path):
    options = {"decode": "true", "protocol": "mc0", "columns": "seq,received_at,error"}
    path = without_pages(ten_segments, [4, 5], tmp_path)
    messages = session.read.format("trunkline").options(**options).load(path)
    at = col("received_at")
    some = messages.where((at > is_second(48)) & (at <= is_second(51)))
    assert [row.seq for row in some.orderBy("seq").collect()] == [49, 50, 51]
    assert [row.seq for row in messages.where(at == is_second(50)).collect()] == [50]


@pytest.mark.parametrize("condition", ["topic = 'b'", "topic in ('b', 'no') and direction = 'in'"])
def test_segments_without_a_name_that_filters_want_are_not_read(session, tmp_path, condition):
    frames = [(b"MESSAGE", b"TOPIC", topic, b"", b"x") for topic in (b"a", b"b", b"c") for _ in range(3)]
    (tmp_path / "lines.jsonl").write_text("".join(line(each, at, protocol="mc0") for at, each in enumerate(frames)))
    capture.import_(tmp_path / "lines.jsonl", tmp_path / "c", segment_bytes=3 * len(b"".join(frames[0])))
    (tmp_path / "left").mkdir()
    messages = session.read.format("trunkline").options(
        decode="true", protocol="mc0", columns="seq,topic,direction,error"
    )
    some = messages.load(without_pages(tmp_path / "c", [1], tmp_path / "left")).where(condition)
    assert [row.seq for row in some.orderBy("seq").collect()] == [3, 4, 5]


def test_explain_shows_them(session, ten_segments, capsys):
    session.read.format("trunkline").load(str(ten_segments)).where("seq > 5 and n_bytes > 3").explain("formatted")
    shown = capsys.readouterr().out
    assert "PushedFilters: [GreaterThan(seq,5)]" in shown
    assert re.search(r"Condition : \(n_bytes#\d+L > 3\)", shown)


def test_a_session_that_hands_over_none_reads_all(session, ten_segments):
    name = "spark.sql.python.filterPushdown.enabled"
    assert session.conf.get(name) == "true"
    session.conf.set(name, "false")
    try:
        rows = session.read.format("trunkline").load(str(ten_segments)).where("seq > 97")
        assert [row.seq for row in rows.orderBy("seq").collect()] == [98, 99]
    finally:
        session.conf.set(name, "true")


def test_what_spark_must_apply_is_given_back():
    reader = PushingReader(None)
    names = [
        EqualTo(("sender",), "a"),
        In(("sender",), ("a", "b")),
        EqualTo(("sender",), None),
        EqualTo(("type",), "x"),
    ]
    column, other = ("seq",), ("n_bytes",)
    left = [Not(EqualTo(column, 3)), In(column, (1, 2)), LessThan(other, 5), GreaterThan(("received_at",), 5)]
    taken = [IsNotNull(column), GreaterThan(column, 3), LessThan(column, 1 << 62)]
    assert list(reader.pushFilters([*left, *taken, *names])) == [*left, *names]
    assert reader._wanted.numbers == [(4, (1 << 62) - 1)]
    assert reader._wanted.times_ns == pruning.EVERY
    assert reader._wanted.names == tuple(("subject", pruning.Names(frozenset(each))) for each in ({"a"}, {"a", "b"}))


def test_only_a_worker_of_filters_has_a_reader_that_takes_them():
    assert type(reader_of(None)).__name__ == "BatchReader"
