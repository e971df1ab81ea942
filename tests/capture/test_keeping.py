"""How much of a capture is kept: messages of strangers do not change it."""

import json
import logging
import random
import re
import stat
import subprocess
import sys

import pytest
import zmq

from peers import cdtp as wire
from peers.waiting import until
from trunkline import capture, cdtp
from trunkline._text import counted

ANY = "tcp://127.0.0.1:*"
NOISE = random.Random(7).randbytes(50_000)
LARGE_MAP = b"\x81\xa1k\xc5\xf0\x00" + bytes(0xF000)


@pytest.fixture
def recording(tmp_path, open_socket):
    """A recorder, and what sends it messages and waits until they are published."""
    recorders = []

    def start(**options):
        recorder = cdtp.Recorder(tmp_path / "capture", bind=ANY, **options)
        recorders.append(recorder)
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])

        def publish(*messages):
            before = recorder.stats.recorded
            for frames in messages:
                push.send_multipart(frames)
            recorder.wait(count=before + len(messages), timeout_s=20)
            recorder.publish(timeout_s=20)

        publish.recorder = recorder
        return publish

    yield start
    for recorder in recorders:
        recorder.close()


def taken(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def logged(caplog, text):
    return [record for record in caplog.records if text in record.getMessage()]


def test_a_run_that_never_ends_holds_back_a_tenth(recording, tmp_path, caplog):
    publish = recording(keep_bytes=300_000)
    publish([wire.header_b(0, wire.BOR, name="stranger"), b"\x80"])
    for _ in range(20):
        publish([wire.header_s(), NOISE])
    assert taken(tmp_path / "capture") < 330_000
    until(lambda: logged(caplog, "a run has lasted so long"))
    (record,) = logged(caplog, "a run has lasted so long")
    assert (record.name, record.levelno) == ("trunkline.cdtp", logging.WARNING)
    (run,) = capture.open(tmp_path / "capture").runs()
    assert (run.sender, run.condition) == ("stranger", "IN_PROGRESS")


def test_maps_are_written_down_once_and_count(recording, tmp_path):
    publish = recording()
    publish(*([wire.header_b(0, wire.BOR, name=f"s{number}"), LARGE_MAP] for number in range(50)))
    notes = tmp_path / "capture/_capture"
    before = taken(notes)
    assert before > 50 * len(LARGE_MAP)
    for _ in range(3):
        publish([wire.header_b(0, wire.BOR, name="s0"), b"\x80"])
    assert taken(notes) < before + 100_000
    runs = capture.open(tmp_path / "capture").runs()
    assert [len(run.config.get("k", b"")) for run in runs] == [0xF000] * 50 + [0] * 3


def test_what_is_written_beside_segments_counts(recording, tmp_path):
    publish = recording(keep_bytes=1_000_000)
    for _ in range(4):
        publish(*([wire.header_b(0, wire.BOR, name=f"s{number}"), LARGE_MAP] for number in range(5)))
        publish(*([wire.header_b(1, wire.EOR, name=f"s{number}"), LARGE_MAP] for number in range(5)))
    assert taken(tmp_path / "capture") < 1_500_000
    assert len(capture.open(tmp_path / "capture").runs()) < 20


def test_a_stranger_with_many_names_keeps_nobody_out(recording, tmp_path, caplog):
    publish = recording()
    publish(*([wire.header_b(0, wire.EOR, name=f"s{number}"), b"\x80"] for number in range(1000)))
    assert not logged(caplog, "more senders than runs are followed of")
    publish(
        [wire.header_b(0, wire.BOR), b"\x80"],
        *([wire.header_b(number), b"x"] for number in range(1, 11)),
        [wire.header_b(10, wire.EOR), b"\x80"],
        [wire.header_b(0, wire.BOR, name="n" * 1025), b"\x80"],
    )
    opened = capture.open(tmp_path / "capture")
    runs = opened.runs()
    assert [(run.messages, run.condition) for run in runs if run.sender == "Det"] == [(10, "GOOD")]
    assert (len(runs), opened.let_go, opened.unfollowed) == (1001, 1, 1)
    let_go = "more senders than runs can be followed for"
    until(lambda: logged(caplog, let_go))
    assert len(logged(caplog, let_go)) == 1
    said = subprocess.run(
        [sys.executable, "-m", "trunkline", "capture", "runs", tmp_path / "capture", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [json.loads(line) for line in said.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["run"] * 1001 + ["incomplete"]
    assert lines[-1] == {"event": "incomplete", "let_go": 1, "unfollowed": 1}


@pytest.mark.parametrize("private", [True, False])
def test_what_is_private_is_for_this_user_alone(recording, tmp_path, private):
    publish = recording(capture_private=private)
    publish([wire.header_b(0, wire.BOR), b"\x80"], [wire.header_b(1), b"x"])
    path = tmp_path / "capture"
    capture.import_(wire.DATA / "cdtp2-release-1.0.2.jsonl.gz", tmp_path / "imported", private=private)
    for made in (path, tmp_path / "imported"):
        for file in [made, *made.rglob("*")]:
            mode = stat.S_IMODE(file.stat().st_mode)
            assert mode == (0o700 if file.is_dir() else 0o600) if private else mode & 0o044, file


def test_what_retention_deletes_is_said(recording, tmp_path, caplog):
    caplog.set_level(logging.INFO, "trunkline.cdtp")
    publish = recording(keep_bytes=100_000)
    for _ in range(12):
        publish([wire.header_s(), NOISE])
    until(lambda: logged(caplog, "keep_days"))
    (record,) = logged(caplog, "keep_days")
    assert record.levelno == logging.WARNING
    said = re.search(r"keep_days: ((\d+) segments?) deleted, (\d+) of them not shipped$", record.getMessage())
    assert (said[1], said[2]) == (counted(int(said[2]), "segment"), said[3])
    stats = publish.recorder.stats
    assert stats.deleted == stats.deleted_unshipped > 1
    before = stats.deleted_unshipped
    # What was copied elsewhere is not lost.
    capture.ship(tmp_path / "capture", tmp_path / "copy")
    left = len(capture.open(tmp_path / "capture").segments)
    for _ in range(left - 1):
        publish([wire.header_s(), NOISE])
    until(lambda: publish.recorder.stats.deleted >= stats.deleted + left - 2)
    assert publish.recorder.stats.deleted_unshipped == before
