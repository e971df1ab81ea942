"""The middleware."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, get_args

from trunkline._arguments import need_callable, need_choice, need_flag, need_number, need_path
from trunkline._metrics.counters import Count, Level, TransportName
from trunkline._native.mc0 import Middleware as _Middleware
from trunkline._roles.base import AsyncService, BlockingService, Role
from trunkline._roles.native import opened
from trunkline._roles.notices import Dropped, Notices, client_fields, watch
from trunkline._roles.options import native_options
from trunkline._roles.reloads import difference, reading, report_reload
from trunkline._text import client, counted
from trunkline.errors import LocalProtocolError
from trunkline.mc0.policy import Entry, read_policy
from trunkline.options import RoleOptions, spelled_out

__all__ = ["AsyncMiddleware", "Middleware", "MiddlewareBase", "MiddlewareStats", "TopicStats", "report"]

ClientOverflow = Literal["drop-newest", "drop-oldest", "disconnect"]

_DAY_MS = 24 * 60 * 60 * 1000

_FAREWELLS = {
    "left": "left",
    "silent": "was silent for longer than its TTL",
    "gone": "disconnected",
    "full": "was dropped because it does not read",
    "replaced": "was replaced by another user at its address",
}


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Counters of a topic since it got its first subscriber.

    Attributes:
        topic: Its name, cut at 200 bytes; invalid UTF-8 is decoded like `os.fsdecode` does.
        subscribers: The number of its subscribers.
        puts: Messages published.
        messages: Messages delivered, counted per subscriber.
        bytes: Bytes of the published bodies.
    """

    topic: str
    subscribers: Level
    puts: Count
    messages: Count
    bytes: Count


@dataclass(frozen=True, slots=True)
class MiddlewareStats:
    """Counters of a middleware since its start.

    Attributes:
        received: Messages read from the socket.
        sent: Messages handed to the transport, of all verbs.
        dropped: Dropped messages by kind; only kinds that occurred. ``peer_full`` counts messages for
            clients that do not read, all others count received messages.
        bytes: Bytes of all frames received.
        peers: Peers connected now, except those over ``inproc://``.
        clients: Peers that have sent CONNECT or are subscribed.
        subscriptions: Subscriptions of all clients.
        messages: Messages handed to the transport for subscribers.
        queued: Messages waiting for clients to read; once closed, those that were dropped.
        topics: One entry per topic with subscribers, at most 1000.
        capture_lost: Rows dropped because the capture could not keep up.
        refused: CURVE clients that were refused.
        turned_away: Connections closed at once because ``max_connections`` or ``max_connections_per_host`` was reached.
        connection_failures: Connections that were refused or given up, by reason, e.g. ``too_many_frames`` or
            ``handshake_timeout``; only reasons that occurred, and none over libzmq, which does not tell them.
        transport: The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``.
    """

    received: Count
    sent: Count
    dropped: Mapping[str, Count]
    bytes: Count
    peers: Level
    clients: Level
    subscriptions: Level
    messages: Count
    queued: Level
    topics: Sequence[TopicStats]
    capture_lost: Count
    refused: Count
    turned_away: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class MiddlewareBase(Role):
    """The base class of the middleware, without its waits."""

    _native: _Middleware | None = None

    # The policy in effect.
    _policed: list[Entry] | None = None

    @spelled_out(RoleOptions, without="connect")
    def __init__(
        self,
        *,
        policy: str | os.PathLike[str] | None = None,
        overflow: ClientOverflow = "drop-newest",
        client_queue_messages: int = 10_000,
        client_queue_bytes: int = 16 << 20,
        max_ttl: int = _DAY_MS,
        max_topics: int = 100_000,
        status: bool = True,
        on_drop: Callable[[Dropped], object] | None = None,
        **options: Unpack[RoleOptions],
    ) -> None:
        if options.get("connect"):
            message = "a middleware listens and does not connect: use bind="
            raise LocalProtocolError(message)
        need_path("policy", policy, may_be_none=True)
        need_choice("overflow", overflow, get_args(ClientOverflow))
        need_number("client_queue_messages", client_queue_messages, least=1)
        need_number("client_queue_bytes", client_queue_bytes, least=1)
        need_number("max_ttl", max_ttl)
        need_number("max_topics", max_topics)
        need_flag("status", status)
        need_callable("on_drop", on_drop)
        self._policy = policy
        self._settings = {
            "overflow": overflow,
            "client_queue_messages": client_queue_messages,
            "client_queue_bytes": client_queue_bytes,
            "max_ttl": max_ttl,
            "max_topics": max_topics,
            "status": status,
        }
        self._on_drop = on_drop
        self._options = options
        self._made()

    def _entries(self, names: Mapping[bytes, str] | None = None) -> list[Entry] | None:
        """The current policy; `names` are those of a new allow-list."""
        if self._policy is None:
            return None
        curve = self._options.get("curve")
        return read_policy(self._policy, names if names is not None else {} if curve is None else curve.names)

    def _open(self) -> None:
        self._policed = self._entries()
        options = native_options(self._options, grace_s=0.0)
        if self._policy is not None and "allow" in options and options["allow"] is None:
            # Admit all clients: the policy knows them by their keys.
            options["allow"] = True
        native = _Middleware(options, {**self._settings, "policy": self._policed})
        self._notices = notices = Notices("mc0", "middleware", self._on_drop)
        watch(native, lambda: _read_notices(native, notices))
        self._native = opened(native, self._options, notices)

    @property
    def _middleware(self) -> _Middleware:
        native: _Middleware = self._opened()
        return native

    @property
    def stats(self) -> MiddlewareStats:
        """The current counters; the final ones once closed."""
        counts = self._middleware.stats()
        topics = tuple(
            TopicStats(**{**topic, "topic": topic["topic"].decode(errors="surrogateescape")})
            for topic in counts["topics"]
        )
        return MiddlewareStats(**{**counts, "topics": topics})

    def reload(self) -> None:
        """Reads the policy and the allow-list again. Connections are kept.

        Subscriptions that are no longer allowed end, and their clients receive an ERROR.

        Raises:
            LocalProtocolError: One of the two is invalid or cannot be read; both stay as they were.
            ClosedError: The middleware is closed.

        ```pycon
        >>> import pathlib, tempfile
        >>> from trunkline import mc0
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     policy = pathlib.Path(folder, "policy.toml")
        ...     size = policy.write_text("allow = []")
        ...     with mc0.Middleware(bind="tcp://127.0.0.1:*", policy=policy) as bus:
        ...         size = policy.write_text('allow = [{client = "*", subscribe = ["runs.*"]}]')
        ...         bus.reload()
        ...         with mc0.Connector(connect=bus.endpoints) as connector:
        ...             connector.subscribe("runs.1", timeout_s=10)
        ...             bus.stats.topics[0].topic
        'runs.1'

        ```
        """
        native, curve = self._middleware, self._options.get("curve")
        native.check_open()
        with reading():
            allowed = None if curve is None else curve._read()  # noqa: SLF001 - of the roles
            entries = self._entries(allowed if isinstance(allowed, dict) else None)
        read = [] if curve is None else curve._admit(allowed)  # noqa: SLF001 - of the roles
        native.enforce(entries)
        if self._policy is not None and entries is not None:
            before, self._policed = self._policed or [], entries
            read.append(difference(self._policy, "rule", *map(_by_client, (before, entries))))
        report_reload(read)


def _by_client(entries: list[Entry]) -> list[tuple[Hashable, str]]:
    """The rules of a policy, each with its client."""
    return [
        ((tuple(publish), tuple(subscribe)), client.decode(errors="backslashreplace"))
        for client, _, publish, subscribe in entries
    ]


def _read_notices(native: _Middleware, notices: Notices) -> None:
    for kind, *details in native.notices():
        report(notices, kind, *details)


def report(notices: Notices, kind: str, *details: Any) -> None:
    """Reports a notice of a middleware's engine."""
    if kind not in ("joined", "forgotten", "curtailed"):
        notices.report(kind, *details)
        return
    who, *about = details
    level, limited, fields = logging.INFO, kind, {"kind": kind, **client_fields(*who)}
    if kind == "joined":
        text = "connected"
    elif kind == "forgotten":
        (why,) = about
        text, limited, fields["why"] = _FAREWELLS[why], f"{kind} {why}", why
        level = logging.WARNING if why in ("full", "replaced") else logging.INFO
    else:
        (count,) = about
        text, level = f"lost {counted(count, 'subscription')} because the policy changed", logging.WARNING
    notices.log(level, limited, f"client {client(*who)} {text}", fields=fields)


class Middleware(MiddlewareBase, BlockingService):
    """Forwards messages to the clients that are subscribed to their topic (MC0-30).

    It runs on a thread of its own until it is closed. Each client has its own queue: one that does not read does not slow the
    others down, and misses what does not fit into its queue. Malformed and forbidden messages are answered with ERROR
    (MC0-15), counted in `stats`, logged and passed to `on_drop`. A client that is silent for longer than its TTL is
    forgotten (MC0-21). Nothing is stored for disconnected clients: delivery is at most once.

    Args:
        policy: A TOML file of who may publish and subscribe to what; None allows everything. Clients are identified by the names
            of their key files in the allow-list of ``curve``, or by their keys.
        overflow: What to do when the queue of a client is full: drop the newest message, drop the oldest, or forget the
            client, which receives an ERROR.
        client_queue_messages: The most messages that may wait for one client, besides those that the transport holds.
        client_queue_bytes: The most bytes that may wait for one client; a single larger message is accepted. The limit for all
            clients together is ``outbox_bytes``, where a message counts once for all its recipients.
        max_ttl: The longest TTL that a client may ask for, in milliseconds (MC0-24).
        max_topics: The most topics that may have subscribers at the same time.
        status: Send the counters of the middleware as JSON to clients that subscribe to the topic ``trunkline.status``, if the
            policy allows it; each SUB requests them again.
        on_drop: Called with a `trunkline.Dropped`, in the thread ``trunkline-notices``; for messages that do
            not fit into a client's queue, once per burst.
        **options: Endpoints, access and capture: ``bind``, ``curve``, ``capture`` and more, each in
            `trunkline.RoleOptions`; a middleware has no ``connect``.

    Raises:
        OSError: An endpoint cannot be bound, or the policy cannot be read.
        LocalProtocolError: The options contradict each other, or the policy is invalid.
        CaptureError: The capture cannot be opened.

    ```pycon
    >>> import threading
    >>> with Middleware(bind="tcp://127.0.0.1:*", client_queue_messages=100) as bus:
    ...     len(bus.endpoints), bus.stats.topics
    ...     threading.Timer(0.1, lambda: bus.close(drain_s=2)).start()
    ...     bus.wait(timeout_s=10)
    (1, ())

    ```
    """


class AsyncMiddleware(MiddlewareBase, AsyncService):
    """`Middleware` for asyncio: opened by ``async with``.

    ```pycon
    >>> import asyncio
    >>> from trunkline import mc0
    >>> async def main():
    ...     async with mc0.AsyncMiddleware(bind="tcp://127.0.0.1:*", client_queue_messages=100) as bus:
    ...         closing = asyncio.create_task(bus.close(drain_s=2))
    ...         await bus.wait(timeout_s=10)
    ...         await closing
    ...         return len(bus.endpoints), bus.stats.topics
    >>> asyncio.run(main())
    (1, ())

    ```
    """
