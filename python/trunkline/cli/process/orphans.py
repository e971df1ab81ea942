"""Which processes end together. Only on Linux: on other systems a killed process leaves its children behind."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["adopt_orphans", "end_orphans", "ending_with_parent"]

# Of <sys/prctl.h>.
_PARENT_DEATH_SIGNAL = 1
_CHILD_SUBREAPER = 36

_LOOK_S = 0.005


def _prctl() -> Callable[[int, int], int]:
    import ctypes

    system: Callable[[int, int], int] = ctypes.CDLL(None, use_errno=True).prctl
    return system


def ending_with_parent(parent: int) -> Callable[[], None] | None:
    """The function that a child calls to end with its parent, however that ends; it makes only a system call.

    Args:
        parent: The process that starts it; it may have ended before the child calls this.
    """
    if sys.platform != "linux":
        return None
    prctl = _prctl()

    def end_with_parent() -> None:
        prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return end_with_parent


def adopt_orphans() -> None:
    """Makes this process the parent of its orphaned descendants."""
    if sys.platform == "linux":
        _prctl()(_CHILD_SUBREAPER, 1)


def end_orphans() -> None:
    """Kills all children, those adopted meanwhile too, and waits until they are gone."""
    # There are none left, or the system cannot list them.
    with contextlib.suppress(ChildProcessError, FileNotFoundError):
        while True:
            for child in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(_LOOK_S)


def _children() -> Iterable[int]:
    if sys.platform != "linux":
        return ()
    return map(int, Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())
