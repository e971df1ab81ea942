"""The role that subscribes and puts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, Unpack, get_args

from trunkline import _notices
from trunkline._arguments import need_callable, need_choice, need_flag, need_number
from trunkline._calls import AsyncCalls, Calls
from trunkline._frames import Parts
from trunkline._native import Told
from trunkline._native.mc0 import Connector as _Connector
from trunkline._native.mc0 import Letter, Message
from trunkline._notices import Dropped, Notices
from trunkline._roles import AsyncStream, BlockingRole, Role, native_options, opened
from trunkline._text import counted, readable
from trunkline.errors import LocalProtocolError, PeerLostError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import Overflow, RoleOptions, spelled_out

__all__ = ["AsyncConnector", "Connecting", "Connector", "ConnectorStats", "Headers", "Text", "tell"]

_DRAIN_S = 5.0

Text: TypeAlias = "str | bytes"
OnError: TypeAlias = "Callable[[Message], object]"
Headers: TypeAlias = "Mapping[str, Text] | Mapping[bytes, Text] | Iterable[tuple[Text, Text]]"


@dataclass(frozen=True, slots=True)
class ConnectorStats:
    """Counters of a connector since its start.

    Attributes:
        received: Whole messages off the socket.
        sent: Messages the transport has taken.
        dropped: Those that came and are no use, by kind; only kinds that occurred.
        bytes: Bytes of all frames that came.
        messages: Messages of subscribed topics.
        put: Messages put, confirmed or not.
        confirmed: Those that the middleware has confirmed.
        errors: ERRORs that came.
        reconnects: Connections that were lost, or fell silent, and were made anew.
        queued: What waits to be sent, or to be confirmed.
        queued_bytes: The bytes of its frames, and 64 for each frame.
        capture_lost: Rows the capture could not keep up with.
    """

    received: int
    sent: int
    dropped: Mapping[str, int]
    bytes: int
    messages: int
    put: int
    confirmed: int
    errors: int
    reconnects: int
    queued: int
    queued_bytes: int
    capture_lost: int


class Connecting(Role):
    """What a connector does apart from waiting."""

    _native: _Connector | None = None

    @spelled_out(RoleOptions, without="bind")
    def __init__(
        self,
        *,
        ttl_ms: int | None = 10_000,
        leading_delimiter: bool = True,
        overflow: Overflow = "block",
        on_error: OnError | None = None,
        on_drop: Callable[[Dropped], object] | None = None,
        **options: Unpack[RoleOptions],
    ) -> None:
        need_number("ttl_ms", ttl_ms, may_be_none=True)
        need_flag("leading_delimiter", leading_delimiter)
        need_choice("overflow", overflow, get_args(Overflow))
        need_callable("on_error", on_error)
        need_callable("on_drop", on_drop)
        if options.get("bind"):
            message = "a connector dials its middleware: use connect="
            raise LocalProtocolError(message)
        self._ttl_ms = ttl_ms
        self._leading_delimiter = leading_delimiter
        self._overflow = overflow
        self._on_error = on_error
        self._on_drop = on_drop
        self._options = options
        self._made()

    def _machine(self) -> tuple[str, dict[str, Any]]:
        return "mc0.connector", {"ttl_ms": self._ttl_ms, "leading_delimiter": self._leading_delimiter}

    def _open(self) -> None:
        options = native_options(self._options, grace_s=0.0)
        native = _Connector(options, max_message_bytes=options["max_message_bytes"], **self._machine()[1])
        notices = Notices("mc0", "connector", self._on_drop)
        self._link = _Link(is_ours=self._options.get("socket") is None)
        told, link, on_error = native.told, self._link, self._on_error
        _notices.watch(told, lambda: _tell_all(told, notices, link, on_error))
        self._native = opened(native, self._options, notices)

    @property
    def _connector(self) -> _Connector:
        native: _Connector = self._opened()
        return native

    @property
    def stats(self) -> ConnectorStats:
        """Counters of this moment; the last ones once closed."""
        return ConnectorStats(**self._connector.stats())

    def _not_flushed(self, timeout_s: float | None) -> TimeoutError:
        unsent = self.stats.queued
        return TimeoutError(
            f"not sent, or not confirmed, within {timeout_s} s: {counted(unsent, 'message')}", unsent=unsent
        )

    def _room_s(self, timeout_s: float | None) -> float | None:
        return 0.0 if self._overflow == "raise" else timeout_s

    def _letter(self, topic: Text, body: Parts, headers: Headers) -> Letter:
        if self._link.is_lost:
            message = "the middleware is silent, and a socket of yours is not connected anew: see to it"
            raise PeerLostError(message)
        return self._connector.letter(topic, body, headers)

    def _telling(self, native: Any) -> Any:
        return native.told


class _Link:
    """What is known of a connection where nobody asks the engine."""

    def __init__(self, *, is_ours: bool) -> None:
        self.is_ours = is_ours
        self.is_lost = False


def _tell_all(told: Told, notices: Notices, link: _Link, on_error: OnError | None) -> None:
    for kind, *details in told.read():
        if kind in ("silent", "found"):
            link.is_lost = kind == "silent" and not link.is_ours
        tell(notices, on_error, kind, *details)


def tell(notices: Notices, on_error: OnError | None, kind: str, *details: Any) -> None:
    """Tells what a connector's engine has to say that is no message of a topic."""
    if kind == "error":
        (message,) = details
        notices.log(logging.WARNING, kind, f"the middleware says: {readable(message.text or '')[:200]}")
        notices.call("on_error", on_error, message)
    elif kind == "silent":
        notices.log(logging.WARNING, kind, "the middleware is silent, and connected to anew")
    elif kind == "found":
        notices.log(logging.INFO, kind, "the middleware is heard of again")
    else:
        notices.tell(kind, *details)


class Connector(Connecting, BlockingRole):
    """Subscribes to topics and puts messages; from any number of threads.

    A connection that breaks, or whose middleware is silent for 1.05 times `ttl_ms`, is made anew: the subscriptions are
    restored before anything else is sent, and what was submitted and is not confirmed is sent again. So a message is
    delivered at most once, and reaches the middleware at least once if it is submitted. Messages that pass while a
    subscriber is away are lost to it: nobody keeps them.

    Iterate over it for the messages of its topics. While more of them wait than ``queue_messages`` or ``queue_bytes``, nothing is
    read, and so no answer comes either.

    Of several endpoints in ``connect`` one is dialled at a time: the next one when it cannot be reached within 2.5 s, is
    gone, or falls silent. A ``socket`` of yours is not dialled anew: while its middleware is silent every call raises
    `trunkline.PeerLostError`, and so does `receive`, once.

    Args:
        ttl_ms: How long either end may be silent (MC0-21, MC0-26). None or 0: for ever; a middleware that hangs is not
            noticed then, only a connection that breaks. So it is, too, if the middleware refuses as long a time: an ERROR says so.
        leading_delimiter: Whether what it sends begins with an empty frame (MC0-07).
        overflow: What a full queue does to what is sent: it waits, or it raises at once.
        on_error: Called with each ERROR, a `Message`, that answers nothing of this connector, in the thread
            ``trunkline-notices``.
        on_drop: Called with a `trunkline.Dropped`, in the same thread.
        **options: Where it dials, how much waits, what it records: ``connect``, ``curve``, ``queue_messages``, ``capture`` and more,
            each in `trunkline.RoleOptions`; a connector has no ``bind``.

    Raises:
        OSError: An endpoint cannot be connected.
        LocalProtocolError: The options contradict each other.
        CaptureError: The capture cannot be opened.
    """

    def _open(self) -> None:
        super()._open()
        self._calls: Calls[None] = Calls(self._connector)

    def subscribe(self, *topics: Text, timeout_s: float | None = None) -> None:
        """Subscribes to topics, all or none of them, and waits until the middleware confirms it (MC0-28).

        Args:
            *topics: The topics, each exactly as its messages have it.
            timeout_s: How long; None for ever. One that times out is not wanted any more: it is taken back if it has left.

        Raises:
            MiddlewareError: The middleware refuses it.
            TimeoutError: It does not answer, or the queue had no room.
            LocalProtocolError: There are more topics than a message can have frames.
            PeerLostError: It is silent, and the ``socket`` is yours.
            ClosedError: The connector is, or was, closed.
        """
        self._ask(self._connector.subscribe(topics, timeout_s), timeout_s)

    def unsubscribe(self, *topics: Text, timeout_s: float | None = None) -> None:
        """Ends subscriptions, and waits until the middleware confirms it; unknown ones are as well (MC0-29).

        Whatever comes of it, a connection that is made anew does not restore them. See `subscribe`.
        """
        self._ask(self._connector.unsubscribe(topics, timeout_s), timeout_s)

    def put(
        self,
        topic: Text,
        body: Parts,
        *,
        headers: Headers = (),
        confirm: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Puts a message for the subscribers of a topic (MC0-30).

        Args:
            topic: The topic.
            body: The frames of the body: one, or a sequence of them.
            headers: What goes with it to the subscribers, in order; keys begin with ``X-`` (MC0-11).
            confirm: Wait until the middleware has it. Otherwise it is sent once, and lost with its connection.
            timeout_s: How long to wait, for room in the queue and for the answer; None for ever.

        Raises:
            MiddlewareError: The middleware refuses it.
            TimeoutError: It does not answer, or the queue had no room.
            LocalProtocolError: A header is reserved, or a frame is larger than ``max_message_bytes``.
            PeerLostError: It is silent, and the ``socket`` is yours.
            ClosedError: The connector is, or was, closed.
        """
        connector = self._connector
        if confirm:
            self._ask(connector.submit(topic, body, headers, timeout_s), timeout_s)
        else:
            connector.put_letter(self._letter(topic, body, headers), self._room_s(timeout_s))

    def submit(
        self, topic: Text, body: Parts, *, headers: Headers = (), timeout_s: float | None = None
    ) -> concurrent.futures.Future[None]:
        """Puts a message that is confirmed, and does not wait for that; see `put` for the arguments.

        Waits for room in the queue alone, in which a message stays until it is confirmed. The future's callbacks run in a
        thread of this connector, which completes them all and so cannot wait for one: that raises `LocalProtocolError`.

        Returns:
            What ends when the message is confirmed, or what `put` would raise.
        """
        outgoing = self._connector.submit(topic, body, headers, timeout_s)
        return self._calls.put(outgoing, self._room_s(timeout_s), timeout_s)

    def ping(self, *, timeout_s: float | None = None) -> float:
        """Asks the middleware for a sign of life, a NOOP that is answered.

        Args:
            timeout_s: How long to wait; None for ever.

        Returns:
            The seconds from when the transport had it to the answer.

        Raises:
            MiddlewareError: The middleware refuses it.
            TimeoutError: It does not answer, or the queue had no room.
            PeerLostError: It is silent, and the ``socket`` is yours.
            ClosedError: The connector is, or was, closed.
        """
        round_trip_s: float = self._ask(self._connector.ping(timeout_s), timeout_s)
        return round_trip_s

    def _ask(self, outgoing: Any, timeout_s: float | None) -> Any:
        return self._connector.request(outgoing, room_s=self._room_s(timeout_s), timeout_s=timeout_s)

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Waits until the transport has taken all that was put, and what is to be confirmed is.

        Args:
            timeout_s: How long; None for ever.

        Raises:
            TimeoutError: It has not; `.unsent` says how many messages are left.
            ClosedError: The connector is closed.
        """
        connector = self._connector
        connector.check_open()
        if not connector.wait_drained(timeout_s):
            raise self._not_flushed(timeout_s)

    def receive(self, *, timeout_s: float | None = None) -> Message:
        """Waits for a message of a topic it is subscribed to.

        Args:
            timeout_s: How long; None for ever, 0 not at all.

        Raises:
            TimeoutError: None came.
            PeerLostError: The middleware is silent, and the ``socket`` is yours.
            ClosedError: The connector is closed.
        """
        return self._connector.receive(timeout_s)

    def __iter__(self) -> Iterator[Message]:
        """Every message until the connector is closed."""
        return self._connector

    def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """Takes nothing new, waits until all is sent and confirmed, leaves (MC0-27), and ends; at once if there is nothing.

        What is not confirmed by then raises `ClosedError` where somebody waits for it. A ``with`` that ends in an exception
        does not wait.

        Args:
            drain_s: How long to wait, and for the transport to send what it has taken, at most.
        """
        self._finish(drain_s)

    def _settled(self, native: Any) -> None:
        self._calls.join()
        super()._settled(native)

    def _abandon(self) -> None:
        self.close(drain_s=0.0)

    def __del__(self) -> None:
        super().__del__()
        native = self._native
        if native is not None and not native.closed:
            # The thread of its futures holds the rest: it ends with the role.
            native.close(0.0)


class AsyncConnector(Connecting, AsyncStream[Message]):
    """`Connector` for asyncio: opened by ``async with``, iterated by ``async for``; what can wait is a coroutine."""

    def _open(self) -> None:
        super()._open()
        self._calls: AsyncCalls[Any] = AsyncCalls(self._connector, self._waits)

    async def subscribe(self, *topics: Text, timeout_s: float | None = None) -> None:
        """See `Connector.subscribe`."""
        await self._ask(self._connector.subscribe(topics, timeout_s), timeout_s)

    async def unsubscribe(self, *topics: Text, timeout_s: float | None = None) -> None:
        """See `Connector.unsubscribe`."""
        await self._ask(self._connector.unsubscribe(topics, timeout_s), timeout_s)

    async def put(
        self,
        topic: Text,
        body: Parts,
        *,
        headers: Headers = (),
        confirm: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """See `Connector.put`."""
        connector = self._connector
        if confirm:
            await self._ask(connector.submit(topic, body, headers, timeout_s), timeout_s)
            return
        letter = self._letter(topic, body, headers)
        await self._waits.room(lambda: connector.offer_letter(letter), self._room_s(timeout_s))

    def submit(
        self, topic: Text, body: Parts, *, headers: Headers = (), timeout_s: float | None = None
    ) -> asyncio.Future[None]:
        """See `Connector.submit`; never waits, so a full queue raises `TimeoutError` at once, whatever ``overflow`` says."""
        return self._calls.put_now(self._connector.submit(topic, body, headers, timeout_s), timeout_s)

    async def ping(self, *, timeout_s: float | None = None) -> float:
        """See `Connector.ping`."""
        round_trip_s: float = await self._ask(self._connector.ping(timeout_s), timeout_s)
        return round_trip_s

    async def _ask(self, outgoing: Any, timeout_s: float | None) -> Any:
        return await (await self._calls.put(outgoing, self._room_s(timeout_s), timeout_s))

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """See `Connector.flush`."""
        connector = self._connector
        connector.check_open()
        if not await self._waits.until(lambda: connector.is_drained() or connector.closed, timeout_s):
            raise self._not_flushed(timeout_s)
        connector.wait_drained(0)

    async def receive(self, *, timeout_s: float | None = None) -> Message:
        """See `Connector.receive`."""
        connector = self._connector
        return await self._waits.taken(connector.poll, timeout_s, "no message came")

    async def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """See `Connector.close`."""
        await self._finish(drain_s)

    def _settled(self, native: Any) -> None:
        self._calls.end()
        super()._settled(native)

    async def _abandon(self) -> None:
        await self.close(drain_s=0.0)
