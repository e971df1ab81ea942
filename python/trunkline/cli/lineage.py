"""Who ends with whom. Linux knows; elsewhere a process that is killed leaves behind what it has started."""

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
    """What a child is to call so that it ends with its parent, however that ends; a call of the system's and no more.

    Args:
        parent: The process that starts it, and may have ended before the child comes to call this.
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
    """Makes this process the parent of all its descendants whose own parents end."""
    if sys.platform == "linux":
        _prctl()(_CHILD_SUBREAPER, 1)


def end_orphans() -> None:
    """Kills all children, those adopted meanwhile too, and waits until they are gone."""
    # There are none any more; or the system does not say who they are.
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
