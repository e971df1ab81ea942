"""What `close` promises: all is with the system when it returns, or it says what is not; and the port is free."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import zmq

from peers import mc0 as wire
from peers.dcp import LEAVING, PING, PONG, register, reply, request
from peers.roles import ANY, KINDS, opened
from peers.waiting import until
from peers.zmtp import GREETING, Stranger, ready
from trunkline import Curve, cdtp, mc0, mtl
from trunkline.errors import LocalProtocolError, TimeoutError

PROGRAM = Path(__file__).with_name("exits.py")
# `benches.exits` runs it more often, with larger bodies.
RUNS = int(os.environ.get("LEAVING_RUNS", "1"))
LARGE = int(os.environ.get("LEAVING_BYTES", "3000000"))


@contextlib.contextmanager
def bodies(role, open_socket, count):
    """An endpoint, and a function that gives the size of the next body that comes there."""
    if role == "writer":
        with (
            mtl.Server(bind=ANY, anonymous=True, profiles=("queue",), resources=("jobs",)) as server,
            mtl.Client(connect=server.endpoints, profile="queue") as client,
            client.reader(["jobs"], confirm="none") as reader,
        ):
            reader.summon("jobs")
            yield server.endpoints[0], lambda: len(reader.receive(timeout_s=20).body)
        return
    raw = open_socket(zmq.PULL if role == "sender" else zmq.ROUTER, bind=ANY, rcvhwm=1)
    if role == "worker":
        yield raw.last_endpoint.decode(), served(raw, count)
        return

    def body():
        while True:
            frames = raw.recv_multipart()
            if role == "sender" or b"PUT" in frames:
                return len(frames[-1])
            if b"NOOP" in frames:
                raw.send_multipart([frames[0], b"", b"OK", *frames[3:]])
                return None

    yield raw.last_endpoint.decode(), body


def served(raw, count):
    """Sends a worker requests, one after the other; a function that gives the size of the next reply."""
    asked = 0

    def body():
        nonlocal asked
        while True:
            identity, *frames = raw.recv_multipart()
            is_reply = frames[:3] == reply(b"c")[:3]
            if frames[:3] == register(b"")[:3]:
                raw.send_multipart([identity, *frames])
            elif frames == PING:
                raw.send_multipart([identity, *PONG])
            if (frames == register(b"echo") or is_reply) and asked < count:
                asked += 1
                raw.send_multipart([identity, *request(b"echo", b"data", client=b"c")])
            if is_reply:
                return len(frames[-1])
            if frames == register(LEAVING):
                return None

    return body


def leave(*arguments):
    return subprocess.Popen([sys.executable, PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE)


@pytest.mark.req("CDTP-19")
@pytest.mark.parametrize("_run", range(RUNS))
@pytest.mark.parametrize("how", ["exit", "fork"])
@pytest.mark.parametrize(("size", "count"), [(2, 1), (1000, 1000), (LARGE, 4)])
@pytest.mark.parametrize("twin", ["blocking", "async"])
@pytest.mark.parametrize("role", ["sender", "connector", "writer", "worker"])
def test_a_process_that_leaves_at_once_loses_nothing(role, twin, size, count, how, _run, open_socket):
    with (
        bodies(role, open_socket, count) as (endpoint, body),
        leave(role, twin, how, endpoint, size, count, "") as process,
    ):
        assert [body() for _ in range(count)] == [size] * count
        if role in ("connector", "worker"):
            assert body() is None, "it asks whether all has arrived"
        assert process.wait(20) == 0, process.stderr.read()


@pytest.mark.parametrize(("size", "count"), [(2, 1), (3_000_000, 4)])
@pytest.mark.parametrize("role", ["sender", "connector"])
def test_nor_over_the_other_transport(role, size, count, open_socket):
    with (
        bodies(role, open_socket, count) as (endpoint, body),
        leave(role, "blocking", "exit", endpoint, size, count, "zeromq") as process,
    ):
        assert [body() for _ in range(count)] == [size] * count
        if role == "connector":
            assert body() is None, "it asks whether all has arrived"
        assert process.wait(20) == 0, process.stderr.read()


@pytest.fixture
def deaf():
    """A peer of ZMTP that shakes hands, and then reads nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        kept = []

        def shake(kind):
            connection, _ = server.accept()
            kept.append(connection)
            _shake(connection, kind)

        def start(kind):
            threading.Thread(target=shake, args=(kind,), daemon=True).start()
            return f"tcp://127.0.0.1:{server.getsockname()[1]}"

        yield start
        for connection in kept:
            connection.close()


@pytest.mark.req("CDTP-19")
def test_a_sender_says_that_messages_were_not_sent(deaf):
    sender = cdtp.Sender("Det", connect=deaf(b"PULL"))
    sender.send(bytes(30_000_000))
    until(lambda: sender.stats.queued == 0)
    with pytest.raises(TimeoutError, match=r"at least 1 message was not sent within 0\.2 s") as error:
        sender.flush(timeout_s=0.2)
    assert error.value.unsent == 1
    with pytest.raises(TimeoutError, match=r"at least 1 message was not sent within 0\.2 s") as error:
        sender.close(linger_s=0.2)
    assert error.value.unsent == 1
    sender.close()


def test_a_connector_says_that_messages_were_not_sent(deaf):
    connector = mc0.Connector(connect=deaf(b"ROUTER"), ttl_ms=None)
    connector.put("topic", bytes(30_000_000), timeout_s=20)
    with pytest.raises(TimeoutError, match=r"not sent within 0\.2 s"):
        connector.close(drain_s=0.2)


def test_a_service_logs_it(caplog):
    """One peer that does not read is no error of who closes a service."""
    with mc0.Middleware(bind=ANY) as bus, Stranger(bus.endpoints[0]) as peer:
        peer.shake(b"DEALER").send_message(*wire.sub(b"topic", id_=b"1"))
        assert peer.take_message() == wire.ok(b"1")
        with mc0.Connector(connect=bus.endpoints) as connector:
            connector.put("topic", bytes(30_000_000), confirm=True, timeout_s=20)
        bus.close(drain_s=0.2)
        until(lambda: "a peer that does not read" in caplog.text)


def _shake(connection, kind):
    """The handshake without security, of a peer that was dialled."""
    connection.sendall(GREETING)
    assert len(connection.recv(64, socket.MSG_WAITALL)) == 64
    connection.sendall(ready(kind))


LISTENING = {name: lambda _path, name=name: (name, {}) for name, role in KINDS.items() if "bind" in role.parameters}
LISTENING |= {
    "CURVE": lambda path: ("cdtp.Receiver", {"curve": Curve(zmq.curve_keypair()[1], allow=path)}),
    "zeromq": lambda _path: ("cdtp.Receiver", {"transport": "zeromq"}),
}


@pytest.mark.parametrize("case", LISTENING)
def test_the_port_is_free_once_close_has_returned(case, tmp_path):
    name, given = LISTENING[case](tmp_path)
    with opened(name, tmp_path, bind=ANY, **given) as first:
        at = first.endpoints[0]
    for _ in range(20):
        with opened(name, tmp_path, bind=at, **given) as again:
            assert again.endpoints[0] == at


def test_inproc_needs_a_context():
    with pytest.raises(LocalProtocolError, match="context="):
        cdtp.Receiver(bind="inproc://data")
