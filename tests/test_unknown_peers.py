"""Strangers at the sockets of roles: they cost no more than is given them, and those who are in are served."""

import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgpack
import pytest
import zmq

from peers import cdtp as wire
from peers import chirp
from peers.processes import Child
from peers.waiting import PATIENCE_S, until
from trunkline import cdtp, dcp
from trunkline.errors import LocalProtocolError

ANY = "tcp://127.0.0.1:*"
HEAD = [b"", b"DGBX\x01"]


def address(endpoint):
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)


@pytest.fixture
def _few_files():
    """A process that may have few files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = sum(1 for _ in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 160, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_hung_up(connection):
    connection.settimeout(5)
    try:
        while connection.recv(1000):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_who_comes_when_there_is_no_room_is_hung_up_on_and_counted(open_socket, caplog):
    with dcp.Broker(bind=ANY, max_connections=2) as broker:
        first, second = (open_socket(zmq.DEALER, connect=broker.endpoints[0]) for _ in range(2))
        for peer in (first, second):
            peer.send_multipart([*HEAD, b"\x01", b"echo"])
            assert peer.recv_multipart()[2] == b"\x01"
        stranger = socket.create_connection(address(broker.endpoints[0]))
        assert is_hung_up(stranger)
        until(lambda: broker.stats.turned_away == 1)
        assert broker.stats.peers == 2
        # Connected peers are served, and after one of them has left another is admitted.
        first.send_multipart([*HEAD, b"\x02"])
        second.close()
        until(lambda: broker.stats.peers == 1)
        third = open_socket(zmq.DEALER, connect=broker.endpoints[0])
        third.send_multipart([*HEAD, b"\x01", b"echo"])
        assert third.recv_multipart()[2] == b"\x01"
        stranger.close()
    until(lambda: "max_connections" in caplog.text)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many"])
def test_a_limit_is_a_number_of_peers(wrong):
    with pytest.raises((LocalProtocolError, TypeError, ValueError), match="max_connections"):
        cdtp.Receiver(bind=ANY, max_connections=wrong)


@pytest.mark.usefixtures("_few_files")
def test_silent_connections_leave_files_to_the_role_and_serve_who_is_in(tmp_path, open_socket):
    with cdtp.Recorder(tmp_path / "capture", bind=ANY, segment_s=0.2) as recorder:
        good = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        good.send_multipart([wire.header_s(), b"before"])
        recorder.wait(count=1, timeout_s=PATIENCE_S)
        # The connections are another process's: it is our own limit that they are to meet.
        script = """if True:
            import socket, sys, time
            held = []
            for _ in range(400):
                try:
                    held.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5))
                except OSError:
                    time.sleep(0.01)
            print("held", flush=True)
            sys.stdin.read()
        """
        command = [sys.executable, "-c", script, *map(str, address(recorder.endpoints[0]))]
        with Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as strangers:
            assert strangers.stdout.readline() == "held\n"
            until(lambda: recorder.stats.turned_away > 0)
            before = time.process_time(), time.monotonic()
            for number in range(10):
                good.send_multipart([wire.header_s(), b"%d" % number])
                recorder.wait(count=number + 2, timeout_s=PATIENCE_S)
                recorder.publish(timeout_s=PATIENCE_S)
            spent = (time.process_time() - before[0]) / (time.monotonic() - before[1] + 1)
            # Two threads that spin would be at 2.
            assert spent < 1
            strangers.stdin.close()
        assert recorder.stats.durable == 11


def test_a_stranger_who_says_nothing_is_hung_up_on_in_time():
    with cdtp.Receiver(bind=ANY) as receiver:
        connection = socket.create_connection(address(receiver.endpoints[0]))
        began = time.monotonic()
        connection.settimeout(25)
        while connection.recv(1000):
            pass
        # libzmq's own patience is 30 seconds.
        assert time.monotonic() - began < 20
        connection.close()


def test_long_names_take_as_much_as_short_ones(open_socket):
    script = """if True:
        import sys
        from trunkline import cdtp
        with cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver:
            print(receiver.endpoints[0], flush=True)
            for _ in range(400):
                receiver.receive(timeout_s=30)
            names = receiver.stats.senders
            kept = int(open("/proc/self/statm").read().split()[1]) * 4096
            print(len(names), max(map(len, names)), kept >> 20, flush=True)
    """
    command = [sys.executable, "-c", script]
    with Child(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "MALLOC_ARENA_MAX": "1"}) as process:
        push = open_socket(zmq.PUSH, connect=process.stdout.readline().strip())
        for number in range(400):
            name = b"%06d" % number + b"x" * 1_000_000
            header = b"\xa5CDTP\x01" + msgpack.packb(name.decode()) + msgpack.packb(msgpack.Timestamp(1, 0)) + b"\x80"
            push.send_multipart([header, b"x"])
        logged, longest, megabytes = map(int, process.stdout.readline().split())
    assert (logged, longest) == (400, 200)
    # Each of them kept once would be 400 more.
    assert megabytes < 300


@pytest.mark.req("CHIRP-07")
def test_forged_offers_lock_no_sender_out():
    stranger = chirp.Peer()
    with cdtp.Receiver(group="lab", chirp_port=stranger.port) as receiver:
        for number in range(1100):
            # All from one address: a host has no other, unless it forges that as well.
            stranger.offer(f"forged-{number}", 1 + number)
        until(lambda: receiver.stats.chirp_dropped > 0)
        assert len(receiver.endpoints) <= 16
    stranger.close()


@pytest.mark.parametrize("transport", ["zmtp", "libzmq"])
def test_a_host_is_the_same_by_ipv4_and_through_a_socket_of_ipv6(transport):
    binds = ["tcp://127.0.0.1:*", "tcp://[::]:*"]
    options = {zmq.IPV6: 1}
    with dcp.Broker(bind=binds, options=options, max_connections_per_host=2, transport=transport) as broker:
        ports = [int(endpoint.rsplit(":", 1)[1]) for endpoint in broker.endpoints]
        strangers = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for port in [*ports, *ports]]
        until(lambda: broker.stats.turned_away == 2)
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize("transport", ["zmtp", "libzmq"])
def test_one_host_has_no_more_connections_than_it_may(open_socket, transport):
    with dcp.Broker(bind=ANY, max_connections_per_host=2, transport=transport) as broker:
        for _ in range(2):
            peer = open_socket(zmq.DEALER, connect=broker.endpoints[0])
            peer.send_multipart([*HEAD, b"\x01", b"echo"])
            assert peer.recv_multipart()[2] == b"\x01"
        host, port = address(broker.endpoints[0])
        with socket.create_connection((host, port)) as third:
            assert is_hung_up(third)
        until(lambda: broker.stats.turned_away == 1)
        with socket.create_connection((host, port), source_address=("127.0.0.2", 0)) as other:
            assert other.recv(1) == b"\xff"
