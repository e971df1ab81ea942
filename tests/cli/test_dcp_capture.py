"""What the commands of DCP record."""

import signal

from trunkline import capture

HOW = ["--segment-seconds", "0.1", "--keep-days", "1", "--capture-overflow", "block"]


def types(path):
    return [(row["direction"], row["payload"][0]) for row in capture.open(path).rows()]


def test_all_three_record_what_they_say_and_hear(start, run, tmp_path):
    # No heartbeats come between, however long it takes.
    how = [*HOW, "--heartbeat-interval", "60", "--json"]
    broker = start("dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--capture", "b", *how)
    (endpoint,) = broker.ready()["endpoints"]
    worker = start("dcp", "worker", "echo", "--echo", "--connect", endpoint, "--capture", "w", *how)
    worker.ready()
    run("dcp", "request", "echo", "hello", "--connect", endpoint, "--capture", "r", *HOW)
    for command in (worker, broker):
        command.signal(signal.SIGTERM)
        assert command.event("stopped")["stats"]["capture_lost"] == 0
        command.end()
    register, ask, answer = b"\x01", b"\x04", b"\x05"
    assert types(tmp_path / "r") == [("out", ask), ("in", answer)]
    assert types(tmp_path / "w")[:4] == [("out", register), ("in", register), ("in", ask), ("out", answer)]
    assert types(tmp_path / "b")[:6] == [
        ("in", register),
        ("out", register),
        ("in", ask),
        ("out", ask),
        ("in", answer),
        ("out", answer),
    ]


def test_segments_are_cut_as_they_are_told(run, tmp_path, start):
    broker = start("dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--capture", "b", "--segment-bytes", "100", "--json")
    (endpoint,) = broker.ready()["endpoints"]
    asking = ("dcp", "request", "nobody", "x" * 90, "--connect", endpoint, "--count", "5", "--in-flight", "5", "--json")
    run(*asking, "--timeout", "2", returncode=1)
    broker.signal(signal.SIGTERM)
    broker.event("stopped")
    broker.end()
    # A message each: five requests, and the query of the broker's status after no reply came.
    info = capture.open(tmp_path / "b").info()
    assert info.segments == info.messages > 5
