"""The recording role: a receiver whose messages go to disk."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Unpack, cast

from trunkline._arguments import need_path
from trunkline._metrics.counters import Count, Level, RunId, SenderName, TransportName, free_bytes
from trunkline._native.cdtp import Receiver as _Receiver
from trunkline._roles.base import AsyncRole, BlockingRole, Role
from trunkline._roles.notices import Dropped, watch
from trunkline._text import counted
from trunkline.cdtp.receiver import ALL_HEADERS, Accept, SenderCount, machine_settings, open_native, sender_counts
from trunkline.chirp.beacon import PORT, Cast
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import DEFAULTS, RoleOptions, SocketOptions, spelled_out

__all__ = ["AsyncRecorder", "Recorder", "RecorderStats"]

_DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """Counters of a recorder since its start.

    Attributes:
        received: Messages read from the sockets.
        accepted: Valid ones.
        dropped: Malformed ones by kind; they are recorded like the others.
        bytes: Bytes of all frames, malformed messages included.
        recorded: Rows handed to the capture.
        durable: Rows synced to disk.
        segments: Segments published, for readers of Parquet to see.
        deleted: Segments deleted by ``keep_bytes`` and ``keep_days``.
        deleted_unshipped: Those of them that `trunkline.capture.ship` had not copied.
        free_bytes: Bytes free on the disk of the capture.
        duplicate_keys: Keys that a tags map held more than once.
        chirp_dropped: Invalid CHIRP datagrams.
        senders: Counters by sender name; names are cut at 200 bytes, and there are at most 1000.
        runs: The ``run_id`` of each sender that is in a run; empty if the BOR has none.
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
    recorded: Count
    durable: Count
    segments: Count
    deleted: Count
    deleted_unshipped: Count
    free_bytes: Level
    duplicate_keys: Count
    chirp_dropped: Count
    senders: Mapping[str, SenderCount]
    runs: Mapping[SenderName, RunId]
    refused: Count
    turned_away: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class _Watch:
    """The end of a wait for a recorder: enough rows, or none for a while."""

    def __init__(self, count: int | None, idle_s: float | None, timeout_s: float | None) -> None:
        self.count = count
        self._idle_s = idle_s
        self._end = None if timeout_s is None else time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._seen = -1
        self._quiet_since = time.monotonic()

    def steps(self, role: _Receiver) -> Iterator[float | None]:
        """The timeouts of the next steps, until the wait is over."""
        while (reason := self.reason(role)) is None:
            now = time.monotonic()
            waits = [] if self._end is None else [max(self._end - now, 0.0)]
            if self._idle_s is not None:
                # Messages do not wake this wait one by one, so it polls.
                waits.append(min(max(self._quiet_since + self._idle_s - now, 0.001), max(self._idle_s / 10, 0.01)))
            yield min(waits, default=None)
        self.result = reason

    def reason(self, role: _Receiver) -> Literal["count", "idle"] | None:
        if self.count is not None and not role.closed:
            role.await_progress(self.count)
        progress, now = role.progress, time.monotonic()
        if self.count is not None and progress >= self.count:
            return "count"
        if role.closed:
            role.raise_failure()
            text = "the recorder was closed"
            raise ClosedError(text)
        if progress != self._seen:
            self._seen, self._quiet_since = progress, now
        elif self._idle_s is not None and now - self._quiet_since >= self._idle_s:
            return "idle"
        if self._end is not None and now >= self._end:
            text = f"{counted(progress, 'message')} came within {self._timeout_s} s"
            raise TimeoutError(text)
        return None


class _RecorderBase(Role):
    _native: _Receiver | None = None

    @spelled_out(SocketOptions, without="capture_overflow")
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        accept: Accept = ALL_HEADERS,
        strict: bool = True,
        on_drop: Callable[[Dropped], object] | None = None,
        limit: int | None = None,
        segment_bytes: int | None = None,
        segment_s: float | None = None,
        keep_bytes: int | None = None,
        keep_days: float | None = None,
        capture_private: bool = False,
        warn_free_bytes: int = DEFAULTS["warn_free_bytes"],
        critical_free_bytes: int = DEFAULTS["critical_free_bytes"],
        group: str | None = None,
        senders: Sequence[str] | None = None,
        chirp: Cast = "multicast",
        chirp_port: int = PORT,
        **options: Unpack[SocketOptions],
    ) -> None:
        need_path("path", path)
        self._on_drop = on_drop
        self._settings: dict[str, Any] = {
            "accept": accept,
            "strict": strict,
            "limit": limit,
            "group": group,
            "senders": senders,
            "chirp": chirp,
            "chirp_port": chirp_port,
        }
        if "capture_overflow" in options:
            message = "a recorder waits for its disk: leave out capture_overflow="
            raise LocalProtocolError(message)
        recorded: RoleOptions = {
            "capture": path,
            "segment_bytes": segment_bytes,
            "segment_s": segment_s,
            "keep_bytes": keep_bytes,
            "keep_days": keep_days,
            "capture_private": capture_private,
            "warn_free_bytes": warn_free_bytes,
            "critical_free_bytes": critical_free_bytes,
        }
        self._options = cast("RoleOptions", {**options, **recorded})
        self._directory = path
        # The counts that waits in progress want, in rows.
        self._wanted: list[float] = []
        self._made()

    def _open(self) -> None:
        machine = machine_settings(**self._settings)
        native = open_native(
            "recorder", self._options, machine, on_drop=self._on_drop, deliver=False, capture_overflow="end"
        )
        watch(native, lambda: _read_notices(native))
        self._native = native

    @property
    def _recorder(self) -> _Receiver:
        native: _Receiver = self._opened()
        return native

    @contextmanager
    def _reading(self, count: int | None) -> Iterator[None]:
        """During a wait: stops reading after so many messages, or more if another wait wants more."""
        wanted = math.inf if count is None else count
        self._wanted.append(wanted)
        most = max(self._wanted)
        self._recorder.limit(None if most == math.inf else int(most))
        try:
            yield
        finally:
            self._wanted.remove(wanted)

    @property
    def stats(self) -> RecorderStats:
        """The current counters; the final ones once closed."""
        counts = self._recorder.stats()
        own = {name: counts[name] for name in RecorderStats.__dataclass_fields__ if name in counts}
        return RecorderStats(**{**own, "free_bytes": free_bytes(self._directory), "senders": sender_counts(counts)})


def _read_notices(native: _Receiver) -> None:
    # A recorder hands out no messages: this reports the notices and returns.
    native.poll()


def _flush_failed(timeout_s: float | None) -> TimeoutError:
    return TimeoutError(f"the capture was not flushed within {timeout_s} s")


class Recorder(_RecorderBase, BlockingRole):
    """Records everything it receives, bit for bit, in a directory that Spark and pyarrow can read.

    Malformed messages are recorded too, with the reason in the column ``error``. A slow disk makes the recorder stop
    reading, which slows the senders down; a full or failing one ends it, and durable rows stay readable.

    Args:
        path: The capture directory; created if it does not exist, continued if it does.
        accept: One or more headers to accept; others have an error in their row.
        strict: Whether bytes after a header are an error (CDTP-10).
        on_drop: Called with a `trunkline.Dropped` for each malformed message, in a thread of its own.
        limit: Stop reading after this many messages.
        segment_bytes: The most frame bytes in a segment file. None: 256 MiB.
        segment_s: The age at which a segment is published, in seconds. None: 60.
        keep_bytes: The most bytes that the capture may take on disk. Beyond it, whole segments are deleted, the oldest
            first, but never the latest one. Everything from the BOR of an unfinished run on is kept too, until that
            takes a tenth more; then the log says so, and the rows of the run are deleted. The record of runs whose rows
            are deleted is kept, within a tenth of these bytes; see `trunkline.capture.Capture.runs`. None keeps all.
        keep_days: The age in days after which a published segment is deleted, with the record of its runs; the rows of
            an unfinished run are kept for another day.
        capture_private: Create the directory with mode 0700 and its files with 0600; else the umask applies.
        warn_free_bytes: Log a warning each time the free space of the disk falls below this.
        critical_free_bytes: Log a critical message when it falls below this.
        group: Find senders in this group by CHIRP, as `Receiver` does.
        senders: As for `Receiver`.
        chirp: As for `Receiver`.
        chirp_port: As for `Receiver`.
        **options: Endpoints and queues: ``bind``, ``connect``, ``curve``, ``queue_messages`` and more,
            each in `trunkline.SocketOptions`.

    Raises:
        OSError: An endpoint cannot be bound or connected.
        CaptureError: The directory is in use by another recorder, or cannot be written.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture, cdtp
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     recorder = cdtp.Recorder(runs, bind="tcp://127.0.0.1:*")
    ...     with cdtp.Sender("Detector.one", connect=recorder.endpoints[0]) as sender:
    ...         sender.send(b"first")
    ...         recorder.wait(count=1, timeout_s=10)
    ...         recorder.flush(timeout_s=10)
    ...         [message.payload for message in capture.open(runs).messages("cdtp")]
    ...         sender.send(b"second")
    ...     recorder.wait(count=2, timeout_s=10)
    ...     recorder.publish(timeout_s=10)
    ...     capture.open(runs).info().segments
    ...     recorder.close()
    'count'
    [(b'first',)]
    'count'
    1

    ```
    """

    def wait(
        self, *, count: int | None = None, idle_s: float | None = None, timeout_s: float | None = None
    ) -> Literal["count", "idle"]:
        """Waits until enough messages have arrived, or none arrive any more.

        Args:
            count: Rows in total since the start, malformed ones included; after them nothing more is read until the
                next wait.
            idle_s: Seconds without a message after which to return.
            timeout_s: The most seconds to wait.

        Returns:
            Which of the two happened.

        Raises:
            TimeoutError: Neither happened in time.
            ClosedError: The recorder was closed.
        """
        self._recorder.check_open()
        watch = _Watch(count, idle_s, timeout_s)
        with self._reading(count):
            for wait_s in watch.steps(self._recorder):
                self._recorder.wait_progress(2**63 if count is None else count, wait_s)
        return watch.result

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Makes everything received so far durable."""
        self._flush(publish=False, timeout_s=timeout_s)

    def publish(self, *, timeout_s: float | None = None) -> None:
        """Makes everything received so far durable, and visible to readers of Parquet."""
        self._flush(publish=True, timeout_s=timeout_s)

    def _flush(self, *, publish: bool, timeout_s: float | None) -> None:
        recorder = self._recorder
        recorder.check_open()
        if not recorder.wait_flushed(recorder.ask_flush(publish=publish), timeout_s):
            raise _flush_failed(timeout_s)

    def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """Reads what has arrived, for at most `drain_s`, makes it durable and visible, and closes.

        Raises:
            CaptureError: The capture could not be completed.
        """
        self._finish(drain_s)


class AsyncRecorder(_RecorderBase, AsyncRole):
    """`Recorder` for asyncio: opened by ``async with``.

    ```pycon
    >>> import asyncio, tempfile
    >>> from trunkline import cdtp
    >>> async def main(runs):
    ...     async with cdtp.AsyncRecorder(runs, bind="tcp://127.0.0.1:*") as recorder:
    ...         async with cdtp.AsyncSender("Detector.one", connect=recorder.endpoints[0]) as sender:
    ...             await sender.send(b"event")
    ...         await recorder.wait(count=1, timeout_s=10)
    ...         await recorder.flush(timeout_s=10)
    ...         durable = recorder.stats.durable
    ...         await recorder.publish(timeout_s=10)
    ...         await recorder.close()
    ...     return durable, recorder.stats.segments
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     asyncio.run(main(runs))
    (1, 1)

    ```
    """

    async def wait(
        self, *, count: int | None = None, idle_s: float | None = None, timeout_s: float | None = None
    ) -> Literal["count", "idle"]:
        """See `Recorder.wait`."""
        recorder = self._recorder
        recorder.check_open()
        watch = _Watch(count, idle_s, timeout_s)
        with self._reading(count):
            for wait_s in watch.steps(recorder):
                await self._waits.until(lambda: watch.reason(recorder) is not None, wait_s)
        return watch.result

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """See `Recorder.flush`."""
        await self._flush(publish=False, timeout_s=timeout_s)

    async def publish(self, *, timeout_s: float | None = None) -> None:
        """See `Recorder.publish`."""
        await self._flush(publish=True, timeout_s=timeout_s)

    async def _flush(self, *, publish: bool, timeout_s: float | None) -> None:
        recorder = self._recorder
        recorder.check_open()
        ticket = recorder.ask_flush(publish=publish)
        if not await self._waits.until(lambda: recorder.flushed(ticket) or recorder.closed, timeout_s):
            raise _flush_failed(timeout_s)
        recorder.wait_flushed(ticket, 0)

    async def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """See `Recorder.close`."""
        await self._finish(drain_s)
