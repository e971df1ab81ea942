"""When a command that waits looks up."""

from __future__ import annotations

import time
from collections.abc import Callable

from trunkline.cli.signals import Stopping

__all__ = ["LOOK_S", "Pace", "rest"]

# How long anybody waits without looking at what a signal has set.
LOOK_S = 0.05


def rest(stopping: Stopping, seconds: float) -> None:
    """Waits so long, or until a signal has come."""
    due = time.monotonic() + seconds
    while not stopping.stopped and (left := due - time.monotonic()) > 0:
        time.sleep(min(left, LOOK_S))


class Pace:
    """When a command that waits looks up: for a signal, to tell its counters, or because nothing has come in for too long.

    Args:
        stopping: What signals do to it.
        tell: Tells the counters.
        interval_s: How often; None for never.
        idle_s: How long nothing may come in; None for ever.
        need_reader: Ends the command once its output has no reader; None for one that prints no stream.
    """

    def __init__(
        self,
        stopping: Stopping,
        tell: Callable[[], None],
        interval_s: float | None,
        idle_s: float | None = None,
        need_reader: Callable[[], None] | None = None,
    ) -> None:
        self._stopping = stopping
        self._tell = tell
        self._interval_s = interval_s
        self._idle_s = idle_s
        self._need_reader = need_reader
        self._told = self._seen = self._looked = time.monotonic()
        self._progress = 0

    def wait_s(self) -> float:
        """How long to wait before looking up."""
        now = time.monotonic()
        waits = [LOOK_S]
        if self._interval_s is not None:
            waits.append(max(self._told + self._interval_s - now, 0))
        if self._idle_s is not None:
            waits.append(max(self._seen + self._idle_s - now, 0))
        return min(waits)

    def look_up(self) -> None:
        """Tells the counters if it is time to, and sees whether there is a reader."""
        if self._need_reader is not None and time.monotonic() >= self._looked + LOOK_S:
            self._looked = time.monotonic()
            self._need_reader()
        if self._interval_s is not None and time.monotonic() >= self._told + self._interval_s:
            self._told = time.monotonic()
            self._tell()

    def saw(self) -> None:
        """Something has come in."""
        self._seen = time.monotonic()

    def saw_progress(self, count: int) -> None:
        """So much has come in so far."""
        if count != self._progress:
            self._progress = count
            self.saw()

    @property
    def idle(self) -> bool:
        """Whether nothing has come in for too long."""
        return self._idle_s is not None and time.monotonic() >= self._seen + self._idle_s

    @property
    def stopped(self) -> bool:
        """Whether a signal has come."""
        return self._stopping.stopped
