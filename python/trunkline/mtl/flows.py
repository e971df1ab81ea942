"""Data connections, which send and receive contents (MTL-30 … MTL-61)."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trunkline._metrics.counters import Count, Latencies, Level, TransportName, measured
from trunkline._native.mtl import Content
from trunkline._native.mtl import Flow as _Flow
from trunkline._roles.base import AsyncRole, AsyncStream, BlockingRole, RoleWithQuestions, need_sent
from trunkline._roles.calls import AsyncCalls
from trunkline._roles.native import give_up
from trunkline._roles.notices import Notices, unwatch, watch
from trunkline._roles.options import native_options
from trunkline._roles.questions import answer_questions
from trunkline._text import counted
from trunkline.errors import (
    ClosedError,
    PeerLostError,
    RemoteProtocolError,
    TimeoutError,  # noqa: A004 - trunkline's
    TrunklineError,
)
from trunkline.mtl._leases import Terms

if TYPE_CHECKING:
    from trunkline._frames import Bytes
    from trunkline.options import RoleOptions

__all__ = ["AsyncReader", "AsyncWriter", "FlowBase", "FlowStats", "Reader", "Writer"]

_DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class FlowStats:
    """Counters of a data connection since its start.

    Attributes:
        received: Messages read from the socket.
        sent: Messages handed to the transport.
        dropped: Dropped messages by kind; only kinds that occurred.
        bytes: Bytes of all frames received.
        contents: Contents received, or accepted for sending.
        confirmed: Contents confirmed.
        rejected: Contents rejected.
        unconfirmed: Contents neither confirmed nor rejected yet.
        latency: How long contents of a writer took until they were confirmed or rejected; without confirmation none.
        at_risk: Contents sent without confirmation on a connection that was lost before they were known to have arrived.
        reconnects: How many times the connection was lost and re-established.
        capture_lost: Rows dropped because the capture could not keep up.
        connection_failures: Connections that were refused or given up, by reason, e.g. ``too_many_frames`` or
            ``handshake_timeout``; only reasons that occurred, and none over libzmq, which does not tell them.
        transport: The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``.
    """

    received: Count
    sent: Count
    dropped: Mapping[str, Count]
    bytes: Count
    contents: Count
    confirmed: Count
    rejected: Count
    unconfirmed: Level
    latency: Latencies
    at_risk: Count
    reconnects: Count
    capture_lost: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class FlowBase(RoleWithQuestions):
    """The base class of the data connection, without its waits."""

    _native: _Flow | None = None

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._keeper = _Keeper(terms)
        self._told_rejects = 0
        self._made()

    def _open(self) -> None:
        terms = self._terms
        self._opening = leasing = terms.leasing()
        endpoint, lease = leasing.wait()
        given: RoleOptions = {**terms.options, "connect": endpoint, "capture": None}
        if not terms.reads:
            given["queue_messages"] = terms.window
        options = native_options(given, grace_s=0.0)
        most = min(options["max_message_bytes"], leasing.max_message_bytes)
        settings = terms.settings(endpoint, lease, most)
        native = _Flow(options, settings, terms.control())
        notices = Notices("mtl", terms.who, terms.on_drop, is_simulated=native.simulation is not None)
        pending = native.notice_queue
        watch(pending, lambda: _report_all(pending, notices))
        self._keeper.keep(native)
        self._opening = native
        try:
            native.request(native.call("open", "", None), room_s=None, timeout_s=terms.timeout_s)
        except BaseException:
            give_up(native)
            unwatch(pending)
            raise
        self._native = native
        terms.connections.begin(native)

    def _conclude(self, native: Any) -> None:
        super()._conclude(native)
        # Its counters are final now.
        self._terms.connections.end(native)

    def __del__(self) -> None:
        super().__del__()
        if self._native is not None:
            self._terms.connections.collect(self._native)

    @property
    def _flow(self) -> _Flow:
        native: _Flow = self._opened()
        return native

    @property
    def is_confirmed(self) -> bool:
        """Whether contents are confirmed (MTL-50)."""
        return self._terms.is_confirmed

    @property
    def stats(self) -> FlowStats:
        """The current counters; the final ones once closed."""
        return FlowStats(**measured(self._flow.stats()))

    def _ended_by(self, error: ClosedError) -> TrunklineError:
        """The reason of its end: the error of a new lease, if any."""
        return self._keeper.failure or error

    def _check_rejects(self) -> None:
        """Raises once for contents that were rejected since the last time."""
        rejected, sequences = self._flow.rejects(self._told_rejects)
        new = rejected - self._told_rejects
        if new:
            self._told_rejects = rejected
            message = f"the server rejected {counted(new, 'content')}"
            raise RemoteProtocolError(message, sequences=tuple(sequences))

    def _not_flushed(self, timeout_s: float | None) -> TimeoutError:
        unsent = self.stats.unconfirmed
        return TimeoutError(f"{counted(unsent, 'content')} not settled within {timeout_s} s", unsent=unsent)

    def _check_sent(self, native: Any, waited_s: float) -> None:
        # With confirmations, unsent contents are reported as unsettled.
        if not self.stats.unconfirmed:
            need_sent(native, waited_s)

    def _check_settled(self, drain_s: float) -> None:
        """Raises for contents that a closed writer leaves unsettled."""
        self._check_rejects()
        unsent = self.stats.unconfirmed
        if unsent and self._keeper.failure is not None:
            message = f"{counted(unsent, 'content')} not settled, and the connection cannot be restored: {self._keeper.failure}"
            raise TimeoutError(message, unsent=unsent) from self._keeper.failure
        if unsent:
            raise self._not_flushed(drain_s)


class _Keeper:
    """Obtains a new lease for a data connection that was lost."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.failure: TrunklineError | None = None

    def keep(self, native: _Flow) -> None:
        answer = functools.partial(self._answer, native)
        answer_questions(native.asked, answer, f"trunkline-mtl-{self._terms.who}", 1)

    def _answer(self, native: _Flow, _kind: str, token: int) -> None:
        try:
            native.granted(token, *self._terms.leasing().wait())
        except (TimeoutError, PeerLostError):
            native.denied(token, None)
        except TrunklineError as error:
            # No reply will come.
            self.failure = error
            native.denied(token, str(error))
            native.close(0.0)


def _report_all(pending: Any, notices: Notices) -> None:
    for kind, *details in pending.read():
        _report(notices, kind, *details)


def _report(notices: Notices, kind: str, *details: Any) -> None:
    """Logs a notice of the engine of a data connection."""
    if kind == "lost":
        notices.log(logging.WARNING, kind, "the server is silent or disconnected: requesting a new lease")
    elif kind == "found":
        notices.log(logging.INFO, kind, "reconnected with a new lease")
    elif kind == "lease_failed":
        notices.log(logging.ERROR, kind, f"cannot obtain a new lease: {details[0]}")
    elif kind == "summon_refused":
        resource, status = details
        notices.log(
            logging.ERROR,
            kind,
            f"{resource!r} is no longer delivered: the server refused to summon it again, with status {status}",
        )
    else:
        notices.report(kind, *details)


class _WriterBase(FlowBase):
    """The base class of the writer, without its waits."""

    # Whether the user has closed it: one that ended by itself reports then what was left unsent.
    _is_ended = False

    def _outbound(self, body: Bytes, properties: Mapping[str, Any] | None, resource: str | None) -> Any:
        """A content to send; raises first for those that were rejected meanwhile."""
        flow = self._flow
        if flow.rejected > self._told_rejects:
            self._check_rejects()
        return flow.outbound(body, None if properties is None else dict(properties), resource)

    @property
    def times_s(self) -> list[float]:
        """Seconds from sending a content until it was confirmed or rejected: those of the last ten thousand."""
        return self._flow.times()


class Writer(_WriterBase, BlockingRole):
    """Sends contents to resources; created by `Client.writer`.

    With confirmation, contents that were unconfirmed when the connection was lost are sent again, with ``redelivered`` in
    their properties: they are delivered at least once.

    ```pycon
    >>> from trunkline import mtl
    >>> with mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server:
    ...     with mtl.Client(connect=server.endpoints) as client:
    ...         writer = client.writer("jobs")
    ...         writer.send(b"build 7", properties={"priority": 3})
    ...         writer.flush(timeout_s=10)
    ...         writer.send(b"build 8")
    ...         writer.close(drain_s=10)
    ...         writer.stats.confirmed
    2

    ```
    """

    def send(
        self,
        body: Bytes,
        *,
        properties: Mapping[str, Any] | None = None,
        resource: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Sends a content (MTL-45); waits until the window has room.

        Args:
            body: The body, any bytes-like object.
            properties: A field table (MTL-60).
            resource: The resource; needed if the lease is for several (MTL-46).
            timeout_s: How long to wait for room; None for no limit.

        Raises:
            LocalProtocolError: The resource is missing or not leased, the properties cannot be encoded, or a frame would exceed
                `max_message_bytes`, the client's own or the server's.
            RemoteProtocolError: Earlier contents were rejected since the last call; `.sequences` has their numbers, as with
                `flush`. This one was not sent.
            TimeoutError: The window was still full after `timeout_s`.
            ClosedError: The writer is closed.
        """
        flow, outbound = self._flow, self._outbound(body, properties, resource)
        try:
            flow.put_outbound(outbound, timeout_s)
        except ClosedError as error:
            raise self._ended_by(error) from None

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Waits until every content is settled: confirmed or rejected or, without confirmation, received by the server.

        Without confirmation a Ping follows the contents, and its Pong any refusal of them.

        Args:
            timeout_s: How long to wait; None for no limit.

        Raises:
            RemoteProtocolError: Contents were rejected since the last call; `.sequences` has their numbers, counted from 1 in
                the order they were sent.
            TimeoutError: Contents are not settled; `.unsent` is their number.
            ClosedError: The writer is closed.
        """
        flow = self._flow
        try:
            if not self.is_confirmed:
                flow.put_outbound(flow.flushing(), timeout_s)
            flow.check_open()
            if not flow.wait_drained(timeout_s):
                raise self._not_flushed(timeout_s)
        except ClosedError as error:
            raise self._ended_by(error) from None
        self._check_rejects()

    def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """Waits until every content is settled as `flush` does, for at most `drain_s` seconds, and closes.

        Raises:
            RemoteProtocolError: Contents were rejected since the last `flush`.
            TimeoutError: Contents are not settled; `.unsent` is their number. If the connection was lost for good, the cause is
                the error that ended it.
        """
        was_ended, self._is_ended = self._is_ended, True
        self._finish(drain_s)
        if not was_ended:
            self._check_settled(drain_s)

    def _abandon(self) -> None:
        # The original exception takes precedence.
        with suppress(TimeoutError, RemoteProtocolError):
            self.close(drain_s=0.0)


class AsyncWriter(_WriterBase, AsyncRole):
    """`Writer` for asyncio: opened by ``async with``; what can wait is a coroutine.

    ```pycon
    >>> import asyncio
    >>> from trunkline import mtl
    >>> async def main():
    ...     async with mtl.AsyncServer(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server:
    ...         async with mtl.AsyncClient(connect=server.endpoints) as client, client.writer("jobs") as writer:
    ...             await writer.send(b"build 7")
    ...             await writer.flush(timeout_s=10)
    ...             await writer.send(b"build 8")
    ...             await writer.close(drain_s=10)
    ...             return writer.stats.confirmed
    >>> asyncio.run(main())
    2

    ```
    """

    async def send(
        self,
        body: Bytes,
        *,
        properties: Mapping[str, Any] | None = None,
        resource: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """See `Writer.send`."""
        flow, outbound = self._flow, self._outbound(body, properties, resource)
        try:
            await self._waits.room(lambda: flow.offer_outbound(outbound), timeout_s)
        except ClosedError as error:
            raise self._ended_by(error) from None

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """See `Writer.flush`."""
        flow = self._flow
        try:
            if not self.is_confirmed:
                flushing = flow.flushing()
                await self._waits.room(lambda: flow.offer_outbound(flushing), timeout_s)
            flow.check_open()
            if not await self._waits.until(lambda: flow.is_drained() or flow.closed, timeout_s):
                raise self._not_flushed(timeout_s)
            flow.wait_drained(0)
        except ClosedError as error:
            raise self._ended_by(error) from None
        self._check_rejects()

    async def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """See `Writer.close`."""
        was_ended, self._is_ended = self._is_ended, self._native is not None
        await self._finish(drain_s)
        if self._native is not None and not was_ended:
            self._check_settled(drain_s)

    async def _abandon(self) -> None:
        # The original exception takes precedence.
        with suppress(TimeoutError, RemoteProtocolError):
            await self.close(drain_s=0.0)


class Reader(FlowBase, BlockingRole):
    """Receives the contents of the resources it summons; created by `Client.reader`. Iterates over them until it is closed.

    If the connection is lost, it obtains a new lease and summons its resources again by itself. Contents that were unconfirmed
    are delivered again; confirming or rejecting their first delivery then has no effect.

    ```pycon
    >>> from trunkline import mtl
    >>> with mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server:
    ...     with mtl.Client(connect=server.endpoints) as client, client.writer("jobs") as writer:
    ...         for build in (b"build 7", b"build 8"):
    ...             writer.send(build, properties={"priority": 3})
    ...         reader = client.reader("jobs")
    ...         reader.summon("jobs")
    ...         first, second = (reader.receive(timeout_s=10) for _ in range(2))
    ...         reader.confirm(first)
    ...         reader.dismiss("jobs")
    ...         reader.reject(second, recycle=True)
    ...         reader.close()
    ...         first.body, first.properties
    ...         client.command("Queue.Info", {"name": "jobs"}).body["messages"]
    (b'build 7', {'priority': 3})
    1

    ```
    """

    def _ask(self, what: Literal["summon", "dismiss"], resource: str, timeout_s: float | None) -> None:
        flow = self._flow
        shown_s = self._terms.timeout_s if timeout_s is None else timeout_s
        try:
            flow.request(flow.call(what, resource, timeout_s), room_s=shown_s, timeout_s=shown_s)
        except ClosedError as error:
            raise self._ended_by(error) from None

    def summon(self, resource: str, *, timeout_s: float | None = None) -> None:
        """Starts the delivery of a resource's contents (MTL-37).

        Args:
            resource: A resource of the lease.
            timeout_s: How long to wait for the answer; None for the client's `timeout_s`.

        Raises:
            LocalProtocolError: The resource is not leased, or is already summoned; nothing was sent.
            RemoteProtocolError: The server refused.
            TimeoutError: No answer arrived in time.
            ClosedError: The reader is closed.
        """
        self._ask("summon", resource, timeout_s)

    def dismiss(self, resource: str, *, timeout_s: float | None = None) -> None:
        """Stops the delivery of a resource's contents (MTL-41); delivered ones can still be confirmed. Raises as `summon` does."""
        self._ask("dismiss", resource, timeout_s)

    def receive(self, *, timeout_s: float | None = None) -> Content:
        """Waits for a content.

        Args:
            timeout_s: How long to wait; None for no limit, 0 to return at once.

        Raises:
            TimeoutError: Nothing arrived in time.
            AuthenticationError, LeaseRefusedError, RemoteProtocolError: The connection was lost, and could not be restored.
            ClosedError: The reader is closed.
        """
        try:
            return self._flow.receive(timeout_s)
        except ClosedError as error:
            raise self._ended_by(error) from None

    def __iter__(self) -> Iterator[Content]:
        """Iterates over the contents until the reader is closed."""
        # `yield from` would close it when the caller stops iterating.
        for content in self._flow:  # noqa: UP028
            yield content
        if self._keeper.failure is not None:
            raise self._keeper.failure

    def confirm(self, content: Content, *, multiple: bool = False) -> None:
        """Confirms a content (MTL-51).

        Args:
            content: A content that this reader received.
            multiple: Confirm all earlier ones too.
        """
        self._flow.confirm(content, multiple=multiple)

    def reject(self, content: Content, *, multiple: bool = False, recycle: bool = False) -> None:
        """Rejects a content (MTL-53).

        Args:
            content: A content that this reader received.
            multiple: Reject all earlier ones too.
            recycle: Return it to its queue, to be delivered again (MTL-54).
        """
        self._flow.reject(content, multiple=multiple, recycle=recycle)

    def close(self) -> None:
        """Returns unconfirmed contents to the server, and closes."""
        self._finish(_DRAIN_S)


class AsyncReader(FlowBase, AsyncStream[Content]):
    """`Reader` for asyncio: opened by ``async with``, iterated by ``async for``; what can wait is a coroutine.

    ```pycon
    >>> import asyncio
    >>> from trunkline import mtl
    >>> async def main():
    ...     async with mtl.AsyncServer(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server:
    ...         async with mtl.AsyncClient(connect=server.endpoints) as client, client.writer("jobs") as writer:
    ...             for build in (b"build 7", b"build 8"):
    ...                 await writer.send(build)
    ...             async with client.reader("jobs") as reader:
    ...                 await reader.summon("jobs")
    ...                 reader.confirm(await reader.receive(timeout_s=10))
    ...                 async for content in reader:
    ...                     await reader.dismiss("jobs")
    ...                     reader.reject(content, recycle=True)
    ...                     await reader.close()
    ...             return (await client.command("Queue.Info", {"name": "jobs"})).body["messages"]
    >>> asyncio.run(main())
    1

    ```
    """

    def _open(self) -> None:
        super()._open()
        self._calls: AsyncCalls[None] = AsyncCalls(self._flow, self._waits)

    async def _ask(self, what: Literal["summon", "dismiss"], resource: str, timeout_s: float | None) -> None:
        shown_s = self._terms.timeout_s if timeout_s is None else timeout_s
        try:
            await self._calls.ask(self._flow.call(what, resource, timeout_s), shown_s, shown_s)
        except ClosedError as error:
            raise self._ended_by(error) from None

    async def summon(self, resource: str, *, timeout_s: float | None = None) -> None:
        """See `Reader.summon`."""
        await self._ask("summon", resource, timeout_s)

    async def dismiss(self, resource: str, *, timeout_s: float | None = None) -> None:
        """See `Reader.dismiss`."""
        await self._ask("dismiss", resource, timeout_s)

    async def receive(self, *, timeout_s: float | None = None) -> Content:
        """See `Reader.receive`."""
        try:
            return await self._waits.taken(self._flow.poll, timeout_s, "no content came")
        except ClosedError as error:
            raise self._ended_by(error) from None

    def confirm(self, content: Content, *, multiple: bool = False) -> None:
        """See `Reader.confirm`; does not wait."""
        self._flow.confirm(content, multiple=multiple)

    def reject(self, content: Content, *, multiple: bool = False, recycle: bool = False) -> None:
        """See `Reader.reject`; does not wait."""
        self._flow.reject(content, multiple=multiple, recycle=recycle)

    async def close(self) -> None:
        """See `Reader.close`."""
        await self._finish(_DRAIN_S)
