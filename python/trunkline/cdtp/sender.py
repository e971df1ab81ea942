"""The sending role."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Unpack, get_args

from trunkline._arguments import need_choice, need_number, need_seconds, need_text
from trunkline._frames import Frame, Parts
from trunkline._metrics.counters import Count, Level, TransportName
from trunkline._native.cdtp import Outgoing
from trunkline._native.cdtp import Sender as _Sender
from trunkline._roles.base import AsyncRole, BlockingRole, Role
from trunkline._roles.native import give_up, opened
from trunkline._roles.notices import Notices, watch
from trunkline._roles.options import endpoints, native_options
from trunkline._text import counted, were
from trunkline.cdtp.receiver import ALL_HEADERS, Header
from trunkline.chirp.beacon import PORT, Cast, beacon_options, need_cast, warn_of_no_network
from trunkline.errors import LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import Overflow, RoleOptions, spelled_out

__all__ = ["AsyncSender", "Sender", "SenderStats"]

# The same as in released satellites.
BATCH_BYTES = 128 << 10
BATCH_S = 0.5

# An interrupted sender that takes longer says what it waits for.
_LONG_S = 1.0


@dataclass(frozen=True, slots=True)
class SenderStats:
    """Counters of a sender since its start, in the messages that receivers give: each record of CDTP2 is one, and its BOR
    and EOR have two each.

    Attributes:
        sent: Messages handed to the transport.
        bytes: The bytes of their frames.
        queued: Messages waiting to be sent; once closed, those that were never sent.
        queued_bytes: Their bytes, and 64 for each frame.
        at_risk: Wire messages that may have been lost when receivers disconnected, at least (CDTP-18).
        capture_lost: Rows dropped because the capture could not keep up.
        refused: CURVE clients that were refused.
        turned_away: Connections closed at once because ``max_connections`` or ``max_connections_per_host`` was reached.
        connection_failures: Connections that were refused or given up, by reason, e.g. ``too_many_frames`` or
            ``handshake_timeout``; only reasons that occurred, and none over libzmq, which does not tell them.
        transport: The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``.
    """

    sent: Count
    bytes: Count
    queued: Level
    queued_bytes: Level
    at_risk: Count
    capture_lost: Count
    refused: Count
    turned_away: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class SenderBase(Role):
    """The base class of the sender, without its waits."""

    _native: _Sender | None = None
    _in_run = False

    @spelled_out(RoleOptions)
    def __init__(
        self,
        name: str,
        *,
        header: Header = "S",
        overflow: Overflow = "block",
        linger_s: float = 5.0,
        batch_bytes: int = BATCH_BYTES,
        batch_s: float = BATCH_S,
        group: str | None = None,
        chirp: Cast = "multicast",
        chirp_lower_case: bool = True,
        chirp_port: int = PORT,
        **options: Unpack[RoleOptions],
    ) -> None:
        need_text("name", name)
        need_choice("header", header, ALL_HEADERS)
        need_choice("overflow", overflow, get_args(Overflow))
        need_seconds("linger_s", linger_s)
        need_number("batch_bytes", batch_bytes)
        need_seconds("batch_s", batch_s)
        self.name = name
        self._header = header
        self._overflow = overflow
        self._linger_s = linger_s
        self._batch_bytes = batch_bytes
        self._batch_s = batch_s
        self._options = options
        self._beacon = None
        need_cast(chirp, lower_case=chirp_lower_case, port=chirp_port, prefix="chirp_")
        if group is not None:
            if not any(endpoint.startswith("tcp://") for endpoint in endpoints("bind", options.get("bind", ()))):
                message = "with group=, a sender must listen on a TCP endpoint: give bind= one"
                raise LocalProtocolError(message)
            self._beacon = beacon_options(
                group, name, chirp=chirp, lower_case=chirp_lower_case, port=chirp_port, prefix="chirp_"
            )
        self._made()

    def _open(self) -> None:
        options = native_options(self._options, grace_s=self._linger_s)
        native = _Sender(
            options,
            self.name,
            header=self._header,
            max_message_bytes=options["max_message_bytes"],
            batch_bytes=self._batch_bytes,
            batch_s=self._batch_s,
            beacon=self._beacon,
        )
        self._notices = notices = Notices("cdtp", self.name, None)
        self._unsent = Unsent(native, notices)
        watch(native, lambda: _read_notices(native, notices), self._unsent.report)
        self._native = opened(native, self._options, notices)
        if self._beacon is not None and native.simulation is None:
            warn_of_no_network(notices)

    @property
    def _sender(self) -> _Sender:
        native: _Sender = self._opened()
        return native

    @property
    def stats(self) -> SenderStats:
        """The current counters; the final ones once closed."""
        return SenderStats(**self._sender.stats())

    def _data(
        self, payload: Parts, tags: Mapping[str, Any] | None, timestamp_ns: int | None, *, dtype: bool
    ) -> Outgoing:
        if dtype:
            tags = {**(tags or {}), "dtype": _name_of_dtype(payload, tags)}
        return self._sender.data(payload, tags, timestamp_ns)

    def _begin(self, config: Mapping[str, Any]) -> Outgoing:
        self._check_runs()
        if self._in_run:
            message = "a run is already in progress: end it first"
            raise LocalProtocolError(message)
        return self._sender.begin_run(config)

    def _end(self, metadata: Mapping[str, Any]) -> Outgoing:
        self._check_runs()
        if not self._in_run:
            message = "no run to end"
            raise LocalProtocolError(message)
        return self._sender.end_run(metadata)

    def _check_runs(self) -> None:
        self._sender.check_open()
        if self._header == "S":
            message = "header S does not support runs: use A, B or 2"
            raise LocalProtocolError(message)

    def _wait_s(self, timeout_s: float | None) -> float | None:
        return 0.0 if self._overflow == "raise" else timeout_s

    def _not_flushed(self, timeout_s: float | None) -> TimeoutError:
        queued = self.stats.queued
        # What is not queued any more is still with the transport.
        return _unsent(queued, timeout_s, is_least=not queued)

    @contextmanager
    def _ending(self, linger_s: float, *, interrupted: bool) -> Iterator[_Sender]:
        """Around the end of the engine: raises for unsent messages, or logs them if another exception is raised."""
        sender = self._sender
        was_closed = sender.closed
        if not was_closed:
            self._unsent.is_reported = True
            if not interrupted:
                # A run that is open when the engine ends has been interrupted.
                sender.complete()
        try:
            yield sender
            if not was_closed:
                sender.raise_failure()
        except BaseException:
            # An interrupt ends the wait, even before it began.
            give_up(sender)
            self._log_unsent()
            raise
        if not was_closed:
            self._check_sent(sender, linger_s)

    @contextmanager
    def _saying_what_is_left(self) -> Iterator[None]:
        """Around the end of an interrupted sender: logs what it goes on with, once that takes long."""
        timer = threading.Timer(_LONG_S, self._say_what_is_left)
        timer.daemon = True
        if self._linger_s > _LONG_S:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _say_what_is_left(self) -> None:
        queued = self.stats.queued
        if queued:
            left_s = self._linger_s - _LONG_S
            text = f"still sends {counted(queued, 'message')}, for at most {left_s:g} s: an interrupt ends that at once"
            self._notices.log(logging.WARNING, "lingering", text)

    def _check_sent(self, native: _Sender, waited_s: float) -> None:
        queued = self.stats.queued
        if queued or native.unsent:
            raise _unsent(queued, waited_s, is_least=native.unsent)

    def _log_unsent(self) -> None:
        self._unsent.is_reported = False
        self._unsent.report()

    def _let_go(self, native: _Sender) -> None:
        # Still watched, so that unsent messages are logged.
        native.close(self._linger_s)


def _name_of_dtype(payload: Any, tags: Mapping[str, Any] | None) -> str:
    """The name of the type of an array, by which NumPy finds it again."""
    if "dtype" in (tags or {}):
        message = "dtype=True adds the tag dtype, and tags has one: leave out one of them"
        raise LocalProtocolError(message)
    dtype = getattr(payload, "dtype", None)
    if dtype is None:
        message = f"dtype=True takes a NumPy array as the payload, not {type(payload).__name__}"
        raise LocalProtocolError(message)
    if dtype.kind not in "iufb":
        message = f"dtype=True takes an array of numbers, not of {dtype}"
        raise LocalProtocolError(message)
    return str(dtype)


def _unsent(queued: int, waited_s: float | None, *, is_least: bool) -> TimeoutError:
    # How many messages the transport has is not known: one at least.
    unsent = queued + int(is_least)
    least = "at least " if is_least else ""
    return TimeoutError(f"{least}{were(unsent, 'message')} not sent within {waited_s} s", unsent=unsent)


class Unsent:
    """The unsent messages, reported once: by an exception of `close`, else by the log (CDTP-18)."""

    def __init__(self, native: _Sender, notices: Notices) -> None:
        self._native = native
        self._notices = notices
        self.is_reported = False
        # How many are to be sent in all, if known before they are queued.
        self.all: int | None = None

    def report(self) -> None:
        stats = self._native.stats()
        unsent = stats["queued"] if self.all is None else self.all - stats["sent"]
        if unsent and not self.is_reported:
            self.is_reported = True
            of_all = "" if self.all is None else f"{unsent:,} of "
            messages = were(unsent if self.all is None else self.all, "message")
            self._notices.log(logging.WARNING, "unsent", f"{of_all}{messages} not sent")


def _read_notices(native: _Sender, notices: Notices) -> None:
    for notice in native.notices():
        report(notices, *notice)


def report(notices: Notices, kind: str, endpoint: str, detail: str) -> None:
    """Reports a notice of a sender's engine."""
    if kind == "shared":
        text = f"a second receiver is connected to {endpoint}: from now on they share the stream"
        notices.log(logging.WARNING, kind, text)
    elif kind == "at_risk":
        notices.log(
            logging.WARNING,
            kind,
            f"a receiver disconnected from {endpoint}, and at least {counted(int(detail), 'message')} may be lost",
        )
    elif kind == "bound":
        # For debugging only: the user knows its endpoints.
        notices.log(logging.DEBUG, kind, f"{endpoint} bound")
    else:
        notices.report(kind, endpoint, detail)


class Sender(SenderBase, BlockingRole):
    """Streams messages to a receiver, and keeps what it cannot send yet (CDTP-18).

    Messages wait in the sender's own queue until there is a receiver with room; libzmq gets only a few at a time, since
    those it holds are lost with the receiver they were meant for. `stats.at_risk` counts them at each disconnection.

    With headers A, B and 2 messages belong to runs: a `send` outside a run begins one, `close` ends it.

    Args:
        name: The sender's name, in every header (CDTP-04).
        header: Which header to write: the specification's ("S") or that of released Constellation peers
            ("A": 0.1 to 0.3, "B": 0.4 to 0.5, "2": 0.6 and later).
        overflow: What `send` does when the queue is full: block, or raise at once.
        linger_s: How long `close` may continue sending (CDTP-19).
        batch_bytes: With header 2, data messages are sent together until their records take more bytes than this; a
            larger one is sent alone. 0: each is sent alone.
        batch_s: The longest that a message waits for others, in seconds. 0: it does not wait.
        group: Offer the first TCP endpoint it listens on to this group by CHIRP, as service DATA of a host of this name
            (CDTP-15), until it has sent all and closes. See `trunkline.chirp.Beacon` for this and what follows.
        chirp: How the offer is sent, by "multicast" or "broadcast".
        chirp_lower_case: Whether it carries the hashes of the names in lower case.
        chirp_port: The UDP port.
        **options: Endpoints, queues and capture: ``bind``, ``connect``, ``curve``, ``queue_messages``,
            ``capture`` and more, each in `trunkline.RoleOptions`.

    Raises:
        OSError: An endpoint cannot be bound or connected.
        LocalProtocolError: The options contradict each other.

    ```pycon
    >>> from trunkline import cdtp
    >>> with cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver:
    ...     with cdtp.Sender("Detector.one", header="B", connect=receiver.endpoints[0]) as sender:
    ...         sender.begin_run({"voltage": 1.5})
    ...         sender.send(b"event", tags={"trigger": 1})
    ...         sender.flush(timeout_s=10)
    ...         sender.end_run({"run_id": "run_1"})
    ...         sender.close(linger_s=10)
    ...     [receiver.receive(timeout_s=10).type for _ in range(3)]
    ['BOR', 'DAT', 'EOR']

    ```
    """

    def send(
        self,
        payload: Parts,
        *,
        tags: Mapping[str, Any] | None = None,
        timestamp_ns: int | None = None,
        dtype: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Sends a message, or queues it.

        Args:
            payload: The payload: one frame, or a sequence of them.
            tags: The tags; keys are strings, values any of MessagePack's types.
            timestamp_ns: Nanoseconds since 1970; now if None (CDTP-06). Headers B and 2 have none.
            dtype: Whether to add Constellation's tag ``dtype``: the name of the payload's type, which must be a NumPy array.
                `Message.array` and the layout ``"dtype"`` read it.
            timeout_s: How long to wait for room in the queue.

        Raises:
            TimeoutError: The queue is full.
            LocalProtocolError: The message would be invalid, such as one without a payload frame with header S
                (CDTP-01), the header has no timestamp, or a frame is larger than ``max_message_bytes``.
            ClosedError: The sender is closed.
        """
        self._put(self._data(payload, tags, timestamp_ns, dtype=dtype), timeout_s)
        self._in_run = self._header != "S"

    def begin_run(self, config: Mapping[str, Any] | None = None, *, timeout_s: float | None = None) -> None:
        """Begins a run with a BOR message (CDTP-21).

        Args:
            config: The configuration it carries.
            timeout_s: How long to wait for room in the queue.

        Raises:
            LocalProtocolError: The header does not support runs, or a run is in progress.
        """
        self._put(self._begin(config or {}), timeout_s)
        self._in_run = True

    def end_run(self, metadata: Mapping[str, Any] | None = None, *, timeout_s: float | None = None) -> None:
        """Ends the run with an EOR message (CDTP-21).

        Args:
            metadata: The metadata of the run.
            timeout_s: How long to wait for room in the queue.

        Raises:
            LocalProtocolError: No run is in progress.
        """
        self._put(self._end(metadata or {}), timeout_s)
        self._in_run = False

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Sends messages that are waiting for a batch, and waits until the system has everything.

        From then on messages arrive even if this process is killed. Over libzmq and the crate ``zeromq``, which do not
        report it, the wait ends when they have accepted everything.

        Args:
            timeout_s: How long to wait; None for no limit.

        Raises:
            TimeoutError: Not in time; `.unsent` is the number of messages left, at least.
            ClosedError: The sender is closed.
        """
        sender = self._sender
        sender.check_open()
        sender.flush()
        if not sender.wait_drained(timeout_s):
            raise self._not_flushed(timeout_s)

    def send_frames(self, frames: Sequence[Frame], *, timeout_s: float | None = None) -> None:
        """Sends a complete message, including its header, without checking its bytes.

        Raises:
            TimeoutError: The queue is full.
            LocalProtocolError: There is no frame, or one is larger than ``max_message_bytes``.
            ClosedError: The sender is closed.

        ```pycon
        >>> from trunkline import cdtp
        >>> with cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver:
        ...     with cdtp.Sender("Detector.one", connect=receiver.endpoints[0]) as sender:
        ...         sender.send(b"event")
        ...         message = receiver.receive(timeout_s=10)
        ...         sender.send_frames(cdtp.encode(message))
        ...     receiver.receive(timeout_s=10) == message
        True

        ```
        """
        self._put(self._sender.raw(frames), timeout_s)

    def _put(self, outgoing: Outgoing, timeout_s: float | None) -> None:
        self._sender.put(outgoing, self._wait_s(timeout_s))

    def close(self, *, linger_s: float | None = None, interrupted: bool = False) -> None:
        """Ends the run, sends what is queued for as long as `linger_s`, and closes (CDTP-19).

        A ``with`` that an exception leaves, ``KeyboardInterrupt`` and ``SystemExit`` included, closes with `interrupted`. So
        does the end of a sender that is garbage collected or still open when the process exits. An interrupt, such as
        Ctrl-C, ends the wait at once. Unsent messages are logged if they cannot be reported otherwise: after an interrupt
        or another exception, when the sender is garbage collected, or at the end of the process.

        Args:
            linger_s: Replaces the sender's own `linger_s`, if given.
            interrupted: Whether the run in progress ends with the condition INTERRUPTED; it has no metadata otherwise.

        Raises:
            TimeoutError: Messages were not sent; `.unsent` is their number.
        """
        linger_s = self._linger_s if linger_s is None else linger_s
        with self._ending(linger_s, interrupted=interrupted) as sender:
            sender.close(linger_s)
            self._await_end()

    def _interrupt(self) -> None:
        with self._saying_what_is_left():
            self.close(interrupted=True)


class AsyncSender(SenderBase, AsyncRole):
    """`Sender` for asyncio: opened by ``async with``; what can wait is a coroutine.

    ```pycon
    >>> import asyncio
    >>> from trunkline import cdtp
    >>> async def main():
    ...     async with cdtp.AsyncReceiver(bind="tcp://127.0.0.1:*") as receiver:
    ...         async with cdtp.AsyncSender("Detector.one", header="B", connect=receiver.endpoints[0]) as sender:
    ...             await sender.begin_run({"voltage": 1.5})
    ...             await sender.send(b"event")
    ...             await sender.flush(timeout_s=10)
    ...             await sender.end_run({"run_id": "run_1"})
    ...             await sender.close(linger_s=10)
    ...         return [(await receiver.receive(timeout_s=10)).type for _ in range(3)]
    >>> asyncio.run(main())
    ['BOR', 'DAT', 'EOR']

    ```
    """

    async def send(
        self,
        payload: Parts,
        *,
        tags: Mapping[str, Any] | None = None,
        timestamp_ns: int | None = None,
        dtype: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """See `Sender.send`."""
        await self._put(self._data(payload, tags, timestamp_ns, dtype=dtype), timeout_s)
        self._in_run = self._header != "S"

    async def begin_run(self, config: Mapping[str, Any] | None = None, *, timeout_s: float | None = None) -> None:
        """See `Sender.begin_run`."""
        await self._put(self._begin(config or {}), timeout_s)
        self._in_run = True

    async def end_run(self, metadata: Mapping[str, Any] | None = None, *, timeout_s: float | None = None) -> None:
        """See `Sender.end_run`."""
        await self._put(self._end(metadata or {}), timeout_s)
        self._in_run = False

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """See `Sender.flush`."""
        sender = self._sender
        sender.check_open()
        sender.flush()
        if not await self._waits.until(lambda: sender.is_drained() or sender.closed, timeout_s):
            raise self._not_flushed(timeout_s)
        sender.wait_drained(0)

    async def send_frames(self, frames: Sequence[Frame], *, timeout_s: float | None = None) -> None:
        """See `Sender.send_frames`.

        ```pycon
        >>> import asyncio
        >>> from trunkline import cdtp
        >>> async def main():
        ...     async with cdtp.AsyncReceiver(bind="tcp://127.0.0.1:*") as receiver:
        ...         async with cdtp.AsyncSender("Detector.one", connect=receiver.endpoints[0]) as sender:
        ...             await sender.send(b"event")
        ...             message = await receiver.receive(timeout_s=10)
        ...             await sender.send_frames(cdtp.encode(message))
        ...         return await receiver.receive(timeout_s=10) == message
        >>> asyncio.run(main())
        True

        ```
        """
        await self._put(self._sender.raw(frames), timeout_s)

    async def _put(self, outgoing: Outgoing, timeout_s: float | None) -> None:
        sender = self._sender
        await self._waits.room(lambda: sender.offer(outgoing), self._wait_s(timeout_s))

    async def close(self, *, linger_s: float | None = None, interrupted: bool = False) -> None:
        """See `Sender.close`."""
        if self._native is None:
            return
        linger_s = self._linger_s if linger_s is None else linger_s
        with self._ending(linger_s, interrupted=interrupted) as sender:
            sender.close(linger_s)
            await self._await_end()

    async def _interrupt(self) -> None:
        with self._saying_what_is_left():
            await self.close(interrupted=True)
