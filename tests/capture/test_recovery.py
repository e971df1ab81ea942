"""What a recorder leaves that was killed, that ran out of disk, or that is still there."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zmq

from peers import cdtp as wire
from trunkline import capture, cdtp
from trunkline.errors import CaptureError

ANY = "tcp://127.0.0.1:*"
SCRIPT = Path(__file__).with_name("recorder.py")


class Sending:
    """A raw sender of numbered messages that goes on until it is stopped."""

    def __init__(self, context, endpoint, first):
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, args=[context, endpoint, first])
        self._thread.start()

    def _send(self, context, endpoint, number):
        push = context.socket(zmq.PUSH)
        push.linger = 0
        push.sndtimeo = 100
        push.connect(endpoint)
        while not self._stop.is_set():
            try:
                push.send_multipart([wire.header_b(number), bytes(100)])
                number += 1
            except zmq.Again:
                pass
        push.close()

    def stop(self):
        self._stop.set()
        self._thread.join()


def start(path, segment_bytes=1 << 30, file_bytes=0):
    arguments = [sys.executable, "-W", "ignore", SCRIPT, path, str(segment_bytes), str(file_bytes)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def numbers(path):
    """The numbers that the published rows carry, `seq` and `segment` held to be in order."""
    table = pq.read_table(path)
    assert table["seq"].to_pylist() == list(range(table.num_rows))
    assert table["segment"].to_pylist() == sorted(table["segment"].to_pylist())
    assert len(set(table["capture_id"].to_pylist())) == 1
    return [wire.unpack(header)[3] for header in table["header"].to_pylist()]


@pytest.mark.parametrize("segment_bytes", [1 << 30, 200_000])
def test_a_killed_recorder_loses_nothing_durable(tmp_path, context, segment_bytes):
    recorded = 0
    for reports in range(1, 5):
        with start(tmp_path, segment_bytes) as process:
            sending = Sending(context, process.stdout.readline().strip(), first=recorded)
            for _ in range(reports):
                durable = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            sending.stop()
            *_, durable = [durable, *map(int, process.stdout.read().split())]
        before = capture.open(tmp_path).info().messages
        mended = capture.recover(tmp_path)
        assert numbers(tmp_path) == list(range(before))
        assert before >= recorded + durable
        recorded = before
        assert mended.segment is None or mended.rows > 0
        assert capture.recover(tmp_path) == capture.Recovery(rows=0, cut_bytes=0, segment=None)


def test_the_next_recorder_recovers_by_itself(tmp_path, context):
    with start(tmp_path) as process:
        sending = Sending(context, process.stdout.readline().strip(), first=0)
        durable = int(process.stdout.readline())
        process.kill()
        sending.stop()
    with cdtp.Recorder(tmp_path, bind=ANY):
        left = len(numbers(tmp_path))
    assert left >= durable


def test_a_torn_tail_is_cut(tmp_path, context):
    with start(tmp_path) as process:
        sending = Sending(context, process.stdout.readline().strip(), first=0)
        process.stdout.readline()
        process.kill()
        sending.stop()
    (journal,) = tmp_path.glob(".*.journal")
    whole = capture.open(tmp_path).info().messages
    with journal.open("ab") as file:
        file.write(bytes(100))
    assert capture.open(tmp_path).info().messages == whole
    mended = capture.recover(tmp_path)
    assert mended.rows == whole
    assert mended.cut_bytes >= 100
    assert numbers(tmp_path) == list(range(whole))


def test_a_full_disk_ends_the_recorder_and_keeps_what_was_durable(tmp_path, context):
    with start(tmp_path, file_bytes=2_000_000) as process:
        sending = Sending(context, process.stdout.readline().strip(), first=0)
        said = process.stdout.read().splitlines()
        sending.stop()
        assert process.wait(20) == 0
    *durable, failure = said
    assert failure.startswith("failed:")
    assert "file size limit" in failure
    assert ".journal" in failure
    assert int(durable[-1]) >= 500
    left = capture.open(tmp_path).info().messages
    assert left >= int(durable[-1])
    assert capture.recover(tmp_path).rows == left
    assert numbers(tmp_path) == list(range(left))


def test_a_capture_has_one_recorder(tmp_path):
    holder = rf"being written by process {os.getpid()}"
    with cdtp.Recorder(tmp_path, bind=ANY):
        with pytest.raises(CaptureError, match=holder):
            cdtp.Recorder(tmp_path, bind=ANY)
        with pytest.raises(CaptureError, match=holder):
            capture.recover(tmp_path)
    cdtp.Recorder(tmp_path, bind=ANY).close()


def test_there_is_nothing_to_recover_where_no_capture_is(tmp_path):
    with pytest.raises(CaptureError, match="contains no capture"):
        capture.recover(tmp_path)
    with pytest.raises(CaptureError, match="does not exist"):
        capture.recover(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_an_error(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(CaptureError, match="file"):
        cdtp.Recorder(in_the_way, bind=ANY)
