"""When a waiting command wakes up."""

from __future__ import annotations

import time
from collections.abc import Callable

from trunkline.cli.process.signals import Stopping

__all__ = ["LOOK_S", "Pace", "rest"]

# How often a wait checks whether a signal has come.
LOOK_S = 0.05


def rest(stopping: Stopping, seconds: float) -> None:
    """Waits so long, or until a signal has come."""
    due = time.monotonic() + seconds
    while not stopping.stopped and (left := due - time.monotonic()) > 0:
        time.sleep(min(left, LOOK_S))


class Pace:
    """When a waiting command wakes up: for a signal, to report its counters, or because it was idle for too long.

    Args:
        stopping: Its handling of signals.
        report: Reports the counters.
        interval_s: How often to report; None for never.
        idle_s: How long nothing may come in; None for no limit.
        need_reader: Ends the command once its output has no reader; None for one that prints no stream.
    """

    def __init__(
        self,
        stopping: Stopping,
        report: Callable[[], None],
        interval_s: float | None,
        idle_s: float | None = None,
        need_reader: Callable[[], None] | None = None,
    ) -> None:
        self._stopping = stopping
        self._report = report
        self._interval_s = interval_s
        self._idle_s = idle_s
        self._need_reader = need_reader
        self._reported = self._seen = self._looked = time.monotonic()
        self._progress = 0

    def wait_s(self) -> float:
        """How long to wait before `look_up`."""
        now = time.monotonic()
        waits = [LOOK_S]
        if self._interval_s is not None:
            waits.append(max(self._reported + self._interval_s - now, 0))
        if self._idle_s is not None:
            waits.append(max(self._seen + self._idle_s - now, 0))
        return min(waits)

    def look_up(self) -> None:
        """Reports the counters when due, and checks that the output has a reader."""
        if self._need_reader is not None and time.monotonic() >= self._looked + LOOK_S:
            self._looked = time.monotonic()
            self._need_reader()
        if self._interval_s is not None and time.monotonic() >= self._reported + self._interval_s:
            self._reported = time.monotonic()
            self._report()

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
