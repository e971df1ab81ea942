"""The worker."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, Unpack

from trunkline._arguments import need_bytes, need_callable, need_heartbeat, need_number
from trunkline._frames import Frame, Parts
from trunkline._metrics.counters import Count, Latencies, Level, TransportName, measured
from trunkline._native.dcp import Reply, Request
from trunkline._native.dcp import Worker as _Worker
from trunkline._roles.base import AsyncStream, BlockingRole, Role, need_sent
from trunkline._roles.calls import AsyncCalls
from trunkline._roles.native import opened
from trunkline._roles.notices import Dropped, Notices
from trunkline._roles.options import native_options, need_client
from trunkline._roles.pool import Pool
from trunkline._roles.threads import survivable
from trunkline._text import readable_bytes
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import RoleOptions, spelled_out

__all__ = ["AsyncWorker", "Handler", "OnError", "Worker", "WorkerBase", "WorkerStats", "report"]


_DRAIN_S = 5.0

Handler: TypeAlias = "Callable[[Request], Parts | None]"
AsyncHandler: TypeAlias = "Callable[[Request], Awaitable[Parts | None] | Parts | None]"
OnError: TypeAlias = "Callable[[Request, BaseException], Parts]"


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """Counters of a worker since its start.

    Attributes:
        received: Messages read from the socket.
        sent: Messages handed to the transport.
        dropped: Malformed ones by kind; only kinds that occurred.
        bytes: The bytes of all frames received, good or bad.
        requests: Requests received.
        replies: Replies, those of failed requests as well.
        forwards: Requests forwarded to other services.
        failed: Requests whose work failed, or that were not answered.
        held: Requests being processed.
        latency: How long requests took from when they were handed out until they were answered.
        asked: Requests of its own.
        late: Replies to those that arrived after the timeout.
        capture_lost: Rows dropped because the capture could not keep up.
        connection_failures: Connections that were refused or given up, by reason, e.g. ``too_many_frames`` or
            ``handshake_timeout``; only reasons that occurred, and none over libzmq, which does not tell them.
        transport: The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``.
    """

    received: Count
    sent: Count
    dropped: Mapping[str, Count]
    bytes: Count
    requests: Count
    replies: Count
    forwards: Count
    failed: Count
    held: Level
    latency: Latencies
    asked: Count
    late: Count
    capture_lost: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class WorkerBase(Role):
    """The base class of the worker, without its waits."""

    _native: _Worker | None = None

    @spelled_out(RoleOptions, without="bind")
    def __init__(
        self,
        service: bytes,
        *,
        concurrency: int = 1,
        heartbeat_interval_s: float = 2.5,
        liveness: int = 3,
        on_drop: Callable[[Dropped], object] | None = None,
        **options: Unpack[RoleOptions],
    ) -> None:
        need_bytes("service", service)
        need_number("concurrency", concurrency, least=1, error=LocalProtocolError)
        need_heartbeat(heartbeat_interval_s, liveness)
        need_callable("on_drop", on_drop)
        need_client("a worker connects to its broker", options)
        self.service = service
        self.concurrency = concurrency
        self._heartbeat_interval_s = heartbeat_interval_s
        self._liveness = liveness
        self._options = options
        self._who = f"worker of {readable_bytes(service[:200])}"
        self._on_drop = on_drop
        self._made()

    def _open(self) -> None:
        options = native_options(self._options, grace_s=0.0)
        self._notices = Notices("dcp", self._who, self._on_drop)
        native = _Worker(
            options,
            functools.partial(report, self._notices),
            self.service,
            concurrency=self.concurrency,
            heartbeat_interval_s=self._heartbeat_interval_s,
            liveness=self._liveness,
            max_message_bytes=options["max_message_bytes"],
        )
        self._native = opened(native, self._options, self._notices)
        self._warn_of_lost_exit_codes()

    def _warn_of_lost_exit_codes(self) -> None:
        """Warns of a process that would take a failed program for one that succeeded: `subprocess` reports 0 then."""
        if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:  # Windows has none
            text = (
                "SIGCHLD is ignored, so a handler that starts a program never learns of its failure: "
                "call signal.signal(signal.SIGCHLD, signal.SIG_DFL) first"
            )
            self._notices.log(logging.WARNING, "sigchld", text)

    def _check_sent(self, native: Any, waited_s: float) -> None:
        need_sent(native, waited_s)

    @property
    def _worker(self) -> _Worker:
        native: _Worker = self._opened()
        return native

    @property
    def stats(self) -> WorkerStats:
        """The current counters; the final ones once closed."""
        return WorkerStats(**measured(self._worker.stats()))

    def stop(self, *, drain_s: float = _DRAIN_S) -> None:
        """Ends iteration and `serve` without losing a request.

        The worker leaves its service by registering for another one, which is never requested (DCP-15), and continues
        until the broker has confirmed that and the requests in progress are answered. Requests that arrive meanwhile and
        find no free place go back to the broker.

        Args:
            drain_s: The most seconds this may take.
        """
        self._worker.close(drain_s)

    def _answer(self, handler: Handler, on_error: OnError | None, request: Request) -> None:
        try:
            _reply(request, handler(request))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the client is not to wait for ever
            self._fail(request, on_error, error)

    def _fail(self, request: Request, on_error: OnError | None, error: BaseException) -> None:
        """Answers a request whose handler raised: with its metadata and no data, or with what `on_error` returns."""
        # A ClosedError of the worker itself is expected; one of something that a handler uses is not.
        if isinstance(error, ClosedError) and self.closed:
            return
        # A cancellation is no failure.
        if not isinstance(error, asyncio.CancelledError):
            self._notices.log(logging.ERROR, "handler", f"the handler failed: {type(error).__name__}: {error}", error)
        if request.answered:
            return
        data: Parts = ()
        if on_error is not None:
            try:
                data = on_error(request, error)
            except survivable() as another:
                self._notices.log(logging.ERROR, "on_error", f"on_error failed: {another}", another)
        try:
            request.fail(data)
        except ClosedError:
            pass
        except (TypeError, LocalProtocolError) as another:
            self._notices.log(logging.ERROR, "on_error", f"on_error returned no valid reply: {another}", another)
            request.fail()


def _reply(request: Request, data: Parts | None) -> None:
    # None: the handler has answered itself, or there is no answer.
    if data is not None:
        request.reply(data)


def report(notices: Notices, kind: str, *details: Any) -> None:
    """Reports a notice of a worker's engine."""
    if kind == "abandoned":
        notices.log(logging.WARNING, kind, "a request was dropped unanswered: its client gets no reply")
    elif kind == "lost":
        notices.log(logging.WARNING, kind, "the broker is silent: reconnecting")
    else:
        notices.report(kind, *details)


class Worker(WorkerBase, BlockingRole):
    """Processes the requests for a service (DCP-12).

    Iterate over it and answer each request, or give `serve` a function. Heartbeats continue whatever you do meanwhile;
    a lost broker is connected to again, and a late reply is delivered after that (DCP-37, DCP-41). With `concurrency`
    it processes several requests at a time; it asks its broker for no more than it can take (DCP-33).

    A `Request` that is dropped unanswered frees its place and is logged; its client gets no reply. The broker notices
    when the worker registers again, with nothing in progress (DCP-15).

    A handler that starts programs needs their exit codes, which are lost where the process ignores SIGCHLD: the worker warns
    of that when it opens.

    Of several endpoints in ``connect`` one is used at a time: the next one if it cannot be reached within a heartbeat
    interval, is lost, or falls silent.

    Args:
        service: The service it offers.
        concurrency: Requests in progress at a time.
        heartbeat_interval_s: How often to send a heartbeat; use the broker's setting (DCP-37).
        liveness: Intervals after which the connection to a broker that owes an answer is made again (DCP-42).
        on_drop: Called with a `trunkline.Dropped`, in the thread that reads.
        **options: Endpoints, queues and capture: ``connect``, ``curve``, ``queue_messages``, ``capture`` and more,
            each in `trunkline.RoleOptions`; a worker has no ``bind``.

    Raises:
        OSError: An endpoint cannot be connected.
        LocalProtocolError: The options contradict each other.
        CaptureError: The capture cannot be opened.

    ```pycon
    >>> from trunkline import dcp
    >>> with dcp.Broker(bind="tcp://127.0.0.1:*") as broker, dcp.Client(connect=broker.endpoints) as client:
    ...     worker = dcp.Worker(b"upper", connect=broker.endpoints)
    ...     futures = [client.submit(b"upper", word) for word in (b"one", b"two")]
    ...     request = worker.receive(timeout_s=10)
    ...     request.reply(request.data[0].upper())
    ...     for request in worker:
    ...         request.reply(request.data[0].upper())
    ...         worker.stop()
    ...     [future.result(timeout=10).data for future in futures]
    ...     worker.close(drain_s=2)
    [(b'ONE',), (b'TWO',)]

    ```
    """

    def receive(self, *, timeout_s: float | None = None) -> Request:
        """Waits for a request.

        Args:
            timeout_s: How long to wait; None for no limit, 0 to return at once.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The worker is closed.
        """
        return self._worker.receive(timeout_s)

    def __iter__(self) -> Iterator[Request]:
        """Every request until the worker is closed."""
        return self._worker

    def request(
        self, service: bytes, data: Parts, *, metadata: Sequence[Frame] = (), timeout_s: float | None = None
    ) -> Reply:
        """Asks another service and waits for the reply, on the worker's own connection (DCP-35).

        For handlers, in whatever thread they run, and between requests: the current request keeps its place, and the
        worker is given no other for it.

        Args:
            service: The service. Requests for its own service go to other workers, or to this one if it has free
                places.
            data: The parts of the request: one, or a sequence of them.
            metadata: Parts that are returned with the reply; none may be empty.
            timeout_s: How long it may take; None for no limit.

        Raises:
            TimeoutError: No reply arrived, or the queue was full.
            LocalProtocolError: A frame is larger than ``max_message_bytes``, or a part of the metadata is empty.
            ClosedError: The worker is, or was, closed.

        ```pycon
        >>> import json
        >>> from trunkline import dcp
        >>> with dcp.Broker(bind="tcp://127.0.0.1:*") as broker:
        ...     with dcp.Worker(b"upper", connect=broker.endpoints) as worker:
        ...         reply = worker.request(b"trunkline.status", b"", timeout_s=10)
        ...     [service["service"] for service in json.loads(reply.data[0])["services"]]
        ['upper']

        ```
        """
        worker = self._worker
        outgoing = worker.outgoing(service, data, metadata=metadata, timeout_s=timeout_s, retries=0)
        reply: Reply = worker.request(outgoing, room_s=timeout_s, timeout_s=timeout_s)
        return reply

    def serve(self, handler: Handler, *, on_error: OnError | None = None) -> None:
        """Has a function process all requests, on `concurrency` threads, until the worker is stopped or closed.

        Args:
            handler: Takes a `Request`; returns the reply, one part or several, or None if it replies itself.
            on_error: Takes a request and the exception of its handler; returns the reply. Without it the reply has the
                metadata of the request and no data.

        ```pycon
        >>> from trunkline import dcp
        >>> with dcp.Broker(bind="tcp://127.0.0.1:*") as broker, dcp.Client(connect=broker.endpoints) as client:
        ...     with dcp.Worker(b"upper", connect=broker.endpoints) as worker:
        ...         def upper(request):
        ...             worker.stop()
        ...             return request.data[0].upper()
        ...         future = client.submit(b"upper", b"hello")
        ...         worker.serve(upper)
        ...     future.result(timeout=10).data
        (b'HELLO',)

        ```
        """
        if inspect.iscoroutinefunction(handler):
            message = "a coroutine function is served by AsyncWorker"
            raise TypeError(message)
        pool = Pool(self.concurrency, "trunkline-handler")
        try:
            for request in self._worker:
                pool.run(functools.partial(self._answer, handler, on_error, request))
                # Drop the reference: the request belongs to another thread now.
                del request
        finally:
            pool.end()

    def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """Leaves as `stop` does, returns requests that have not been begun, waits for the replies to those in progress, and
        closes.

        Args:
            drain_s: The most seconds to wait for the broker, for replies, and until they are sent.

        Raises:
            TimeoutError: Replies were not sent in time.
        """
        self._finish(drain_s)

    def _ended(self) -> None:
        # Requests that still arrive are returned to the broker.
        self._worker.finish()

    def _abandon(self) -> None:
        # The original exception takes precedence.
        with suppress(TimeoutError):
            self.close(drain_s=0.0)


class AsyncWorker(WorkerBase, AsyncStream[Request]):
    """`Worker` for asyncio: opened by ``async with``, iterated by ``async for``.

    ```pycon
    >>> import asyncio
    >>> from trunkline import dcp
    >>> async def main():
    ...     async with (
    ...         dcp.AsyncBroker(bind="tcp://127.0.0.1:*") as broker,
    ...         dcp.AsyncWorker(b"upper", connect=broker.endpoints) as worker,
    ...         dcp.AsyncClient(connect=broker.endpoints) as client,
    ...     ):
    ...         replies = [await client.submit(b"upper", word) for word in (b"one", b"two")]
    ...         request = await worker.receive(timeout_s=10)
    ...         request.reply(request.data[0].upper())
    ...         async for request in worker:
    ...             request.reply(request.data[0].upper())
    ...             worker.stop()
    ...         await worker.close(drain_s=2)
    ...         return [(await reply).data for reply in replies]
    >>> asyncio.run(main())
    [(b'ONE',), (b'TWO',)]

    ```
    """

    def _open(self) -> None:
        super()._open()
        self._calls: AsyncCalls[Reply] = AsyncCalls(self._worker, self._waits)

    async def receive(self, *, timeout_s: float | None = None) -> Request:
        """See `Worker.receive`."""
        worker = self._worker
        return await self._waits.taken(worker.poll, timeout_s, "no request came")

    async def request(
        self, service: bytes, data: Parts, *, metadata: Sequence[Frame] = (), timeout_s: float | None = None
    ) -> Reply:
        """See `Worker.request`.

        ```pycon
        >>> import asyncio
        >>> from trunkline import dcp
        >>> async def main():
        ...     async with dcp.AsyncBroker(bind="tcp://127.0.0.1:*") as broker:
        ...         async with dcp.AsyncWorker(b"upper", connect=broker.endpoints) as worker:
        ...             reply = await worker.request(b"trunkline.status", b"", timeout_s=10)
        ...             return b"upper" in reply.data[0]
        >>> asyncio.run(main())
        True

        ```
        """
        outgoing = self._worker.outgoing(service, data, metadata=metadata, timeout_s=timeout_s, retries=0)
        return await self._calls.ask(outgoing, timeout_s, timeout_s)

    async def serve(self, handler: AsyncHandler, *, on_error: OnError | None = None) -> None:
        """See `Worker.serve`; a coroutine function runs in this loop, any other on `concurrency` threads.

        ```pycon
        >>> import asyncio
        >>> from trunkline import dcp
        >>> async def main():
        ...     async with (
        ...         dcp.AsyncBroker(bind="tcp://127.0.0.1:*") as broker,
        ...         dcp.AsyncWorker(b"upper", connect=broker.endpoints) as worker,
        ...         dcp.AsyncClient(connect=broker.endpoints) as client,
        ...     ):
        ...         async def upper(request):
        ...             worker.stop()
        ...             return request.data[0].upper()
        ...         reply = await client.submit(b"upper", b"hello")
        ...         await worker.serve(upper)
        ...         return (await reply).data
        >>> asyncio.run(main())
        (b'HELLO',)

        ```
        """
        if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(type(handler).__call__):
            pool = Pool(self.concurrency, "trunkline-handler")
            try:
                async for request in self:
                    pool.run(functools.partial(self._answer, handler, on_error, request))  # type: ignore[arg-type]
                    del request
            finally:
                pool.end()
            return
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for request in self:
                task = asyncio.ensure_future(self._answer_async(handler, on_error, request))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                del request
        finally:
            for task in tasks:
                task.cancel()

    async def _answer_async(self, handler: AsyncHandler, on_error: OnError | None, request: Request) -> None:
        try:
            result = handler(request)
            _reply(request, await result if inspect.isawaitable(result) else result)
        except BaseException as error:
            self._fail(request, on_error, error)
            if not isinstance(error, Exception):
                raise

    async def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """See `Worker.close`."""
        await self._finish(drain_s)

    async def _ended(self) -> None:
        worker = self._worker

        def is_over() -> bool | None:
            if not worker.closed:
                worker.give_back()
            return worker.closed or None

        # Requests that still arrive are returned to the broker.
        await self._waits.taken(is_over, None, "it did not end")

    async def _abandon(self) -> None:
        # The original exception takes precedence.
        with suppress(TimeoutError):
            await self.close(drain_s=0.0)
