"""An event loop in a thread of its own, for the blocking roles."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from trunkline._threads import Thread
from trunkline.cdt._waits import cut_off
from trunkline.errors import ClosedError, LocalProtocolError

__all__ = ["call", "give_up", "loop", "opening"]

Result = TypeVar("Result")


class _Portal:
    """The loop that all blocking roles of CDT of this process share."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # The tasks that open roles.
        self.opening: set[asyncio.Task[Any]] = set()
        started = threading.Event()
        self.thread = Thread(lambda: self._run(started), "trunkline-cdt")
        self.thread.start()
        started.wait()

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(started.set)
        self.loop.run_forever()


_portal: _Portal | None = None
_lock = threading.Lock()


def _forget() -> None:
    """In a forked child: the thread of the parent's loop, which may hold the lock, does not exist there."""
    global _portal, _lock
    _portal, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def loop() -> asyncio.AbstractEventLoop:
    """The loop, created at the first use."""
    global _portal  # noqa: PLW0603 - one a process
    with _lock:
        if _portal is None:
            _portal = _Portal()
        return _portal.loop


class _Call(Generic[Result]):
    """A coroutine in the loop that a thread waits for."""

    def __init__(self, coroutine: Coroutine[Any, Any, Result], give_back: Callable[[Result], None] | None) -> None:
        self._coroutine = coroutine
        self._give_back = give_back
        self._task: asyncio.Task[Any] | None = None
        self._is_given_up = False
        self._results: list[Result] = []

    async def run(self) -> Result:
        if self._is_given_up:
            self._coroutine.close()
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        result = await self._coroutine
        self._results.append(result)
        if self._is_given_up:
            self._return()
        return result

    def give_up(self) -> None:
        """Cancels it: called in the loop. A result that its caller did not get is given back."""
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()
        self._return()

    def _return(self) -> None:
        if self._give_back is not None and self._results:
            self._give_back(self._results.pop())


def call(
    where: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Result],
    give_back: Callable[[Result], None] | None = None,
) -> Result:
    """Waits for a coroutine in that loop; an interrupted wait cancels it.

    Args:
        where: The loop.
        coroutine: The coroutine to await there.
        give_back: Takes back, in the loop, a result that an interrupted thread did not get.
    """
    if _portal is not None and threading.current_thread() is _portal.thread:
        coroutine.close()
        message = "a callback runs in the event loop of its role and cannot wait for it: wait in another thread"
        raise LocalProtocolError(message)
    is_ours = _portal is not None and _portal.loop is where
    if not (is_ours and where.is_running()):
        coroutine.close()
        message = (
            "the event loop of the role has ended"
            if is_ours
            else "the role belongs to the process this one was forked from"
        )
        raise ClosedError(message)
    called = _Call(coroutine, give_back)
    try:
        return asyncio.run_coroutine_threadsafe(called.run(), where).result()
    except CancelledError:
        message = "the role was closed in the meantime"
        raise ClosedError(message) from None
    except BaseException:
        where.call_soon_threadsafe(called.give_up)
        raise


@contextmanager
def opening() -> Iterator[None]:
    """Marks the current task as one that opens a role: `give_up` cancels it."""
    task = asyncio.current_task()
    assert _portal is not None
    assert task is not None
    _portal.opening.add(task)
    try:
        yield
    finally:
        _portal.opening.discard(task)


def give_up() -> None:
    """Cancels the opening of roles, from any thread; what they have begun is undone when this returns.

    The threads that open them get a `ClosedError`.
    """
    portal = _portal
    if portal is None:
        return

    async def cancel() -> None:
        await asyncio.gather(*map(cut_off, portal.opening))

    asyncio.run_coroutine_threadsafe(cancel(), portal.loop).result()
