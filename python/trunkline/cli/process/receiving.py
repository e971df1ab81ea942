"""Prints received messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from trunkline import errors
from trunkline.cli.process.waiting import Pace
from trunkline.cli.terminal.output import Reason

__all__ = ["Printing"]

One = TypeVar("One")
One_co = TypeVar("One_co", covariant=True)


class _Receive(Protocol[One_co]):
    """Waits for a message, or raises `TimeoutError`."""

    def __call__(self, *, timeout_s: float | None = None) -> One_co: ...


class Printing(Generic[One]):
    """Prints received messages, up to a count.

    Args:
        receive: Returns the next one.
        show: Prints it.
        count: How many; None for no limit.
    """

    def __init__(self, receive: _Receive[One], show: Callable[[One], None], count: int | None) -> None:
        self._receive = receive
        self._show = show
        self._count = count
        self.printed = 0

    @property
    def _is_done(self) -> bool:
        return self._count is not None and self.printed >= self._count

    def run(self, pace: Pace) -> Reason:
        """Prints until the count, the idle time or a signal."""
        while not self._is_done:
            if pace.stopped:
                return "signal"
            try:
                one = self._receive(timeout_s=pace.wait_s())
            except errors.TimeoutError:
                if pace.idle:
                    return "idle"
            else:
                pace.saw()
                self._print(one)
            pace.look_up()
        return "count"

    def drain(self) -> None:
        """Prints messages that have arrived already."""
        while not self._is_done:
            try:
                self._print(self._receive(timeout_s=0))
            except errors.TimeoutError:
                return

    def _print(self, one: One) -> None:
        self._show(one)
        self.printed += 1
