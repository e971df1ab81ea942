"""`trunkline cdtp receive`."""

from __future__ import annotations

import json
import signal
import time
from contextlib import suppress

import msgpack
import pytest
import zmq

from peers.commands import batch, release, spec

MESSAGE_FIELDS = ["event", "sender", "variant", "timestamp_ns", "type", "sequence", "tags", "payload_sizes", "payload"]


def test_each_message_is_a_line(start, push):
    command = start("cdtp", "receive", "--connect", push.endpoint, "--count", "4", "--json")
    ready = command.ready()
    assert ready == {
        "event": "ready",
        "role": "cdtp.receiver",
        "endpoints": [push.endpoint],
        "pid": command.process.pid,
    }
    push.send(
        spec("D.one", b"abc", b"", tags={"run": 7}),
        release("D.two", 0, 3, tags={"flag": True}),
        batch("D.three", [1, {}, [b"12"]], [2, {"k": None}, []]),
    )
    first = command.event("message")
    assert list(first) == MESSAGE_FIELDS
    assert first == {
        "event": "message",
        "sender": "D.one",
        "variant": "S",
        "timestamp_ns": 1_700_000_000_000_000_007,
        "type": None,
        "sequence": None,
        "tags": {"run": 7},
        "payload_sizes": [3, 0],
        "payload": ["abc", ""],
    }
    second, third, fourth = (command.event("message") for _ in range(3))
    assert [second[field] for field in MESSAGE_FIELDS[1:]] == ["D.two", "B", None, "DAT", 3, {"flag": True}, [], []]
    assert [third[field] for field in MESSAGE_FIELDS[1:]] == ["D.three", "2", None, "DAT", 1, {}, [2], ["12"]]
    assert [fourth[field] for field in MESSAGE_FIELDS[1:]] == ["D.three", "2", None, "DAT", 2, {"k": None}, [], []]
    stopped = command.event("stopped")
    assert stopped["reason"] == "count"
    assert command.quietly() == ("", "")


def test_the_last_line_has_the_counters(start, push):
    command = start("cdtp", "receive", "--connect", push.endpoint, "--count", "2", "--json")
    command.ready()
    good = [release("D.one", 0, 1, b"abc"), release("D.one", 0, 5, b"abc")]
    push.send(good[0], [b"nonsense"], good[1])
    command.event("message")
    command.event("message")
    size = sum(map(len, good[0]))
    assert command.event("stopped") == {
        "event": "stopped",
        "reason": "count",
        "stats": {
            "received": 3,
            "accepted": 2,
            "dropped": {"bad_header": 1},
            "bytes": 2 * size + len(b"nonsense"),
            "messages": 2,
            "queued": 0,
            "queued_bytes": 0,
            "duplicate_keys": 0,
            "chirp_dropped": 0,
            "senders": {"D.one": {"messages": 2, "bytes": 2 * size, "missed": 3}},
            "runs": {},
            "capture_lost": 0,
            "refused": 0,
            "turned_away": 0,
            "connection_failures": {},
            "transport": "zmtp",
        },
    }
    _, err = command.end()
    assert "bad_header" in err


def test_count_counts_what_is_printed_and_nothing_more_is_read(start, push):
    command = start("cdtp", "receive", "--connect", push.endpoint, "--count", "3", "--json")
    command.ready()
    # It may end before all are sent, and the rest is not sent.
    with suppress(zmq.Again):
        push.send([b"bad"], spec("D"), [b"bad"], spec("D"), [b"bad"], *[spec("D")] * 50)
    assert [command.event()["event"] for _ in range(4)] == ["message", "message", "message", "stopped"]
    command.end()


def test_the_counters_of_a_counted_end_are_those_of_what_was_read(run, push):
    out, _ = run("cdtp", "receive", "--connect", push.endpoint, "--count", "5", "--json", feed=(push, [spec("D")] * 20))
    stats = json.loads(out.splitlines()[-1])["stats"]
    assert (stats["received"], stats["messages"]) == (5, 5)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"text", "text"),
        (b"\x00\xff", {"base64": "AP8="}),
        (b"line\n", {"base64": "bGluZQo="}),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (2**64 - 1, 2**64 - 1),
        (msgpack.Timestamp(1, 5), 1_000_000_005),
        (msgpack.ExtType(5, b"\xff"), {"ext": 5, "data": {"base64": "/w=="}}),
        ({1: b"a"}, [{"key": 1, "value": "a"}]),
        ([{"deep": b"b"}], [{"deep": "b"}]),
    ],
    ids=repr,
)
def test_tags_of_every_type_are_json(run, push, value, shown):
    out, _ = run(
        "cdtp",
        "receive",
        "--connect",
        push.endpoint,
        "--count",
        "1",
        "--json",
        feed=(push, [spec("D", tags={"v": value})]),
    )
    assert json.loads(out.splitlines()[1])["tags"] == {"v": shown}


def test_people_read_a_line_a_message_and_the_rest_on_stderr(run, push):
    out, err = run(
        "cdtp",
        "receive",
        "--connect",
        push.endpoint,
        "--count",
        "1",
        feed=(push, [release("Détecteur", 0, 4, b"abc", b"d", tags={"run": 7})]),
    )
    assert out == 'Détecteur DAT 4 {"run": 7} 2 frames, 4 B: abc | d\n'
    assert err.splitlines()[0] == f"trunkline: receiving from {push.endpoint}; Ctrl-C stops"
    assert "stopped (count): received 1; accepted 1" in err


def test_a_bound_receiver_says_its_port(start, dial):
    command = start("cdtp", "receive", "--bind", "tcp://127.0.0.1:*", "--count", "1", "--json")
    (endpoint,) = command.ready()["endpoints"]
    dial(zmq.PUSH, endpoint).send_multipart(spec("D"))
    command.event("message")
    command.end()


def test_idle_runs_from_the_start(run):
    out, _ = run("cdtp", "receive", "--bind", "tcp://127.0.0.1:*", "--idle", "0.2", "--json")
    assert json.loads(out.splitlines()[-1])["reason"] == "idle"


def test_stats_come_between(start, push):
    command = start("cdtp", "receive", "--connect", push.endpoint, "--json", "--stats-interval", "0.05")
    command.ready()
    push.send(spec("D"))
    # It dials the sender for as long as that takes.
    while (event := command.event())["event"] == "stats":
        pass
    assert event["event"] == "message"
    assert command.event("stats")["stats"]["received"] == 1
    command.signal(signal.SIGTERM)
    rest, _ = command.end()
    assert json.loads(rest.splitlines()[-1])["event"] == "stopped"


@pytest.mark.parametrize("bad", [[], [[b"bad"]]], ids=["good", "bad"])
def test_messages_without_records_do_not_count(start, push, bad):
    command = start("cdtp", "receive", "--connect", push.endpoint, "--count", "3", "--json")
    command.ready()
    push.send(*[batch("D")] * 5, spec("D"), *bad, batch("D"), *bad, *[spec("D")] * 2)
    push.offer(*[batch("D")] * 5, spec("last"))
    assert [command.event()["sender"] for _ in range(3)] == ["D"] * 3
    assert command.event("stopped")["reason"] == "count"
    command.end()


def test_names_and_tags_do_not_reach_the_terminal_as_they_are(run, push):
    message = spec("D\x1b[2J\n", tags={"\x9b\u202e": "\x7f"})
    out, _ = run("cdtp", "receive", "--connect", push.endpoint, "--count", "1", feed=(push, [message]))
    assert out == 'D\\x1b[2J\\n {"\\x9b\\u202e": "\\x7f"} payload\n'


def test_idle_runs_from_the_last_message(start, push):
    command = start("cdtp", "receive", "--connect", push.endpoint, "--idle", "4", "--json")
    command.ready()
    # In the middle of the time, so that a look at its end comes long after it.
    time.sleep(1.5)
    push.send([b"bad"], spec("D"))
    sent = time.monotonic()
    while command.event()["event"] != "stopped":
        pass
    assert 3.9 < time.monotonic() - sent < 5.5


def test_after_the_count_nothing_more_is_read(start, push):
    command = start("cdtp", "receive", "--connect", push.endpoint, "--count", "5", "--json")
    command.ready()
    two = batch("D", [1, {}, []], [2, {}, []])
    push.send([b"bad"], two, batch("D"), [b"bad"], two)
    push.offer(*[two] * 20)
    events = [command.event()["event"] for _ in range(5)]
    stopped = command.event("stopped")
    assert (events, stopped["reason"]) == (["message"] * 5, "count")
    # Three wire messages have five messages in them, and three more are none.
    assert (stopped["stats"]["received"], stopped["stats"]["messages"]) == (6, 6)
    command.end()


def test_it_says_what_it_has_counted(run, push):
    two = batch("D", [1, {}, []], [2, {}, []])
    _, err = run("cdtp", "receive", "--connect", push.endpoint, "--count", "1", feed=(push, [two]))
    assert err.splitlines()[-1].endswith("; 1 record printed")
    _, last = run("cdtp", "receive", "--connect", push.endpoint, "--count", "2", feed=(push, [two]))
    assert last.splitlines()[-1].endswith("; 2 records printed")
    for command, words in (("receive", "printing this many messages"), ("record", "wire messages")):
        assert words in " ".join(run("cdtp", command, "--help", env={"COLUMNS": "200"})[0].split())


def test_what_is_missing_is_told_to_people(run, push):
    sent = [("D.one", 1), ("D.one", 4), ("D.two", 6), ("D.two", 11)]
    feed = push, [release(name, 0, number, b"x") for name, number in sent]
    _, err = run("cdtp", "receive", "--connect", push.endpoint, "--count", "4", feed=feed)
    assert "; missing 6; 4 messages printed" in err.splitlines()[-1]
