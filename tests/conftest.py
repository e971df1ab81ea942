import os
import signal
import threading

import pytest
import zmq
from hypothesis import settings

from peers.chirp import Peer
from peers.s3 import S3
from trunkline import cdtp

pytest_plugins = ["peers.hanging"]

# Under nohup it is ignored, and commands would inherit that where tests send them SIGHUP.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tests start processes by the thousand, each of which would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The JVMs that tests start, for Spark, live too shortly to be worth what the second compiler, a parallel collector and the verifier take:
# half of all their CPU.
for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(
        name, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    )

# How long an example takes says more of the machine, and of what else it does, than of us.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# What the transport that TRUNKLINE_TRANSPORT names has not, of what tests need.
LACKS = {
    "zeromq": {
        "bounds": "bounded queues: 100,000 messages wait for each peer, and 4 MiB each way with the system",
        "leaving": "word of a receiver that has left: it reads nothing from where it only sends",
        "hosts": "word of the host that a message comes from",
        "identities": "routing ids that are kept: a newcomer that claims one takes it",
    }
}


def pytest_collection_modifyitems(items):
    transport = os.environ.get("TRUNKLINE_TRANSPORT", "")
    lacks = LACKS.get(transport, {})
    for item in items:
        for what in (what for mark in item.iter_markers("needs") for what in mark.args):
            if not any(what in known for known in LACKS.values()):
                message = f"{item.nodeid}: no transport is known to lack {what}"
                raise pytest.UsageError(message)
            if what in lacks:
                item.add_marker(pytest.mark.skip(f"{transport} has no {lacks[what]}"))


@pytest.fixture
def context():
    """A ZeroMQ context of the test's own; a socket left open fails the test, it does not hang it."""
    context = zmq.Context()
    yield context
    ender = threading.Thread(target=context.term, daemon=True)
    ender.start()
    ender.join(timeout=10)
    assert not ender.is_alive(), "a socket was left open"


@pytest.fixture(scope="module")
def s3():
    """A server that speaks S3, of the module's own."""
    server = S3()
    yield server
    server.close()


@pytest.fixture
def open_socket(context):
    """Makes raw sockets; they are closed with the test."""
    sockets = []

    def open_(kind, *, bind=None, connect=None, **options):
        socket = context.socket(kind)
        sockets.append(socket)
        socket.linger = 0
        socket.rcvtimeo = 20_000
        socket.sndtimeo = 20_000
        for name, value in options.items():
            setattr(socket, name, value)
        if bind:
            socket.bind(bind)
        if connect:
            socket.connect(connect)
        return socket

    yield open_
    for socket in sockets:
        socket.close(linger=0)


@pytest.fixture
def listen():
    """Opens raw peers of CHIRP; they are closed with the test."""
    peers = []

    def listen(*where):
        peers.append(Peer(*where))
        return peers[-1]

    yield listen
    for peer in peers:
        peer.close()


@pytest.fixture
def peer(listen):
    """A raw peer of CHIRP at a port of the test's own."""
    return listen()


@pytest.fixture
def record(tmp_path, open_socket):
    """Records messages given as frames, and gives the recorder, still running."""
    recorders = []

    def record(messages, **options):
        recorder = cdtp.Recorder(tmp_path, bind="tcp://127.0.0.1:*", **options)
        recorders.append(recorder)
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for frames in messages:
            push.send_multipart(frames)
        recorder.wait(count=len(messages), timeout_s=20)
        return recorder

    yield record
    for recorder in recorders:
        recorder.close()
