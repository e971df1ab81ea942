"""What belongs together on streams: at the end the last row of each key is that of the batch, however the stream was cut."""

import json
import os
import re
import signal
import subprocess
import sys
from random import Random
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from peers.mtl import confirm, content
from peers.together import ALPHABET, record, reply, request
from peers.waiting import until
from trunkline import spark
from trunkline._arrow import to_bytes
from trunkline._native.analysis import Fold
from trunkline.errors import LocalProtocolError
from trunkline.spark.related.bounds import BUCKETS, MAX_BYTES, Bounds, spread
from trunkline.spark.related.bundles import Step, in_order
from trunkline.spark.related.losses import Losses
from trunkline.spark.related.stream import Bucket

PROTOCOLS = {name: Fold(name).protocol for name in Fold.NAMES}
SIXTEEN = Bounds(None, 16)
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
        chosen = messages or Random(seed).choices(ALPHABET[name], k=count)
        return record(tmp_path / into, PROTOCOLS[name], chosen, first)

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
        observed = [each["observedMetrics"] for each in query.recentProgress if each["numInputRows"]]
        streamed.lost = [tuple(each[f"trunkline.{name}"]) for each in observed]
        return [each[f"trunkline.{name}.input"]["messages"] for each in observed]

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


def test_bundles_are_read_one_after_the_other_in_recorded_order(monkeypatch):
    """In memory, and from a file."""
    numbers = list(range(0, 400, 10))
    captures = [(capture_id, first) for capture_id in ("a", "b") for first in numbers]
    bundles = [
        pa.record_batch({"capture_id": [capture_id] * 10, "seq": range(first, first + 10), "record": [0] * 10})
        for capture_id, first in captures
    ]
    # One that begins before another has ended is read with it.
    bundles.append(pa.record_batch({"capture_id": ["b"], "seq": [395], "record": [1]}))
    Random(5).shuffle(bundles)
    columns = {name: [bundle[name][0].as_py() for bundle in bundles] for name in ("capture_id", "seq", "record")}
    frames = [pd.DataFrame({**columns, "rows": [*map(to_bytes, bundles)]})]
    for held in (1 << 20, 100):
        monkeypatch.setattr("trunkline.spark.related.bundles._HELD_BYTES", held)
        found = list(in_order(frames))
        assert [batch.num_rows for batch in found] == [10] * 79 + [11]
        assert [(batch["capture_id"][0].as_py(), batch["seq"][0].as_py()) for batch in found] == captures
        assert found[-1]["seq"].to_pylist() == [*range(390, 396), *range(395, 400)]


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
    state = SimpleNamespace(get=lambda: (Step("runs", 1, SIXTEEN).fold().state(),))
    bucket = Bucket(Step("gaps", 1, SIXTEEN), Losses("gaps", None, None))
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


@pytest.fixture
def option(session):
    """Sets options of the session until the end of a test."""
    names = []

    def option(name, value):
        names.append(name)
        session.conf.set(name, value)

    yield option
    for name in names:
        session.conf.unset(name)


def fates(rows):
    return [word for row in rows for word in ("open", "evicted", "confirmed") if f"fate='{word}'" in row]


def test_what_a_bucket_has_no_room_for_is_said(session, recorded, streamed, latest, option, caplog):
    count = 200
    out = [("out", b"r", content(n, "jobs", b"x%d" % n)) for n in range(1, count + 1)]
    settled = [("in", b"r", confirm(n)) for n in range(1, count + 1)]
    path = recorded("contents", messages=[*out, *settled])
    batch = table("contents", session.read.parquet(str(path)))
    assert streamed("contents", path, maxRowsPerTrigger=100) == [100] * 4
    assert latest("contents")[0] == plain(batch)
    assert streamed.lost == [(0, 0)] * 4
    assert not caplog.records
    option(MAX_BYTES, "40k")
    assert streamed("contents", path, into="small", maxRowsPerTrigger=100) == [100] * 4
    found = fates(latest("contents", "small")[0])
    evicted = found.count("evicted")
    assert 50 < evicted < 150
    assert found.count("confirmed") == count - evicted
    assert tuple(map(sum, zip(*streamed.lost, strict=True))) == (evicted, evicted)
    [record] = caplog.records
    assert re.search(r"contents: .* rows let go unsettled .*fate = 'evicted'.*41.0 kB", record.getMessage())
    # A batch says it too, once.
    caplog.clear()
    option("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    found = fates(plain(table("contents", session.read.parquet(str(path)))))
    assert found.count("evicted") + found.count("confirmed") == count
    assert found.count("evicted") > 50
    until(lambda: len(caplog.records) == 1)


def test_a_checkpoint_keeps_its_number_of_buckets(session, recorded, streamed, latest, option):
    path = recorded("requests", count=60)
    streamed("requests", path)
    # Spark keeps the partitions that it began with.
    option("spark.sql.shuffle.partitions", 5)
    recorded("requests", count=20, seed=2, first=60)
    streamed("requests", path)
    assert latest("requests")[0] == plain(table("requests", session.read.parquet(str(path))))
    option(BUCKETS, 7)
    recorded("requests", count=10, seed=3, first=80)
    with pytest.raises(StreamingQueryException, match=r"of one of 2 buckets, one for each partition; .* or not at all"):
        streamed("requests", path)
    streamed("requests", path, into="seven")
    option(BUCKETS, "many")
    with pytest.raises(LocalProtocolError, match=r"spark\.trunkline\.buckets: expected a whole number"):
        spark.pair_requests(session.readStream.format("trunkline").load(str(path)))


def test_a_checkpoint_whose_buckets_are_numbered_otherwise_is_refused_until_it_is_said(
    session, recorded, streamed, latest, option
):
    """As those of before version 6, of as many buckets as there are partitions."""
    path = recorded("requests", count=60)
    option(BUCKETS, 2)
    streamed("requests", path)
    session.conf.unset(BUCKETS)
    recorded("requests", count=20, seed=2, first=60)
    with pytest.raises(StreamingQueryException, match=r"of one of 2 buckets; .* set spark\.trunkline\.buckets"):
        streamed("requests", path)
    option(BUCKETS, 2)
    streamed("requests", path)
    assert latest("requests")[0] == plain(table("requests", session.read.parquet(str(path))))
    session.conf.unset(BUCKETS)
    streamed("requests", path, into="each")
    option(BUCKETS, 2)
    recorded("requests", count=20, seed=3, first=80)
    with pytest.raises(StreamingQueryException, match="of one of 2 buckets, one for each partition"):
        streamed("requests", path, into="each")


@pytest.mark.parametrize("partitions", [1, 2, 3, 16, 200])
def test_each_partition_has_a_bucket(session, partitions):
    numbers = session.createDataFrame([(number,) for number in spread(partitions)], "number int")
    found = numbers.select(F.expr(f"pmod(hash(number), {partitions})")).collect()
    assert [row[0] for row in found] == [*range(partitions)]


def test_all_partitions_have_contents_of_one_capture(session, recorded, tmp_path):
    sent = [("out", b"r%d" % n, content(1, "jobs", b"x" * n)) for n in range(40)]
    path = recorded("contents", messages=sent)
    rows = session.readStream.format("trunkline").load(str(path))
    given = table("contents", rows).withColumn("task", F.spark_partition_id())
    writer = given.writeStream.outputMode("update").trigger(availableNow=True).format("memory").queryName("tasks")
    writer.option("checkpointLocation", str(tmp_path / "tasks")).start().awaitTermination()
    assert session.table("tasks").select("task").distinct().count() == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"spark.master": "local[2]", "spark.driver.memory": "2g"}, 128 << 20),
        ({"spark.master": "local"}, 128 << 20),
        ({"spark.master": "yarn", "spark.executor.memory": "4g", "spark.executor.cores": "4"}, 128 << 20),
        ({"spark.master": "k8s://https://x", "spark.executor.memory": "64g"}, 256 << 20),
        ({"spark.master": "local[64]", "spark.driver.memory": "512m"}, 16 << 20),
        ({MAX_BYTES: "3m"}, 3 << 20),
        ({MAX_BYTES: "1000"}, 1000),
    ],
)
def test_a_bucket_has_an_eighth_of_the_memory_of_the_tasks_at_a_time(options, expected):
    session = SimpleNamespace(conf=options)
    assert Bounds.of(session, is_streaming=True).max_bytes == expected
    assert Bounds.of(session, is_streaming=False).max_bytes == (expected if MAX_BYTES in options else None)


def test_a_bound_that_is_no_size_is_refused():
    with pytest.raises(
        LocalProtocolError, match=r"spark\.trunkline\.maxBytesPerBucket: expected a size such as 64m, not 'much'"
    ):
        Bounds.of(SimpleNamespace(conf={MAX_BYTES: "much"}), is_streaming=False)


DRIVER = """
import json, sys
from trunkline import spark
path, table, checkpoint = sys.argv[1:]
session = spark.session("killed", master="local[2]", options={"spark.sql.shuffle.partitions": 2})
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
    path = recorded("requests", count=60)
    driver = [sys.executable, "-c", DRIVER, str(path), str(tmp_path / "table"), str(tmp_path / "table-checkpoint")]
    # With its JVM, which would go on for a moment.
    with subprocess.Popen(driver, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        for line_of_driver in process.stdout:
            if json.loads(line_of_driver)["batch"] == 1:
                os.killpg(process.pid, signal.SIGKILL)
                break
    until(lambda: process.poll() is not None)
    streamed("requests", path, maxSegmentsPerTrigger=3)
    assert latest("requests")[0] == plain(table("requests", session.read.parquet(str(path))))
