"""The broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, get_args

from trunkline._arguments import (
    need_bytes,
    need_callable,
    need_choice,
    need_flag,
    need_heartbeat,
    need_number,
    need_seconds,
    need_sequence,
)
from trunkline._metrics.counters import Count, Latencies, Level, TransportName, measured
from trunkline._native.dcp import Broker as _Broker
from trunkline._roles.base import AsyncService, BlockingService, Role
from trunkline._roles.native import opened
from trunkline._roles.notices import Dropped, Notices, client_fields, watch
from trunkline._roles.options import native_options
from trunkline._text import client, counted, readable_bytes
from trunkline.errors import LocalProtocolError
from trunkline.options import RoleOptions, spelled_out

__all__ = [
    "AsyncBroker",
    "Broker",
    "BrokerBase",
    "BrokerStats",
    "ClientAddress",
    "QueueOverflow",
    "ServiceStats",
    "report",
]

# The service that our workers register for when they leave.
_LEAVING = b"trunkline.leaving"

QueueOverflow = Literal["reject-newest", "drop-oldest"]
ClientAddress = Literal["any", "workers-only"]


@dataclass(frozen=True, slots=True)
class ServiceStats:
    """Counters of one service.

    Attributes:
        service: Its name, cut at 200 bytes.
        queued: Requests waiting.
        workers: Workers registered for it.
        free: Workers waiting for a request.
        requests: Requests received.
        replies: Requests that were answered.
        expired: Requests that expired in the queue.
    """

    service: bytes
    queued: Level
    workers: Level
    free: Level
    requests: Count
    replies: Count
    expired: Count


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """Counters of a broker since its start.

    Attributes:
        received: Messages read from the socket.
        sent: Messages handed to the transport.
        dropped: Dropped messages by kind; only kinds that occurred.
        bytes: The bytes of all frames received, good or bad.
        peers: Peers connected now; those over ``inproc://`` are not seen.
        queued: Requests waiting; once closed, those that were dropped.
        lost: Requests that a worker had in hand when it died, or when it registered again without a reply.
        latency: How long requests took from when they arrived until their worker answered, in the queue and with the worker.
        services: One entry per service, at most 1000.
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
    queued: Level
    lost: Count
    latency: Latencies
    services: Sequence[ServiceStats]
    capture_lost: Count
    refused: Count
    turned_away: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class BrokerBase(Role):
    """The base class of the broker, without its waits."""

    _native: _Broker | None = None

    @spelled_out(RoleOptions, without="connect")
    def __init__(
        self,
        *,
        max_queue: int = 10_000,
        max_queue_bytes: int = 256 << 20,
        queue_ttl_s: float = 60.0,
        overflow: QueueOverflow = "reject-newest",
        heartbeat_interval_s: float = 2.5,
        liveness: int = 3,
        requeue: bool = False,
        busy_ping_grants: bool = True,
        client_address: ClientAddress = "any",
        compat_dagbox: bool = False,
        status: bool = True,
        allowed_services: Iterable[bytes] | None = None,
        on_drop: Callable[[Dropped], object] | None = None,
        **options: Unpack[RoleOptions],
    ) -> None:
        if options.get("connect"):
            message = "a broker listens and does not connect: use bind="
            raise LocalProtocolError(message)
        need_number("max_queue", max_queue)
        need_number("max_queue_bytes", max_queue_bytes)
        need_seconds("queue_ttl_s", queue_ttl_s)
        need_choice("overflow", overflow, get_args(QueueOverflow))
        need_heartbeat(heartbeat_interval_s, liveness)
        need_flag("requeue", requeue)
        need_flag("busy_ping_grants", busy_ping_grants)
        need_choice("client_address", client_address, get_args(ClientAddress))
        need_flag("compat_dagbox", compat_dagbox)
        need_flag("status", status)
        if allowed_services is not None:
            need_sequence("allowed_services", allowed_services)
            allowed_services = list(allowed_services)
            for service in allowed_services:
                need_bytes("allowed_services", service)
        need_callable("on_drop", on_drop)
        self._settings = {
            "max_queue": max_queue,
            "max_queue_bytes": max_queue_bytes,
            "queue_ttl_s": queue_ttl_s,
            "overflow": overflow,
            "heartbeat_interval_s": heartbeat_interval_s,
            "liveness": liveness,
            "requeue": requeue,
            "busy_ping_grants": busy_ping_grants,
            "client_address": client_address,
            "compat_dagbox": compat_dagbox,
            "status": status,
            "services": allowed_services,
        }
        self._on_drop = on_drop
        self._options = options
        self._made()

    def _open(self) -> None:
        native = _Broker(native_options(self._options, grace_s=0.0), self._settings)
        self._notices = notices = Notices("dcp", "broker", self._on_drop)
        watch(native, lambda: _read_notices(native, notices))
        self._native = opened(native, self._options, notices)

    @property
    def _broker(self) -> _Broker:
        native: _Broker = self._opened()
        return native

    @property
    def stats(self) -> BrokerStats:
        """The current counters; the final ones once closed."""
        counts = measured(self._broker.stats())
        services = tuple(ServiceStats(**service) for service in counts["services"])
        return BrokerStats(**{**counts, "services": services})

    def services(self) -> Sequence[ServiceStats]:
        """The services that are offered, asked for or remembered, with their counters; at most 1000."""
        return self.stats.services


def _read_notices(native: _Broker, notices: Notices) -> None:
    for kind, *details in native.notices():
        report(notices, kind, *details)


def report(notices: Notices, kind: str, *details: Any) -> None:
    """Reports a notice of a broker's engine."""
    if kind == "gone":
        worker, service, lost = details
        level = logging.WARNING if lost else logging.INFO
        of = "" if service == _LEAVING else f" of {_shown(service)}"
        text = f"worker {client(*worker)}{of} is gone, {counted(lost, 'request')} lost"
        notices.log(level, kind, text, fields=_fields(kind, worker, service))
    elif kind == "registered":
        worker, service = details
        does = "is leaving" if service == _LEAVING else f"offers {_shown(service)}"
        notices.log(logging.INFO, kind, f"worker {client(*worker)} {does}", fields=_fields(kind, worker, service))
    elif kind == "refused":
        worker, service = details
        text = f"worker {client(*worker)} may not offer {_shown(service)}"
        notices.log(logging.WARNING, kind, text, fields=_fields(kind, worker, service))
    else:
        notices.report(kind, *details)


def _fields(kind: str, worker: tuple[bytes, str | None, str | None], service: bytes) -> dict[str, object]:
    return {"kind": kind, "worker": worker[0].hex(), "service": _shown(service), **client_fields(*worker)}


def _shown(service: bytes) -> str:
    return readable_bytes(service[:200])


class Broker(BrokerBase, BlockingService):
    """Keeps a queue for each service and gives it to the workers that are free, the oldest of both first (DCP-29).

    It runs on a thread of its own until it is closed. Invalid and dropped messages are not reported on the wire (DCP
    has no message for it), but counted in `stats`, logged and passed to `on_drop`. Peers that do not read do not affect
    others. Each connection is an open file, of which a process may have 1024 on many systems: ``raise_file_limit=True``
    asks for more.

    Args:
        max_queue: Requests that may wait for one service.
        max_queue_bytes: Bytes that may wait for all services together.
        queue_ttl_s: How long a request may wait.
        overflow: Which request to drop when a queue is full: the newest, or those that have waited longest.
        heartbeat_interval_s: How often a worker must send a heartbeat (DCP-37).
        liveness: Intervals of silence after which a worker is considered dead (DCP-42).
        requeue: Whether requests of a dead worker go to another one; they may then be processed twice.
        busy_ping_grants: Whether a busy worker may ask for one more request by a ping (DCP-33).
        client_address: Whose client addresses are trusted (DCP-20): everyone's, as in the specification, or only those
            of workers, so that no other peer can have a reply sent to a stranger.
        compat_dagbox: Whether to accept the four-byte types that the original implementation writes (DCP-11).
        status: Whether the broker answers requests for the service ``trunkline.status`` itself, with its counters as
            JSON. Workers cannot offer that service then.
        allowed_services: The services that may be registered; all if None (DCP-14).
        on_drop: Called with a `trunkline.Dropped`, in the thread ``trunkline-notices``.
        **options: Endpoints, queues and capture: ``bind``, ``curve``, ``queue_messages``, ``capture`` and more,
            each in `trunkline.RoleOptions`; a broker has no ``connect``.

    Raises:
        OSError: An endpoint cannot be bound.
        LocalProtocolError: The options contradict each other.
        CaptureError: The capture cannot be opened.

    ```pycon
    >>> import threading
    >>> with Broker(bind=["tcp://127.0.0.1:*", "tcp://127.0.0.1:*"], queue_ttl_s=5) as broker:
    ...     len(broker.endpoints), broker.services()
    ...     threading.Timer(0.1, lambda: broker.close(drain_s=2)).start()
    ...     broker.wait(timeout_s=10)
    (2, ())

    ```
    """


class AsyncBroker(BrokerBase, AsyncService):
    """`Broker` for asyncio: opened by ``async with``.

    ```pycon
    >>> import asyncio
    >>> from trunkline import dcp
    >>> async def main():
    ...     async with dcp.AsyncBroker(bind="tcp://127.0.0.1:*", queue_ttl_s=5) as broker:
    ...         closing = asyncio.create_task(broker.close(drain_s=2))
    ...         await broker.wait(timeout_s=10)
    ...         await closing
    ...         return len(broker.endpoints), broker.services()
    >>> asyncio.run(main())
    (1, ())

    ```
    """
