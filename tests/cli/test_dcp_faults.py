"""Brokers and workers as processes that freeze and die; raw sockets on the other side."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest
import zmq

HEAD = [b"", b"DGBX\x01"]
# Long enough that who is busy, or is kept waiting by others, is not taken for dead.
QUICK = ("--heartbeat-interval", "0.5", "--liveness", "6")


@pytest.fixture
def broker(start):
    command = start("dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--json", *QUICK)
    return command, command.ready()["endpoints"][0]


@pytest.fixture
def work(start, broker):
    """Starts a worker that echoes."""

    def work():
        command = start("dcp", "worker", "echo", "--connect", broker[1], "--echo", "--json", *QUICK)
        command.ready()
        return command

    return work


@pytest.fixture
def client(dial, broker):
    socket = dial(zmq.DEALER, broker[1])
    socket.rcvtimeo = 20_000
    return socket


def ask(client, number, size=0):
    client.send_multipart([*HEAD, b"\x04", b"echo", b"", b"%d" % number, b"", bytes(size)])


def answered(client):
    """The number of the request that is replied to, and the size of its data."""
    frames = client.recv_multipart()
    assert frames[2] == b"\x05"
    return int(frames[5]), len(frames[7])


@pytest.mark.req("DCP-42")
def test_a_frozen_worker_holds_up_nobody_and_comes_back(work, client):
    frozen = work()
    ask(client, 0)
    assert answered(client)[0] == 0
    frozen.signal(signal.SIGSTOP)
    work()
    # One of them may be lost with the frozen worker; all others are answered by the other one.
    for number in range(1, 21):
        ask(client, number)
    seen = {answered(client)[0] for _ in range(19)}
    assert len(seen) == 19
    frozen.signal(signal.SIGCONT)
    for number in range(100, 200):
        ask(client, number)
    seen = set()
    while not seen >= set(range(100, 200)):
        seen.add(answered(client)[0])


@pytest.mark.req("DCP-31", "DCP-42")
def test_a_broker_that_is_killed_finds_its_workers_again(start, broker, work, dial):
    command, endpoint = broker
    work()
    first = dial(zmq.DEALER, endpoint)
    first.rcvtimeo = 20_000
    ask(first, 1)
    assert answered(first)[0] == 1
    command.signal(signal.SIGKILL)
    command.process.wait()
    start("dcp", "broker", "--bind", endpoint, "--json", *QUICK).ready()
    ask(first, 2)
    assert answered(first)[0] == 2


@pytest.mark.req("DCP-42")
def test_workers_that_are_killed_are_forgotten(work, client):
    for number in range(3):
        worker = work()
        ask(client, number)
        assert answered(client)[0] == number
        worker.signal(signal.SIGKILL)
        worker.process.wait()
    work()
    # What went to a dead worker is lost, and no more than that.
    client.rcvtimeo = 1000
    seen, number = 0, 100
    while seen < 100:
        ask(client, number)
        with suppress(zmq.Again):
            seen, _ = answered(client)
        number += 1


@pytest.mark.req("DCP-25")
def test_a_large_request_passes(work, client):
    work()
    ask(client, 1, size=64 << 20)
    assert answered(client) == (1, 64 << 20)


@pytest.mark.req("DCP-44")
def test_a_thousand_peers_on_one_broker(broker, work, context):
    work()
    context.set(zmq.MAX_SOCKETS, 4096)
    clients = []
    try:
        for number in range(1000):
            clients.append(context.socket(zmq.DEALER))
            clients[-1].rcvtimeo = 20_000
            clients[-1].connect(broker[1])
            ask(clients[-1], number)
        assert [answered(client)[0] for client in clients] == list(range(1000))
    finally:
        for client in clients:
            client.close(linger=0)
