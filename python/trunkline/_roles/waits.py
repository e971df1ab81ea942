"""How coroutines wait for an engine: any number at a time, on its two descriptors."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from trunkline._arguments import need_timeout
from trunkline.errors import TimeoutError  # noqa: A004 - trunkline's

if TYPE_CHECKING:
    from trunkline._native import Role as _Engine

__all__ = ["Arrivals", "Waits"]

Taken = TypeVar("Taken")


class Arrivals:
    """The waits for what one descriptor announces, all in one event loop."""

    def __init__(self, fileno: Callable[[], int], disarm: Callable[[], None]) -> None:
        self._bell = _Bell(fileno, disarm)

    async def taken(
        self, poll: Callable[[], Taken | None], arm: Callable[[], bool], timeout_s: float | None, what: str
    ) -> Taken:
        """Waits until `poll` returns something.

        Raises:
            TimeoutError: There was nothing.
        """
        end = _end(timeout_s)
        while (found := poll()) is None:
            left = _left(end)
            if left == 0:
                message = f"{what} within {timeout_s} s"
                raise TimeoutError(message)
            # Something came in meanwhile, perhaps for others: yield to the event loop.
            await (self._bell.wait(left) if not arm() else asyncio.sleep(0))
        return found


class Waits:
    """The waits of one role in asyncio, all in one event loop."""

    def __init__(self, role: _Engine) -> None:
        self._role = role
        self._events = Arrivals(role.fileno, role.disarm)
        self._changes = _Bell(functools.partial(role.fileno, changes=True), role.disarm_changes)

    async def until(self, ready: Callable[[], bool], timeout_s: float | None) -> bool:
        """Waits until `ready`; false on timeout."""
        end = _end(timeout_s)
        while not ready():
            left = _left(end)
            if left == 0:
                return False
            self._role.arm_changes()
            if not ready():
                await self._changes.wait(left)
        return True

    async def room(self, offer: Callable[[], bool], timeout_s: float | None) -> None:
        """Waits until the queue takes what is offered.

        Raises:
            TimeoutError: It had no room.
        """
        if not await self.until(offer, timeout_s):
            message = f"the queue had no room within {timeout_s} s"
            raise TimeoutError(message)

    async def taken(self, poll: Callable[[], Taken | None], timeout_s: float | None, what: str) -> Taken:
        """Waits until `poll` returns something.

        Raises:
            TimeoutError: There was nothing.
        """
        return await self._events.taken(poll, self._role.arm, timeout_s, what)


class _Bell:
    """A descriptor and the coroutines it wakes: asyncio allows one reader per descriptor.

    It wakes all of them, and each polls for itself.
    """

    def __init__(self, fileno: Callable[[], int], silence: Callable[[], None]) -> None:
        self._fileno = fileno
        self._silence = silence
        # In order of arrival.
        self._waiting: dict[asyncio.Future[None], None] = {}

    async def wait(self, timeout_s: float | None) -> None:
        """Waits until the descriptor is readable, or for so long."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _finish, future)
        if not self._waiting:
            loop.add_reader(self._fileno(), self._ring)
        self._waiting[future] = None
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            del self._waiting[future]
            if not self._waiting:
                loop.remove_reader(self._fileno())
                self._silence()

    def _ring(self) -> None:
        self._silence()
        for future in self._waiting:
            _finish(future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _end(timeout_s: float | None) -> float | None:
    if timeout_s is None:
        return None
    if not 0 <= timeout_s < math.inf:
        need_timeout("timeout_s", timeout_s)
    return time.monotonic() + timeout_s


def _left(end: float | None) -> float | None:
    return None if end is None else max(end - time.monotonic(), 0.0)
