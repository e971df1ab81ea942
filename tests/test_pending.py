"""What is pending for peers: bounded whatever they do, and with the system when `flush` returns."""

import contextlib
import subprocess
import sys

import pytest
import zmq

from peers import mc0 as wire
from peers.roles import ANY
from peers.waiting import PATIENCE_S
from peers.zmtp import Stranger
from trunkline import Curve, cdtp, mc0

SERVER, CLIENT = zmq.curve_keypair(), zmq.curve_keypair()
CURVE = {"curve_publickey": CLIENT[0], "curve_secretkey": CLIENT[1], "curve_serverkey": SERVER[0]}
SMALL = {"rcvbuf": 4096, "rcvhwm": 1}

LEAVES = """
import asyncio, os, sys
from trunkline import cdtp, mc0

kind, endpoint, number, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def main():
    async with cdtp.AsyncSender("Det", connect=endpoint) as sender:
        for _ in range(number):
            await sender.send(bytes(size))
        await sender.flush()
        os._exit(0)

if kind == "AsyncSender":
    asyncio.run(main())
role = cdtp.Sender("Det", connect=endpoint) if kind == "Sender" else mc0.Connector(connect=endpoint)
for _ in range(number):
    role.send(bytes(size)) if kind == "Sender" else role.put("t", bytes(size))
role.flush()
os._exit(0)
"""


@pytest.mark.parametrize(("number", "size"), [(1, 2), (5, 10 << 20)])
@pytest.mark.parametrize("kind", ["Sender", "AsyncSender", "Connector"])
def test_what_is_flushed_is_with_the_system(open_socket, kind, number, size):
    reader = open_socket(zmq.DEALER if kind == "Connector" else zmq.PULL, rcvhwm=0)
    with contextlib.ExitStack() as stack:
        if kind == "Connector":
            bus = stack.enter_context(mc0.Middleware(bind=ANY))
            endpoint = bus.endpoints[0]
            reader.connect(endpoint)
            reader.send_multipart(wire.sub(b"t", id_=b"1"))
            assert reader.recv_multipart() == wire.ok(b"1")
        else:
            endpoint = f"tcp://127.0.0.1:{reader.bind_to_random_port('tcp://127.0.0.1')}"
        subprocess.run([sys.executable, "-c", LEAVES, kind, endpoint, str(number), str(size)], check=True, timeout=50)
        for _ in range(number):
            assert len(reader.recv_multipart()[-1]) == size


def test_what_the_system_has_counts_as_sent(open_socket):
    pull = open_socket(zmq.PULL, **SMALL)
    port = pull.bind_to_random_port("tcp://127.0.0.1")
    sender = cdtp.Sender("Det", connect=f"tcp://127.0.0.1:{port}")
    for _ in range(500):
        sender.send(bytes(1000))
    sender.flush(timeout_s=PATIENCE_S)
    # Its peer has not read all of it.
    sender.close(linger_s=0.1)
    for _ in range(500):
        pull.recv_multipart()


@pytest.fixture
def deaf():
    """Subscribes peers that read nothing, each to a topic."""
    with contextlib.ExitStack() as stack:

        def deaf(bus, topics):
            for topic in topics:
                peer = stack.enter_context(Stranger(bus.endpoints[0], receive_buffer=4096)).shake(b"DEALER")
                peer.send_message(*wire.sub(topic, id_=b"1"))
                assert peer.take_message() == wire.ok(b"1")

        yield deaf


def test_messages_for_peers_that_do_not_read_have_one_bound_for_all(deaf):
    with mc0.Middleware(bind=ANY, outbox_bytes=4 << 20, options={zmq.SNDBUF: 8192}) as bus:
        deaf(bus, [b"t%d" % number for number in range(20)])
        with mc0.Connector(connect=bus.endpoints[0]) as honest:
            for number in range(20):
                honest.put(f"t{number}", bytes(8 << 20))
            honest.subscribe("honest")
            # One is larger than all may be, and one waits besides.
            assert bus.stats.dropped["peer_full"] >= 17
            honest.put("honest", b"small")
            assert honest.receive(timeout_s=PATIENCE_S).body == (b"small",)
            # It has to wait for a peer that takes nothing, until that is hung up on.
            honest.put("honest", bytes(3 << 20))
            assert len(honest.receive(timeout_s=PATIENCE_S).body[0]) == 3 << 20
        assert bus.stats.connection_failures["unread"] >= 1
        bus.close(drain_s=0)


def test_a_message_for_many_counts_once(deaf):
    with mc0.Middleware(bind=ANY, outbox_bytes=64 << 20, options={zmq.SNDBUF: 8192}) as bus:
        deaf(bus, [b"t"] * 30)
        with mc0.Connector(connect=bus.endpoints[0]) as honest:
            honest.subscribe("t")
            for _ in range(2):
                honest.put("t", bytes(4 << 20))
                assert len(honest.receive(timeout_s=PATIENCE_S).body[0]) == 4 << 20
        assert "peer_full" not in bus.stats.dropped
        bus.close(drain_s=0)


def test_an_encrypted_message_for_many_counts_once(open_socket):
    """It is encrypted for each as it is written: sixty copies of it would be refused."""
    with mc0.Middleware(bind=ANY, outbox_bytes=64 << 20, options={zmq.SNDBUF: 8192}, curve=Curve(SERVER)) as bus:
        readers = [open_socket(zmq.DEALER, connect=bus.endpoints[0], **CURVE) for _ in range(60)]
        for reader in readers:
            reader.send_multipart(wire.sub(b"t", id_=b"1"))
            assert reader.recv_multipart() == wire.ok(b"1")
        with mc0.Connector(connect=bus.endpoints[0], curve=Curve(CLIENT, server_key=SERVER[0])) as publisher:
            publisher.put("t", bytes(4 << 20))
            for reader in readers:
                assert len(reader.recv_multipart()[-1]) == 4 << 20
        assert "peer_full" not in bus.stats.dropped


def test_the_newest_are_kept_besides_those_with_the_transport(open_socket):
    options = {zmq.SNDBUF: 8192}
    with mc0.Middleware(bind=ANY, overflow="drop-oldest", client_queue_messages=200, options=options) as bus:
        reader = open_socket(zmq.DEALER, connect=bus.endpoints[0], **SMALL)
        reader.send_multipart(wire.sub(b"t", id_=b"1"))
        assert reader.recv_multipart() == wire.ok(b"1")
        with mc0.Connector(connect=bus.endpoints[0]) as publisher:
            for number in range(2000):
                publisher.put("t", b"%06d" % number + bytes(20_000), confirm=True)
            publisher.flush(timeout_s=PATIENCE_S)
        numbers = []
        while not numbers or numbers[-1] != 1999:
            numbers.append(int(reader.recv_multipart()[-1][:6]))
        assert numbers[-200:] == list(range(1800, 2000))
        assert numbers == sorted(set(numbers))
