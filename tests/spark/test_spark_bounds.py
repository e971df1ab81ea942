"""Messages that no column holds, and those that take many batches, wherever Spark decodes."""

import msgpack
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from peers import cdtp as wire
from peers import large
from trunkline import capture, cdtp, spark

GOOD = wire.header_b(7)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "capture"
    with cdtp.Recorder(path, bind="tcp://127.0.0.1:*") as recorder:
        messages = [GOOD, large.TOO_LARGE, b"junk", large.MANY_BATCHES, GOOD]
        wire.send_all(recorder.endpoints[0], [large.frames(header) for header in messages])
        recorder.wait(count=len(messages), timeout_s=60)
    return path


@pytest.fixture
def rows(session, hostile):
    return session.read.parquet(str(hostile))


def test_decode_gives_rows_of_what_there_is_and_one_of_what_is_too_large(rows):
    found = spark.decode(rows, "cdtp", tags=None)
    counted = found.groupBy("seq", "error").agg(F.count("*").alias("rows"), F.max("record").alias("last"))
    assert [tuple(row) for row in counted.orderBy("seq").collect()] == [
        (0, None, 1, 0),
        (1, "message_too_large", 1, 0),
        (2, "bad_header", 1, 0),
        (3, None, large.RECORDS, large.RECORDS - 1),
        (4, None, 1, 0),
    ]
    assert found.where("seq = 1 AND sender IS NULL AND _corrupt_record IS NULL").count() == 1
    kept = spark.decode(rows, "cdtp", tags=None, mode="DROPMALFORMED").select("seq", "error").distinct()
    assert {tuple(row) for row in kept.collect()} == {(0, None), (1, "message_too_large"), (3, None), (4, None)}


def test_failfast_says_what_is_too_large(rows):
    with pytest.raises(PythonException, match="message_too_large"):
        spark.decode(rows.where("seq < 2"), "cdtp", mode="FAILFAST").count()


@pytest.mark.parametrize("function", [spark.from_cdtp, spark.pandas_udfs.cdtp])
def test_column_functions_hold_a_message_that_repeats_its_name(rows, function):
    decoded = rows.select("seq", function("header", "n_frames", tags=None).alias("cdtp"))
    found = decoded.select("seq", "cdtp.error", F.size("cdtp.records").alias("records")).orderBy("seq").collect()
    assert [(row["error"], row["records"]) for row in found] == [
        (None, None),
        (None, 70_000),
        ("bad_header", None),
        (None, large.RECORDS),
        (None, None),
    ]


def test_runs_and_the_report_read_it(rows, tmp_path):
    assert spark.runs(rows).where("sender LIKE 'xxx%'").count() == 1
    spark.report(rows, tmp_path / "report.html")
    assert "message_too_large" in (tmp_path / "report.html").read_text()


# As names of columns these are paths, quotes, types, control characters, and those of columns that there are.
NAMES = ["a.b", "`x`", "x`y", "", "seq", "sender", "__index__", "日本", "a\nb", "x" * 300, "*)", "a,b", "struct<a:int>"]
NAMES += ["\u202e", "tags", "_corrupt_record", "'", '"', "{", "a=b", "SELECT"]


def test_tags_may_have_any_name(session, tmp_path):
    tags = dict.fromkeys(NAMES, "bigint")
    header = (msgpack.packb("CDTP\x01") + msgpack.packb("D") + msgpack.packb(msgpack.Timestamp(1, 1))) + msgpack.packb(
        {name: number for number, name in enumerate(NAMES)}
    )
    with cdtp.Recorder(tmp_path / "c", bind="tcp://127.0.0.1:*") as recorder:
        wire.send_all(recorder.endpoints[0], [[header, b"payload"]])
        recorder.wait(count=1, timeout_s=60)
    expected = {f"tag_{name}": number for number, name in enumerate(NAMES)}
    rows = session.read.parquet(str(tmp_path / "c"))
    table = spark.decode(rows, "cdtp", tags=tags)
    table.write.parquet(str(tmp_path / "table"))
    (again,) = session.read.parquet(str(tmp_path / "table")).collect()
    for found in [
        *table.collect(),
        again,
        *rows.select(spark.from_cdtp("header", "n_frames", tags=tags).alias("m")).select("m.*").collect(),
    ]:
        assert {name: value for name, value in found.asDict().items() if name.startswith("tag_")} == expected
    (found,) = [row for batch in capture.open(tmp_path / "c").decode("cdtp", tags=tags) for row in batch.to_pylist()]
    assert {name: value for name, value in found.items() if name.startswith("tag_")} == expected
