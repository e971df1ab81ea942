"""The receiving role."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from trunkline._arguments import need_callable, need_choices, need_flag, need_names, need_number
from trunkline._metrics.counters import Count, Level, RunId, SenderName, TransportName
from trunkline._native.cdtp import Message
from trunkline._native.cdtp import Receiver as _Receiver
from trunkline._roles.base import AsyncStream, BlockingRole, Role
from trunkline._roles.native import opened
from trunkline._roles.notices import Dropped, Notices
from trunkline._roles.options import native_options
from trunkline.chirp.beacon import PORT, Cast, beacon_options, need_cast, warn_of_no_network
from trunkline.errors import LocalProtocolError
from trunkline.options import RoleOptions, spelled_out

__all__ = ["Accept", "AsyncReceiver", "Header", "Receiver", "ReceiverStats", "SenderCount"]

Header = Literal["S", "A", "B", "2"]
Accept = Header | Sequence[Header]

ALL_HEADERS: tuple[Header, ...] = ("S", "A", "B", "2")

# How long a role with a capture reads messages that have arrived before it closes.
_DRAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class SenderCount:
    """Counters of one sender, as its receiver sees it.

    Attributes:
        messages: Valid messages; a CDTP2 message counts once per record.
        bytes: Bytes of all their frames.
        missed: Sequence numbers that were skipped (CDTP-21); 0 with header S, which has none.
    """

    messages: Count
    bytes: Count
    missed: Count


@dataclass(frozen=True, slots=True)
class ReceiverStats:
    """Counters of a receiver since its start.

    Attributes:
        received: Messages read from the sockets.
        accepted: Valid ones.
        dropped: Malformed ones by kind; only kinds that occurred.
        bytes: Bytes of all frames, malformed messages included.
        messages: Messages for the user; a CDTP2 message counts once per record.
        queued: Wire messages waiting for the user.
        queued_bytes: Their bytes, and 64 for each frame.
        duplicate_keys: Keys that a tags map held more than once; the last one wins.
        chirp_dropped: Invalid CHIRP datagrams.
        senders: Counters by sender name; names are cut at 200 bytes, and there are at most 1000.
        runs: The ``run_id`` of each sender that is in a run; empty if the BOR has none.
        capture_lost: Rows dropped because the capture could not keep up.
        refused: CURVE clients that were refused.
        turned_away: Connections closed at once because ``max_connections`` or ``max_connections_per_host`` was reached.
        connection_failures: Connections that were refused or given up, by reason, e.g. ``too_many_frames`` or
            ``handshake_timeout``; only reasons that occurred, and none over libzmq, which does not tell them.
        transport: The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``.
    """

    received: Count
    accepted: Count
    dropped: Mapping[str, Count]
    bytes: Count
    messages: Count
    queued: Level
    queued_bytes: Level
    duplicate_keys: Count
    chirp_dropped: Count
    senders: Mapping[str, SenderCount]
    runs: Mapping[SenderName, RunId]
    capture_lost: Count
    refused: Count
    turned_away: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


def machine_settings(
    *,
    accept: Accept,
    strict: bool,
    limit: int | None = None,
    message_limit: int | None = None,
    group: str | None = None,
    senders: Sequence[str] | None = None,
    chirp: Cast = "multicast",
    chirp_port: int = PORT,
) -> dict[str, Any]:
    """The settings of the machine of a receiver or recorder."""
    need_choices("accept", accept, ALL_HEADERS)
    need_flag("strict", strict)
    need_number("limit", limit, may_be_none=True)
    need_number("message_limit", message_limit, may_be_none=True)
    need_names("senders", senders, may_be_none=True)
    need_cast(chirp, port=chirp_port, prefix="chirp_")
    beacon = None
    if group is not None:
        only_names = senders is not None
        beacon = beacon_options(
            group, None, chirp=chirp, names=senders, only_names=only_names, port=chirp_port, prefix="chirp_"
        )
    elif senders is not None:
        message = "senders= selects among the senders of a group: give group="
        raise LocalProtocolError(message)
    return {"accept": accept, "strict": strict, "limit": limit, "message_limit": message_limit, "beacon": beacon}


def open_native(
    who: str,
    given: RoleOptions,
    machine: Mapping[str, Any],
    *,
    on_drop: Callable[[Dropped], object] | None,
    deliver: bool,
    **more: Any,
) -> _Receiver:
    """Opens the engine of a receiver or recorder."""
    need_callable("on_drop", on_drop)
    options = native_options(given, grace_s=_DRAIN_S, finds=machine["beacon"] is not None, **more)
    notices = Notices("cdtp", who, on_drop)
    native = _Receiver(options, notices.report, deliver=deliver, **machine)
    if machine["beacon"] is not None and native.simulation is None:
        warn_of_no_network(notices)
    return opened(native, given, notices)


def receiver_stats(counts: dict[str, Any]) -> ReceiverStats:
    """The native counters as public ones."""
    own = {name: counts[name] for name in ReceiverStats.__dataclass_fields__ if name in counts}
    return ReceiverStats(**{**own, "senders": sender_counts(counts)})


def sender_counts(counts: dict[str, Any]) -> dict[str, SenderCount]:
    """The senders among the native counters."""
    return {name: SenderCount(**count) for name, count in counts["senders"].items()}


class ReceiverBase(Role):
    _native: _Receiver | None = None

    @spelled_out(RoleOptions)
    def __init__(
        self,
        *,
        accept: Accept = ALL_HEADERS,
        strict: bool = True,
        on_drop: Callable[[Dropped], object] | None = None,
        limit: int | None = None,
        message_limit: int | None = None,
        group: str | None = None,
        senders: Sequence[str] | None = None,
        chirp: Cast = "multicast",
        chirp_port: int = PORT,
        **options: Unpack[RoleOptions],
    ) -> None:
        self._grace_s = 0.0 if options.get("capture") is None else _DRAIN_S
        self._options = options
        self._on_drop = on_drop
        self._settings: dict[str, Any] = {
            "accept": accept,
            "strict": strict,
            "limit": limit,
            "message_limit": message_limit,
            "group": group,
            "senders": senders,
            "chirp": chirp,
            "chirp_port": chirp_port,
        }
        self._made()

    def _open(self) -> None:
        machine = machine_settings(**self._settings)
        self._native = open_native("receiver", self._options, machine, on_drop=self._on_drop, deliver=True)

    @property
    def _receiver(self) -> _Receiver:
        native: _Receiver = self._opened()
        return native

    @property
    def stats(self) -> ReceiverStats:
        """The current counters; the final ones once closed."""
        return receiver_stats(self._receiver.stats())

    def limit(self, count: int | None) -> None:
        """Stops reading after this many wire messages in total, malformed ones included; None continues."""
        self._receiver.limit(count)

    def _conclude(self, native: Any) -> None:
        # Its last notices are among the messages that were not read.
        native.give_up()
        super()._conclude(native)


class Receiver(ReceiverBase, BlockingRole):
    """Receives from senders, fair among its endpoints (CDTP-16, CDTP-17).

    Iterate over it, or call `receive`. A slow reader loses nothing: when the queue is full, sockets are not read, which slows
    the senders down. Malformed messages are counted, logged and passed to `on_drop`.

    Args:
        accept: One or more headers to accept; others are dropped as ``unsupported_version``.
        strict: Whether bytes after a header are an error (CDTP-10).
        on_drop: Called with a `trunkline.Dropped`, in the thread that reads.
        limit: Stop reading after this many wire messages; see `limit`.
        message_limit: Stop reading once this many messages are queued or handed out: a CDTP2 message counts once per
            record, a malformed one does not count.
        group: Find senders in this group by CHIRP, now and later, in place of ``bind`` and ``connect`` (CDTP-16). Each
            is connected to once and followed when it comes back on another port; one that departs is read until it is
            quiet for 250 ms, for at most 1 s, and then disconnected. `endpoints` has those currently connected to, up
            to 256.
        senders: The names of the senders to follow; all of the group if None.
        chirp: As for a sender; a receiver announces nothing, and listens and sends requests both ways.
        chirp_port: The UDP port.
        **options: Endpoints, queues and capture: ``bind``, ``connect``, ``curve``, ``queue_messages``,
            ``capture`` and more, each in `trunkline.RoleOptions`.

    Raises:
        OSError: An endpoint cannot be bound or connected.
        LocalProtocolError: The options contradict each other.
        CaptureError: The capture cannot be opened.

    ```pycon
    >>> from trunkline import cdtp
    >>> receiver = cdtp.Receiver(bind="tcp://127.0.0.1:*", limit=1)
    >>> with cdtp.Sender("Detector.one", connect=receiver.endpoints[0]) as sender:
    ...     sender.send(b"first")
    ...     sender.send(b"second")
    >>> receiver.receive(timeout_s=10).payload
    (b'first',)
    >>> receiver.limit(None)
    >>> receiver.receive(timeout_s=10).payload
    (b'second',)
    >>> receiver.stop()
    >>> list(receiver)
    []
    >>> receiver.close()

    ```
    """

    def receive(self, *, timeout_s: float | None = None) -> Message:
        """Waits for a message.

        Args:
            timeout_s: How long to wait; None for no limit, 0 to return at once.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The receiver is closed.
        """
        return self._receiver.receive(timeout_s)

    def __iter__(self) -> Iterator[Message]:
        """Every message until the receiver is closed."""
        return self._receiver

    def stop(self, *, drain_s: float = 5.0) -> None:
        """Ends iteration gracefully: accepts no new senders, and hands out what has arrived, for at most `drain_s`
        seconds.
        """
        self._receiver.close(drain_s)

    def close(self) -> None:
        """Closes the sockets; with a capture, records what has arrived first. Unread messages are dropped."""
        self._finish(self._grace_s)


class AsyncReceiver(ReceiverBase, AsyncStream[Message]):
    """`Receiver` for asyncio: opened by ``async with``, iterated by ``async for``.

    ```pycon
    >>> import asyncio
    >>> from trunkline import cdtp
    >>> async def main():
    ...     async with cdtp.AsyncReceiver(bind="tcp://127.0.0.1:*", limit=1) as receiver:
    ...         async with cdtp.AsyncSender("Detector.one", connect=receiver.endpoints[0]) as sender:
    ...             for event in (b"first", b"second"):
    ...                 await sender.send(event)
    ...         first = await receiver.receive(timeout_s=10)
    ...         receiver.limit(None)
    ...         async for message in receiver:
    ...             receiver.stop()
    ...         await receiver.close()
    ...         return first.payload, message.payload
    >>> asyncio.run(main())
    ((b'first',), (b'second',))

    ```
    """

    async def receive(self, *, timeout_s: float | None = None) -> Message:
        """See `Receiver.receive`."""
        receiver = self._receiver
        return await self._waits.taken(receiver.poll, timeout_s, "no message came")

    def stop(self, *, drain_s: float = 5.0) -> None:
        """See `Receiver.stop`."""
        self._receiver.close(drain_s)

    async def close(self) -> None:
        """See `Receiver.close`."""
        await self._finish(self._grace_s)
