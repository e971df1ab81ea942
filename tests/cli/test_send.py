"""`trunkline cdtp send`."""

from __future__ import annotations

import json
import signal
import time

import msgpack
import pytest
import zmq

from peers.commands import spec, unpack


def test_a_file_is_a_message(start, pull, tmp_path):
    (tmp_path / "one").write_bytes(b"\x00one\n")
    (tmp_path / "two").write_bytes(b"")
    before = time.time()
    command = start("cdtp", "send", "--name", "D.one", "--connect", pull.endpoint, "--json", "one", "two")
    assert command.ready() == {
        "event": "ready",
        "role": "cdtp.sender",
        "endpoints": [pull.endpoint],
        "pid": command.process.pid,
    }
    header, payload = pull.receive()
    magic, name, stamp, tags = unpack(header)
    assert (magic, name, tags, payload) == ("CDTP\x01", "D.one", {}, b"\x00one\n")
    assert before <= stamp.to_unix() <= time.time()
    other, empty = pull.receive()
    assert empty == b""
    assert command.event("stopped") == {
        "event": "stopped",
        "reason": "eof",
        "stats": {
            "sent": 2,
            "bytes": len(header + payload + other),
            "queued": 0,
            "queued_bytes": 0,
            "at_risk": 0,
            "capture_lost": 0,
            "refused": 0,
            "turned_away": 0,
            "connection_failures": {},
            "transport": "zmtp",
        },
    }
    assert command.quietly() == ("", "")


def test_stdin_is_a_message_a_line(start, pull):
    command = start("cdtp", "send", "--name", "D", "--connect", pull.endpoint, "-")
    command.process.stdin.write("first\n\nläst")
    command.process.stdin.close()
    assert [pull.receive()[1] for _ in range(3)] == [b"first", b"", "läst".encode()]
    command.process.stdin = None
    command.end()


def test_a_long_line_costs_what_it_is_long(start, pull):
    command = start("cdtp", "send", "--name", "D", "--connect", pull.endpoint, "-")
    # If each piece was searched with all before it, this would take minutes.
    long = "x" * (64 << 20)
    command.process.stdin.write(f"{long}\r\nshort\n")
    command.process.stdin.close()
    assert pull.receive()[1] == long.encode()
    assert pull.receive()[1] == b"short"
    command.process.stdin = None
    command.end()


def test_a_line_is_sent_before_the_next_one_is_typed(start, pull):
    command = start("cdtp", "send", "--name", "D", "--connect", pull.endpoint, "-")
    for line in (b"one", b"two"):
        command.process.stdin.write(f"{line.decode()}\n")
        command.process.stdin.flush()
        assert pull.receive()[1] == line


def test_tags_are_json_where_they_are_json(run, pull, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    tags = ["run=7", "name=Ada", 'list=[1, "a"]', "none=null", "nan=NaN", "empty=", "a=b=c", 'text="7"']
    options = [part for tag in tags for part in ("--tag", tag)]
    run("cdtp", "send", "--name", "D", "--connect", pull.endpoint, *options, "file")
    assert unpack(pull.receive()[0])[3] == {
        "run": 7,
        "name": "Ada",
        "list": [1, "a"],
        "none": None,
        "nan": "NaN",
        "empty": "",
        "a": "b=c",
        "text": "7",
    }


@pytest.mark.parametrize("header", ["A", "B", "2"])
def test_headers_with_runs_have_a_begin_and_an_end(run, pull, tmp_path, header):
    (tmp_path / "file").write_bytes(b"x")
    options = ["--header", header, "--batch-bytes", "0"]
    run("cdtp", "send", "--name", "D", "--connect", pull.endpoint, *options, "file", "file")
    kinds = [unpack(pull.receive()[0])[3 if header == "A" else 2] for _ in range(4)]
    assert kinds == [1, 0, 0, 2]


def test_a_command_that_a_signal_ends_has_interrupted_its_run(start, pull):
    command = start("cdtp", "send", "--name", "D", "--header", "B", "--connect", pull.endpoint, "-", "--json")
    command.process.stdin.write("one\n")
    command.process.stdin.flush()
    assert [unpack(pull.receive()[0])[2] for _ in range(2)] == [1, 0]
    command.signal(signal.SIGTERM)
    header, metadata = pull.receive()
    assert unpack(header)[2] == 2
    assert msgpack.unpackb(metadata) == {"condition_code": 4, "condition": "INTERRUPTED"}
    command.close()


def test_small_messages_of_header_2_go_together(run, pull, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 1000)
    options = ["--header", "2", "--batch-bytes", "2500", "--batch-seconds", "60"]
    run("cdtp", "send", "--name", "D", "--connect", pull.endpoint, *options, *["file"] * 5)
    batches = [unpack(pull.receive()[0])[2:] for _ in range(5)]
    assert [(kind, len(records)) for kind, records in batches] == [(1, 2), (0, 2), (0, 2), (0, 1), (2, 2)]


def test_it_waits_for_a_receiver(start, dial, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    command = start(
        "cdtp", "send", "--name", "D", "--bind", "tcp://127.0.0.1:*", "--json", "--stats-interval", "0.05", "file"
    )
    (endpoint,) = command.ready()["endpoints"]
    assert command.event("stats")["stats"] == {
        "sent": 0,
        "bytes": 0,
        "queued": 1,
        "queued_bytes": len(b"".join(spec("D", b"x"))) + 2 * 64,
        "at_risk": 0,
        "capture_lost": 0,
        "refused": 0,
        "turned_away": 0,
        "connection_failures": {},
        "transport": "zmtp",
    }
    assert dial(zmq.PULL, endpoint).recv_multipart()[1] == b"x"
    rest, _ = command.end()
    assert json.loads(rest.splitlines()[-1])["stats"]["sent"] == 1


def test_a_signal_ends_the_wait_and_tells_what_was_not_sent(start, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    command = start(
        *("cdtp", "send", "--name", "D", "--bind", "tcp://127.0.0.1:*", "--json"),
        *("--drain-seconds", "0.1", "--stats-interval", "0.05", "file", "-"),
    )
    command.ready()
    assert command.event("stats")["stats"]["queued"] == 1
    command.signal(signal.SIGINT)
    while (stopped := command.event())["event"] == "stats":
        pass
    assert (stopped["event"], stopped["reason"], stopped["stats"]["queued"]) == ("stopped", "signal", 1)
    # As a replay that is cut off.
    _, err = command.quietly(130)
    assert err == "trunkline: WARNING: D: 1 message was not sent within 0.1 s\n"


def test_a_signal_after_all_was_sent_is_an_end_like_any_other(start, pull, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    command = start("cdtp", "send", "--name", "D", "--connect", pull.endpoint, "--json", "file", "-")
    command.ready()
    assert pull.receive()[1] == b"x"
    command.signal(signal.SIGTERM)
    assert command.event("stopped")["stats"]["queued"] == 0
    assert command.quietly() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing"], "'missing' does not exist."),
        (["."], "'.' is a directory."),
        (["--tag", "run", "-"], "--tag takes K=V, not 'run'."),
        (["--tag", "big=18446744073709551616", "-"], "--tag: MessagePack integers have 64 bits"),
        (["--header", "C", "-"], "'C'"),
    ],
)
def test_wrong_usage(run, arguments, complaint):
    _, err = run("cdtp", "send", "--name", "D", "--bind", "tcp://127.0.0.1:*", *arguments, returncode=2)
    assert complaint in err


def test_a_receiver_that_never_comes_is_waited_for_as_long_as_told(run, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    words = (
        "--name",
        "D",
        "--connect",
        "tcp://127.0.0.1:1",
        "--timeout",
        "0.3",
        "--drain-seconds",
        "1000",
        "--json",
        "file",
    )
    out, err = run("cdtp", "send", *words, returncode=1)
    assert json.loads(out.splitlines()[-1])["reason"] == "timeout"
    assert err == "trunkline: WARNING: D: 1 message not sent: no receiver took any within 0.3 s\n"
