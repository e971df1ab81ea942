"""The connector."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, Unpack, get_args

from trunkline._arguments import need_callable, need_choice, need_flag, need_number
from trunkline._frames import Parts
from trunkline._metrics.counters import Count, Latencies, Level, TransportName, measured
from trunkline._native import NoticeQueue
from trunkline._native.mc0 import Connector as _Connector
from trunkline._native.mc0 import Message, OutgoingPut
from trunkline._roles.base import AsyncStream, BlockingRole, Role, need_sent
from trunkline._roles.calls import AsyncCalls, Calls
from trunkline._roles.native import opened
from trunkline._roles.notices import Dropped, Notices, watch
from trunkline._roles.options import native_options, need_client
from trunkline._text import counted, readable
from trunkline.errors import PeerLostError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import Overflow, RoleOptions, spelled_out

__all__ = ["AsyncConnector", "Connector", "ConnectorBase", "ConnectorStats", "Headers", "Text", "report"]

_DRAIN_S = 5.0

Text: TypeAlias = "str | bytes"
OnError: TypeAlias = "Callable[[Message], object]"
Headers: TypeAlias = "Mapping[str, Text] | Mapping[bytes, Text] | Iterable[tuple[Text, Text]]"


@dataclass(frozen=True, slots=True)
class ConnectorStats:
    """Counters of a connector since its start.

    Attributes:
        received: Messages read from the socket.
        sent: Messages handed to the transport.
        dropped: Dropped messages by kind; only kinds that occurred.
        bytes: Bytes of all frames received.
        messages: Messages of subscribed topics.
        put: Messages put, confirmed or not.
        confirmed: Messages that the middleware has confirmed.
        latency: How long these took from when they were handed to the transport until they were confirmed.
        errors: ERRORs received.
        reconnects: Times the connection was made again after it was lost or fell silent.
        queued: Messages waiting to be sent or confirmed.
        queued_bytes: Their bytes, and 64 for each frame.
        capture_lost: Rows dropped because the capture could not keep up.
        connection_failures: Connections that were refused or given up, by reason, e.g. ``too_many_frames`` or
            ``handshake_timeout``; only reasons that occurred, and none over libzmq, which does not tell them.
        transport: The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``.
    """

    received: Count
    sent: Count
    dropped: Mapping[str, Count]
    bytes: Count
    messages: Count
    put: Count
    confirmed: Count
    latency: Latencies
    errors: Count
    reconnects: Count
    queued: Level
    queued_bytes: Level
    capture_lost: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class ConnectorBase(Role):
    """The base class of the connector, without its waits."""

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
        need_client("a connector connects to its middleware", options)
        self._settings: dict[str, Any] = {"ttl_ms": ttl_ms, "leading_delimiter": leading_delimiter}
        self._overflow = overflow
        self._on_error = on_error
        self._on_drop = on_drop
        self._options = options
        self._made()

    def _open(self) -> None:
        options = native_options(self._options, grace_s=0.0)
        native = _Connector(options, max_message_bytes=options["max_message_bytes"], **self._settings)
        notices = Notices("mc0", "connector", self._on_drop)
        self._link = _Link(is_ours=self._options.get("socket") is None)
        pending, link, on_error = native.notice_queue, self._link, self._on_error
        watch(pending, lambda: _report_all(pending, notices, link, on_error))
        self._native = opened(native, self._options, notices)

    @property
    def _connector(self) -> _Connector:
        native: _Connector = self._opened()
        return native

    @property
    def stats(self) -> ConnectorStats:
        """The current counters; the final ones once closed."""
        return ConnectorStats(**measured(self._connector.stats()))

    def _not_flushed(self, timeout_s: float | None) -> TimeoutError:
        # What is not queued any more is still with the transport.
        unsent = max(self.stats.queued, 1)
        return TimeoutError(
            f"not sent, or not confirmed, within {timeout_s} s: {counted(unsent, 'message')}", unsent=unsent
        )

    def _room_s(self, timeout_s: float | None) -> float | None:
        return 0.0 if self._overflow == "raise" else timeout_s

    def _prepared(self, topic: Text, body: Parts, headers: Headers) -> OutgoingPut:
        if self._link.is_lost:
            message = "the middleware is silent, and a socket passed with socket= is not reconnected: reconnect it"
            raise PeerLostError(message)
        return self._connector.prepare_put(topic, body, headers)

    def _check_sent(self, native: Any, waited_s: float) -> None:
        need_sent(native, waited_s)

    def _notices_of(self, native: Any) -> Any:
        return native.notice_queue


class _Link:
    """The state of a connection, as far as notices report it."""

    def __init__(self, *, is_ours: bool) -> None:
        self.is_ours = is_ours
        self.is_lost = False


def _report_all(pending: NoticeQueue, notices: Notices, link: _Link, on_error: OnError | None) -> None:
    for kind, *details in pending.read():
        if kind in ("silent", "found"):
            link.is_lost = kind == "silent" and not link.is_ours
        report(notices, on_error, kind, *details)


def report(notices: Notices, on_error: OnError | None, kind: str, *details: Any) -> None:
    """Reports a notice of a connector's engine."""
    if kind == "error":
        (message,) = details
        notices.log(logging.WARNING, kind, f"error from the middleware: {readable(message.text or '')[:200]}")
        notices.call("on_error", on_error, message)
    elif kind == "silent":
        notices.log(logging.WARNING, kind, "the middleware is silent: reconnecting")
    elif kind == "found":
        notices.log(logging.INFO, kind, "the middleware is responding again")
    else:
        notices.report(kind, *details)


class Connector(ConnectorBase, BlockingRole):
    """Subscribes to topics and publishes messages, from any number of threads.

    A connection that is lost, or whose middleware is silent for 1.05 times `ttl_ms`, is made again: subscriptions are
    restored before anything else is sent, and submitted messages without confirmation are sent again. Delivery to
    subscribers is at most once; a submitted message reaches the middleware at least once. A subscriber misses the messages
    that are published while it is disconnected.

    Iterate over it for the messages of its topics. While ``queue_messages`` or ``queue_bytes`` is reached, nothing is read,
    answers included.

    Of several endpoints in ``connect``, one is used at a time: the next one if it cannot be reached within 2.5 s, is lost, or
    falls silent. Your own ``socket`` is not reconnected: while its middleware is silent, every call raises
    `trunkline.PeerLostError`, and so does `receive`, once.

    Args:
        ttl_ms: How long either end may be silent, in milliseconds (MC0-21, MC0-26). None or 0: no limit; a hanging
            middleware is then not detected, only a lost connection. The same applies if the middleware refuses this time
            as too long, which it says by an ERROR.
        leading_delimiter: Whether messages are sent with a leading empty frame (MC0-07).
        overflow: What sending does when the queue is full: block, or raise at once.
        on_error: Called with each ERROR, a `Message`, that is not the answer to a call, in the thread
            ``trunkline-notices``.
        on_drop: Called with a `trunkline.Dropped`, in the same thread.
        **options: Endpoints, queues and capture: ``connect``, ``curve``, ``queue_messages``, ``capture`` and more,
            each in `trunkline.RoleOptions`; a connector has no ``bind``.

    Raises:
        OSError: An endpoint cannot be connected.
        LocalProtocolError: The options contradict each other.
        CaptureError: The capture cannot be opened.

    ```pycon
    >>> from trunkline import mc0
    >>> with mc0.Middleware(bind="tcp://127.0.0.1:*") as bus, mc0.Connector(connect=bus.endpoints) as connector:
    ...     connector.subscribe("runs.1", timeout_s=10)
    ...     connector.put("runs.1", b"run 1 begins", headers={"X-Origin": "daq"}, confirm=True, timeout_s=10)
    ...     message = connector.receive(timeout_s=10)
    ...     message.topic, message.body
    ...     connector.unsubscribe("runs.1", timeout_s=10)
    ...     futures = [connector.submit("runs.1", word, timeout_s=10) for word in (b"one", b"two")]
    ...     connector.flush(timeout_s=10)
    ...     [future.result(timeout=10) for future in futures], connector.ping(timeout_s=10) < 10
    ...     connector.close(drain_s=2)
    ('runs.1', (b'run 1 begins',))
    ([None, None], True)

    ```
    """

    def _open(self) -> None:
        super()._open()
        self._calls: Calls[None] = Calls(self._connector)

    def subscribe(self, *topics: Text, timeout_s: float | None = None) -> None:
        """Subscribes to topics, all of them or none, and waits for the confirmation (MC0-28).

        Args:
            *topics: The topics; they are matched exactly.
            timeout_s: How long to wait; None for no limit. A subscription that times out is withdrawn.

        Raises:
            MiddlewareError: The middleware refused it.
            TimeoutError: No answer arrived, or the queue was full.
            LocalProtocolError: There are more topics than a message can have frames.
            PeerLostError: The middleware is silent, and the ``socket`` is your own.
            ClosedError: The connector is, or was, closed.
        """
        self._ask(self._connector.subscribe(topics, timeout_s), timeout_s)

    def unsubscribe(self, *topics: Text, timeout_s: float | None = None) -> None:
        """Ends subscriptions, and waits for the confirmation, which unknown ones get too (MC0-29).

        They are not restored after a reconnection, whatever the result. See `subscribe`.
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
        """Publishes a message to the subscribers of a topic (MC0-30).

        Args:
            topic: The topic.
            body: The frames of the body: one, or a sequence of them.
            headers: Headers for the subscribers, in order; keys begin with ``X-`` (MC0-11).
            confirm: Wait until the middleware has confirmed it; else it is sent once, and lost if the connection is.
            timeout_s: How long to wait for room in the queue and for the answer; None for no limit.

        Raises:
            MiddlewareError: The middleware refused it.
            TimeoutError: No answer arrived, or the queue was full.
            LocalProtocolError: A header is reserved, or a frame is larger than ``max_message_bytes``.
            PeerLostError: The middleware is silent, and the ``socket`` is your own.
            ClosedError: The connector is, or was, closed.
        """
        connector = self._connector
        if confirm:
            self._ask(connector.submit(topic, body, headers, timeout_s), timeout_s)
        else:
            connector.send_put(self._prepared(topic, body, headers), self._room_s(timeout_s))

    def submit(
        self, topic: Text, body: Parts, *, headers: Headers = (), timeout_s: float | None = None
    ) -> concurrent.futures.Future[None]:
        """Publishes a message with confirmation, without waiting for it; see `put` for the arguments.

        Only waits for room in the queue, where the message stays until it is confirmed. The future's callbacks run in a
        thread of this connector that completes all futures; waiting for one there raises `LocalProtocolError`.

        Returns:
            A future that completes when the message is confirmed, or fails with what `put` would raise.
        """
        outgoing = self._connector.submit(topic, body, headers, timeout_s)
        return self._calls.put(outgoing, self._room_s(timeout_s), timeout_s)

    def ping(self, *, timeout_s: float | None = None) -> float:
        """Sends a NOOP to the middleware, and waits for its answer.

        Args:
            timeout_s: How long to wait; None for no limit.

        Returns:
            The round trip, in seconds.

        Raises:
            MiddlewareError: The middleware refused it.
            TimeoutError: No answer arrived, or the queue was full.
            PeerLostError: The middleware is silent, and the ``socket`` is your own.
            ClosedError: The connector is, or was, closed.
        """
        round_trip_s: float = self._ask(self._connector.ping(timeout_s), timeout_s)
        return round_trip_s

    def _ask(self, outgoing: Any, timeout_s: float | None) -> Any:
        return self._connector.request(outgoing, room_s=self._room_s(timeout_s), timeout_s=timeout_s)

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Waits until the system has everything, and everything is confirmed where that was asked for.

        The futures of `submit` are completed by another thread, perhaps a moment later: wait for one by its ``result``.

        Args:
            timeout_s: How long to wait; None for no limit.

        Raises:
            TimeoutError: Not in time; `.unsent` is the number of messages left.
            ClosedError: The connector is closed.
        """
        connector = self._connector
        connector.check_open()
        if not connector.wait_drained(timeout_s):
            raise self._not_flushed(timeout_s)

    def receive(self, *, timeout_s: float | None = None) -> Message:
        """Waits for a message of a topic it is subscribed to.

        Args:
            timeout_s: How long to wait; None for no limit, 0 to return at once.

        Raises:
            TimeoutError: Nothing arrived in time.
            PeerLostError: The middleware is silent, and the ``socket`` is your own.
            ClosedError: The connector is closed.
        """
        return self._connector.receive(timeout_s)

    def __iter__(self) -> Iterator[Message]:
        """Every message until the connector is closed."""
        return self._connector

    def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """Waits until everything is sent and confirmed, disconnects (MC0-27), and closes.

        Messages without confirmation are followed by a NOOP, whose answer is waited for: a middleware that refuses one has said so
        by then, to `on_error` and `stats.errors`.

        Calls that are waiting for a confirmation by then raise `ClosedError`. A ``with`` block that ends in an exception does
        not wait.

        Args:
            drain_s: The most seconds to wait, which is also how long the transport may continue to send.

        Raises:
            TimeoutError: Messages were not sent in time, as the middleware does not read.
        """
        self._finish(drain_s)

    def _abandon(self) -> None:
        # The original exception takes precedence.
        with suppress(TimeoutError):
            self.close(drain_s=0.0)

    def __del__(self) -> None:
        super().__del__()
        native = self._native
        if native is not None and not native.closed:
            # The thread of its futures holds the engine: it ends with the role.
            native.close(0.0)


class AsyncConnector(ConnectorBase, AsyncStream[Message]):
    """`Connector` for asyncio: opened by ``async with``, iterated by ``async for``; what can wait is a coroutine.

    ```pycon
    >>> import asyncio
    >>> from trunkline import mc0
    >>> async def main():
    ...     async with mc0.AsyncMiddleware(bind="tcp://127.0.0.1:*") as bus:
    ...         async with mc0.AsyncConnector(connect=bus.endpoints) as connector:
    ...             await connector.subscribe("runs.1", timeout_s=10)
    ...             await connector.put("runs.1", b"run 1 begins")
    ...             begun = await connector.receive(timeout_s=10)
    ...             await connector.submit("runs.1", b"run 1 ends", timeout_s=10)
    ...             async for message in connector:
    ...                 await connector.unsubscribe("runs.1", timeout_s=10)
    ...                 break
    ...             await connector.flush(timeout_s=10)
    ...             await connector.close(drain_s=2)
    ...             return begun.body, message.body
    >>> asyncio.run(main())
    ((b'run 1 begins',), (b'run 1 ends',))

    ```
    """

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
        put = self._prepared(topic, body, headers)
        await self._waits.room(lambda: connector.offer_put(put), self._room_s(timeout_s))

    def submit(
        self, topic: Text, body: Parts, *, headers: Headers = (), timeout_s: float | None = None
    ) -> asyncio.Future[None]:
        """See `Connector.submit`; never waits, so a full queue raises `TimeoutError` at once, whatever ``overflow`` says."""
        return self._calls.put_now(self._connector.submit(topic, body, headers, timeout_s), timeout_s)

    async def ping(self, *, timeout_s: float | None = None) -> float:
        """See `Connector.ping`.

        ```pycon
        >>> import asyncio
        >>> from trunkline import mc0
        >>> async def main():
        ...     async with mc0.AsyncMiddleware(bind="tcp://127.0.0.1:*") as bus:
        ...         async with mc0.AsyncConnector(connect=bus.endpoints) as connector:
        ...             return await connector.ping(timeout_s=10)
        >>> 0 < asyncio.run(main()) < 10
        True

        ```
        """
        round_trip_s: float = await self._ask(self._connector.ping(timeout_s), timeout_s)
        return round_trip_s

    async def _ask(self, outgoing: Any, timeout_s: float | None) -> Any:
        return await self._calls.ask(outgoing, self._room_s(timeout_s), timeout_s)

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """See `Connector.flush`; futures of `submit` are completed by the event loop, perhaps a moment later."""
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

    async def _abandon(self) -> None:
        # The original exception takes precedence.
        with suppress(TimeoutError):
            await self.close(drain_s=0.0)
