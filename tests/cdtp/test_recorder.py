"""The recording role, fed by raw PUSH sockets; what it wrote is read by pyarrow alone."""

import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pyarrow.parquet as pq
import pytest
import zmq

from peers import cdtp as wire
from peers.waiting import until
from trunkline import capture, cdtp
from trunkline.errors import CaptureError, ClosedError, TimeoutError

ANY = "tcp://127.0.0.1:*"


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "capture"


def rows(directory):
    return pq.read_table(directory).sort_by("seq").to_pylist()


def message(row):
    return [*row["envelope"], row["header"], *row["payload"]]


@pytest.mark.req("CDTP-17", "CDTP-23")
def test_records_everything_bit_for_bit(directory, open_socket):
    sent = [frames for release in wire.RELEASES for frames in wire.recorded(release)]
    sent.insert(7, [b"no header"])
    with cdtp.Recorder(directory, bind=ANY) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for frames in sent:
            push.send_multipart(frames)
        assert recorder.wait(count=len(sent), timeout_s=20) == "count"
        endpoint = recorder.endpoints[0]
    recorded = rows(directory)
    assert [message(row) for row in recorded] == sent
    assert [row["seq"] for row in recorded] == list(range(len(sent)))
    assert [row["error"] for row in recorded] == [None] * 7 + ["bad_header"] + [None] * (len(sent) - 8)
    assert {row["endpoint"] for row in recorded} == {endpoint}
    assert {(row["protocol"], row["direction"]) for row in recorded} == {("cdtp", "in")}
    stamps = [row["received_at_ns"] for row in recorded]
    assert stamps == sorted(stamps)
    stats = recorder.stats
    assert (stats.received, stats.recorded, stats.durable) == (len(sent),) * 3
    assert stats.dropped == {"bad_header": 1}
    assert stats.segments == 1


def test_a_drop_says_where_it_came_in_and_which_row_it_is(directory, open_socket, caplog):
    dropped = []
    with cdtp.Recorder(directory, bind=ANY, on_drop=dropped.append) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for frames in ([wire.header_s(), b"x"], [b"no header"]):
            push.send_multipart(frames)
        recorder.wait(count=2, timeout_s=20)
        until(lambda: dropped)
        endpoint = recorder.endpoints[0]
    (one,) = dropped
    assert (one.kind, one.endpoint, one.seq, one.peer) == ("bad_header", endpoint, 1, None)
    until(lambda: caplog.records)
    assert caplog.messages[0].endswith(f", at {endpoint}, row 1")
    where = {"endpoint": endpoint, "seq": 1, "peer": None, "user": None, "address": one.address}
    assert caplog.records[0].fields == {"kind": "bad_header", **where}


def test_a_drop_of_what_is_not_recorded_has_no_row(open_socket):
    dropped = []
    with cdtp.Receiver(bind=[ANY, ANY], on_drop=dropped.append) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[1])
        for frames in ([b"no header"], [wire.header_s(), b"x"]):
            push.send_multipart(frames)
        receiver.receive(timeout_s=20)
        endpoint = receiver.endpoints[1]
    assert [(one.endpoint, one.seq) for one in dropped] == [(endpoint, None)]


def record_in_segments(directory, open_socket, messages, **options):
    """Records each message in a segment of its own, publishing after each."""
    with cdtp.Recorder(directory, bind=ANY, **options) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for count, frames in enumerate(messages, start=1):
            push.send_multipart(frames)
            recorder.wait(count=count, timeout_s=20)
            recorder.publish(timeout_s=20)


def test_keeps_so_many_bytes(directory, open_socket):
    messages = [[wire.header_s(), bytes(5000)] for _ in range(8)]
    record_in_segments(directory, open_socket, messages)
    files = sorted(directory.glob("*.parquet"))
    # What is written down beside the segments counts too.
    most = sum(file.stat().st_size for file in [*files[-3:], *directory.glob("_capture/0*.parquet")])
    # What is too much is deleted when a recorder starts, and whenever it publishes.
    record_in_segments(directory, open_socket, messages[:2], keep_bytes=most + 100)
    kept = rows(directory)
    assert [row["seq"] for row in kept] == [7, 8, 9]
    assert sum(file.stat().st_size for file in directory.glob("*.parquet")) <= most + 100
    record_in_segments(directory, open_socket, messages[:2], keep_bytes=0)
    assert [row["seq"] for row in rows(directory)] == [11]


def test_keeps_so_many_days(directory, open_socket):
    record_in_segments(directory, open_socket, [[wire.header_s(), b"x"]] * 4)
    now = time.time()
    for days, file in zip([4, 2.5, 1, 0], sorted(directory.glob("*.parquet")), strict=True):
        os.utime(file, (now - days * 86_400,) * 2)
    record_in_segments(directory, open_socket, [[wire.header_s(), b"x"]], keep_days=2)
    assert [row["seq"] for row in rows(directory)] == [2, 3, 4]


@pytest.mark.req("CDTP-21")
def test_a_run_that_is_open_keeps_its_rows(directory, open_socket):
    run = [
        [wire.header_b(0, wire.BOR), b"\x80"],
        [wire.header_b(1), b"x"],
        [wire.header_b(2), b"x"],
        [wire.header_b(2, wire.EOR), b"\x80"],
    ]
    record_in_segments(directory, open_socket, [[wire.header_s("Other"), b"x"], *run[:3]], keep_days=0)
    assert [row["seq"] for row in rows(directory)] == [1, 2, 3]
    record_in_segments(directory, open_socket, run[3:], keep_days=0)
    assert [row["seq"] for row in rows(directory)] == [4]
    (known,) = capture.open(directory).runs()
    assert (known.messages, known.condition, known.bor_seq, known.eor_seq) == (2, "GOOD", 1, 4)


@pytest.mark.parametrize(
    ("bounds", "level"),
    [
        ({"warn_free_bytes": 1 << 60, "critical_free_bytes": 0}, logging.WARNING),
        ({"warn_free_bytes": 0, "critical_free_bytes": 1 << 60}, logging.CRITICAL),
        ({"warn_free_bytes": 0, "critical_free_bytes": 0}, None),
    ],
)
def test_little_space_is_told_once(directory, open_socket, caplog, bounds, level):
    record_in_segments(directory, open_socket, [[wire.header_s(), b"x"]] * 3, **bounds)

    def warned():
        return [(record.name, record.levelno) for record in caplog.records if "GiB left" in record.getMessage()]

    until(lambda: warned() or level is None)
    assert warned() == ([] if level is None else [("trunkline.cdtp", level)])


def test_reads_no_more_after_the_count(directory, open_socket):
    with cdtp.Recorder(directory, bind=ANY) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        recorder.wait(count=0)
        for sequence in range(1000):
            push.send_multipart([wire.header_b(sequence)])
        assert recorder.wait(count=10, timeout_s=20) == "count"
    assert len(rows(directory)) == 10


def test_waits_for_quiet(directory, open_socket):
    with cdtp.Recorder(directory, bind=ANY) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        push.send_multipart([wire.header_b(1)])
        assert recorder.wait(idle_s=0.5, timeout_s=20) == "idle"
        with pytest.raises(TimeoutError):
            recorder.wait(count=2, timeout_s=0.05)
        closing = threading.Timer(0.05, recorder.close)
        closing.start()
        with pytest.raises(ClosedError):
            recorder.wait(count=2)
        closing.join()


def test_flush_makes_durable_and_publish_visible(directory, open_socket):
    with cdtp.Recorder(directory, bind=ANY) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        push.send_multipart([wire.header_b(1)])
        recorder.wait(count=1, timeout_s=20)
        recorder.flush(timeout_s=20)
        assert (recorder.stats.durable, recorder.stats.segments) == (1, 0)
        recorder.publish(timeout_s=20)
        assert recorder.stats.segments == 1
        assert len(rows(directory)) == 1


def test_stopping_reads_what_has_arrived(directory):
    with cdtp.Recorder(directory, bind=ANY) as recorder:
        wire.send_all(recorder.endpoints[0], ([wire.header_b(sequence)] for sequence in range(20_000)))
    assert [row["header"] for row in rows(directory)] == [wire.header_b(sequence) for sequence in range(20_000)]


def test_a_later_run_goes_on_where_the_first_ended(directory, open_socket):
    for sequence in range(2):
        with cdtp.Recorder(directory, bind=ANY) as recorder:
            push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
            push.send_multipart([wire.header_b(sequence)])
            recorder.wait(count=1, timeout_s=20)
    recorded = rows(directory)
    assert [row["seq"] for row in recorded] == [0, 1]
    assert len({row["capture_id"] for row in recorded}) == 1


def test_a_directory_has_one_recorder(directory):
    with cdtp.Recorder(directory, bind=ANY), pytest.raises(CaptureError, match="is being written"):
        cdtp.Recorder(directory, bind=ANY)


def test_says_when_the_directory_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(CaptureError, match="file"):
        cdtp.Recorder(tmp_path / "file" / "capture", bind=ANY)


def test_a_full_disk_ends_the_recorder_and_keeps_what_was_durable(directory, open_socket):
    script = """
import resource, signal, sys
from trunkline import cdtp
from trunkline.errors import CaptureError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
recorder = cdtp.Recorder(sys.argv[1], bind="tcp://127.0.0.1:*")
print(recorder.endpoints[0], flush=True)
try:
    recorder.wait(count=10_000)
except CaptureError as error:
    print(error, recorder.stats.durable, sep="\\n", flush=True)
try:
    recorder.close()
except CaptureError:
    pass
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    push = open_socket(zmq.PUSH, connect=process.stdout.readline().strip(), sndtimeo=100)
    sequence = 0
    # However long the disk keeps the recorder waiting.
    while process.poll() is None:
        with suppress(zmq.Again):
            push.send_multipart([wire.header_b(sequence), sequence.to_bytes(4) * 250])
            sequence += 1
    out, err = process.communicate(timeout=30)
    assert err == ""
    reason, durable = out.splitlines()
    assert str(directory) in reason
    from trunkline import capture

    capture.recover(directory)
    headers = [row["header"] for row in rows(directory)] if int(durable) else []
    assert headers == [wire.header_b(sequence) for sequence in range(len(headers))]
    assert len(headers) >= int(durable)


async def test_asyncio_records_as_blocking_does(directory, open_socket):
    async with cdtp.AsyncRecorder(directory, bind=ANY) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for sequence in range(100):
            push.send_multipart([wire.header_b(sequence)])
        assert await recorder.wait(count=100, timeout_s=20) == "count"
        await recorder.flush(timeout_s=20)
        assert recorder.stats.durable == 100
        await recorder.publish(timeout_s=20)
        assert await recorder.wait(idle_s=0.05, timeout_s=20) == "idle"
        with pytest.raises(TimeoutError):
            await recorder.wait(count=101, timeout_s=0.05)
    assert len(rows(directory)) == 100


def test_a_wait_whose_time_passes_as_it_begins_ends_by_its_timeout(tmp_path, monkeypatch):
    """A command that reports its counters waits again and again: once in millions its time was over between two looks."""
    with cdtp.Recorder(tmp_path / "capture", bind=ANY) as recorder:
        ticks = itertools.chain([0.0, 0.0, 0.9], itertools.count(1.5, 1.0))
        monkeypatch.setattr("trunkline.cdtp.recorder.time.monotonic", lambda: next(ticks))
        with pytest.raises(TimeoutError):
            recorder.wait(timeout_s=1.0)
