"""Commands that strangers attack, looked at from outside."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

FILES = 1024
ANY = "tcp://127.0.0.1:*"
PATIENCE_S = 60.0


@dataclass
class Seen:
    """What an attack came to, over all its rounds.

    Attributes:
        rounds: How often it was tried.
        done: What was done, and how much of it.
        worst_ms: The longest that a friend was kept waiting.
        rss_mib: The most memory of the role.
        wrong: What was not as it has to be.
    """

    rounds: int = 0
    done: dict[str, int] = field(default_factory=dict)
    worst_ms: float = 0.0
    rss_mib: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def add(self, **done: int) -> None:
        """Counts what was done."""
        for what, count in done.items():
            self.done[what] = self.done.get(what, 0) + count


class Role:
    """A command that runs, and what it says."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trunkline", *arguments, "--json", "--stats-interval", "0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),  # noqa: PLW1509 - no threads here yet
        )
        assert self._process.stdout is not None
        # One that follows a group listens nowhere.
        self.endpoint: str = next(iter(json.loads(self._process.stdout.readline())["endpoints"]), "")
        self.last: dict[str, Any] = {}
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(('{"event": "stats"', '{"event": "stopped"')):
                self.last = json.loads(line)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def rss_mib(self) -> float:
        """Its memory."""
        return int(Path(f"/proc/{self._process.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def files(self) -> int:
        """The descriptors it has open."""
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/fd").iterdir())

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        self._process.send_signal(number)

    def end(self) -> int:
        """Ends it as Ctrl-C does; gives its exit code."""
        if self.alive:
            self._process.send_signal(signal.SIGINT)
        code = self._process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        return code


@contextlib.contextmanager
def running(seen: Seen, *arguments: str) -> Iterator[Role]:
    """A role that has to stand what is done to it, and to end cleanly."""
    role = Role(*arguments)
    try:
        yield role
        if not role.alive:
            seen.wrong.append(f"{' '.join(arguments[:2])} ended by itself")
        else:
            seen.rss_mib = max(seen.rss_mib, role.rss_mib)
            # The command says at its end that it was interrupted.
            if role.end() not in (0, 130):
                seen.wrong.append(f"{' '.join(arguments[:2])} did not end cleanly")
    finally:
        if role.alive:
            role.signal(signal.SIGKILL)
            role.end()


def dialled(role: Role, kind: int, **options: Any) -> Any:
    """A socket that is connected to a role."""
    dialling = zmq.Context.instance().socket(kind)
    dialling.linger = 0
    dialling.sndtimeo = dialling.rcvtimeo = int(PATIENCE_S * 1000)
    for name, value in options.items():
        setattr(dialling, name, value)
    dialling.connect(role.endpoint)
    return dialling


def address(role: Role) -> tuple[str, int]:
    """Where it listens."""
    host, port = role.endpoint.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)
