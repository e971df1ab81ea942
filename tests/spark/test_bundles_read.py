"""Related messages that the data source reads in bundles, beside the same ones as rows: the tables are the same."""

import re
from pathlib import Path
from random import Random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType

from peers.mtl import confirm, content, reject
from peers.together import ALPHABET, record
from trunkline import capture, mtl, spark
from trunkline._native.analysis import Fold

PROTOCOLS = {name: Fold(name).protocol for name in Fold.NAMES}

# The tables of decoded messages.
OF_DECODED = {
    "contents": spark.contents,
    "topics": lambda decoded: spark.topics(decoded, "10 milliseconds"),
    "rollout": spark.rollout,
}
# The tables of rows.
OF_ROWS = {"requests": spark.pair_requests, "gaps": spark.gaps}


@pytest.fixture
def recorded(tmp_path):
    """A capture of random messages of which a table is made, in segments of ten."""

    def make(name, messages=None):
        chosen = messages or Random(name).choices(ALPHABET[name], k=120)
        return str(record(tmp_path / name, PROTOCOLS[name], chosen))

    return make


def plan_of(frame):
    return frame._jdf.queryExecution().analyzed().toString()


def reads_bundles(frame):
    """Whether the data source reads bundles; else they are made of what passed through the JVM."""
    [read] = [line for line in plan_of(frame).splitlines() if re.match(r"[ :+~-]*(Streaming)?Relation(V2)?\b", line)]
    return "bucket#" in read


def is_decoded_in_one_pass(frame):
    """Whether one pass decodes rows and makes bundles, and each step of a table is one more."""
    steps = 2 if "fate" in frame.columns else 1
    return not reads_bundles(frame) and plan_of(frame).count("MapInArrow") == steps + 1


def plain(rows):
    return sorted(map(str, rows.collect()))


def streamed(rows, name, checkpoint):
    """The last row of each key, or all of a table without."""
    written = []

    def write(rows, batch):
        written.extend((batch, row) for row in rows.collect())

    writer = rows.writeStream.outputMode("update").trigger(availableNow=True).foreachBatch(write)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination()
    keys = spark.keys_of(name)
    last = {tuple(row[key] for key in keys) if keys else number: row for number, (_, row) in enumerate(written)}
    return sorted(map(str, last.values()))


def decoded(reader, path, name, **options):
    return reader.format("trunkline").options(protocol=PROTOCOLS[name], decode=True, **options).load(path)


@pytest.mark.parametrize("payload", [False, True])
@pytest.mark.parametrize("name", OF_DECODED)
def test_of_decoded_messages(session, recorded, tmp_path, name, payload):
    path, table = recorded(name), OF_DECODED[name]
    options = {"payload": True} if payload else {}
    bundles = table(decoded(session.read, path, name, **options))
    rows = table(decoded(session.read, path, name, **options).where("seq >= 0"))
    assert (reads_bundles(bundles), reads_bundles(rows)) == (True, False)
    assert plain(bundles) == plain(rows)
    assert len(plain(rows)) > 1
    limits = {"maxSegmentsPerTrigger": 5, **options}
    bundles = table(decoded(session.readStream, path, name, **limits))
    assert reads_bundles(bundles)
    assert streamed(bundles, name, tmp_path / "checkpoint") == plain(rows)


@pytest.mark.parametrize("name", OF_ROWS)
def test_of_recorded_rows(session, recorded, tmp_path, name):
    path, table = recorded(name), OF_ROWS[name]
    source = session.read.format("trunkline")
    bundles, rows = table(source.load(path)), table(source.load(path).where("seq >= 0"))
    files = table(session.read.parquet(path))
    assert [reads_bundles(each) for each in (bundles, rows, files)] == [True, False, False]
    assert [is_decoded_in_one_pass(each) for each in (bundles, rows, files)] == [False, True, True]
    assert plain(bundles) == plain(rows) == plain(files)
    assert len(plain(rows)) > 1
    stream = table(session.readStream.format("trunkline").option("maxSegmentsPerTrigger", 5).load(path))
    assert reads_bundles(stream)
    assert streamed(stream, name, tmp_path / "checkpoint") == plain(rows)


@pytest.mark.parametrize("name", OF_DECODED)
def test_of_messages_as_decode_gives_them(session, recorded, name):
    """Of the source and of files, with bodies and without; what was done to the table afterwards is not passed over."""
    path, table = recorded(name), OF_DECODED[name]
    for options in ({}, {"payload": True}):
        source = spark.decode(session.read.format("trunkline").load(path), PROTOCOLS[name], **options)
        files = spark.decode(session.read.parquet(path), PROTOCOLS[name], **options)
        expected = plain(table(files.where("seq >= 0")))
        assert (reads_bundles(table(source)), is_decoded_in_one_pass(table(files))) == (True, True)
        assert plain(table(source)) == plain(table(files)) == expected
        fewer = [table(each.where("seq < 30")) for each in (source, files)]
        assert [plain(each) for each in fewer] == [plain(table(files.limit(10**6).where("seq < 30")))] * 2
        assert plain(fewer[0]) != expected


def test_what_the_source_selects_and_how_it_decodes_stays(session, recorded):
    messages = [("out", b"r", content(n, "jobs", b"x%d" % n)) for n in range(1, 30)]
    messages += [("in", b"r", confirm(n)) for n in range(1, 15)]
    path = recorded("contents", messages)
    for options in (
        {"where": "sequence <= 10"},
        {"since": "2026-11-21T06:12:00.020Z"},
        {"resource": "jobs"},
        {"mode": "DROPMALFORMED"},
        {"columns": ",".join([*Fold("contents").needs[:-2], "properties"])},
        {"recursive": True},
    ):
        bundles = spark.contents(decoded(session.read, path, "contents", **options))
        rows = spark.contents(decoded(session.read, path, "contents", **options).where("seq >= 0"))
        assert reads_bundles(bundles), options
        assert plain(bundles) == plain(rows), options
    # With a property in a column of its own the JVM compares properties.
    typed = spark.contents(decoded(session.read, path, "contents", properties="redelivered boolean, * variant"))
    assert not reads_bundles(typed)
    assert plain(typed) == plain(spark.contents(decoded(session.read, path, "contents")))
    # Rows that the source selects are not those of all messages.
    selected = session.read.format("trunkline").options(protocol="mtl", where="sequence <= 10").load(path)
    some = spark.contents(spark.decode(selected, "mtl"))
    assert (reads_bundles(some), is_decoded_in_one_pass(some)) == (False, True)
    assert plain(some) == plain(spark.contents(decoded(session.read, path, "contents", where="sequence <= 10")))


def test_what_is_cached_is_not_read_again(session, recorded):
    path = recorded("contents")
    source, files = session.read.format("trunkline").load(path), session.read.parquet(path)
    tables = {
        "source": decoded(session.read, path, "contents"),
        "decode of the source": spark.decode(source, "mtl"),
        "decode of files": spark.decode(files, "mtl"),
    }
    expected = plain(spark.contents(tables["source"]))
    for name, table in tables.items():
        table.cache().count()
        assert not reads_bundles(spark.contents(table)), name
    rows = source.cache()
    rows.count()
    of_rows = spark.contents(spark.decode(rows, "mtl", columns=[*Fold("contents").needs[:-2], "properties"]))
    assert (reads_bundles(of_rows), is_decoded_in_one_pass(of_rows)) == (False, True)
    for segment in [*Path(path).glob("[0-9]*.parquet")][1:]:
        segment.unlink()
    found = [*map(spark.contents, tables.values()), of_rows]
    assert [plain(each) for each in found] == [expected] * 4
    for table in (*tables.values(), rows):
        table.unpersist()


def test_rows_without_a_protocol_are_all_decoded(session, recorded):
    """As of a capture that names it otherwise."""
    path = recorded("contents")
    names = [name for name in capture.schema().names if name != "protocol"]
    rows = session.read.format("trunkline").option("columns", ",".join(names)).load(path)
    assert not reads_bundles(spark.contents(spark.decode(rows, "mtl")))
    rows = session.read.format("trunkline").options(columns=",".join(names), protocol="mtl").load(path)
    assert reads_bundles(spark.contents(spark.decode(rows, "mtl")))
    assert reads_bundles(spark.contents(spark.decode(session.read.format("trunkline").load(path), "mtl")))


def test_options_may_be_types_of_spark(session, recorded):
    rows = session.read.format("trunkline").load(recorded("contents"))
    options = {"json": {"name": StringType(), "*": "variant"}, "payload": True}
    found = [spark.contents(spark.decode(each, "mtl", **options)) for each in (rows, rows.where("seq >= 0"))]
    assert [*map(reads_bundles, found)] == [True, False]
    assert plain(found[0]) == plain(found[1])


def test_a_column_of_ones_own_may_be_called_as_bodies_are(session, recorded):
    rows = session.read.parquet(recorded("contents")).withColumn("body", F.lit(1.5))
    own = spark.contents(spark.decode(rows, "mtl"))
    assert plain(own) == plain(spark.contents(spark.decode(rows.drop("body"), "mtl")))


def test_bodies_are_compared(session, recorded):
    """Two contents of equal size and other bodies are two, and the same one again is delivered again."""
    again = mtl.encode_table({"redelivered": True})
    messages = [
        ("out", b"r", content(1, "jobs", b"one")),
        ("in", b"r", reject(1, recycle=True)),
        ("out", b"r", content(2, "jobs", b"two", again)),
        ("out", b"r", content(3, "jobs", b"one", again)),
    ]
    path = recorded("contents", messages)
    found = {payload: decoded(session.read, path, "contents", payload=payload) for payload in (True, False)}
    attempts = {
        payload: [row.attempts for row in spark.contents(rows).orderBy("seq").collect()]
        for payload, rows in found.items()
    }
    assert all(map(reads_bundles, map(spark.contents, found.values())))
    assert attempts == {True: [1, 1, 2], False: [1, 2, 3]}


@pytest.mark.parametrize("is_read", [True, False])
def test_a_watermark_passes_with_the_bundles(session, recorded, tmp_path, is_read):
    others = [("out", b"r", content(n, "jobs", b"x%d" % n)) for n in range(2, 39)]
    messages = [("out", b"r", content(1, "jobs", b"x")), *others, ("in", b"r", confirm(1)), ("in", b"r", confirm(38))]
    path, fates = recorded("contents", messages), {}
    for watermark in ("5 milliseconds", None):
        rows = decoded(session.readStream, path, "contents", maxSegmentsPerTrigger=1)
        rows = rows if is_read else rows.where("seq >= 0")
        table = spark.contents(rows if watermark is None else rows.withWatermark("Received_At", watermark))
        assert reads_bundles(table) == is_read
        found = streamed(table.select("capture_id", "seq", "fate"), "contents", tmp_path / str(watermark))
        fates[watermark] = [row.rpartition("fate=")[2] for row in found if "seq=0," in row or "seq=37," in row]
    # What was settled later than that was too late for the first.
    assert fates == {"5 milliseconds": ["'open')", "'confirmed')"], None: ["'confirmed')", "'confirmed')"]}


def test_how_many_messages_a_micro_batch_had_is_observed(session, recorded, tmp_path):
    rows = decoded(session.readStream, recorded("contents"), "contents", maxSegmentsPerTrigger=5)
    writer = spark.contents(rows).writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.awaitTermination()
    observed = [each["observedMetrics"]["trunkline.contents.input"]["messages"] for each in query.recentProgress]
    assert [number for number in observed if number] == [50, 50, 20]


def test_no_option_of_a_user_is_what_the_bundles_are_read_by(session, recorded):
    """It is set by functions alone, and what it has is theirs."""
    with pytest.raises(PySparkException, match=r"option trunkline\.bundling"):
        session.read.format("trunkline").option("trunkline.bundling", "{}").load(recorded("contents"))
