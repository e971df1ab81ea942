"""Recorded messages that were decoded before: Spark reads their files by itself, and gives the same table."""

import math
from random import Random

import msgpack
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from peers.commands import release
from peers.together import dat, record
from trunkline import capture, spark
from trunkline.capture.decoding import Decoding


@pytest.fixture
def recorded(tmp_path):
    """Adds random messages of CDTP to a capture, in segments of ten; gives its path."""

    def make(count=60, first=0, frames=None):
        senders = Random(first).choices(["one", "two"], k=count)
        messages = [("in", None, frames or dat(sender, number)) for number, sender in enumerate(senders, first)]
        return record(tmp_path / "capture", "cdtp", messages, first)

    return make


@pytest.fixture
def tables(session):
    """The tables of a capture by `decode`: of Parquet, of the data source, and of rows that are not all of either."""

    def tables(path, **options):
        parquet, source = session.read.parquet(str(path)), session.read.format("trunkline").load(str(path))
        return [spark.decode(rows, "cdtp", **options) for rows in (parquet, source, parquet.where("seq >= 0"))]

    return tables


def decoded_files(table):
    return sorted(uri.rpartition("/")[2] for uri in table.inputFiles() if "/_decoded/" in uri)


def damage(file):
    """Changes a bit of a page."""
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)


def plain(table):
    return sorted(map(str, table.collect()))


def test_what_is_decoded_is_read_by_spark_itself(recorded, tables):
    path = recorded()
    assert [decoded_files(table) for table in tables(path)] == [[], [], []]
    capture.compact(path, decode={"cdtp": {"tags": {"run": "bigint", "*": "variant"}, "payload": True}})
    # A VARIANT of all tags is not one of all others.
    for options, has_files in (
        ({}, False),
        ({"tags": None}, True),
        ({"tags": {"run": "BIGINT"}, "payload": True}, True),
    ):
        parquet, source, rows = tables(path, **options)
        assert [bool(decoded_files(table)) for table in (parquet, source, rows)] == [has_files, False, False]
        assert plain(parquet) == plain(source) == plain(rows)
        assert parquet.schema == source.schema == rows.schema
        assert parquet.count() == source.count() == 60
    parquet, source, rows = tables(path, columns=["sender", "received_at", "sequence"], tags=None)
    assert parquet.columns == source.columns == rows.columns == ["sender", "sequence", "received_at"]
    assert (
        plain(parquet.where("sequence < 20"))
        == plain(source.where("sequence < 20"))
        == plain(rows.where("sequence < 20"))
    )


def test_what_came_later_is_decoded(recorded, tables):
    path = recorded()
    capture.compact(path, decode={"cdtp": {}})
    parquet, source, _ = tables(path)
    recorded(20, first=60)
    # A table of Parquet is of the files that there were; one of the source of all that are published.
    assert (parquet.count(), source.count()) == (60, 80)
    parquet, source, rows = tables(path)
    assert decoded_files(parquet) == ["0000000000-0000000005.parquet"]
    assert plain(parquet) == plain(source) == plain(rows)
    assert len(plain(parquet)) == 80


def test_a_file_of_another_segment_or_of_other_options_is_not_read(recorded, tables):
    path = recorded()
    capture.compact(path, decode={"cdtp": {"tags": None}})
    [file] = (path / "_decoded" / "cdtp").iterdir()
    # Tags, and bodies.
    for options in ({}, {"tags": {"run": "bigint"}}, {"tags": None, "payload": True}):
        assert [decoded_files(table) for table in tables(path, **options)] == [[], [], []]
    again = file.read_bytes()
    [segment] = path.glob("[0-9]*.parquet")
    assert decoded_files(tables(path, tags=None)[0]) == [segment.name]
    recorded(10, first=60)
    capture.compact(path, target_bytes=1 << 30)
    assert [decoded_files(table) for table in tables(path, tags=None)] == [[], [], []]
    [segment] = path.glob("[0-9]*.parquet")
    (file.parent / segment.name).write_bytes(again)
    found = tables(path, tags=None)
    assert [decoded_files(table) for table in found] == [[], [], []]
    assert found[0].count() == 70


def test_malformed_messages_are_there_or_not_as_the_mode_says(recorded, tables):
    path = recorded()
    recorded(10, first=60, frames=[b"\xa5CDTP\x01\xff", b""])
    capture.compact(path, decode={"cdtp": {}})
    parquet, source, rows = tables(path)
    assert decoded_files(parquet)
    assert plain(parquet) == plain(source) == plain(rows)
    assert parquet.where("error is not null").count() == 10
    dropped = tables(path, mode="DROPMALFORMED")
    assert [decoded_files(table) for table in dropped] == [[], [], []]
    assert [table.count() for table in dropped] == [60, 60, 60]


def test_a_table_of_the_source_outlives_a_merge(recorded, tables):
    path = recorded()
    capture.compact(path, decode={"cdtp": {}})
    recorded(20, first=60)
    _, source, _ = tables(path)
    before = plain(source)
    capture.compact(path, target_bytes=1 << 30, decode={"cdtp": {}})
    assert plain(source) == before
    assert decoded_files(source) == []


def test_variants_that_are_shredded_are_the_same(recorded, tables):
    path = recorded()
    capture.compact(path, decode={"cdtp": {}}, shred=True)
    parquet, source, rows = tables(path)
    assert decoded_files(parquet)
    assert plain(parquet) == plain(source) == plain(rows)


def test_a_damaged_file_is_an_error(recorded, tables):
    path = recorded(400)
    capture.compact(path, decode={"cdtp": {"tags": None}})
    [file] = (path / "_decoded" / "cdtp").iterdir()
    damage(file)
    parquet, *_ = tables(path, tags=None)
    with pytest.raises((PySparkException, Py4JJavaError), match="FAILED_READ_FILE"):
        parquet.collect()


def test_a_file_that_is_decoded_anew_is_not_read_for_the_one_before(recorded, tables):
    """Its columns would be null where it has others."""
    path = recorded()
    capture.compact(path, decode={"cdtp": {"tags": {"run": "bigint"}}})
    parquet, *_ = tables(path, tags={"run": "bigint"})
    assert decoded_files(parquet)
    capture.compact(path, decode={"cdtp": {"tags": None}})
    with pytest.raises((PySparkException, Py4JJavaError), match="FILE_NOT_EXIST"):
        parquet.collect()
    parquet, source, rows = tables(path, tags=None)
    assert decoded_files(parquet) == ["0000000000-0000000005.2.parquet"]
    assert plain(parquet) == plain(source) == plain(rows)


def test_a_file_that_is_removed_meanwhile_is_not_needed(recorded, tables, monkeypatch):
    path = recorded()
    capture.compact(path, decode={"cdtp": {}})
    [file] = (path / "_decoded" / "cdtp").iterdir()
    has_all = Decoding.has_all

    def has_all_and_goes(decoding, segment, file):
        has = has_all(decoding, segment, file)
        file.unlink()
        return has

    monkeypatch.setattr(Decoding, "has_all", has_all_and_goes)
    parquet, *_ = tables(path)
    assert not file.exists()
    assert parquet.count() == 60


def test_a_path_that_is_named_twice_is_read_twice(recorded, session):
    path = recorded()
    capture.compact(path, decode={"cdtp": {}})
    [segment] = path.glob("[0-9]*.parquet")
    recorded(20, first=60)
    for paths, rows in (([path, path], 160), ([path, segment], 140)):
        read = session.read.parquet(*map(str, paths))
        assert (read.count(), spark.decode(read, "cdtp").count()) == (rows, rows)


@pytest.mark.parametrize(("column", "value"), [("capture_id", "run7"), ("endpoint", "hall"), ("segment", 77)])
def test_columns_of_a_path_are_those_of_spark(recorded, session, column, value):
    path = recorded()
    capture.compact(path, decode={"cdtp": {}})
    path.rename(path.parent / f"{column}={value}")
    (path.parent / "lines.jsonl").unlink(missing_ok=True)
    decoded = spark.decode(session.read.parquet(str(path.parent)), "cdtp")
    assert [tuple(row) for row in decoded.groupBy(column).count().collect()] == [(value, 60)]


def test_what_is_no_number_is_above_all_numbers(tmp_path, session):
    messages = [("in", None, release("Det", 0, at, b"x", tags={"x": x})) for at, x in enumerate([1.0, math.nan, 3.0])]
    path = record(tmp_path / "capture", "cdtp", messages)
    capture.compact(path, decode={"cdtp": {"tags": {"x": "double"}}})
    rows = session.read.parquet(str(path))
    tables = [spark.decode(read, "cdtp", tags={"x": "double"}) for read in (rows, rows.where("seq >= 0"))]
    assert [bool(decoded_files(table)) for table in tables] == [True, False]
    for condition in ("tag_x > 5", "tag_x = double('NaN')", "not (tag_x <= 3)", "isnan(tag_x)"):
        assert [[row.sequence for row in table.where(condition).collect()] for table in tables] == [[1], [1]]


def test_zero_is_zero_with_either_sign(tmp_path, session):
    messages = [("in", None, release("Det", 0, at, b"x", tags={"x": x})) for at, x in enumerate([-0.0, -0.0, 5.0])]
    path = record(tmp_path / "capture", "cdtp", messages)
    capture.compact(path, decode={"cdtp": {"tags": {"x": "double"}}})
    table = spark.decode(session.read.parquet(str(path)), "cdtp", tags={"x": "double"})
    assert decoded_files(table)
    assert [table.where(condition).count() for condition in ("tag_x = 0.0D", "tag_x in (-0.0D)")] == [2, 2]


def test_a_session_that_skips_files_does_not_skip_messages(recorded, tables, session, request):
    path = recorded(400)
    capture.compact(path, decode={"cdtp": {"tags": None}})
    [file] = (path / "_decoded" / "cdtp").iterdir()
    damage(file)
    for name in ("ignoreCorruptFiles", "ignoreMissingFiles"):
        session.conf.set(f"spark.sql.files.{name}", "true")
        request.addfinalizer(lambda name=name: session.conf.unset(f"spark.sql.files.{name}"))
    damaged, *_ = tables(path, tags=None)
    with pytest.raises((PySparkException, Py4JJavaError), match="FAILED_READ_FILE"):
        damaged.collect()
    file.unlink()
    with pytest.raises((PySparkException, Py4JJavaError), match="FILE_NOT_EXIST"):
        damaged.collect()


def test_the_rest_is_read_with_the_options_of_its_reader(recorded, session):
    path = recorded()
    capture.compact(path, decode={"cdtp": {}})
    recorded(10, first=60)
    *_, last = sorted(path.glob("[0-9]*.parquet"))
    last.write_bytes(last.read_bytes()[:500])
    reader = session.read.schema(spark.capture_schema()).option("ignoreCorruptFiles", "true")
    decoded = spark.decode(reader.parquet(str(path)), "cdtp")
    assert decoded_files(decoded)
    assert len(decoded.collect()) == 60


def test_times_of_long_ago_are_as_recorded(tmp_path, session, request):
    tags = {"at": msgpack.Timestamp.from_unix_nano(-60_000_000_000 * 10**9)}
    path = record(tmp_path / "capture", "cdtp", [("in", None, release("Det", 0, 0, b"x", tags=tags))])
    capture.compact(path, decode={"cdtp": {"tags": {"at": "timestamp"}}})
    session.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    request.addfinalizer(lambda: session.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead"))
    rows = session.read.parquet(str(path))
    tables = [spark.decode(read, "cdtp", tags={"at": "timestamp"}) for read in (rows, rows.where("seq >= 0"))]
    assert [bool(decoded_files(table)) for table in tables] == [True, False]
    first, second = ([tuple(row) for row in table.selectExpr("string(tag_at)").collect()] for table in tables)
    assert first == second


def test_tables_of_messages_together_are_the_same(recorded, session):
    """They need what the files do not have, or are quicker without."""
    path = recorded()
    capture.compact(path, decode={"cdtp": {}})
    expected = plain(spark.gaps(session.read.parquet(str(path)).where("seq >= 0")))
    assert plain(spark.gaps(session.read.format("trunkline").load(str(path)))) == expected
    assert len(expected) > 10
