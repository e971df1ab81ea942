"""What moves the messages of a role: its machine over a connection, in one loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trunkline import _native
from trunkline.cdt._connection import Connection, Deliver, Happened
from trunkline.cdt._tap import Tap
from trunkline.cdt._waits import cut_off, until, within
from trunkline.errors import ClosedError, PeerLostError

__all__ = ["Pump"]

_CLOSE_S = 5.0

# What may wait to be sent; beyond it nothing is read, and what is asked for waits, so that whoever asks feels it.
_MOST_OUTPUTS = 10_000
_MOST_OUTPUT_BYTES = 64 << 20


class Pump:
    """A machine of CDT, its connection, and the loop that both are in.

    Every method is called in that loop.

    Args:
        kind: The kind of machine.
        settings: How it is set up.
        connect: Makes the connection.
        tell: Hears of every event, `(kind, *details)`.
        tap: Where messages are recorded, if they are.
    """

    def __init__(
        self,
        kind: str,
        settings: dict[str, Any],
        connect: Callable[[Deliver, Happened], Connection],
        tell: Callable[..., None],
        tap: Tap | None,
    ) -> None:
        self._kind = kind
        self._settings = settings
        self._tell = tell
        self._tap = tap
        self.connection = connect(self._deliver, self._happened)
        self._inbox: list[tuple[int, bytes, tuple[bytes, bytes, bytes]]] = []
        self._outputs: deque[Any] = deque()
        self._output_bytes = 0
        # Whether there is too much that waits to be sent.
        self.is_held_up = False
        self._relieved = asyncio.Event()
        self._is_due = False
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._driver: _native.Driver | None = None
        self._sending: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._process = os.getpid()

    async def open(self) -> None:
        """Connects and subscribes; once it returns, the server knows of every subscription.

        Raises:
            PeerLostError: Nobody is there.
            AuthenticationError: We are not let in.
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
            while self._outputs:
                await self._carry_out(self._outputs.popleft())
            await self.connection.flush()
        except BaseException:
            await self.connection.close()
            raise
        self._sending = asyncio.create_task(self._send())

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

    @property
    def closed(self) -> bool:
        """Whether it is over; to the child of a fork it is, since it goes on in the parent."""
        return self._ended.is_set() or self._process != os.getpid()

    def stats(self) -> dict[str, Any]:
        """Counters of the machine, by name."""
        assert self._driver is not None
        return self._driver.stats()

    def ask(self, verb: str, **given: Any) -> None:
        """Asks the machine for something; what comes of it comes with the next turn.

        Raises:
            ClosedError: It is over.
        """
        if self.closed or self._driver is None:
            message = "the role is closed"
            raise ClosedError(message)
        if not self._is_due:
            self._tell_time(self._driver)
        self._driver.ask(self._now_ns(), verb, **given)
        self._soon()

    async def room(self, timeout_s: float | None) -> bool:
        """Waits until there is room for more to send, or it is over; false when the time is up."""
        return await until(self._relieved, lambda: not self.is_held_up or self.closed, timeout_s)

    async def wait(self, timeout_s: float | None) -> bool:
        """Waits until it is over; whether it is."""
        return await until(self._ended, self._ended.is_set, timeout_s)

    def drain(self, grace_s: float) -> None:
        """Begins nothing more, and ends what was begun within `grace_s`, or earlier where that was said before."""
        if self._driver is not None:
            self._driver.handle_close(self._now_ns(), grace_s)
            self._soon()
            self._loop.call_later(grace_s + _CLOSE_S, self._ended.set)

    async def close(self, grace_s: float) -> None:
        """Ends in order, once: what was begun is finished, for as long as `grace_s`."""
        self.drain(grace_s)
        try:
            await self._ended.wait()
        finally:
            self._ended.set()
            self._relieved.set()
            if self._timer is not None:
                self._timer.cancel()
            if self._sending is not None:
                await cut_off(self._sending)
            # A server that has not taken it by now is not asked about the rest.
            if not self._outputs:
                with suppress(PeerLostError, TimeoutError):
                    await within(self.connection.flush(), _CLOSE_S)
            await self.connection.close()

    def _now_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    def _tell_time(self, driver: _native.Driver) -> None:
        """Has the machine know what time it is for others: clocks are set, and drift."""
        driver.ask(self._now_ns(), "clock", unix_ms=time.time_ns() // 1_000_000)

    def _deliver(self, number: int, subject: bytes, reply_to: bytes, block: bytes, body: bytes) -> None:
        self._inbox.append((number, subject, (reply_to, block, body)))
        if not self._is_due:
            self._soon()

    def _happened(self, what: str, text: str) -> None:
        if self._driver is None or self._ended.is_set():
            return
        if what in ("connected", "disconnected"):
            self._driver.handle_socket(self._now_ns(), 0, what, endpoint=text)
            if what == "connected":
                self._driver.ask(self._now_ns(), "max_payload", bytes=self.connection.max_payload)
        else:
            self._tell(what, text)
        self._soon()

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Hands over what came in, and takes what comes of it."""
        self._is_due = False
        driver = self._driver
        if driver is None or self._ended.is_set():
            return
        inbox, self._inbox = self._inbox, []
        self._tell_time(driver)
        now_ns = self._now_ns()
        driver.handle_timeout(now_ns)
        outputs, events, errors = driver.exchange(now_ns, inbox)
        if self._tap is not None and inbox:
            kinds, where = dict(errors), self._where
            for at, (_, subject, (reply_to, block, body)) in enumerate(inbox):
                self._tap.record("in", where, subject, (reply_to, block, body), kinds.get(at))
        for event in events:
            self._tell(*event)
        if outputs:
            self._outputs.extend(outputs)
            self._output_bytes += sum(map(_size, outputs))
            if not self.is_held_up and self._is_full:
                self.is_held_up = True
                self.connection.pause()
            self._wake.set()
        self._plan(driver.timeout_ns)
        if driver.closed and not self._outputs:
            self._ended.set()

    @property
    def _is_full(self) -> bool:
        return len(self._outputs) > _MOST_OUTPUTS or self._output_bytes > _MOST_OUTPUT_BYTES

    def _plan(self, timeout_ns: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timeout_ns is not None:
            self._timer = self._loop.call_at(timeout_ns / 1e9 + 1e-6, self._soon)

    async def _send(self) -> None:
        """Carries out what the machine wants, in its order; what it wants to know of is told once the server has it."""
        driver = self._driver
        assert driver is not None
        # A cancellation may end no more than the wait of one message: see `cut_off`.
        while not self._ended.is_set():
            await self._wake.wait()
            self._wake.clear()
            sent: list[tuple[int, int]] = []
            while self._outputs and not self._ended.is_set():
                output = self._outputs.popleft()
                self._output_bytes -= _size(output)
                told = await self._carry_out(output)
                if told is not None:
                    sent.append(told)
                if self.is_held_up and not self._is_full:
                    self.is_held_up = False
                    self.connection.resume()
                    self._relieved.set()
            if sent:
                happening, reason = "sent", None
                try:
                    await self.connection.flush()
                except Exception:  # noqa: BLE001 - likewise
                    happening, reason = "unsent", "unreachable"
                for socket, number in sent:
                    driver.handle_socket(self._now_ns(), socket, happening, send=number, reason=reason)
            self._soon()

    async def _carry_out(self, output: Any) -> tuple[int, int] | None:
        """Does one thing; gives socket and number of what the machine wants to hear of."""
        driver = self._driver
        assert driver is not None
        if type(output) is tuple:
            socket, number, to, frames = output
            reply_to, _, body = frames
            try:
                await self.connection.publish(to.decode(), reply_to.decode(), body)
            except Exception as error:  # noqa: BLE001 - whatever it is, what comes after is to be sent
                self._tell("failed", str(error))
                if number is not None:
                    driver.handle_socket(self._now_ns(), socket, "unsent", send=number, reason="unreachable")
                return None
            if self._tap is not None:
                self._tap.record("out", self._where, to, frames, None)
            return None if number is None else (socket, number)
        if output["output"] == "open":
            for bound in output["bind"]:
                subject, _, queue = bound.partition(" ")
                await self.connection.subscribe(output["socket"], subject, queue)
        elif output["output"] == "close":
            with suppress(Exception):
                await self.connection.unsubscribe(output["socket"])
            driver.handle_socket(self._now_ns(), output["socket"], "closed")
        return None


def _size(output: Any) -> int:
    return len(output[3][2]) if type(output) is tuple else 0
