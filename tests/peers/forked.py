"""Commands in processes forked from one that has imported all of them, for most of what a short command takes is imports.

Such a process has its own arguments, environment, directory, streams and session, and ends by itself, as any other.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

# Variables in which the environment may differ from that of the process that forks: no others may be looked at by an import.
_FREE = ("TRUNKLINE_", "_TRUNKLINE_", "COMP_", "COLUMNS", "NATS_URL", "PYSPARK_GATEWAY_", "PYTEST_")

# No pyarrow, which starts threads: a fork would not have them.
_IMPORTED = (
    *("asyncio", "typer._adapters", "zmq"),
    *(
        f"trunkline.{name}"
        for name in ("capture", "capture.exporting", "cdt", "cdtp", "columns", "conform", "dcp", "mc0", "mtl")
    ),
)


@cache
def forks() -> Forks:
    """Of this process of tests, the one that forks."""
    return Forks()


def started(words: Sequence[str], *, cwd: Path | None = None, **environment: str) -> Any:
    """Starts `trunkline`: a `Forked` or, where that cannot be, a `Popen`; with the environment of this process, and more."""
    whole = {**os.environ, **environment}
    directory = cwd or Path.cwd()
    if forks().can(whole):
        return forks().start(*words, cwd=directory, environment=whole)
    return subprocess.Popen(
        [sys.executable, "-m", "trunkline", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=directory,
        env=whole,
        text=True,
        start_new_session=True,
    )


class Forks:
    """A process that forks, until this one ends."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "peers.forked", str(theirs.fileno())],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def can(self, environment: dict[str, str]) -> bool:
        """Whether a process may be forked that is to have this environment."""
        changed = {name for name, _ in environment.items() ^ self._environment.items()}
        return all(name.startswith(_FREE) for name in changed)

    def start(self, *arguments: str, cwd: Path, environment: dict[str, str]) -> Forked:
        """Starts `trunkline`."""
        (stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr), (our_status, status) = (
            os.pipe() for _ in range(4)
        )
        theirs = [stdin, stdout, stderr, status]
        request = json.dumps([arguments, str(cwd), environment]).encode()
        socket.send_fds(self._socket, [request], theirs)
        for number in theirs:
            os.close(number)
        return Forked(arguments, our_stdin, our_stdout, our_stderr, our_status)


class Forked:
    """A command that was forked, as a `subprocess.Popen` of text."""

    def __init__(self, arguments: Sequence[str], stdin: int, stdout: int, stderr: int, status: int) -> None:
        self.args = arguments
        self.stdin = open(stdin, "w")  # noqa: SIM115 - `communicate` closes these
        self.stdout = open(stdout)  # noqa: SIM115
        self.stderr = open(stderr)  # noqa: SIM115
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()
        said = b""
        while not said.endswith(b"\n"):
            said += os.read(status, 1)
        self.pid = int(said)

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            if self.returncode is None:
                if not select.select([self._status], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout)
                self.returncode = int(os.read(self._status, 10))
                os.close(self._status)
            return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, text: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        pool = ThreadPoolExecutor(3)
        working = [pool.submit(self._write, text), pool.submit(_read, self.stdout), pool.submit(_read, self.stderr)]
        pool.shutdown(wait=False)
        if futures.wait(working, timeout).not_done:
            raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(timeout)
        return working[1].result(), working[2].result()

    def _write(self, text: str | None) -> None:
        with suppress(BrokenPipeError):
            if text:
                self.stdin.write(text)
            self.stdin.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _read(file: TextIO | None) -> str:
    # A test may have taken it.
    if file is None or file.closed:
        return ""
    with file:
        return file.read()


def _serve(ours: socket.socket) -> Any:
    """Forks for each request until there are no more; in a fork, the request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, numbers, _, _ = socket.recv_fds(ours, 1 << 20, 4)
        if not request:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            ours.close()
            return _begin(json.loads(request), *numbers)
        for number in numbers:
            os.close(number)


def _begin(request: Any, *numbers: int) -> Any:
    """Forks the command, and waits for it; in the command, the request."""
    *streams, status = numbers
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for number in numbers:
            os.close(number)
        return request
    for stream in streams:
        os.close(stream)
    os.write(status, b"%d\n" % pid)
    os.write(status, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _import_all() -> None:
    from typer.main import get_command

    from trunkline.cli.app import app

    groups: list[Any] = [get_command(app)]
    while groups:
        groups += getattr(groups.pop(), "commands", {}).values()
    for name in _IMPORTED:
        importlib.import_module(name)
    assert threading.active_count() == 1 == len(list(Path("/proc/self/task").iterdir()))
    # What is never collected is never copied.
    gc.freeze()


if __name__ == "__main__":
    _import_all()
    if (given := _serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        import trunkline.__main__ as program

        arguments, directory, environment = given
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [program.__file__, *arguments]
        program.main()
