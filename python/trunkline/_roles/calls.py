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
from typing import Any, Generic, Protocol, TypeVar

from trunkline._native import Caller, Outgoing
from trunkline._roles.native import closed
from trunkline._roles.notices import log
from trunkline._roles.threads import Thread, survivable
from trunkline._roles.waits import Waits
from trunkline.errors import LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's

__all__ = ["AsyncCalls", "Calls", "Future"]

Reply = TypeVar("Reply")

# Of a call that is not waited for.
_NONE = (None, None)


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


class _Calls(Protocol):
    """The calls that a future belongs to."""

    def cancel(self, call: int) -> None: ...
    def wait(self, future: Any, timeout_s: float | None) -> float | None: ...


class Future(concurrent.futures.Future[Reply], Generic[Reply]):
    """The future of a reply. The thread that completes all futures cannot wait for one; in a simulation, waiting for it
    advances the clock.

    ```pycon
    >>> from trunkline import dcp, testing
    >>> with testing.pair(dcp.Broker, dcp.Client) as sim:
    ...     worker = sim.add(dcp.Worker, b"echo", testing.echo, work_s=2)
    ...     future = sim.client.submit(b"echo", b"hello")
    ...     future.add_done_callback(lambda done: print(done.result().data))
    ...     future.done(), future.exception(), future.result().data, sim.now_s
    ...     sim.client.submit(b"echo", b"never mind").cancel()
    (b'hello',)
    (False, None, (b'hello',), 2.0)
    True

    ```
    """

    def __init__(self, calls: _Calls, call: int) -> None:
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
                log(logging.getLogger("concurrent.futures"), logging.ERROR, text, error)

        super().add_done_callback(call)

    def result(self, timeout: float | None = None) -> Reply:
        """The reply; see `concurrent.futures.Future.result`."""
        return super().result(self._calls.wait(self, timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception in place of the reply; see `concurrent.futures.Future.exception`."""
        return super().exception(self._calls.wait(self, timeout))


def _resolve(
    future: Future[Reply] | asyncio.Future[Reply], native: Caller, timeout_s: float | None, outcome: Any
) -> None:
    """Completes a future with a reply, an error, or why there is no reply."""
    if isinstance(outcome, str):
        future.set_exception(unanswered(native, timeout_s, outcome))
    elif isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


class Calls(Generic[Reply]):
    """The futures of one client, and the thread that completes them, a batch at a time.

    Those of a simulated client are completed as its clock advances.
    """

    def __init__(self, native: Caller) -> None:
        self._native = native
        self._simulation = native.simulation
        if self._simulation is not None:
            self._simulation.watch(self._take)
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
            if self._thread is None and self._simulation is None:
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

    def wait(self, future: Future[Reply], timeout_s: float | None) -> float | None:
        """Prepares a wait for a future. Returns how long it may still take: nothing once a simulation has come that far."""
        if self._simulation is not None:
            self._simulation.until(future.done, timeout_s)
            return 0
        if self.is_mine and not future.done():
            message = "this thread completes the futures of its client and cannot wait for one: wait in another thread"
            raise LocalProtocolError(message)
        return timeout_s

    def end(self) -> None:
        """Waits until every future is completed; the client is closed."""
        if self._simulation is not None:
            self._take()
        elif self._thread is not None and not self.is_mine:
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
            self._take()
        for call in list(self._futures):
            self._complete(call, "unanswered")

    def _take(self) -> None:
        for call, outcome in self._native.outcomes():
            self._complete(call, outcome)

    def _complete(self, call: int, outcome: Any) -> None:
        future, timeout_s = self._futures.pop(call, _NONE)
        if future is None or not future.set_running_or_notify_cancel():
            return
        _resolve(future, self._native, timeout_s, outcome)


class AsyncCalls(Generic[Reply]):
    """The futures of one asyncio role, which are completed in its event loop."""

    def __init__(self, native: Caller, waits: Waits) -> None:
        self._native = native
        self._waits = waits
        self._futures: dict[int, tuple[asyncio.Future[Reply], float | None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._is_waking = self._has_more = False

    async def ask(self, outgoing: Outgoing, room_s: float | None, timeout_s: float | None) -> Reply:
        """Waits for room in the queue, and for the reply."""
        loop = self._listen()
        if not self._post(loop, outgoing):
            await self._waits.room(lambda: self._post(loop, outgoing), room_s)
        future = self._expect(loop, outgoing, timeout_s)
        try:
            return await future
        except asyncio.CancelledError:
            self._cancel(outgoing.call)
            raise

    async def put(self, outgoing: Outgoing, room_s: float | None, timeout_s: float | None) -> asyncio.Future[Reply]:
        """Waits for room in the queue only, and returns the future of the reply."""
        loop = self._listen()
        await self._waits.room(lambda: self._post(loop, outgoing), room_s)
        return self._given_out(loop, outgoing, timeout_s)

    def put_now(self, outgoing: Outgoing, timeout_s: float | None) -> asyncio.Future[Reply]:
        """Returns the future of the reply at once.

        Raises:
            TimeoutError: The queue has no room.
        """
        loop = self._listen()
        if not self._post(loop, outgoing):
            message = "the queue has no room"
            raise TimeoutError(message)
        return self._given_out(loop, outgoing, timeout_s)

    def _post(self, loop: asyncio.AbstractEventLoop, outgoing: Outgoing) -> bool:
        """Hands a call to the engine. It is woken by the first of a turn of the loop, and after the last."""
        is_taken = self._native.post(outgoing)
        if not is_taken:
            return False
        if self._is_waking:
            self._has_more = True
        else:
            self._is_waking = True
            self._native.wake()
            loop.call_soon(self._wake)
        return True

    def _wake(self) -> None:
        self._is_waking = False
        if self._has_more:
            self._has_more = False
            self._native.wake()

    def _expect(
        self, loop: asyncio.AbstractEventLoop, outgoing: Outgoing, timeout_s: float | None
    ) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = loop.create_future()
        self._futures[outgoing.call] = future, timeout_s
        return future

    def _given_out(
        self, loop: asyncio.AbstractEventLoop, outgoing: Outgoing, timeout_s: float | None
    ) -> asyncio.Future[Reply]:
        """A future for the caller, who may cancel it."""
        future, call = self._expect(loop, outgoing, timeout_s), outgoing.call

        def forget(future: asyncio.Future[Reply]) -> None:
            if future.cancelled():
                self._cancel(call)

        future.add_done_callback(forget)
        return future

    def _cancel(self, call: int) -> None:
        if self._futures.pop(call, None) is not None:
            self._native.cancel(call)

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
        future, timeout_s = self._futures.pop(call, _NONE)
        if future is not None and not future.done():
            _resolve(future, self._native, timeout_s, outcome)

    def _unlisten(self) -> None:
        """Completes pending futures, and leaves the loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._native.outcomes_fileno())
        for call in list(self._futures):
            self._complete(call, "unanswered")
