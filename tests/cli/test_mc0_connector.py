"""`trunkline mc0 subscribe`, `publish` and `ping`, at a raw ROUTER that plays the middleware."""

from __future__ import annotations

import json
import signal
import threading

import pytest
import zmq

from peers.commands import Peer, besides_progress
from peers.mc0 import Middleware, connect, error, message, noop, ok, pack, put, sub

UNREACHABLE = "tcp://127.0.0.1:9"


@pytest.fixture
def bus(context):
    peer = Peer(context, zmq.ROUTER)
    peer.socket.rcvtimeo = 20_000
    yield Middleware(peer.socket)
    peer.socket.close(linger=0)


def events(out):
    return [json.loads(line) for line in out.splitlines()]


def subscribed(bus, command):
    """Lets a command subscribe, and gives what the middleware calls it."""
    bus.hears(b"CONNECT")
    said = bus.confirms(b"SUB")
    ready = command.ready()
    assert (ready["role"], ready["endpoints"]) == ("mc0.connector", [bus.endpoint])
    return said.peer


@pytest.mark.req("MC0-28")
def test_subscribe_is_ready_when_it_is_confirmed(start, bus):
    command = start("mc0", "subscribe", "alerts", "runs", "--connect", bus.endpoint, "--json", "--count", "2")
    assert bus.hears().frames == connect(10_000)
    said = bus.hears()
    assert said.frames == sub(b"alerts", b"runs", id_=said.id)
    assert bus.is_silent(200)
    bus.say(said.peer, ok(said.id))
    command.ready()
    bus.say(said.peer, message(b"runs", b"a", b"\xff", headers=[(b"X-A", b"\xff"), (b"X-A", b"2")]))
    bus.say(said.peer, message(b"alerts"))
    assert command.event("message") == {
        "event": "message",
        "topic": "runs",
        "headers": [["TOPIC", "runs"], ["X-A", {"base64": "/w=="}], ["X-A", "2"]],
        "body": ["a", {"base64": "/w=="}],
    }
    assert command.event("message")["body"] == []
    stopped = command.event("stopped")
    assert stopped["reason"] == "count"
    assert stopped["stats"]["messages"] == 2
    assert command.quietly() == ("", "")
    assert bus.hears(b"DISCONNECT")


def test_subscribe_prints_bodies_as_they_are(start, bus):
    command = start("mc0", "subscribe", "runs", "--connect", bus.endpoint, "--ttl", "0", "--count", "2")
    assert bus.hears().frames == connect()
    said = bus.confirms(b"SUB")
    command.logged("subscribed to 1 topic at")
    bus.say(said.peer, message(b"runs", b"one ", "wörld\x1b[2J".encode()))
    bus.say(said.peer, message(b"runs", b"two\nlines"))
    out, err = command.end()
    assert out == "one wörld\x1b[2J\ntwo\nlines\n"
    assert "stopped (count)" in err
    assert "2 messages printed" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.req("MC0-27")
def test_subscribe_ends_by_a_signal_and_leaves(start, bus, number):
    command = start("mc0", "subscribe", "runs", "--connect", bus.endpoint, "--json")
    peer = subscribed(bus, command)
    bus.say(peer, message(b"runs", b"x"))
    command.event("message")
    command.signal(number)
    stopped = command.event("stopped")
    assert (stopped["reason"], stopped["stats"]["messages"]) == ("signal", 1)
    assert command.quietly() == ("", "")
    assert bus.hears(b"DISCONNECT").frames == pack(b"DISCONNECT")


def test_subscribe_ends_when_nothing_comes(start, bus):
    command = start("mc0", "subscribe", "runs", "--connect", bus.endpoint, "--json", "--idle", "0.2")
    subscribed(bus, command)
    assert command.event("stopped")["reason"] == "idle"
    assert command.quietly() == ("", "")


def test_subscribe_that_is_refused_exits_with_1(start, bus):
    command = start("mc0", "subscribe", "secret", "--connect", bus.endpoint, "--json")
    said = bus.hears(b"CONNECT")
    bus.say(said.peer, error(b"forbidden: secret", bus.hears(b"SUB").id))
    assert command.quietly(1) == ("", "trunkline: error: forbidden: secret\n")


def test_subscribe_may_be_stopped_before_it_is_confirmed(start, bus):
    command = start("mc0", "subscribe", "runs", "--connect", bus.endpoint, "--json")
    bus.hears(b"CONNECT")
    bus.hears(b"SUB")
    command.signal(signal.SIGTERM)
    (stopped,) = events(command.end()[0])
    assert stopped["reason"] == "signal"


@pytest.mark.req("MC0-11", "MC0-12", "MC0-30", "MC0-32")
def test_publish_confirms(start, bus):
    arguments = ("a", "", "wörld", "--header", "X-Origin=daq=1", "--header", "X-B=", "--json")
    command = start("mc0", "publish", "runs", *arguments, "--connect", bus.endpoint)
    bus.hears(b"CONNECT")
    said = bus.confirms(b"PUT")
    headers = [(b"X-Origin", b"daq=1"), (b"X-B", b"")]
    assert said.frames == put(b"runs", b"a", b"", "wörld".encode(), id_=said.id, headers=headers)
    (stopped,) = events(command.end()[0])
    stats = stopped["stats"]
    latency = stats["latency_ms"]["max"]
    assert latency > 0
    assert stats.pop("rate") > 0
    assert stopped == {
        "event": "stopped",
        "reason": "count",
        "stats": {
            "put": 1,
            "confirmed": 1,
            "errors": 0,
            "timeouts": 0,
            "latency_ms": {"p50": latency, "p90": latency, "p99": latency, "max": latency},
        },
    }


def test_publish_has_so_many_in_flight(start, bus):
    command = start("mc0", "publish", "runs", "x", "--count", "30", "--in-flight", "10", "--connect", bus.endpoint)
    peer = bus.hears(b"CONNECT").peer
    for _ in range(3):
        said = [bus.hears(b"PUT") for _ in range(10)]
        assert bus.is_silent(100)
        for one in reversed(said):
            bus.say(peer, ok(one.id))
    out, err = command.end()
    assert out == ""
    assert besides_progress(err).startswith("trunkline: 30 messages published")
    assert "30 confirmed, latency " in err


def test_publish_one_at_a_time_unless_told_otherwise(start, bus):
    command = start("mc0", "publish", "runs", "x", "--count", "2", "--connect", bus.endpoint)
    peer = bus.hears(b"CONNECT").peer
    for _ in range(2):
        said = bus.hears(b"PUT")
        assert bus.is_silent(100)
        bus.say(peer, ok(said.id))
    command.end()


def test_publish_tells_errors_and_time_outs(start, bus):
    command = start(
        "mc0", "publish", "runs", "x", "--count", "3", "--timeout", "1", "--json", "--connect", bus.endpoint
    )
    peer = bus.hears(b"CONNECT").peer
    bus.say(peer, error(b"forbidden", bus.hears(b"PUT").id))
    bus.hears(b"PUT")
    bus.confirms(b"PUT")
    refused, late, stopped = events(command.end(returncode=1)[0])
    assert refused == {"event": "error", "index": 0, "topic": "runs", "text": "forbidden"}
    assert late == {"event": "timeout", "index": 1}
    stats = stopped["stats"]
    assert [stats[name] for name in ("put", "confirmed", "errors", "timeouts")] == [3, 1, 1, 1]


def test_publish_reads_lines(start, bus):
    command = start("mc0", "publish", "log", "-", "--in-flight", "10", "--json", "--connect", bus.endpoint)
    command.process.stdin.write("one\r\ntwo words\n\nlast")
    command.process.stdin.flush()
    bus.hears(b"CONNECT")
    bodies = [bus.confirms(b"PUT").frames[-1] for _ in range(3)]
    # The last one has no end of its own: it goes when there is nothing more to read.
    last = threading.Thread(target=lambda: bodies.append(bus.confirms(b"PUT").frames[-1]))
    last.start()
    (stopped,) = events(command.end()[0])
    last.join()
    assert bodies == [b"one", b"two words", b"", b"last"]
    assert (stopped["reason"], stopped["stats"]["confirmed"]) == ("eof", 4)


def test_publish_without_confirmation_waits_for_the_socket_alone(start, bus):
    command = start("mc0", "publish", "runs", "--no-confirm", "--count", "1000", "--json", "--connect", bus.endpoint)
    bus.hears(b"CONNECT")
    assert [bus.hears(b"PUT").frames for _ in range(1000)] == [put(b"runs")] * 1000
    bus.confirms(b"NOOP")
    assert bus.hears(b"DISCONNECT")
    (stopped,) = events(command.end()[0])
    stats = stopped["stats"]
    assert (stats["put"], stats["confirmed"], stats["timeouts"]) == (1000, 0, 0)
    assert stats["latency_ms"] == dict.fromkeys(["p50", "p90", "p99", "max"])


@pytest.mark.parametrize("count", [1, 3, 3000])
def test_refusals_of_what_is_not_confirmed_are_reported_each_time(start, run, tmp_path, count):
    (tmp_path / "policy.toml").write_text('[[allow]]\nclient = "*"\npublish = ["yes"]\n')
    bus = start("mc0", "middleware", "--bind", "tcp://127.0.0.1:*", "--policy", "policy.toml", "--json")
    at = ("--no-confirm", "--count", str(count), "--connect", bus.ready()["endpoints"][0])
    out, err = run("mc0", "publish", "no", "x", *at, "--json", returncode=1)
    (stopped,) = events(out)
    # A middleware does not answer each of very many.
    assert min(count, 100) <= stopped["stats"]["errors"] <= count
    assert "refused" in err
    _, err = run("mc0", "publish", "no", "x", *at, returncode=1)
    assert "refused" in err


def test_publish_to_nobody_is_a_time_out(run):
    out, err = run("mc0", "publish", "runs", "x", "--connect", UNREACHABLE, "--timeout", "0.1", returncode=1)
    assert out == ""
    assert "message 0 timed out after 0.1 s" in err
    assert f"no middleware answers at {UNREACHABLE}" in err
    out, err = run("mc0", "publish", "runs", "x", "--no-confirm", "--connect", UNREACHABLE, "--json", returncode=1)
    assert "not sent, or not confirmed, within 5.0 s: 1 message" in err
    (stopped,) = events(out)
    assert stopped["stats"]["timeouts"] == 1


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("x", "--header", "foo=1"), "begins with X-"),
        (("x", "--header", "X-foo"), "K=V"),
        (("-", "--count", "2"), "--count"),
        (("x", "-"), "must be the only DATA"),
        (("x", "--in-flight", "0"), "in-flight"),
    ],
    ids=str,
)
def test_publish_wrongly_used_exits_with_2(run, arguments, what):
    out, err = run("mc0", "publish", "runs", *arguments, "--connect", UNREACHABLE, returncode=2)
    assert out == ""
    assert what in err


def test_subscribe_is_idle_from_its_start(run):
    out, _ = run("mc0", "subscribe", "runs", "--idle", "0.1", "--json", "--connect", UNREACHABLE)
    (stopped,) = events(out)
    assert (stopped["event"], stopped["reason"]) == ("stopped", "idle")


@pytest.mark.req("MC0-18")
def test_ping_tells_round_trips(start, bus):
    command = start("mc0", "ping", "--connect", bus.endpoint, "--count", "3", "--json")
    peer = bus.hears(b"CONNECT").peer
    for _ in range(3):
        said = bus.hears()
        assert said.frames == noop(said.id)
        bus.say(peer, ok(said.id))
    *pongs, stopped = events(command.end()[0])
    assert [(pong["event"], pong["index"]) for pong in pongs] == [("pong", 0), ("pong", 1), ("pong", 2)]
    assert (stopped["event"], stopped["reason"]) == ("stopped", "count")
    stats = stopped["stats"]
    assert [stats[name] for name in ("pings", "replies", "timeouts")] == [3, 3, 0]
    assert stats["latency_ms"]["max"] == max(pong["latency_ms"] for pong in pongs)


def test_ping_without_an_answer_exits_with_1(start, run, bus):
    out, err = run("mc0", "ping", "--connect", UNREACHABLE, "--timeout", "0.1", returncode=1)
    assert out == ""
    assert "ping 0 was not answered within 0.1 s" in err
    assert f"no middleware answers at {UNREACHABLE}" in err
    command = start("mc0", "ping", "--connect", bus.endpoint, "--count", "2", "--timeout", "1", "--json")
    bus.hears(b"CONNECT")
    bus.hears(b"NOOP")
    bus.confirms(b"NOOP")
    late, pong, stopped = events(command.end(returncode=1)[0])
    assert late == {"event": "timeout", "index": 0}
    assert (pong["event"], stopped["stats"]["timeouts"]) == ("pong", 1)


@pytest.mark.parametrize("arguments", [("publish", "runs", "x"), ("ping",)], ids=lambda given: given[0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_what_ends_by_itself_is_cut_off_with_130(start, bus, arguments, number):
    command = start("mc0", *arguments, "--timeout", "1000", "--json", "--connect", bus.endpoint)
    bus.hears(b"CONNECT")
    bus.hears()
    command.signal(number)
    assert command.end(returncode=130) == ("", "")


@pytest.mark.req("MC0-03")
def test_speaks_curve(start, context, tmp_path):
    public, secret = zmq.curve_keypair()
    (tmp_path / "server.key").write_bytes(public)
    socket = context.socket(zmq.ROUTER)
    socket.rcvtimeo = 20_000
    socket.curve_server, socket.curve_secretkey = True, secret
    socket.bind("tcp://127.0.0.1:*")
    bus = Middleware(socket)
    command = start("mc0", "ping", "--connect", bus.endpoint, "--curve-server-key", "server.key")
    bus.hears(b"CONNECT")
    bus.confirms(b"NOOP")
    assert command.end()[0].endswith(" ms\n")
    socket.close(linger=0)


def test_a_host_that_does_not_resolve_is_named_while_it_is_waited_for(start):
    command = start("mc0", "ping", "--connect", "tcp://nowhere.invalid:1", "--timeout", "20")
    said = command.logged("no connection to tcp://nowhere.invalid:1 yet")
    assert "nowhere.invalid does not resolve" in said
