"""The runs that a capture keeps account of."""

import collections
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
import zmq

from peers import cdtp as wire
from peers.cdtp import BOR, DAT, EOR
from peers.processes import Child
from trunkline import capture, cdtp, report
from trunkline._native.analysis import Fold
from trunkline.errors import CaptureError

ANY = "tcp://127.0.0.1:*"
SCRIPT = Path(__file__).with_name("recorder.py")


def message(sequence, kind=DAT, name="Det", values=None):
    return [wire.header_b(sequence, kind, name), msgpack.packb(values or {})]


def batch2(kind, *records, name="Det"):
    return [b"\xa5CDTP\x02" + b"".join(map(msgpack.packb, (name, kind, list(records))))]


def summary(runs):
    return [(run.sender, run.ordinal, run.messages, run.missed, run.condition) for run in runs]


@pytest.mark.req("CDTP-21")
def test_a_run_says_what_came_of_it(record, tmp_path):
    messages = [
        message(0, BOR, values={"voltage": 1.5, "raw": b"\xff", "run_id": "configured"}),
        *(message(sequence) for sequence in (1, 2, 5, 4, 4)),
        message(6, EOR, values={"run_id": "run_1", "condition_code": 1, "time": msgpack.Timestamp(1, 2)}),
        message(0, BOR),
        message(1),
    ]
    recorder = record(messages)
    recorder.publish(timeout_s=20)
    first, second = capture.open(tmp_path).runs()
    info = capture.open(tmp_path).info()
    assert (first.capture_id, first.sender, first.ordinal, first.run_id) == (info.capture_id, "Det", 1, "run_1")
    assert (first.messages, first.missed, first.duplicates, first.out_of_order) == (5, 2, 1, 1)
    assert (first.condition, first.condition_code) == ("TAINTED|INCOMPLETE", 3)
    assert (first.bor_seq, first.eor_seq) == (0, 6)
    assert first.bytes == sum(len(frame) for frames in messages[:7] for frame in frames)
    assert info.first_received_at_ns == first.first_received_at_ns < first.last_received_at_ns
    assert first.config == {"voltage": 1.5, "raw": b"\xff", "run_id": "configured"}
    assert first.metadata["time"].to_ns() == 1_000_000_002
    assert (second.ordinal, second.run_id, second.config, second.metadata) == (2, None, {}, None)
    assert (second.condition, second.condition_code, second.eor_seq) == ("IN_PROGRESS", None, None)


@pytest.mark.req("CDTP-22")
def test_a_run_of_cdtp2(record, tmp_path):
    record(
        [
            batch2(BOR, [0, {"fw": "1"}, []], [1, {"run": 1}, []]),
            batch2(DAT, [1, {}, [b"x"]], [2, {}, []]),
            batch2(DAT, [4, {}, []]),
            batch2(EOR, [0, {}, []], [1, {"run_id": "r", "condition": "DEGRADED"}, []]),
        ]
    ).flush(timeout_s=20)
    (run,) = capture.open(tmp_path).runs()
    assert (run.run_id, run.messages, run.missed, run.condition) == ("r", 3, 1, "INCOMPLETE|DEGRADED")
    assert (run.config, run.metadata) == ({"run": 1}, {"run_id": "r", "condition": "DEGRADED"})


def test_runs_are_seen_while_they_go_on(record, tmp_path):
    recorder = record([message(0, BOR), message(1), message(0, BOR, "Other")])
    recorder.flush(timeout_s=20)
    assert list(tmp_path.glob("*.parquet")) == []
    recorded = capture.open(tmp_path)
    before = summary(recorded.runs())
    assert before == [("Det", 1, 1, 0, "IN_PROGRESS"), ("Other", 1, 0, 0, "IN_PROGRESS")]
    recorder.publish(timeout_s=20)
    assert summary(recorded.runs()) == before
    recorder.close()
    assert summary(recorded.runs()) == [("Det", 1, 1, 0, "ABORTED"), ("Other", 1, 0, 0, "ABORTED")]
    assert sorted(path.stem for path in (tmp_path / "_capture").iterdir()) == ["0000000000", "manifest"]


@pytest.mark.req("CDTP-21")
def test_runs_go_on_over_segments_and_recorders(record, tmp_path):
    stream = [message(0, BOR), *(message(sequence) for sequence in range(1, 21)), message(20, EOR)]
    for _ in range(2):
        for at in range(0, len(stream), 5):
            record(stream[at : at + 5], segment_bytes=60).close()
    runs = capture.open(tmp_path).runs()
    assert summary(runs) == [("Det", 1, 20, 0, "GOOD"), ("Det", 2, 20, 0, "GOOD")]
    assert len(capture.open(tmp_path).segments) > 8
    for path in (tmp_path / "_capture").glob("0*"):
        path.unlink()
    # What is not written down is counted from the rows.
    assert capture.open(tmp_path).runs() == runs
    record([message(0, BOR)]).close()
    assert summary(capture.open(tmp_path).runs())[2:] == [("Det", 3, 0, 0, "ABORTED")]


def test_a_run_of_a_copy_is_in_progress_until_its_sender_is_silent(record, tmp_path):
    recorder = record([message(0, BOR), message(1), message(0, BOR), message(1)])
    recorder.publish(timeout_s=20)
    # Whether the recorder goes on is not seen there.
    copy = shutil.copytree(tmp_path, tmp_path.parent / "copy", ignore=shutil.ignore_patterns(".*"))
    recorder.close()
    found = [(capture.open(path), path) for path in (copy, tmp_path)]
    for (opened, path), last in zip(found, ("IN_PROGRESS", "ABORTED"), strict=True):
        assert [run.condition for run in opened.runs()] == ["ABORTED", last]
        cdtp_section = capture.report(path, tmp_path.parent / "report.html").section(report.CdtpSection)
        assert cdtp_section.conditions == collections.Counter(["ABORTED", last])
        assert [run.condition for run in cdtp_section.runs] == ["ABORTED", last]
    tiles = {tile.title: (tile.value, tile.good) for tile in cdtp_section.tiles()}
    assert tiles["Bad runs"] == ("2", False)


def test_runs_outlive_their_rows(record, tmp_path):
    record([message(0, BOR), message(1, EOR), message(0, BOR)]).close()
    runs = capture.open(tmp_path).runs()
    for segment in capture.open(tmp_path).segments:
        segment.unlink()
    assert capture.open(tmp_path).runs() == runs


@pytest.mark.req("CDTP-21")
@pytest.mark.parametrize("segment_bytes", [1 << 30, 20_000])
def test_a_killed_recorder_loses_no_run(tmp_path, open_socket, segment_bytes):
    arguments = [sys.executable, "-W", "ignore", SCRIPT, tmp_path, str(segment_bytes), "0"]
    with Child(arguments, stdout=subprocess.PIPE, text=True) as process:
        push = open_socket(zmq.PUSH, connect=process.stdout.readline().strip())
        sent = 0
        for run in range(6):
            for frames in [message(0, BOR, values={"run": run}), *map(message, range(1, 400)), message(399, EOR)]:
                push.send_multipart(frames)
                sent += 1
        durable = 0
        while durable < 2000:
            durable = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    before = capture.open(tmp_path).runs()
    rows = capture.open(tmp_path).info().messages
    capture.recover(tmp_path)
    runs = capture.open(tmp_path).runs()
    assert runs == before
    whole = rows // 401
    assert [run.config for run in runs[:whole]] == [{"run": run} for run in range(whole)]
    assert {run.condition for run in runs[:whole]} == {"GOOD"}
    assert [run.condition for run in runs[whole:]] == ["ABORTED"] * (len(runs) - whole)


@pytest.mark.req("CDTP-23")
@pytest.mark.parametrize("release", wire.RELEASES)
def test_runs_of_released_peers_are_good(tmp_path, release):
    capture.import_(wire.DATA / f"{release}.jsonl.gz", tmp_path, segment_bytes=50_000)
    runs = capture.open(tmp_path).runs()
    assert len(runs) == (4 if "cdtp2" in release else 9)
    assert {(run.condition, run.missed, run.duplicates, run.out_of_order) for run in runs} == {("GOOD", 0, 0, 0)}
    digitizers = [run for run in runs if run.sender == "Digitizer.ch0"]
    assert [run.config["run"] for run in digitizers] == [1, 2]
    assert [run.run_id for run in digitizers] == (["run_1", "run_2"] if "cdtp2" in release else [None, None])


def test_an_import_goes_on_where_the_capture_ends(tmp_path):
    for _ in range(2):
        capture.import_(wire.DATA / "cdtp2-release-1.0.2.jsonl.gz", tmp_path, segment_bytes=20_000)
    runs = capture.open(tmp_path).runs()
    assert [run.ordinal for run in runs if run.sender == "Digitizer.ch1"] == [1, 2, 3, 4]
    assert {(run.condition, run.messages) for run in runs} == {("GOOD", 300)}


def test_runs_can_be_read_while_segments_come_and_go(tmp_path, open_socket):
    stream = [message(0, BOR), *(message(sequence) for sequence in range(1, 20)), message(19, EOR)] * 30
    with cdtp.Recorder(tmp_path, bind=ANY, segment_bytes=200, keep_bytes=20_000) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        seen = (0, 0)
        for count, frames in enumerate(stream, start=1):
            push.send_multipart(frames)
            if count % 15 == 0:
                runs = capture.open(tmp_path).runs()
                # What is known of the first ones goes as well, from the oldest on.
                ordinals = [run.ordinal for run in runs]
                assert ordinals == list(range(sum(ordinals[:1]), sum(ordinals[:1]) + len(runs)))
                assert {run.condition for run in runs[:-1]} <= {"GOOD"}
                now = max(((run.ordinal, run.messages) for run in runs), default=(0, 0))
                assert now >= seen
                seen = now
        recorder.wait(count=len(stream), timeout_s=20)
    runs = capture.open(tmp_path).runs()
    assert {(run.messages, run.condition) for run in runs} == {(19, "GOOD")}
    assert runs[-1].ordinal == 30
    assert len(runs) < 30
    assert 1 < len(capture.open(tmp_path).segments) < 40


def test_a_broken_record_of_runs_is_told(record, tmp_path):
    record([message(0, BOR)]).close()
    (path,) = (tmp_path / "_capture").glob("0*")
    path.write_text("junk")
    with pytest.raises(CaptureError, match=path.name):
        capture.open(tmp_path).runs()
    with pytest.raises(CaptureError, match=path.name):
        cdtp.Recorder(tmp_path, bind=ANY)


def test_a_run_has_the_fields_of_the_table():

    assert re.findall("`(.*?)`", Fold("runs").ddl()) == list(capture.Run.__dataclass_fields__)
