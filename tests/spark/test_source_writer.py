"""Captures that Spark writes are captures: whole, in order, and there at once or not at all."""

import os
import subprocess
import sys
import time

import pytest
from pyarrow import parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.functions import lit, rand
from pyspark.sql.pandas.types import from_arrow_schema

from peers.commands import release
from peers.recorded import AT, line
from trunkline import capture, cdtp, spark
from trunkline._locations import begun_name
from trunkline.errors import CaptureError
from trunkline.spark.source.writer import CaptureSink, CaptureWriter

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


def test_tasks_write_segments_and_only_rows_between_each_other_are_merged(session, add, tmp_path):
    rows = read(session, add("a", *range(1, 401)))
    for name, divided, segments in (
        ("ranges", rows.repartitionByRange(4, "capture_id", "seq"), 4),
        ("backwards", rows.coalesce(1).orderBy(rows.seq.desc()).coalesce(1), 1),
        ("mixed", rows.repartition(4), 1),
    ):
        save(divided, tmp_path / name)
        assert rows_of(tmp_path / name) == rows_of(tmp_path / "a"), name
        assert [row["seq"] for row in capture.open(tmp_path / name).rows()] == [*range(400)]
        found = capture.verify(tmp_path / name)
        assert (found.segments, found.unchecked, found.problems) == (segments, 0, ()), name
    # Readers that know nothing of captures have the same rows.
    parquet = session.read.parquet(str(tmp_path / "ranges"))
    assert parquet.exceptAll(read(session, tmp_path / "ranges")).count() == 0
    assert pq.read_table(tmp_path / "ranges", columns=["seq"])["seq"].to_pylist() == [*range(400)]
    assert [run.messages for run in capture.open(tmp_path / "ranges").runs()] == [
        run.messages for run in capture.open(tmp_path / "a").runs()
    ]


def test_what_follows_from_frames_is_found_again(session, every_protocol, tmp_path):
    rows = read(session, every_protocol)
    changed = rows.withColumns(
        {name: lit(7).cast(rows.schema[name].dataType) for name in ("n_head", "n_frames", "n_bytes")}
    )
    changed = changed.selectExpr("* except (error)", "cast(null AS string) AS error")
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        save(changed, tmp_path / "copy")
    finally:
        session.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert rows_of(tmp_path / "copy") == rows_of(every_protocol)


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


def test_one_that_is_recorded_is_not_replaced(session, add, tmp_path):
    rows = read(session, add("a", 1))
    with (
        cdtp.Recorder(tmp_path / "live", bind="tcp://127.0.0.1:*") as recorder,
        cdtp.Sender("D", connect=recorder.endpoints) as sender,
    ):
        sender.send(b"x")
        recorder.wait(count=1, timeout_s=20)
        with pytest.raises(PySparkException, match=f"is being written by process {os.getpid()}"):
            save(rows, tmp_path / "live", mode="overwrite")
        sender.send(b"y")
        recorder.wait(count=2, timeout_s=20)
    assert capture.open(tmp_path / "live").info().messages >= 2
    assert capture.verify(tmp_path / "live").problems == ()
    save(rows, tmp_path / "live", mode="overwrite")
    assert rows_of(tmp_path / "live") == rows_of(tmp_path / "a")


# A job that is killed before the capture is in its place, or once it is there.
KILLED = """
import os, sys
from pyspark.sql.pandas.types import from_arrow_schema
from trunkline import capture
from trunkline.spark.source import writer
table = capture.open(sys.argv[1]).read_all()
job = writer.CaptureWriter({"path": sys.argv[2]}, from_arrow_schema(capture.schema()), overwrite=True)
written = job.write(iter(table.to_batches()))
place, name = (writer._native, "replace") if sys.argv[3] == "before" else (writer, "end")
setattr(place, name, lambda *_, **__: os._exit(9))
job.commit([written])
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_one_of_both_is_there_at_any_moment_and_the_next_job_clears_away(session, add, tmp_path, moment):
    old, new = add("a", 1), add("b", 1, 2)
    save(read(session, old), tmp_path / "out")
    # What started the job ends with it.
    job = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", KILLED, str(new), str(tmp_path / "out"), moment]
    assert subprocess.run(job, check=False, timeout=120).returncode == 9
    assert len(rows_of(tmp_path / "out")) == {"before": 1, "after": 2}[moment]
    assert len([*tmp_path.glob(f"{begun_name(tmp_path / 'out')}*")]) == 1
    save(read(session, old), tmp_path / "out", mode="overwrite")
    assert len(rows_of(tmp_path / "out")) == 1
    assert [*tmp_path.glob(f"{begun_name(tmp_path / 'out')}*")] == []


def test_what_a_job_elsewhere_left_is_cleared_away_once_it_is_old(add, tmp_path):
    def writer(**options):
        return CaptureWriter({"path": str(tmp_path / "out")}, from_arrow_schema(capture.schema()), **options)

    # It was killed while the old capture had no name, on a file system that cannot exchange two.
    left = tmp_path / f"{begun_name(tmp_path / 'out')}00000000.1.00000000"
    left.mkdir()
    add("a", 1).rename(left / "replaced")
    running = writer(overwrite=True)
    written = running.write(iter(capture.open(left / "replaced").read_all().to_batches()))
    assert not (tmp_path / "out").exists()
    old = time.time() - 2 * 86_400
    for path in (*left.rglob("*"), left):
        os.utime(path, (old, old))
    with pytest.raises(CaptureError, match="is there already"):
        writer(overwrite=False)
    assert len(rows_of(tmp_path / "out")) == 1
    assert not left.exists()
    # One that runs is not disturbed by another.
    running.commit([written])
    assert len(rows_of(tmp_path / "out")) == 1
    assert [*tmp_path.glob(f"{begun_name(tmp_path / 'out')}*")] == []


def test_nothing_is_left_of_what_fails(session, add, tmp_path):
    rows = read(session, add("a", 1, 2, 3)).repartition(3)
    failing = rows.selectExpr("* except (endpoint)", "if(seq = 1, raise_error('no'), endpoint) AS endpoint")
    with pytest.raises(PySparkException, match="no"):
        save(failing, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "lines.jsonl"]


@pytest.mark.parametrize("job", [CaptureWriter, CaptureSink])
def test_a_task_that_outlives_its_job_leaves_nothing(add, tmp_path, job):
    rows = capture.open(add("a", 1, 2, 3)).read_all()
    options = {"path": str(tmp_path / "out")} | ({"txnAppId": "lab"} if job is CaptureSink else {})
    schema = from_arrow_schema(capture.schema())
    task = job(options, schema, overwrite=False)
    # A batch of a stream is ended by another process than the one that planned it.
    ending, batch = (job(options, schema, overwrite=False), [0]) if job is CaptureSink else (task, [])

    def ended_meanwhile():
        yield rows.slice(0, 1).to_batches()[0]
        ending.abort([None], *batch)
        yield rows.slice(1).to_batches()[0]

    with pytest.raises(CaptureError):
        task.write(ended_meanwhile())
    with pytest.raises(CaptureError, match="No such file or directory"):
        task.write(iter(rows.to_batches()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "lines.jsonl"]


def test_what_is_no_capture_is_refused(session, add, tmp_path):
    rows = read(session, add("a", 1))
    for given, options, words in (
        (rows.drop("payload"), {}, "the rows have no column payload"),
        (rows.withColumn("seq", rows.seq.cast("string")), {}, "the column seq is string, and must be bigint"),
        (spark.decode(rows, "cdtp"), {}, "not of decoded ones"),
        (rows.selectExpr("*", "1 AS lab", "2 AS of"), {}, r"a capture has no column lab: .* .drop\('lab', 'of'\)"),
        (rows.selectExpr("* except (protocol)", "cast(null AS string) AS protocol"), {}, "the column protocol is null"),
        (
            rows.selectExpr("* except (payload)", "array(cast(null AS binary)) AS payload"),
            {},
            "the column payload is null",
        ),
        (rows.withColumn("protocol", lit("smtp")), {}, 'unknown protocol "smtp"'),
        (rows, {"compression": "none"}, "there is no option 'compression' for writing"),
    ):
        with pytest.raises(PySparkException, match=words):
            save(given, tmp_path / "out", **options)
    with pytest.raises(PySparkException, match="captures are written to file systems of this machine"):
        rows.write.format("trunkline").mode("append").save("s3://lab/out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "lines.jsonl"]
