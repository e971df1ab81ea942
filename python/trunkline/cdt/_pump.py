"""Runs the machine of a role over a connection, in one event loop."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from trunkline import _native
from trunkline._native import Messages
from trunkline._roles import closed
from trunkline.cdt._connection import Connection, Deliver, Happened
from trunkline.cdt._tap import Tap
from trunkline.cdt._waits import cut_off, until, within
from trunkline.errors import PeerLostError

__all__ = ["Pump"]

_CLOSE_S = 1.0

# Limits of the outgoing queue: beyond them nothing is read and calls wait, as backpressure.
_MOST_OUTPUTS = 10_000
_MOST_OUTPUT_BYTES = 64 << 20

# Bytes per write to the connection: many small messages, or a few large ones.
_BATCH_BYTES = 256 << 10

# Bytes taken from the inbox at a time: each message may be a request with an answer of the largest size.
_PORTION_BYTES = {"cdt.target": 16 << 10, "cdt.source": 1 << 20}

_NONE = Messages([])


# Those of this process: in a forked child they are closed, as they go on in the parent.
_pumps: weakref.WeakSet[Pump] = weakref.WeakSet()


def _end_all() -> None:
    for pump in _pumps:
        pump.closed = True


os.register_at_fork(after_in_child=_end_all)


class Pump:
    """A machine of CDT, its connection, and the loop that both are in.

    Every method is called in that loop.

    Args:
        kind: The kind of machine.
        settings: Its settings.
        connect: Makes the connection.
        handle: Called with events, each `(kind, *details)`.
        tap: Records messages, if given.

    Attributes:
        closed: Whether it has ended.
        is_held_up: Whether the outgoing queue is full.
    """

    def __init__(
        self,
        kind: str,
        settings: dict[str, Any],
        connect: Callable[[Deliver, Happened], Connection],
        handle: Callable[[Iterable[tuple[Any, ...]]], None],
        tap: Tap | None,
    ) -> None:
        self._kind = kind
        self._settings = settings
        self._handle = handle
        self._tap = tap
        self.connection = connect(self._deliver, self._happened)
        self._inbox: deque[Messages] = deque()
        self._is_begun = False
        self._outputs: deque[Messages | dict[str, Any]] = deque()
        # Counts of the messages among them.
        self._output_count = 0
        self._output_bytes = 0
        self.is_held_up = False
        self._relieved = asyncio.Event()
        # Whether an output is in progress that must come before the queued ones.
        self._is_waiting = False
        # Sent messages to confirm to the machine, by socket and number.
        self._unconfirmed: list[tuple[int, int]] = []
        self._has_unconfirmed = asyncio.Event()
        # Whether a turn is due, and whether one is in progress.
        self._is_due = False
        self._is_turning = False
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._driver: _native.Driver | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.closed = False
        self._ended = asyncio.Event()
        _pumps.add(self)

    async def open(self) -> None:
        """Connects and subscribes; once it returns, the server knows of every subscription.

        Raises:
            PeerLostError: No server answers.
            AuthenticationError: The server refuses the login.
        """
        self._loop = asyncio.get_running_loop()
        await self.connection.open()
        settings = {
            **self._settings,
            "max_payload": self.connection.max_payload,
            "unix_ms": (time.time_ns() - self._now_ns()) // 1_000_000,
        }
        try:
            self._driver = _native.Driver(self._kind, settings, now_ns=self._now_ns(), seed=None)
            self._turn()
            await self._carry_out_all()
            await self.connection.flush()
        except BaseException:
            await self.connection.close()
            raise
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._confirm())]

    def begin(self) -> None:
        """Starts to pass on incoming messages, those since `open` first: the role is ready for them."""
        self._is_begun = True
        self._soon()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where it runs."""
        return self._loop

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where it is connected."""
        return self.connection.endpoints

    @property
    def _where(self) -> str | None:
        return ",".join(self.endpoints) or None

    def stats(self) -> dict[str, Any]:
        """Counters of the machine, by name."""
        assert self._driver is not None
        return self._driver.stats()

    def ask(self, verb: str, **given: Any) -> None:
        """Passes a call to the machine; its outputs come with the next turn.

        Raises:
            ClosedError: It has ended.
        """
        if self.closed or self._driver is None:
            raise closed(self._kind)
        if not self._is_due:
            self._set_clock(self._driver)
        self._driver.ask(self._now_ns(), verb, **given)
        self._soon()

    async def room(self, timeout_s: float | None) -> bool:
        """Waits until the outgoing queue has room, or it has ended; false on timeout."""
        return await until(self._relieved, lambda: not self.is_held_up or self.closed, timeout_s)

    async def wait(self, timeout_s: float | None) -> bool:
        """Waits until it has ended; false on timeout."""
        return await until(self._ended, self._ended.is_set, timeout_s)

    def drain(self, grace_s: float) -> None:
        """Accepts nothing new, and completes pending work within `grace_s`, or an earlier deadline."""
        if self._driver is not None:
            self._driver.handle_close(self._now_ns(), grace_s)
            self._soon()
            self._loop.call_later(grace_s + _CLOSE_S, self._end)

    async def close(self, grace_s: float) -> None:
        """Drains for at most `grace_s`, and closes."""
        self.drain(grace_s)
        try:
            await self._ended.wait()
        finally:
            self._end()
            self._relieved.set()
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                await cut_off(task)
            # No flush if outputs are left: the server does not read.
            if not self._outputs:
                with suppress(PeerLostError, TimeoutError):
                    await within(self.connection.flush(), _CLOSE_S)
            await self.connection.close()

    def _end(self) -> None:
        self.closed = True
        self._ended.set()

    def _now_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    def _set_clock(self, driver: _native.Driver) -> None:
        """Sets the wall clock of the machine: the system's clock may be adjusted."""
        driver.ask(self._now_ns(), "clock", unix_ms=time.time_ns() // 1_000_000)

    def _deliver(self, messages: Messages) -> None:
        self._inbox.append(messages)
        if not self._is_begun or self._is_due:
            return
        if self._is_turning:
            self._soon()
            return
        try:
            self._turn()
        except Exception as error:  # noqa: BLE001 - the reader must go on, as an event loop does
            self._loop.call_exception_handler({"message": "a turn of a role of CDT failed", "exception": error})

    def _happened(self, what: str, text: str) -> None:
        if self._driver is None or self.closed:
            return
        if what in ("connected", "disconnected"):
            self._driver.handle_socket(self._now_ns(), 0, what, endpoint=text)
        if what in ("connected", "limits"):
            self._driver.ask(self._now_ns(), "max_payload", bytes=self.connection.max_payload)
        elif what != "disconnected":
            self._handle([(what, text)])
        self._soon()

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            if not self._is_turning:
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Passes incoming messages to the machine, and carries out its outputs."""
        self._is_due = False
        driver = self._driver
        if driver is None or self.closed:
            return
        self._is_turning = True
        try:
            self._set_clock(driver)
            is_over = self._exchange(driver)
            while self._may_take:
                is_over = self._exchange(driver)
            if self._is_due:
                # Calls made meanwhile need not wait for the next iteration of the loop.
                self._is_due = False
                is_over = self._exchange(driver)
        finally:
            # After an exception too, the next turn comes.
            self._is_turning = False
            if self._is_due:
                self._loop.call_soon(self._turn)
        if is_over and not self._outputs:
            self._end()

    def _exchange(self, driver: _native.Driver) -> bool:
        """Passes a portion of the inbox to the machine, with due timers; returns whether it has ended."""
        messages = self._portion()
        outputs, events, errors, timeout_ns, is_over = driver.exchange(self._now_ns(), messages)
        self._plan(timeout_ns)
        if self._tap is not None and messages:
            kinds, where = dict(errors), self._where
            for at, (_, _, subject, frames) in enumerate(messages):
                self._tap.record("in", where, subject, frames, kinds.get(at))
        if outputs:
            self._put(outputs)
        if events:
            self._handle(events)
        return is_over

    @property
    def _may_take(self) -> bool:
        """Whether there is something to take from the inbox, and the outgoing queue is not full."""
        return bool(self._inbox) and self._is_begun and not self.is_held_up

    def _portion(self) -> Messages:
        """The next messages to take from the inbox."""
        if not self._may_take:
            return _NONE
        portion = self._inbox[0].take(_PORTION_BYTES[self._kind])
        if not self._inbox[0]:
            self._inbox.popleft()
        return portion

    def _put(self, outputs: list[Messages | dict[str, Any]]) -> None:
        """Queues outputs, and sends as many as there is room for."""
        self._outputs.extend(outputs)
        for output in outputs:
            if type(output) is Messages:
                self._output_count += len(output)
                self._output_bytes += output.nbytes
        if not self._is_waiting:
            self._post()
        if not self.is_held_up and self._is_full:
            self.is_held_up = True
            self.connection.pause()
        if self._outputs:
            self._wake.set()

    @property
    def _is_full(self) -> bool:
        return self._output_count > _MOST_OUTPUTS or self._output_bytes > _MOST_OUTPUT_BYTES

    def _plan(self, timeout_ns: int | None) -> None:
        if timeout_ns is None:
            return
        at = timeout_ns / 1e9 + 1e-6
        if self._timer is not None:
            if self._timer.when() <= at:
                # The earlier timer plans this one anew.
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look_up)

    def _look_up(self) -> None:
        self._timer = None
        self._soon()

    async def _send(self) -> None:
        """Carries out the outputs of the machine in order."""
        # A cancellation may end only the wait for one message: see `cut_off`.
        while not self.closed:
            await self._wake.wait()
            self._wake.clear()
            await self._carry_out_all()
            self._soon()

    async def _confirm(self) -> None:
        """Confirms sent messages to the machine once the server has them; sending goes on meanwhile."""
        driver = self._driver
        assert driver is not None
        while not self.closed:
            await self._has_unconfirmed.wait()
            self._has_unconfirmed.clear()
            sent, self._unconfirmed = self._unconfirmed, []
            happening, reason = "sent", None
            try:
                await self.connection.flush()
            except Exception:  # noqa: BLE001 - after any error it is unknown whether the server has it
                happening, reason = "unsent", "unreachable"
            for socket, number in sent:
                driver.handle_socket(self._now_ns(), socket, happening, send=number, reason=reason)
            self._soon()

    async def _carry_out_all(self) -> None:
        self._is_waiting = True
        try:
            while self._outputs and not self.closed:
                first = self._outputs[0]
                if isinstance(first, dict):
                    self._outputs.popleft()
                    await self._carry_out(first)
                elif not self._post():
                    await self.connection.room()
        finally:
            self._is_waiting = False

    def _post(self) -> bool:
        """Sends the first queued messages while the connection has room; returns whether it has more room."""
        while self._outputs and not self.connection.is_full:
            first = self._outputs[0]
            if isinstance(first, dict):
                break
            messages = first.take(_BATCH_BYTES)
            if not first:
                self._outputs.popleft()
            self._output_count -= len(messages)
            self._output_bytes -= messages.nbytes
            self._publish(messages)
        if self.is_held_up and not self._is_full:
            self.is_held_up = False
            self.connection.resume()
            self._relieved.set()
            if self._inbox:
                self._soon()
        return not self.connection.is_full

    def _publish(self, messages: Messages) -> None:
        driver = self._driver
        assert driver is not None
        unsent = self.connection.publish(messages)
        if unsent:
            self._handle([("failed", why) for why in set(unsent.values())])
        if self._tap is None and not unsent and not messages.numbered:
            return
        for position, (socket, number, to, frames) in enumerate(messages):
            if position in unsent:
                if number is not None:
                    driver.handle_socket(self._now_ns(), socket, "unsent", send=number, reason="unreachable")
                    self._soon()
                continue
            if self._tap is not None:
                self._tap.record("out", self._where, to, frames, None)
            if number is not None:
                self._unconfirmed.append((socket, number))
                self._has_unconfirmed.set()

    async def _carry_out(self, output: dict[str, Any]) -> None:
        """Opens or closes subscriptions of the machine."""
        driver = self._driver
        assert driver is not None
        if output["output"] == "open":
            for bound in output["bind"]:
                subject, _, queue = bound.partition(" ")
                await self.connection.subscribe(output["socket"], subject, queue)
        elif output["output"] == "close":
            with suppress(Exception):
                await self.connection.unsubscribe(output["socket"])
            driver.handle_socket(self._now_ns(), output["socket"], "closed")
