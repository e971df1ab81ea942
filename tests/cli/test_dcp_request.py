"""`trunkline dcp request`, at a raw ROUTER that plays broker and workers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading

import pytest
import zmq

from peers.commands import Peer, besides_progress
from peers.processes import Child

HEAD = [b"", b"DGBX\x01"]


class Broker(Peer):
    """Answers as the test says."""

    def ask(self):
        """The sender, the correlation id and the data of a request."""
        peer, *frames = self.receive()
        assert frames[:5] == [*HEAD, b"\x04", b"upper", b""]
        assert frames[6] == b""
        return peer, frames[5], frames[7:]

    def reply(self, asked, *data):
        self.socket.send_multipart([asked[0], *HEAD, b"\x05", asked[0], b"", asked[1], b"", *data])


@pytest.fixture
def broker(context):
    peer = Broker(context, zmq.ROUTER)
    peer.socket.rcvtimeo = 20_000
    yield peer
    peer.socket.close(linger=0)


@pytest.fixture
def ask(broker):
    return ("dcp", "request", "upper", "--connect", broker.endpoint)


def events(out):
    return [json.loads(line) for line in out.splitlines()]


def test_a_reply_is_printed_as_it_is(broker, ask):
    with Child(
        [sys.executable, "-m", "trunkline", *ask, "a", "--raw"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as command:
        broker.reply(broker.ask(), b"\x00\xff\n", b"more")
        out, err = command.communicate(timeout=20)
    assert out == b"\x00\xff\nmore"
    # One reply makes no rate.
    assert b"1 of 1 replied to; latency" in err


def test_raw_and_json_exclude_each_other(run, ask):
    assert "exclude each other" in run(*ask, "a", "--raw", "--json", returncode=2)[1]


def test_prints_the_reply(start, broker, ask):
    command = start(*ask, "hello", "", "wörld", "--json")
    asked = broker.ask()
    assert asked[2] == [b"hello", b"", "wörld".encode()]
    broker.reply(asked, b"HELLO", b"\xff")
    reply, stopped = events(command.end()[0])
    latency = reply.pop("latency_ms")
    assert reply == {"event": "reply", "index": 0, "data": ["HELLO", {"base64": "/w=="}], "metadata": []}
    rate = stopped["stats"].pop("rate")
    assert rate > 0
    assert stopped == {
        "event": "stopped",
        "reason": "count",
        "stats": {
            "requests": 1,
            "replies": 1,
            "timeouts": 0,
            "empty": 0,
            "latency_ms": {"p50": latency, "p90": latency, "p99": latency, "max": latency},
        },
    }


def test_a_reply_without_data_is_a_failed_handler(start, broker, ask):
    command = start(*ask, "x", "--count", "2")
    broker.reply(broker.ask())
    broker.reply(broker.ask(), b"X")
    out, err = command.end(1)
    assert out == "X\n"
    assert "trunkline: request 0: the reply is empty: its handler failed, or returned nothing\n" in err
    command = start(*ask, "x", "--json")
    broker.reply(broker.ask())
    reply, stopped = events(command.end(1)[0])
    assert (reply["data"], stopped["stats"]["replies"], stopped["stats"]["empty"]) == ([], 1, 1)


def test_a_reply_without_data_to_a_request_without_is_none(start, broker, ask):
    command = start(*ask)
    broker.reply(broker.ask())
    assert command.end()[0] == "\n"


def test_many_in_flight(start, broker, ask):
    command = start(*ask, "x", "--count", "200", "--in-flight", "50", "--json")

    def answer():
        for _ in range(4):
            asked = [broker.ask() for _ in range(50)]
            for one in reversed(asked):
                broker.reply(one, b"X")

    answering = threading.Thread(target=answer)
    answering.start()
    out, err = command.end()
    answering.join()
    *replies, stopped = events(out)
    assert besides_progress(err) == ""
    assert sorted(reply["index"] for reply in replies) == list(range(200))
    latency = stopped["stats"]["latency_ms"]
    assert latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert latency["max"] == max(reply["latency_ms"] for reply in replies)
    assert (stopped["stats"]["requests"], stopped["stats"]["replies"]) == (200, 200)


def test_one_at_a_time_unless_told_otherwise(start, broker, ask):
    command = start(*ask, "x", "--count", "3")
    for _ in range(3):
        asked = broker.ask()
        assert not broker.socket.poll(100)
        broker.reply(asked, b"X", b"\xff\x00")
    out, err = command.end()
    assert out == "X 0xff00 (2 B)\n" * 3
    assert besides_progress(err).startswith("trunkline: 3 of 3 replied to; latency")


def test_a_time_out_is_told_and_exits_with_1(start, broker, ask):
    command = start(*ask, "x", "--count", "2", "--timeout", "2", "--retries", "1", "--json")
    first = [broker.ask() for _ in range(2)]
    assert first[0] == first[1]
    broker.reply(broker.ask(), b"X")
    timeout, reply, stopped = events(command.end(returncode=1)[0])
    assert timeout == {"event": "timeout", "index": 0}
    assert (reply["event"], reply["index"]) == ("reply", 1)
    assert (stopped["stats"]["replies"], stopped["stats"]["timeouts"]) == (1, 1)


def test_a_broker_that_is_not_there_is_a_time_out(run):
    arguments = ("dcp", "request", "upper", "--connect", "tcp://127.0.0.1:9", "--timeout", "0.1")
    out, err = run(*arguments, returncode=1)
    assert out == ""
    assert "request 0 timed out after 0.1 s" in err
    out, _ = run(*arguments, "--json", returncode=1)
    latency = json.loads(out.splitlines()[-1])["stats"]["latency_ms"]
    assert latency == dict.fromkeys(["p50", "p90", "p99", "max"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_is_cut_off_with_130(start, run, broker, ask, number):
    command = start(*ask, "x", "--timeout", "1000", "--capture", "c", "--json")
    broker.ask()
    command.signal(number)
    assert command.end(returncode=130) == ("", "")
    # What it recorded is published.
    assert json.loads(run("capture", "info", "c", "--json")[0])["messages"] == 1


def test_speaks_curve(start, context, tmp_path):
    public, secret = zmq.curve_keypair()
    (tmp_path / "server.key").write_bytes(public)
    broker = Broker.__new__(Broker)
    broker.socket = context.socket(zmq.ROUTER)
    broker.socket.curve_server, broker.socket.curve_secretkey = True, secret
    port = broker.socket.bind_to_random_port("tcp://127.0.0.1")
    command = start(
        "dcp", "request", "upper", "x", "--connect", f"tcp://127.0.0.1:{port}", "--curve-server-key", "server.key"
    )
    broker.reply(broker.ask(), b"X")
    assert command.end()[0] == "X\n"
    broker.socket.close(linger=0)


def test_data_may_be_in_a_file(start, broker, ask, tmp_path):
    (tmp_path / "body").write_bytes(b"\x00\xff")
    command = start(*ask, "@body", "@@home", "--json")
    asked = broker.ask()
    assert asked[2] == [b"\x00\xff", b"@home"]
    broker.reply(asked, b"done")
    command.event("reply")
    command.end()


def test_a_part_may_be_what_comes_in(start, broker, ask, tmp_path):
    (tmp_path / "hyphen").write_bytes(b"-")
    command = start(*ask, "head", "-", "@hyphen", "--json")
    command.process.stdin.write("one\ntwo\n")
    command.process.stdin.close()
    asked = broker.ask()
    assert asked[2] == [b"head", b"one\ntwo\n", b"-"]
    broker.reply(asked, b"done")
    command.event("reply")
    command.process.stdin = None
    command.end()


def test_what_comes_in_is_one_part(run, ask):
    _, err = run(*ask, "-", "-", returncode=2)
    assert "- is standard input: give it only once" in err


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (b"5\n", "5"),
        (b"a\tb\nc\n", "a\\tb\\nc"),
        (b"cafe", "cafe"),
        (b"\xca\xfe", "0xcafe (2 B)"),
        (b"x" * 100, "x" * 100),
    ],
    ids=str,
)
def test_a_reply_is_a_line_to_read(start, broker, ask, reply, shown):
    command = start(*ask, "x")
    broker.reply(broker.ask(), reply)
    assert command.end()[0] == f"{shown}\n"


def test_a_file_that_is_not_there_is_an_error(run, ask):
    _, err = run(*ask, "@nothing", returncode=1)
    assert "nothing" in err
