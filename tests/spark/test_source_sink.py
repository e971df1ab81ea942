"""A stream of rows of captures is added to a capture: each micro-batch at once, and once."""

import json
import shutil

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from peers.commands import release
from peers.recorded import AT, line
from trunkline import capture, cdtp

BATCHES = "spark.sql.streaming.checkpointLocation"


@pytest.fixture
def record(tmp_path):
    """Imports messages with these sequence numbers into a capture below `runs`, as one segment."""

    def record(name, *sequences):
        lines = tmp_path / "lines.jsonl"
        lines.write_text("".join(line(release(name, 0, number, b"x"), AT + number) for number in sequences))
        capture.import_(lines, tmp_path / "runs" / name)

    return record


@pytest.fixture
def sink(session, tmp_path):
    """Streams all there is below `runs` into the capture `out`, a segment in each micro-batch, unless told otherwise."""

    def sink(rows=lambda stream: stream, mode="append", per_batch=1, **options):
        stream = session.readStream.format("trunkline").options(recursive=True, maxSegmentsPerTrigger=per_batch)
        writer = rows(stream.load(str(tmp_path / "runs"))).writeStream.format("trunkline").outputMode(mode)
        writer = writer.options(**{"checkpointLocation": str(tmp_path / "checkpoint")} | options)
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        return query

    return sink


def sequences(path):
    return [message.sequence for message in capture.open(path).messages("cdtp")]


def redo(tmp_path):
    """Has the next start do the latest micro-batch again, as after a kill before Spark noted its end."""
    commits = tmp_path / "checkpoint/commits"
    latest = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    latest.unlink()
    (commits / f".{latest.name}.crc").unlink(missing_ok=True)


def manifest(path):
    text = (path / "_capture/manifest.parquet").read_bytes()
    return json.loads(text[4 : text.index(b"\n")])


def test_rows_of_a_stream_are_added_to_a_capture_in_order(sink, record, tmp_path):
    record("a", 1, 2, 3)
    sink()
    assert sequences(tmp_path / "out") == [1, 2, 3]
    for first in (4, 6, 8):
        record("a", first, first + 1)
    sink(lambda stream: stream.repartition(3))
    out = capture.open(tmp_path / "out")
    assert sequences(tmp_path / "out") == [*range(1, 10)]
    assert [row["seq"] for row in out.rows()] == [*range(9)]
    assert {row["capture_id"] for row in out.rows()} == {out.info().capture_id}
    assert capture.verify(tmp_path / "out") == capture.Verification(len(out.segments), 9, 0, ())
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_batch_that_is_done_again_is_dropped(sink, record, tmp_path):
    record("a", 1)
    record("a", 2, 3)
    sink()
    before = capture.open(tmp_path / "out").segments
    redo(tmp_path)
    sink()
    assert capture.open(tmp_path / "out").segments == before
    assert sequences(tmp_path / "out") == [1, 2, 3]


def test_a_batch_that_was_half_published_is_not_seen_and_then_replaced(session, sink, record, tmp_path):
    record("a", 1)
    sink()
    out, meta = tmp_path / "out", tmp_path / "out/_capture"
    shutil.copytree(meta, tmp_path / "before")
    record("a", *range(2, 102))
    sink(lambda stream: stream.repartitionByRange(3, "seq"))
    assert len(capture.open(out).segments) == 4
    # As if the driver had been killed once the segments had their names.
    shutil.copytree(tmp_path / "before", meta, dirs_exist_ok=True)
    redo(tmp_path)
    assert sequences(out) == [1]
    assert capture.verify(out).problems == ()
    read = session.read.format("trunkline").load(str(out))
    assert read.count() == 1
    sink(lambda stream: stream.coalesce(1))
    assert sequences(out) == [*range(1, 102)]
    assert len(capture.open(out).segments) == 2
    assert capture.verify(out).problems == ()


def test_a_stream_of_it_has_whole_batches(session, sink, record, tmp_path):
    record("a", 1)
    sink()
    stream = session.readStream.format("trunkline").load(str(tmp_path / "out"))
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "other")).trigger(availableNow=True)
    writer.start(str(tmp_path / "table")).awaitTermination()
    shutil.copytree(tmp_path / "out/_capture", tmp_path / "before")
    record("a", 2, 3, 4)
    sink(lambda stream: stream.repartitionByRange(3, "seq"))
    whole = (tmp_path / "out/_capture/manifest.parquet").read_bytes()
    (tmp_path / "out/_capture/manifest.parquet").write_bytes((tmp_path / "before/manifest.parquet").read_bytes())
    writer.start(str(tmp_path / "table")).awaitTermination()
    assert session.read.parquet(str(tmp_path / "table")).count() == 1
    (tmp_path / "out/_capture/manifest.parquet").write_bytes(whole)
    writer.start(str(tmp_path / "table")).awaitTermination()
    table = session.read.parquet(str(tmp_path / "table")).orderBy("seq")
    assert [row.seq for row in table.collect()] == [0, 1, 2, 3]


def test_another_query_a_recorder_and_a_copy_go_on_with_it(sink, record, tmp_path):
    record("a", 1, 2)
    sink()
    with (
        cdtp.Recorder(tmp_path / "out", bind="tcp://127.0.0.1:*") as recorder,
        cdtp.Sender("D", header="A", connect=recorder.endpoints) as sender,
    ):
        sender.send(b"x")
        recorder.wait(count=1, timeout_s=20)
    recorded = sequences(tmp_path / "out")[2:]
    # A query with another checkpoint reads all from the start.
    sink(checkpointLocation=str(tmp_path / "second"), per_batch=9)
    redo(tmp_path)
    sink()
    assert sequences(tmp_path / "out") == [1, 2, *recorded, 1, 2]
    assert len(manifest(tmp_path / "out")["batches"]) == 2
    assert capture.verify(tmp_path / "out").problems == ()
    capture.ship(tmp_path / "out", tmp_path / "copy")
    assert capture.verify(tmp_path / "copy").problems == ()
    assert sequences(tmp_path / "copy") == sequences(tmp_path / "out")
    capture.compact(tmp_path / "out", target_bytes=1 << 20)
    assert sequences(tmp_path / "out") == [1, 2, *recorded, 1, 2]
    assert [run.sender for run in capture.open(tmp_path / "out").runs()] == ["a", "D"]


def test_a_query_may_be_named_by_its_user(sink, record, tmp_path):
    record("a", 1)
    sink(txnAppId="lab")
    assert manifest(tmp_path / "out")["batches"] == {"lab": 0}
    # Its numbers begin anew with a new checkpoint: they are known.
    sink(txnAppId="lab", checkpointLocation=str(tmp_path / "second"))
    assert sequences(tmp_path / "out") == [1]


def test_a_capture_is_not_added_to_itself(session, record, tmp_path):
    record("a", 1, 2)
    path = str(tmp_path / "runs/a")
    stream = session.readStream.format("trunkline").load(path)
    writer = stream.writeStream.format("trunkline").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="the query reads this capture: write to another one"):
        writer.trigger(availableNow=True).start(path).awaitTermination()
    assert sequences(path) == [1, 2]


def test_what_is_no_stream_of_rows_is_refused(session, sink, record, tmp_path):
    record("a", 1)
    counted = "rows of a capture are not replaced: leave the query's outputMode at append"
    for rows, mode, options, words in (
        (lambda stream: stream.groupBy("protocol").count(), "complete", {}, counted),
        (lambda stream: stream.drop("payload"), "append", {}, "the rows have no column payload"),
        (lambda stream: stream, "append", {"compression": "none"}, "there is no option 'compression' for writing"),
    ):
        with pytest.raises(StreamingQueryException, match=words):
            sink(rows, mode, **options)
        shutil.rmtree(tmp_path / "checkpoint")
    session.conf.set(BATCHES, str(tmp_path / "checkpoints"))
    try:
        stream = session.readStream.format("trunkline").load(str(tmp_path / "runs/a"))
        with pytest.raises(PySparkException, match="name the query's checkpoint"):
            stream.writeStream.format("trunkline").trigger(availableNow=True).start(
                str(tmp_path / "out")
            ).awaitTermination()
    finally:
        session.conf.unset(BATCHES)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes").touch()
    with pytest.raises(StreamingQueryException, match="is not a capture: it contains notes"):
        sink()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["notes"]
