"""`trunkline mc0 middleware`, between raw sockets."""

from __future__ import annotations

import json
import os
import signal

import pytest
import zmq

from peers.mc0 import message, noop, ok, put, sub
from peers.waiting import until

MIDDLEWARE = ("mc0", "middleware", "--bind", "tcp://127.0.0.1:*", "--json")


@pytest.fixture
def ask(dial):
    """A peer that has said something, and had its answer."""

    def ask(endpoint, frames):
        peer = dial(zmq.DEALER, endpoint)
        peer.rcvtimeo = 20_000
        peer.send_multipart(frames)
        return peer, peer.recv_multipart()

    return ask


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_passes_on_until_it_is_stopped(start, ask, number):
    command = start(*MIDDLEWARE)
    ready = command.ready()
    assert (ready["role"], ready["pid"]) == ("mc0.middleware", command.process.pid)
    peer, answer = ask(ready["endpoints"][0], sub(b"t", id_=b"1"))
    assert answer == ok(b"1")
    peer.send_multipart(put(b"t", b"x"))
    assert peer.recv_multipart() == message(b"t", b"x")
    command.signal(number)
    stopped = command.event("stopped")
    assert stopped["reason"] == "signal"
    assert stopped["stats"] == {
        "received": 2,
        "sent": 2,
        "dropped": {},
        "bytes": 17,
        "peers": 1,
        "clients": 1,
        "subscriptions": 1,
        "messages": 1,
        "queued": 0,
        "topics": [{"topic": "t", "subscribers": 1, "puts": 1, "messages": 1, "bytes": 1}],
        "capture_lost": 0,
        "refused": 0,
        "turned_away": 0,
        "connection_failures": {},
        "transport": "zmtp",
    }
    assert command.quietly() == ("", "")


def test_takes_every_setting(start, ask):
    command = start(
        *MIDDLEWARE,
        *("--bind", "tcp://127.0.0.1:*", "--overflow", "disconnect", "--client-queue-messages", "1"),
        *("--client-queue-bytes", "1000", "--max-ttl", "500", "--max-topics", "1", "--stats-interval", "0.05"),
    )
    first, second = command.ready()["endpoints"]
    assert ask(first, sub(b"t", b"u", id_=b"1"))[1][1] == b"ERROR"
    peer, answer = ask(second, [b"CONNECT", b"ID", b"1", b"TTL", b"501"])
    assert answer[0] == b"ERROR"
    peer.send_multipart([b"CONNECT", b"ID", b"1", b"TTL", b"500"])
    assert peer.recv_multipart() == ok(b"1")[1:]
    while command.event("stats")["stats"]["dropped"] != {"too_many_topics": 1, "bad_ttl": 1}:
        pass


def test_people_are_told_in_words(start, ask):
    command = start(*MIDDLEWARE[:-1])
    line = command.logged("middleware listening on")
    endpoint = line.split()[4].rstrip(";")
    assert ask(endpoint, noop(b"1"))[1] == ok(b"1")
    command.signal(signal.SIGTERM)
    out, err = command.end()
    assert out == ""
    assert "stopped (signal): received 1; sent 1" in err


POLICY = '[[allow]]\nclient = "*"\nsubscribe = ["t"]\n'


def test_sighup_reads_the_policy_again(start, ask, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    command = start(*MIDDLEWARE, "--policy", "policy.toml")
    (endpoint,) = command.ready()["endpoints"]
    peer, answer = ask(endpoint, sub(b"t", id_=b"1"))
    assert answer == ok(b"1")
    policy.write_text(POLICY + "publish = 7\n")
    command.signal(signal.SIGHUP)
    assert "policy.toml, line 4: publish must be a list" in command.logged("stay in effect")
    policy.write_text('[[allow]]\nclient = "*"\nsubscribe = ["u"]\n')
    command.signal(signal.SIGHUP)
    assert b"the policy has changed" in peer.recv_multipart()[3]
    command.signal(signal.SIGTERM)
    assert command.event("stopped")["stats"]["subscriptions"] == 0


def test_topics_that_a_policy_refuses_name_the_entry_to_add(start, run, tmp_path):
    (tmp_path / "policy.toml").write_text(POLICY)
    (endpoint,) = start(*MIDDLEWARE, "--policy", "policy.toml").ready()["endpoints"]
    _, err = run("mc0", "topics", "--connect", endpoint, returncode=1)
    assert err.count("\n") == 1
    assert err.endswith('the policy must allow it, by subscribe = ["trunkline.status"] in the entry of this client\n')


@pytest.mark.parametrize(("name", "said"), [("none.toml", "error: none.toml: No such file"), ("bad.toml", "line 1")])
def test_a_faulty_policy_is_one_line(run, tmp_path, name, said):
    (tmp_path / "bad.toml").write_text("allow = 1\n")
    _, err = run(*MIDDLEWARE, "--policy", name, returncode=1)
    assert err.count("\n") == 1
    assert said in err
    assert name in err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--bind", "tcp://127.0.0.1:99999999"),
        ("--overflow", "block"),
        ("--client-queue-messages", "0"),
        ("--max-ttl", "-1"),
    ],
    ids=" ".join,
)
def test_wrong_usage(run, wrong):
    run(*MIDDLEWARE, *wrong, returncode=2)


def test_a_middleware_that_is_killed_leaves_its_peers_to_the_next(start, ask):
    command = start(*MIDDLEWARE)
    (endpoint,) = command.ready()["endpoints"]
    peer, _ = ask(endpoint, sub(b"t", id_=b"1"))
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    second = start("mc0", "middleware", "--bind", endpoint, "--json")
    second.ready()

    def answers():
        peer.send_multipart(noop(b"2"))
        return peer.poll(100)

    # The transport dials again; what it is to know has to be said again.
    until(answers)
    assert peer.recv_multipart() == ok(b"2")
    second.signal(signal.SIGTERM)
    assert second.event("stopped")["stats"]["clients"] == 0


def test_it_records_what_passes(start, run, ask):
    command = start(*MIDDLEWARE, "--capture", "bus")
    (endpoint,) = command.ready()["endpoints"]
    peer, _ = ask(endpoint, sub(b"t", id_=b"1"))
    peer.send_multipart(put(b"t", b"x"))
    assert peer.recv_multipart() == message(b"t", b"x")
    command.signal(signal.SIGTERM)
    command.end()
    out, _ = run("capture", "cat", "bus", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["direction"] for row in rows] == ["in", "out", "in", "out"]
    assert {row["protocol"] for row in rows} == {"mc0"}
    assert [row["topic"] for row in rows] == [None, None, "t", "t"]


def test_says_which_topics_there_are(start, run, ask):
    command = start(*MIDDLEWARE)
    (endpoint,) = command.ready()["endpoints"]
    peer, _ = ask(endpoint, sub(b"runs", b"a\x1b", id_=b"1"))
    peer.send_multipart(put(b"runs", b"abc", id_=b"2"))
    assert {tuple(peer.recv_multipart()) for _ in range(2)} == {tuple(message(b"runs", b"abc")), tuple(ok(b"2"))}
    out, err = run("mc0", "topics", "--connect", endpoint)
    heads, *rows = (line.split() for line in out.splitlines())
    assert heads == ["topic", "subscribers", "puts", "messages", "bytes"]
    assert sorted(rows) == [["a\\x1b", "1", "0", "0", "0"], ["runs", "1", "1", "1", "3"]]
    assert "1 client; " in err
    out, _ = run("mc0", "topics", "--connect", endpoint, "--json")
    assert {json.loads(line)["topic"] for line in out.splitlines()} == {"runs", "a\x1b"}


def test_names_that_are_not_text_are_told_apart(start, run, ask):
    """In every line of JSON, which holds text alone: those of a role, of who asks it, and of what it has recorded."""
    names = [{"base64": "dP4="}, {"base64": "dP8="}]
    command = start(*MIDDLEWARE, "--capture", "capture")
    (endpoint,) = command.ready()["endpoints"]
    subscribe = start("mc0", "subscribe", b"t\xff".decode(errors="surrogateescape"), "--connect", endpoint, "--json")
    subscribe.ready()
    peer, _ = ask(endpoint, sub(b"t\xff", b"t\xfe", id_=b"\xfd"))
    peer.send_multipart(put(b"t\xff", headers=[(b"X-\xff", b"\xfe")]))
    assert peer.recv_multipart()[1] == b"MESSAGE"
    heard = subscribe.event("message")
    assert heard["topic"] == names[1]
    assert heard["headers"] == [["TOPIC", names[1]], [{"base64": "WC3/"}, {"base64": "/g=="}]]
    out, _ = run("mc0", "topics", "--connect", endpoint, "--json")
    assert sorted((json.loads(line)["topic"] for line in out.splitlines()), key=str) == names
    command.signal(signal.SIGTERM)
    topics = command.event("stopped")["stats"]["topics"]
    assert sorted((topic["topic"] for topic in topics), key=str)[-2:] == names
    out, _ = run("capture", "cat", "capture", "--type", "SUB", "--json")
    messages = [json.loads(line)["messages"][0] for line in out.splitlines()]
    assert [each["topics"] for each in messages if each["id"] == {"base64": "/Q=="}] == [names[::-1]]


def test_says_nothing_when_told_not_to(start, run):
    command = start(*MIDDLEWARE, "--no-status")
    (endpoint,) = command.ready()["endpoints"]
    _, err = run("mc0", "topics", "--connect", endpoint, "--timeout", "0.3", returncode=1)
    assert f"no middleware answers at {endpoint}, or it was started with --no-status: waited for 0.3 s" in err
