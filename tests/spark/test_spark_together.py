"""What belongs together on streams: at the end the last row of each key is that of the batch, however the stream was cut."""

import json
import os
import signal
import subprocess
import sys
from random import Random
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from peers.recorded import line
from peers.together import ALPHABET, START_NS, STEP_NS, reply, request
from peers.waiting import until
from trunkline import capture, spark
from trunkline.errors import LocalProtocolError
from trunkline.spark._streams import Bucket, Table

PROTOCOLS = {"runs": "cdtp", "gaps": "cdtp", "requests": "dcp", "topics": "mc0", "contents": "mtl", "rollout": "cdt"}
STORE = "spark.sql.streaming.stateStore.providerClass"


def table(name, rows):
    """The table of rows of a capture, a batch or a stream."""
    match name:
        case "topics":
            return spark.topics(spark.decode(rows, "mc0"), "10 milliseconds")
        case "contents":
            return spark.contents(spark.decode(rows, "mtl"))
        case "rollout":
            return spark.rollout(spark.decode(rows, "cdt"))
        case "requests":
            return spark.pair_requests(rows)
    return getattr(spark, name)(rows)


@pytest.fixture(autouse=True)
def _few_tasks(session):
    """Each task of a micro-batch opens a state of its own."""
    before = session.conf.get("spark.sql.shuffle.partitions")
    session.conf.set("spark.sql.shuffle.partitions", 2)
    yield
    session.conf.set("spark.sql.shuffle.partitions", before)


@pytest.fixture
def recorded(tmp_path):
    """A capture of random messages of which a table is made, in segments of ten."""

    def make(name, count=120, seed=1, into="capture", first=0, messages=None):
        lines = tmp_path / "lines.jsonl"
        chosen = messages or Random(seed).choices(ALPHABET[name], k=count)
        for begin in range(0, len(chosen), 10):
            with lines.open("w") as file:
                for number, (direction, peer, content) in enumerate(chosen[begin : begin + 10], first + begin):
                    frames, topic = content if isinstance(content, tuple) else (content, None)
                    file.write(line(frames, START_NS + number * STEP_NS, direction=direction, peer=peer, topic=topic))
            capture.import_(lines, tmp_path / into, protocol=PROTOCOLS[name])
        return tmp_path / into

    return make


@pytest.fixture
def streamed(session, tmp_path):
    """Streams the table of a capture, and gives each micro-batch's rows under its number."""

    def streamed(name, path, *, into="table", watermark=None, **options):
        rows = session.readStream.format("trunkline").options(**options).load(str(path))
        if watermark:
            rows = rows.withColumn("at", F.timestamp_micros(F.expr("received_at_ns div 1000")))
            rows = rows.withWatermark("at", watermark)

        def write(rows, batch):
            rows.write.mode("overwrite").parquet(str(tmp_path / into / f"batch={batch}"))

        writer = table(name, rows).writeStream.outputMode("update").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / f"{into}-checkpoint")).foreachBatch(write).start()
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    return streamed


@pytest.fixture
def latest(session, tmp_path):
    """The last row of each key of what was streamed, and how many rows there were."""

    def latest(name, into="table"):
        rows = session.read.parquet(str(tmp_path / into))
        keys = spark.keys_of(name)
        count = rows.count()
        if keys:
            assert rows.groupBy("batch", *keys).count().where("count > 1").count() == 0
            rows = rows.groupBy(*keys).agg(F.max_by(F.struct("*"), "batch").alias("last")).select("last.*")
        return plain(rows.drop("batch")), count

    return latest


def plain(rows):
    """Rows as text, in order; VARIANTs as JSON."""
    texts = [F.to_json(name).alias(name) if kind == "variant" else F.col(name) for name, kind in rows.dtypes]
    return sorted(map(str, rows.select(texts).collect()))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_stream_gives_the_table_of_the_batch(session, recorded, streamed, latest, name):
    path = recorded(name)
    assert streamed(name, path, maxSegmentsPerTrigger=6) == [60, 60]
    rows, changes = latest(name)
    expected = table(name, session.read.parquet(str(path)))
    assert table(name, session.readStream.format("trunkline").load(str(path))).schema == expected.schema
    assert rows == plain(expected)
    assert changes >= len(rows) > 1
    # A checkpoint goes on with what comes later.
    recorded(name, count=30, seed=2, first=120)
    assert streamed(name, path) == [30]
    assert latest(name)[0] == plain(table(name, session.read.parquet(str(path))))


def test_rows_in_any_order_and_of_several_captures(session, recorded, tmp_path):
    for seed in range(3):
        recorded("requests", seed=seed, into=f"runs/{seed}")
    # Spark's own reader divides files as it likes.
    rows = session.readStream.schema(spark.capture_schema()).option("recursiveFileLookup", value=True)
    rows = rows.option("pathGlobFilter", "[0-9]*.parquet").parquet(str(tmp_path / "runs")).repartition(5)
    query = table("requests", rows).writeStream.format("memory").queryName("any_order").outputMode("update")
    query.trigger(availableNow=True).start().awaitTermination()
    expected = [table("requests", session.read.parquet(str(tmp_path / "runs" / str(seed)))) for seed in range(3)]
    assert plain(session.table("any_order")) == sorted(row for each in expected for row in plain(each))


def test_gaps_are_final_and_go_to_any_sink(session, recorded, tmp_path):
    path = recorded("gaps")
    rows = session.readStream.format("trunkline").option("maxSegmentsPerTrigger", 3).load(str(path))
    writer = spark.gaps(rows).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.outputMode("append").trigger(availableNow=True).start(str(tmp_path / "gaps")).awaitTermination()
    found = session.read.parquet(str(tmp_path / "gaps"))
    assert plain(found) == plain(spark.gaps(session.read.parquet(str(path))))
    assert found.count() > 2


def test_a_watermark_ends_what_is_older(recorded, streamed, latest):
    others = [("in", b"d%d" % at, request(b"s", None)) for at in range(37)]
    messages = [
        ("in", b"c", request(b"s", None)),
        *others,
        ("out", b"w", request(b"s", b"c")),
        ("in", b"w", reply(b"c")),
    ]
    path = recorded("requests", messages=messages)
    outcomes = {}
    for into, watermark in (("whole", None), ("short", "5 milliseconds")):
        assert streamed("requests", path, into=into, watermark=watermark, maxSegmentsPerTrigger=1) == [10] * 4
        [outcomes[into]] = [row for row in latest("requests", into)[0] if "request_seq=0" in row]
    assert "outcome='undelivered'" in outcomes["whole"]
    # What came later than that came too late.
    assert "outcome='not_dispatched'" in outcomes["short"]


def test_what_is_needed_is_said_when_it_is_called(session, recorded):
    rows = session.readStream.format("trunkline").load(str(recorded("requests")))
    provider = session.conf.get(STORE)
    assert provider.endswith(".RocksDBStateStoreProvider")
    session.conf.set(STORE, provider.replace("RocksDB", "HDFSBacked"))
    try:
        with pytest.raises(LocalProtocolError, match=r"RocksDB.*spark\.configure\(builder\)"):
            spark.pair_requests(rows)
    finally:
        session.conf.set(STORE, provider)
    with pytest.raises(PySparkException, match="complete"):
        spark.pair_requests(rows).writeStream.format("memory").queryName("all").outputMode("complete").start()


def test_the_state_of_another_query_is_refused():
    state = SimpleNamespace(get=lambda: (Table("runs", 1).fold().state(),))
    bucket = Bucket(Table("gaps", 1))
    bucket.init(SimpleNamespace(getValueState=lambda *_: state))
    with pytest.raises(
        LocalProtocolError, match=r"another query than gaps, .* state of runs; choose another checkpointLocation"
    ):
        list(bucket.handleInputRows((0,), iter(()), None))


def test_keys_are_of_every_table():
    assert {name: spark.keys_of(name) for name in PROTOCOLS} == {
        "runs": ("capture_id", "sender", "ordinal"),
        "gaps": (),
        "requests": ("capture_id", "request_seq"),
        "topics": ("window", "seen_by", "topic"),
        "contents": ("capture_id", "seq"),
        "rollout": ("app_version_name", "endpoint_id", "config_id"),
    }
    with pytest.raises(LocalProtocolError, match="no table request: did you mean 'requests'"):
        spark.keys_of("request")


DRIVER = """
import json, sys
from trunkline import spark
path, table, checkpoint = sys.argv[1:]
session = spark.session("killed", master="local[2]", options={"spark.sql.shuffle.partitions": 4})
rows = session.readStream.format("trunkline").option("maxSegmentsPerTrigger", 1).load(path)
def write(rows, batch):
    rows.write.mode("overwrite").parquet(f"{table}/batch={batch}")
    print(json.dumps({"batch": batch}), flush=True)
query = spark.pair_requests(rows).writeStream.outputMode("update").trigger(availableNow=True)
query.option("checkpointLocation", checkpoint).foreachBatch(write).start().awaitTermination()
"""


# The driver is a JVM of its own.
@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_where_it_was(session, recorded, streamed, latest, tmp_path):
    path = recorded("requests")
    driver = [sys.executable, "-c", DRIVER, str(path), str(tmp_path / "table"), str(tmp_path / "table-checkpoint")]
    # With its JVM, which would go on for a moment.
    with subprocess.Popen(driver, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        for line_of_driver in process.stdout:
            if json.loads(line_of_driver)["batch"] == 2:
                os.killpg(process.pid, signal.SIGKILL)
                break
    until(lambda: process.poll() is not None)
    streamed("requests", path, maxSegmentsPerTrigger=3)
    assert latest("requests")[0] == plain(table("requests", session.read.parquet(str(path))))
