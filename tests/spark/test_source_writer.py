"""Captures that Spark writes are captures: whole, in order, and there at once or not at all."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import rand

from peers.commands import release
from peers.recorded import AT, line
from trunkline import capture, spark

KEPT = [name for name in capture.schema().names if name not in ("capture_id", "segment", "seq")]


def save(rows, path, mode="append", **options):
    rows.write.format("trunkline").options(**options).mode(mode).save(str(path))


def rows_of(path):
    """The rows of a capture, without what is new in a copy."""
    return [{name: row[name] for name in KEPT} for row in capture.open(path).rows()]


@pytest.fixture
def add(tmp_path):
    def add(name, *sequences):
        lines = tmp_path / "lines.jsonl"
        lines.write_text("".join(line(release(name, 0, number, b"x"), AT + number) for number in sequences))
        capture.import_(lines, tmp_path / name)
        return tmp_path / name

    return add


def read(session, path, **options):
    return session.read.format("trunkline").options(**options).load(str(path))


def test_rows_in_any_order_become_the_capture_they_were(session, every_protocol, tmp_path):
    rows = read(session, every_protocol).repartition(4).orderBy(rand(7))
    save(rows, tmp_path / "deep/copy")
    assert rows_of(tmp_path / "deep/copy") == rows_of(every_protocol)
    assert [row["seq"] for row in capture.open(tmp_path / "deep/copy").rows()] == list(range(10))
    # It is one as any other: it can be checked, continued, decoded.
    assert capture.verify(tmp_path / "deep/copy").problems == ()
    assert spark.decode(read(session, tmp_path / "deep/copy"), "dcp").count() == 2
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["copy"]


def test_some_of_the_rows_of_several_captures_become_one(session, add, tmp_path):
    paths = [str(add("a", 1, 2, 3)), str(add("b", 1, 2, 3))]
    rows = session.read.format("trunkline").load(paths).where("received_at_ns % 2 = 0")
    save(rows, tmp_path / "some")
    found = capture.open(tmp_path / "some")
    ids = sorted(paths, key=lambda path: capture.open(path).info().capture_id)
    expected = [(path.rpartition("/")[2], 2) for path in ids]
    assert [(message.sender, message.sequence) for message in found.messages("cdtp")] == expected
    assert len({row["capture_id"] for row in found.rows()}) == 1


def test_no_rows_are_a_capture_too(session, add, tmp_path):
    save(read(session, add("a", 1)).where("seq < 0"), tmp_path / "none")
    assert capture.open(tmp_path / "none").info().messages == 0


def test_what_is_there_is_replaced_only_where_that_is_asked_for(session, add, tmp_path):
    first, second = add("a", 1), add("b", 1, 2)
    save(read(session, first), tmp_path / "out")
    with pytest.raises(PySparkException, match="is there already: choose another name, or mode"):
        save(read(session, second), tmp_path / "out")
    assert len(rows_of(tmp_path / "out")) == 1
    save(read(session, second), tmp_path / "out", mode="overwrite")
    assert len(rows_of(tmp_path / "out")) == 2
    # A capture can take its own place, less some of its rows.
    save(read(session, tmp_path / "out").where("seq = 1"), tmp_path / "out", mode="overwrite")
    assert [message.sequence for message in capture.open(tmp_path / "out").messages("cdtp")] == [2]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/text").touch()
    with pytest.raises(PySparkException, match="is no capture, and is not overwritten"):
        save(read(session, first), tmp_path / "notes", mode="overwrite")
    (tmp_path / "empty").mkdir()
    save(read(session, first), tmp_path / "empty")
    assert len(rows_of(tmp_path / "empty")) == 1


def test_nothing_is_left_of_what_fails(session, add, tmp_path):
    rows = read(session, add("a", 1, 2, 3)).repartition(3)
    failing = rows.selectExpr("* except (endpoint)", "if(seq = 1, raise_error('no'), endpoint) AS endpoint")
    with pytest.raises(PySparkException, match="no"):
        save(failing, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "lines.jsonl"]


def test_what_is_no_capture_is_refused(session, add, tmp_path):
    rows = read(session, add("a", 1))
    for given, options, words in (
        (rows.drop("payload"), {}, "the rows have no column payload"),
        (rows.withColumn("seq", rows.seq.cast("string")), {}, "the column seq is string, and must be bigint"),
        (spark.decode(rows, "cdtp"), {}, "not of decoded ones"),
        (rows, {"compression": "none"}, "there is no option 'compression' for writing"),
    ):
        with pytest.raises(PySparkException, match=words):
            save(given, tmp_path / "out", **options)
    with pytest.raises(PySparkException, match="captures are written to file systems of this machine"):
        rows.write.format("trunkline").mode("append").save("s3://lab/out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "lines.jsonl"]
