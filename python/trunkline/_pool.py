"""Threads that do what a role was asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

__all__ = ["Pool"]


class Pool:
    """At most so many threads, started as they are needed.

    They are daemons: neither Ctrl-C nor the end of the interpreter waits for a handler that hangs.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._busy = 0

    def run(self, work: Callable[[], object]) -> None:
        """Does this in one of the threads, as soon as one is free; it must not raise."""
        with self._lock:
            self._busy += 1
            starts = self._started < min(self._busy, self._size)
            self._started += starts
            number = self._started
        self._work.put(work)
        if starts:
            threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()

    def end(self) -> None:
        """Lets the threads end once they have nothing left to do."""
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            # Not kept while waiting: a request that nobody answered is to be collected.
            del work
            with self._lock:
                self._busy -= 1
