"""Sockets of whatever libzmq, in processes of their own: two of them in one would be one too many."""

import pickle
import platform
import subprocess
import sys
from pathlib import Path

import zmq
from zmq.utils import z85

from peers.processes import Child

ROOT = Path(__file__).parents[2]
PATIENCE_MS = 20_000

CURRENT = "current"
# Each is installed by `make peers`, from the wheel that brought it.
OLDER = sorted(
    path.stem.removeprefix("requirements-libzmq-") for path in ROOT.glob("tests/live/requirements-libzmq-*.txt")
)
VERSIONS = [*OLDER, CURRENT]

RUNS_HERE = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"

_KEYS = {"curve_publickey", "curve_secretkey", "curve_serverkey"}


def library(version):
    """Where it is."""
    if version == CURRENT:
        # In this process pyzmq has loaded it.
        lines = Path("/proc/self/maps").read_text().splitlines()
        return next(line.split()[-1] for line in lines if "libzmq" in line)
    folder = ROOT / ".peers" / f"libzmq-{version}"
    assert folder.is_dir(), "the released peers are missing: run `make peers`"
    (path,) = folder.glob("zmq/.libs/libzmq*")
    return str(path)


class Libzmq:
    """A process with one libzmq, with sockets much like pyzmq's. Its end does not wait for unsent messages."""

    def __init__(self, version):
        program = Path(__file__).with_name("libzmq_process.py")
        command = [sys.executable, "-I", "-S", str(program), library(version)]
        self.process = Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.version, self.has_curve = self.ask("about")

    def ask(self, name, *arguments):
        pickle.dump((name, arguments), self.process.stdin, protocol=5)
        self.process.stdin.flush()
        is_well, result = pickle.load(self.process.stdout)
        if is_well:
            return result
        raise zmq.Again(*result) if result[0] == zmq.EAGAIN else zmq.ZMQError(*result)

    def socket(self, kind):
        return Socket(self, self.ask("socket", int(kind)))

    def open(self, kind, *, bind=None, connect=None, **options):
        """As the fixture `open_socket` does it."""
        socket = self.socket(kind)
        options = {"linger": 0, "rcvtimeo": PATIENCE_MS, "sndtimeo": PATIENCE_MS, **options}
        for name, value in options.items():
            socket.set(name, value)
        if bind:
            socket.bind(bind)
        if connect:
            socket.connect(connect)
        return socket

    def kill(self):
        self.process.kill()
        self.process.communicate()


class Socket:
    """A socket of that process."""

    def __init__(self, process, number):
        self._process = process
        self._number = number
        self.last_endpoint = b""

    def _ask(self, name, *arguments):
        return self._process.ask(name, self._number, *arguments)

    def set(self, name, value):
        """Sets an option, by pyzmq's name for it."""
        value = z85.decode(value) if name in _KEYS else value
        self._ask("set", int(getattr(zmq, name.upper())), value)

    def bind(self, endpoint):
        self.last_endpoint = self._ask("bind", endpoint)

    def connect(self, endpoint):
        self._ask("connect", endpoint)

    def send_all(self, messages):
        """Sends messages one after the other; gives how many were taken, which is all unless `sndtimeo` has passed."""
        return self._ask("send", messages)

    def send_multipart(self, frames):
        assert self.send_all([frames]) == 1, "no peer takes it"

    def receive_all(self, count):
        return self._ask("receive", count)

    def recv_multipart(self):
        (frames,) = self.receive_all(1)
        return frames

    def poll(self, timeout_ms, _flags=zmq.POLLIN):
        return self._ask("poll", timeout_ms)

    def monitor(self, events):
        """A socket that has something to receive once one of these events happens."""
        monitor = Socket(self._process, self._ask("monitor", int(events)))
        monitor.set("rcvtimeo", PATIENCE_MS)
        return monitor

    def close(self, linger=0):
        self.set("linger", linger)
        self._ask("close")
