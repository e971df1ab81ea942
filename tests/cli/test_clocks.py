"""Roles while the wall clock is set: their timeouts use the monotonic clock, and no segment is deleted because of it."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest
import zmq

from peers import nats
from peers.commands import spec
from peers.mc0 import message, ok, put, sub
from peers.mtl import confirm, content, flow, response, session, summon
from peers.preload import build, write_numbers
from peers.waiting import until

SOURCE = Path(__file__).parent / "jumping_clock.c"
YEAR_S = 365 * 86_400
# Years to come and gone by; the start of Unix time; nearly as far as its nanoseconds have bits, and Python a clock.
JUMPS = [10 * YEAR_S, -10 * YEAR_S, -1_700_000_000, 200 * YEAR_S, 0]
ANY = "tcp://127.0.0.1:*"
HEAD = [b"", b"DGBX\x01"]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build(SOURCE, tmp_path_factory.mktemp("clock"))


class Clock:
    def __init__(self, library: Path, file: Path) -> None:
        self.file = file
        self.set(0)
        self.env = {"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(file)}

    def set(self, ahead_s: int) -> None:
        write_numbers(self.file, struct.pack("q", ahead_s))


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory):
    with nats.server(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def clock(library, tmp_path):
    return Clock(library, tmp_path / "ahead")


def test_the_clock_of_the_test_jumps(clock):
    """Else the tests below would look at nothing."""
    clock.set(10 * YEAR_S)
    command = [sys.executable, "-c", "import time; print(time.time())"]
    out = subprocess.run(command, env={**os.environ, **clock.env}, stdout=subprocess.PIPE, check=True).stdout
    assert float(out) - time.time() > 9 * YEAR_S


def test_a_recorder_deletes_nothing_and_its_time_goes_on(clock, start, push, tmp_path):
    options = ("--connect", push.endpoint, "--keep-days", "1", "--segment-seconds", "0.1")
    command = start("cdtp", "record", "--capture", "c", *options, "--json", env=clock.env)
    command.ready()
    sent = 0
    for jump in JUMPS:
        clock.set(jump)
        push.send(*[spec("D", os.urandom(1000))] * 10)
        sent += 10
        until(lambda sent=sent: segments(tmp_path / "c") and rows(tmp_path / "c") == sent)
    command.signal(signal.SIGINT)
    stopped = command.event("stopped")
    assert (stopped["stats"]["recorded"], stopped["stats"]["durable"]) == (sent, sent)
    command.end()
    times = pyarrow.parquet.read_table(tmp_path / "c", columns=["seq", "received_at_ns"]).sort_by("seq")
    assert times.num_rows == sent
    at = times["received_at_ns"].to_pylist()
    assert at == sorted(at)
    assert at[-1] - at[0] < 60 * 10**9


def segments(folder):
    return sorted(folder.glob("*.parquet"))


def rows(folder):
    return sum(pyarrow.parquet.read_metadata(segment).num_rows for segment in segments(folder))


@pytest.mark.req("DCP-42")
def test_a_broker_takes_nobody_for_dead(clock, start, dial):
    command = start("dcp", "broker", "--bind", ANY, "--json", env=clock.env)
    endpoint = command.ready()["endpoints"][0]
    worker = start("dcp", "worker", "echo", "--connect", endpoint, "--echo", "--json", env=clock.env)
    worker.ready()
    client = dial(zmq.DEALER, endpoint)
    client.rcvtimeo = 20_000
    for number, jump in enumerate([0, *JUMPS]):
        clock.set(jump)
        client.send_multipart([*HEAD, b"\x04", b"echo", b"", b"%d" % number, b"", b"data"])
        assert client.recv_multipart()[5] == b"%d" % number
    for role in (worker, command):
        role.signal(signal.SIGINT)
        stopped = role.event("stopped")
        assert stopped["stats"]["dropped"] == {}
        role.end()
    assert stopped["stats"]["lost"] == 0


def test_a_middleware_keeps_its_peers(clock, start, dial):
    command = start("mc0", "middleware", "--bind", ANY, "--json", env=clock.env)
    peer = dial(zmq.DEALER, command.ready()["endpoints"][0])
    peer.rcvtimeo = 20_000
    peer.send_multipart(sub(b"t", id_=b"1"))
    assert peer.recv_multipart() == ok(b"1")
    for jump in JUMPS:
        clock.set(jump)
        peer.send_multipart(put(b"t", b"x"))
        assert peer.recv_multipart() == message(b"t", b"x")
    command.signal(signal.SIGINT)
    assert command.event("stopped")["stats"]["peers"] == 1
    command.end()


def test_a_server_keeps_leases_and_contents(clock, start, dial):
    server = start(
        *("mtl", "server", "--bind", ANY, "--anonymous", "--resource", "jobs", "--durable", "store", "--json"),
        env=clock.env,
    )
    endpoint = server.ready()["endpoints"][0]
    control = session(dial, endpoint)
    writer = flow(dial, endpoint, control, "Writer")
    for number, jump in enumerate(JUMPS, 2):
        clock.set(jump)
        writer.send_multipart(content(number, "jobs", b"%d" % number))
        assert writer.recv_multipart() == confirm(number)
    reader = flow(dial, endpoint, control, "Reader")
    reader.send_multipart(summon(2, "jobs"))
    assert reader.recv_multipart() == response(2, 200)
    assert [reader.recv_multipart()[1] for _ in JUMPS] == [b"%d" % number for number in range(2, 2 + len(JUMPS))]
    server.signal(signal.SIGINT)
    server.event("stopped")
    server.end()


def test_a_target_answers_again_once_the_clock_is_right(clock, start, run, tmp_path, nats_server):
    where = ("--target", "fleet", "--nats", nats_server.url)
    target = start("cdt", "target", "fleet", "--store", "configs.db", *where[2:], "--json", env=clock.env)
    target.ready()
    (tmp_path / "config.json").write_text('{"rate": 1}')
    for jump in JUMPS:
        clock.set(jump)
        # Who has another time than the target may be refused, as what it asks is too old; both with the same are not.
        run("cdt", "put", "app", "one", "config.json", *where, env=clock.env)
        out, _ = run("cdt", "pull", "app", "one", *where, env=clock.env)
        assert out == '{"rate": 1}'
    target.signal(signal.SIGINT)
    target.event("stopped")
    target.end()
