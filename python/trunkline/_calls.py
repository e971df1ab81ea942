"""Calls that return their replies as futures, for all protocols."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from trunkline import _notices
from trunkline._native import Caller, Outgoing
from trunkline._roles import closed
from trunkline._threads import Thread, survivable
from trunkline._waits import Waits
from trunkline.errors import LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's

__all__ = ["AsyncCalls", "Calls"]

Reply = TypeVar("Reply")


def unanswered(native: Caller, timeout_s: float | None, outcome: str) -> Exception:
    """The exception of a call without a reply."""
    if outcome == "timed_out":
        text = f"no reply came within {timeout_s} s"
        return TimeoutError(text)
    try:
        native.raise_failure()
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return error
    module = type(native).__module__.removeprefix("trunkline._native.")
    return closed(f"{module}.{type(native).__name__}")


class Future(concurrent.futures.Future[Reply], Generic[Reply]):
    """The future of a reply. The thread that completes all futures cannot wait for one."""

    def __init__(self, calls: Calls[Reply], call: int) -> None:
        super().__init__()
        self._calls = calls
        self._call = call

    def cancel(self) -> bool:
        """Stops waiting for the reply; a request that is still queued is not sent."""
        cancelled = super().cancel()
        if cancelled:
            self._calls.cancel(self._call)
        return cancelled

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[Reply]], object]) -> None:
        """Calls `fn` with the future once it is done; see `concurrent.futures.Future.add_done_callback`."""

        def call(future: concurrent.futures.Future[Reply]) -> None:
            try:
                fn(future)
            except survivable() as error:
                # In the words of concurrent.futures, which handles only Exception.
                text = f"exception calling callback for {future!r}"
                _notices.log(logging.getLogger("concurrent.futures"), logging.ERROR, text, error)

        super().add_done_callback(call)

    def result(self, timeout: float | None = None) -> Reply:
        """The reply; see `concurrent.futures.Future.result`."""
        self._check_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception in place of the reply; see `concurrent.futures.Future.exception`."""
        self._check_thread()
        return super().exception(timeout)

    def _check_thread(self) -> None:
        if self._calls.is_mine and not self.done():
            message = "this thread completes the futures of its client and cannot wait for one: wait in another thread"
            raise LocalProtocolError(message)


class Calls(Generic[Reply]):
    """The futures of one client, and the thread that completes them, a batch at a time."""

    def __init__(self, native: Caller) -> None:
        self._native = native
        self._lock = threading.Lock()
        self._futures: dict[int, tuple[Future[Reply], float | None]] = {}
        self._thread: threading.Thread | None = None

    @property
    def is_mine(self) -> bool:
        return threading.current_thread() is self._thread

    def put(self, outgoing: Outgoing, room_s: float | None, timeout_s: float | None) -> Future[Reply]:
        """Creates the future first: its call may be over before this returns."""
        future: Future[Reply] = Future(self, outgoing.call)
        with self._lock:
            if self._thread is None:
                thread = Thread(self._run, "trunkline-futures")
                thread.start()
                # Set last: a signal handler may raise before the thread has started.
                self._thread = thread
            self._futures[outgoing.call] = future, timeout_s
        try:
            self._native.put(outgoing, room_s)
        except BaseException:
            self._futures.pop(outgoing.call, None)
            raise
        return future

    def cancel(self, call: int) -> None:
        self._futures.pop(call, None)
        self._native.cancel(call)

    def join(self) -> None:
        """Waits until every future is completed; the client is closed."""
        if self._thread is not None and not self.is_mine:
            self._thread.join()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        native = self._native
        poll = select.poll()
        poll.register(native.outcomes_fileno(), select.POLLIN)
        over = False
        while not over:
            # Waits in Python, so that no native code runs when the interpreter ends.
            if not native.arm_outcomes():
                poll.poll()
            native.disarm_outcomes()
            over = native.closed
            for call, outcome in native.outcomes():
                self._complete(call, outcome)
        for call in list(self._futures):
            self._complete(call, "unanswered")

    def _complete(self, call: int, outcome: Any) -> None:
        future, timeout_s = self._futures.pop(call, (None, None))
        if future is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, str):
            future.set_exception(unanswered(self._native, timeout_s, outcome))
        elif isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class AsyncCalls(Generic[Reply]):
    """The futures of one asyncio role, which are completed in its event loop."""

    def __init__(self, native: Caller, waits: Waits) -> None:
        self._native = native
        self._waits = waits
        self._futures: dict[int, tuple[asyncio.Future[Reply], float | None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()

    async def put(self, outgoing: Outgoing, room_s: float | None, timeout_s: float | None) -> asyncio.Future[Reply]:
        """Waits for room in the queue only, and returns the future of the reply."""
        native = self._native
        loop = self._listen()
        await self._waits.room(lambda: native.offer(outgoing), room_s)
        return self._expect(loop, outgoing, timeout_s)

    def put_now(self, outgoing: Outgoing, timeout_s: float | None) -> asyncio.Future[Reply]:
        """Returns the future of the reply at once.

        Raises:
            TimeoutError: The queue has no room.
        """
        loop = self._listen()
        if not self._native.offer(outgoing):
            message = "the queue has no room"
            raise TimeoutError(message)
        return self._expect(loop, outgoing, timeout_s)

    def _expect(
        self, loop: asyncio.AbstractEventLoop, outgoing: Outgoing, timeout_s: float | None
    ) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = loop.create_future()
        self._futures[outgoing.call] = future, timeout_s
        future.add_done_callback(self._forget(outgoing.call))
        return future

    def end(self) -> None:
        """Completes pending futures; the role has ended."""
        # After a fork the child's loop shares its descriptors with the parent's: leave it alone.
        if self._loop is not None and self._process == os.getpid():
            self._complete_all()

    def _listen(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._native.outcomes_fileno(), self._complete_all)
            self._complete_all()
        elif self._loop is not loop:
            message = "this client is bound to another event loop"
            raise LocalProtocolError(message)
        return loop

    def _forget(self, call: int) -> Callable[[asyncio.Future[Reply]], None]:
        def forget(future: asyncio.Future[Reply]) -> None:
            if future.cancelled() and self._futures.pop(call, None) is not None:
                self._native.cancel(call)

        return forget

    def _complete_all(self) -> None:
        native = self._native
        native.disarm_outcomes()
        while True:
            over = native.closed
            for call, outcome in native.outcomes():
                self._complete(call, outcome)
            if over or not native.arm_outcomes():
                break
        if over:
            self._unlisten()

    def _complete(self, call: int, outcome: Any) -> None:
        future, timeout_s = self._futures.pop(call, (None, None))
        if future is None or future.done():
            return
        if isinstance(outcome, str):
            future.set_exception(unanswered(self._native, timeout_s, outcome))
        elif isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _unlisten(self) -> None:
        """Completes pending futures, and leaves the loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._native.outcomes_fileno())
        for call in list(self._futures):
            self._complete(call, "unanswered")
