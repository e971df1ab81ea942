"""The client."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack, get_args

from trunkline._arguments import need_callable, need_choice, need_heartbeat
from trunkline._frames import Frame, Parts
from trunkline._metrics.counters import Count, Latencies, Level, TransportName, measured
from trunkline._native.dcp import Client as _Client
from trunkline._native.dcp import Reply
from trunkline._roles.base import AsyncRole, BlockingRole, Role
from trunkline._roles.calls import AsyncCalls, Calls
from trunkline._roles.native import opened
from trunkline._roles.notices import Dropped, Notices, watch
from trunkline._roles.options import native_options, need_client
from trunkline.options import Overflow, RoleOptions, spelled_out

__all__ = ["AsyncClient", "Client", "ClientBase", "ClientStats"]

_DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Counters of a client since its start.

    Attributes:
        requests: Requests that were made.
        replies: Requests that were answered.
        timeouts: Requests that timed out.
        retries: Requests sent again.
        late: Replies that arrived after the timeout.
        in_flight: Requests waiting for their reply.
        latency: How long requests took until they were answered, with all attempts.
        dropped: Malformed messages by kind; only kinds that occurred.
        capture_lost: Rows dropped because the capture could not keep up.
        connection_failures: Connections that were refused or given up, by reason, e.g. ``too_many_frames`` or
            ``handshake_timeout``; only reasons that occurred, and none over libzmq, which does not tell them.
        transport: The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``.
    """

    requests: Count
    replies: Count
    timeouts: Count
    retries: Count
    late: Count
    in_flight: Level
    latency: Latencies
    dropped: Mapping[str, Count]
    capture_lost: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class ClientBase(Role):
    """The base class of the client, without its waits."""

    _native: _Client | None = None

    @spelled_out(RoleOptions, without="bind")
    def __init__(
        self,
        *,
        overflow: Overflow = "block",
        heartbeat_interval_s: float = 2.5,
        liveness: int = 3,
        on_drop: Callable[[Dropped], object] | None = None,
        **options: Unpack[RoleOptions],
    ) -> None:
        need_choice("overflow", overflow, get_args(Overflow))
        need_heartbeat(heartbeat_interval_s, liveness)
        need_callable("on_drop", on_drop)
        need_client("a client connects to its broker", options)
        self._overflow = overflow
        self._settings: dict[str, Any] = {"heartbeat_interval_s": heartbeat_interval_s, "liveness": liveness}
        self._on_drop = on_drop
        self._options = options
        self._made()

    def _open(self) -> None:
        options = native_options(self._options, grace_s=0.0)
        native = _Client(options, max_message_bytes=options["max_message_bytes"], **self._settings)
        notices = Notices("dcp", "client", self._on_drop)
        watch(native, lambda: _read_notices(native, notices))
        self._native = opened(native, self._options, notices)

    @property
    def _client(self) -> _Client:
        native: _Client = self._opened()
        return native

    @property
    def stats(self) -> ClientStats:
        """The current counters; the final ones once closed."""
        return ClientStats(**measured(self._client.stats()))

    def _room_s(self, timeout_s: float | None) -> float | None:
        return 0.0 if self._overflow == "raise" else timeout_s


def _read_notices(native: _Client, notices: Notices) -> None:
    for notice in native.notices():
        notices.report(*notice)


class Client(ClientBase, BlockingRole):
    """Asks services of a broker; many requests at a time, from any number of threads (DCP-28).

    Every request ends in its own reply or in a `TimeoutError`, whatever order replies come in. A request that cannot be
    processed yet waits, here or at the broker. An idle client sends nothing: it has no heartbeats (DCP-36), and the
    transport notices when its broker is gone. Where ``connect`` has several endpoints, requests take turns among those
    that are connected.

    Args:
        overflow: What `request` and `submit` do when the queue is full: block, or raise at once.
        heartbeat_interval_s: How often the transport checks that the broker is alive.
        liveness: Intervals after which the connection to a silent broker is made again.
        on_drop: Called with a `trunkline.Dropped`, in the thread ``trunkline-notices``.
        **options: Endpoints, queues and capture: ``connect``, ``curve``, ``queue_messages``, ``capture`` and more,
            each in `trunkline.RoleOptions`; a client has no ``bind``.

    Raises:
        OSError: An endpoint cannot be connected.
        LocalProtocolError: The options contradict each other.
        CaptureError: The capture cannot be opened.

    ```pycon
    >>> import threading
    >>> from trunkline import dcp
    >>> with dcp.Broker(bind="tcp://127.0.0.1:*") as broker, dcp.Worker(b"upper", connect=broker.endpoints) as worker:
    ...     serving = threading.Thread(target=worker.serve, args=(lambda request: request.data[0].upper(),))
    ...     serving.start()
    ...     with dcp.Client(connect=broker.endpoints) as client:
    ...         client.request(b"upper", b"hello", timeout_s=10).data
    ...         futures = [client.submit(b"upper", word, timeout_s=10) for word in (b"one", b"two")]
    ...         [future.result().data for future in futures]
    ...         client.close(drain_s=2)
    ...     worker.close()
    ...     serving.join()
    (b'HELLO',)
    [(b'ONE',), (b'TWO',)]

    ```
    """

    def _open(self) -> None:
        super()._open()
        self._calls: Calls[Reply] = Calls(self._client)

    def request(
        self,
        service: bytes,
        data: Parts,
        *,
        metadata: Sequence[Frame] = (),
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> Reply:
        """Asks a service and waits for the reply.

        Args:
            service: The service.
            data: The parts of the request: one, or a sequence of them.
            metadata: Parts that are returned with the reply; none may be empty.
            timeout_s: How long each attempt may take; None for no limit.
            retries: How often to resend the request when no reply arrives in time (DCP-30). The work may then be done
                more than once.

        Raises:
            TimeoutError: No reply arrived, or the queue was full.
            LocalProtocolError: A frame is larger than ``max_message_bytes``, or a part of the metadata is empty.
            ClosedError: The client is, or was, closed.
        """
        client = self._client
        outgoing = client.outgoing(service, data, metadata=metadata, timeout_s=timeout_s, retries=retries)
        reply: Reply = client.request(outgoing, room_s=self._room_s(timeout_s), timeout_s=timeout_s)
        return reply

    def submit(
        self,
        service: bytes,
        data: Parts,
        *,
        metadata: Sequence[Frame] = (),
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> concurrent.futures.Future[Reply]:
        """Sends a request to a service without waiting for the reply; see `request` for the arguments.

        Only waits for room in the queue. The future's callbacks run in a thread of this client that completes all
        futures; waiting for one there raises `LocalProtocolError`.

        Returns:
            A future of the reply, which fails with what `request` would raise.
        """
        client = self._client
        outgoing = client.outgoing(service, data, metadata=metadata, timeout_s=timeout_s, retries=retries)
        return self._calls.put(outgoing, self._room_s(timeout_s), timeout_s)

    def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """Accepts no more requests, waits for the replies to pending ones, and closes; at once if none are pending.

        A request without a reply by then raises `ClosedError`, and is not sent if it has not been sent yet. One that
        times out first is not retried. A ``with`` block that ends in an exception does not wait.

        Args:
            drain_s: The most seconds to wait for replies.
        """
        self._finish(drain_s)

    def _abandon(self) -> None:
        self.close(drain_s=0.0)

    def __del__(self) -> None:
        super().__del__()
        native = self._native
        if native is not None and not native.closed:
            # The thread of its futures holds the engine: it ends with the role.
            native.close(0.0)


class AsyncClient(ClientBase, AsyncRole):
    """`Client` for asyncio: opened by ``async with``; what can wait is a coroutine.

    ```pycon
    >>> import asyncio
    >>> from trunkline import dcp
    >>> async def main():
    ...     async with (
    ...         dcp.AsyncBroker(bind="tcp://127.0.0.1:*") as broker,
    ...         dcp.AsyncWorker(b"upper", connect=broker.endpoints) as worker,
    ...         dcp.AsyncClient(connect=broker.endpoints) as client,
    ...     ):
    ...         serving = asyncio.create_task(worker.serve(lambda request: request.data[0].upper()))
    ...         future = await client.submit(b"upper", b"one", timeout_s=10)
    ...         reply = await client.request(b"upper", b"two", timeout_s=10)
    ...         await client.close(drain_s=2)
    ...         await worker.close()
    ...         await serving
    ...         return (await future).data, reply.data
    >>> asyncio.run(main())
    ((b'ONE',), (b'TWO',))

    ```
    """

    def _open(self) -> None:
        super()._open()
        self._calls: AsyncCalls[Reply] = AsyncCalls(self._client, self._waits)

    async def request(
        self,
        service: bytes,
        data: Parts,
        *,
        metadata: Sequence[Frame] = (),
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> Reply:
        """See `Client.request`."""
        outgoing = self._client.outgoing(service, data, metadata=metadata, timeout_s=timeout_s, retries=retries)
        return await self._calls.ask(outgoing, self._room_s(timeout_s), timeout_s)

    async def submit(
        self,
        service: bytes,
        data: Parts,
        *,
        metadata: Sequence[Frame] = (),
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> asyncio.Future[Reply]:
        """See `Client.submit`: only waits for room in the queue, and returns a future of the reply."""
        outgoing = self._client.outgoing(service, data, metadata=metadata, timeout_s=timeout_s, retries=retries)
        return await self._calls.put(outgoing, self._room_s(timeout_s), timeout_s)

    async def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """See `Client.close`."""
        await self._finish(drain_s)

    async def _abandon(self) -> None:
        await self.close(drain_s=0.0)
