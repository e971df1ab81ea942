"""The calls in flight of a command, and their latencies."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Flight"]

Answer = TypeVar("Answer")

# Waits are short, as a signal just before a wait does not end it.
_LOOK_S = 0.2


class Flight(Generic[Answer]):
    """Calls in flight, by number."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[tuple[int, Future[Answer], float]] = queue.SimpleQueue()

    def submit(self, index: int, submit: Callable[[], Future[Answer]]) -> None:
        """Makes a call; its time counts from here."""
        start = time.perf_counter()

        def done(future: Future[Answer]) -> None:
            self._done.put((index, future, (time.perf_counter() - start) * 1000))

        submit().add_done_callback(done)

    def landed(self) -> tuple[int, Future[Answer], float] | None:
        """The next completed call: its number, its future, and its milliseconds; None after a short wait."""
        try:
            return self._done.get(timeout=_LOOK_S)
        except queue.Empty:
            return None

    @property
    def is_empty(self) -> bool:
        """Whether no completed call is left to return."""
        return self._done.empty()
