"""Commands that strangers attack, measured from outside."""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import zmq

from benches.processes import PATIENCE_S, RoleProcess

FILES = 1024
ANY = "tcp://127.0.0.1:*"


@dataclass
class Seen:
    """The result of an attack, over all its rounds.

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


def started(*arguments: str) -> RoleProcess:
    """Starts a command with few descriptors."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trunkline", *arguments, "--json", "--stats-interval", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),  # noqa: PLW1509 - no threads here yet
    )
    return RoleProcess(process)


@contextlib.contextmanager
def running(seen: Seen, *arguments: str) -> Iterator[RoleProcess]:
    """A role that must survive, and end cleanly."""
    role = started(*arguments)
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


def dialled(role: RoleProcess, kind: int, **options: Any) -> Any:
    """A socket that is connected to a role."""
    dialling = zmq.Context.instance().socket(kind)
    dialling.linger = 0
    dialling.sndtimeo = dialling.rcvtimeo = int(PATIENCE_S * 1000)
    for name, value in options.items():
        setattr(dialling, name, value)
    dialling.connect(role.endpoint)
    return dialling


def address(role: RoleProcess) -> tuple[str, int]:
    """Where it listens."""
    host, port = role.endpoint.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)
