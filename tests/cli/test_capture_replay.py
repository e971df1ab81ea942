"""`trunkline capture replay`."""

from __future__ import annotations

import re
import signal
import time

import pytest
import zmq

from peers.commands import RECORDED, besides_progress
from peers.recorded import line, write


def test_replay_is_bit_exact(start, recorded, pull):
    command = start("capture", "replay", recorded, "--connect", pull.endpoint, "--json")
    assert command.ready()["role"] == "capture.replay"
    assert [pull.receive() for _ in RECORDED] == RECORDED
    assert command.event("stopped") == {"event": "stopped", "reason": "eof", "stats": {"sent": 4}}
    command.end()


@pytest.mark.parametrize(
    ("rate", "recorded_s", "least_s"), [("real", 0.2, 0.6), ("10", 0, 0.3), ("10", 1000, 0.3), ("max", 1000, 0)]
)
def test_replay_keeps_time(start, run, dial, tmp_path, rate, recorded_s, least_s):
    write(tmp_path / "slow.jsonl", RECORDED, step_ns=int(recorded_s * 1e9))
    run("capture", "import", "slow.jsonl", "--capture", "slow")
    command = start("capture", "replay", "slow", "--bind", "tcp://127.0.0.1:*", "--rate", rate, "--json")
    endpoint = command.ready()["endpoints"][0]
    began = time.monotonic()
    socket = dial(zmq.PULL, endpoint)
    # In the recorded time, what is a thousand seconds apart does not come.
    socket.rcvtimeo = 20_000
    assert [socket.recv_multipart() for _ in RECORDED] == RECORDED
    assert time.monotonic() - began >= least_s * 0.9


def test_replay_refuses_other_protocols(run, tmp_path):
    write(tmp_path / "dcp.jsonl", RECORDED[:1], protocol="dcp")
    run("capture", "import", "dcp.jsonl", "--capture", "c")
    _, err = run("capture", "replay", "c", "--bind", "tcp://127.0.0.1:*", returncode=1)
    assert "only CDTP can be replayed" in err


def test_replay_leaves_out_what_was_sent(run, start, pull, tmp_path):
    (tmp_path / "both.jsonl").write_text(line(RECORDED[0], direction="out") + line(RECORDED[1]))
    run("capture", "import", "both.jsonl", "--capture", "c")
    start("capture", "replay", "c", "--connect", pull.endpoint)
    assert pull.receive() == RECORDED[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_replay_is_cut_off_with_130(start, recorded, number):
    command = start("capture", "replay", recorded, "--bind", "tcp://127.0.0.1:*", "--json")
    command.ready()
    command.signal(number)
    began = time.monotonic()
    out, err = command.end(130)
    # It does not linger for a receiver that may come: that would be 5 s.
    assert time.monotonic() - began < 4
    assert out == ""
    # Nothing where it had not begun yet.
    assert re.fullmatch(r"(trunkline: WARNING: replay: \d of \d messages were not sent\n)?", besides_progress(err))


@pytest.mark.parametrize("rate", ["0", "-1", "fast", "nan", "inf"])
def test_a_rate_is_a_number_of_messages(run, rate):
    _, err = run("capture", "replay", "c", "--bind", "tcp://127.0.0.1:*", "--rate", rate, returncode=2)
    assert "--rate is real, max or messages a second" in err


def test_waits_for_a_receiver_no_longer_than_it_is_to(run, recorded):
    _, err = run(
        *("capture", "replay", recorded, "--connect", "tcp://127.0.0.1:9", "--timeout", "0.2"),
        returncode=1,
    )
    assert "0.2 s" in err
