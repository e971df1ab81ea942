"""Calls that a command has on their way, and how long each takes."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Flight"]

Answer = TypeVar("Answer")

# A signal that comes just before a wait of Python's own does not end it.
_LOOK_S = 0.2


class Flight(Generic[Answer]):
    """Calls by their numbers, until they have ended."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[tuple[int, Future[Answer], float]] = queue.SimpleQueue()

    def submit(self, index: int, submit: Callable[[], Future[Answer]]) -> None:
        """Makes a call; its time counts from here."""
        start = time.perf_counter()

        def done(future: Future[Answer]) -> None:
            self._done.put((index, future, (time.perf_counter() - start) * 1000))

        submit().add_done_callback(done)

    def landed(self) -> tuple[int, Future[Answer], float] | None:
        """The next that has ended: its number, what came of it, and its milliseconds; waits a little, then gives None."""
        try:
            return self._done.get(timeout=_LOOK_S)
        except queue.Empty:
            return None

    @property
    def is_empty(self) -> bool:
        """Whether none has ended that was not given yet."""
        return self._done.empty()
