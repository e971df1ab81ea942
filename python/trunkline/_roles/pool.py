"""Thread pools of roles."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from trunkline._roles.notices import log
from trunkline._roles.threads import Thread, survivable

__all__ = ["Pool"]


class Pool:
    """At most so many threads, started as they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._busy = 0

    def run(self, work: Callable[[], object]) -> None:
        """Runs `work` in the first free thread; what it raises is only logged."""
        with self._lock:
            self._busy += 1
            starts = self._started < min(self._busy, self._size)
            self._started += starts
            number = self._started
        self._work.put(work)
        if starts:
            Thread(self._run, f"{self._name}-{number}").start()

    def end(self) -> None:
        """Lets the threads end once they have nothing left to do."""
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except survivable() as error:
                text = f"a call in {threading.current_thread().name} raised"
                log(logging.getLogger("trunkline"), logging.ERROR, text, error)
            # Not kept while waiting, so that an unanswered request is collected.
            del work
            with self._lock:
                self._busy -= 1
