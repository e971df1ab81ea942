"""Processes that tests start, and what the system says of them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType


class Child(subprocess.Popen):
    """A process that a test talks to. It ends with a test that fails, which would wait for it, maybe for ever."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, at)


def state(pid: int) -> str:
    """What a process does, as ps has it: R, S, T for stopped, Z where only its number is left; nothing where that is not either."""
    return _state(Path(f"/proc/{pid}"))


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has reached each of its threads, which takes a moment."""
    return all(_state(task) == "T" for task in Path(f"/proc/{pid}/task").iterdir())


def is_gone(pid: int) -> bool:
    """Whether it has ended, even if its parent has not reaped it."""
    return state(pid) in {"", "Z", "X"}


def descendants(pid: int) -> list[int]:
    """The children of a process, theirs, and so on."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            found += [child, *descendants(child)]
    return found
