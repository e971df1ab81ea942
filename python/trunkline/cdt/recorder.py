"""The recorder of a whole deployment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Unpack

from trunkline._arguments import need_number, need_path, need_timeout
from trunkline._metrics.counters import Count, Level, free_bytes
from trunkline._native.cdt import Recorder as _Recorder
from trunkline.cdt._roles import AsyncCdtRole, BlockingCdtRole, CdtRole
from trunkline.cdt.options import DEFAULTS, CdtOptions
from trunkline.errors import LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import spelled_out

__all__ = ["AsyncRecorder", "Recorder", "RecorderBase", "RecorderStats"]


# More messages than there can be.
_NEVER = (1 << 64) - 1

# Options that have no meaning for a recorder.
_OF_ROLES = (
    "capture",
    "replica_id",
    "queue",
    "queue_events",
    "queue_messages",
    "include_own",
    "include_content",
    "max_content_bytes",
)


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """Counters of a recorder since its start.

    Attributes:
        received: Messages received.
        accepted: Valid ones.
        dropped: Malformed ones by kind; they are recorded like the others.
        recorded: Messages in the capture.
        durable: Those of them that are synced to disk.
        segments: Segments published.
        deleted: Segments deleted by ``keep_bytes`` and ``keep_days``.
        deleted_unshipped: Those of them that `trunkline.capture.ship` had not copied.
        free_bytes: Bytes free on the disk of the capture.
        bytes: Bytes of all bodies.
        errors: The same as `dropped`.
        capture_lost: Rows dropped because the capture could not keep up.
    """

    received: Count
    accepted: Count
    dropped: Mapping[str, Count]
    recorded: Count
    durable: Count
    segments: Count
    deleted: Count
    deleted_unshipped: Count
    free_bytes: Level
    bytes: Count
    errors: Mapping[str, Count]
    capture_lost: Count


class RecorderBase(CdtRole):
    """The base class of the recorder, without its waits."""

    @spelled_out(CdtOptions, without=_OF_ROLES, defaults=DEFAULTS)
    def __init__(
        self,
        directory: str | os.PathLike[str],
        name: str = "trunkline",
        *,
        limit: int | None = None,
        **options: Unpack[CdtOptions],
    ) -> None:
        need_path("directory", directory)
        need_number("limit", limit, may_be_none=True)
        if options.get("capture") is not None:
            message = "a recorder records into its directory: leave out capture="
            raise LocalProtocolError(message)
        self._set_up("recorder", name, options)
        self._directory, self._limit = directory, limit
        self._made()

    def _open(self) -> None:
        chosen = self._chosen
        native = _Recorder(
            self._native_options(self._directory),
            prefix=chosen["prefix"],
            codec=chosen["codec"],
            bytes_encoding=chosen["bytes_encoding"],
            strict=chosen["strict"],
            limit=self._limit,
        )
        self._connect(native, self._noticing())

    @property
    def _recorder(self) -> _Recorder:
        native: _Recorder = self._opened()
        return native

    def _is_done(self) -> bool:
        """Whether it has reached its limit; raises once it is closed before that."""
        recorder = self._recorder
        if self._limit is not None and recorder.progress >= self._limit:
            return True
        recorder.check_open()
        return False

    def _still_runs(self, timeout_s: float | None) -> TimeoutError:
        return TimeoutError(f"{self!r} is still running after {timeout_s} s")

    @property
    def stats(self) -> RecorderStats:
        """The current counters; the final ones once closed."""
        counts = self._recorder.stats()
        errors = counts["errors"]
        return RecorderStats(
            **counts,
            accepted=counts["received"] - sum(errors.values()),
            dropped=dict(errors),
            free_bytes=free_bytes(self._directory),
        )


class Recorder(RecorderBase, BlockingCdtRole):
    """Records all messages of a deployment: it subscribes to all subjects that begin with `prefix`.

    Messages that are not CDT, or malformed, are recorded too.

    Args:
        directory: The capture directory; created if it does not exist, continued if it does.
        name: The name of the connection, as shown by the server.
        limit: End after this many messages.
        **options: Servers, credentials, encoding and capture, each in `trunkline.cdt.CdtOptions`.

    Raises:
        PeerLostError: No server answers within `connect_timeout_s`.
        AuthenticationError: The server refuses the credentials, or the permission to subscribe.
        LocalProtocolError: A server is not a URL, or the credentials file is invalid.
        CaptureError: The capture cannot be written.
        OSError: The credentials cannot be read.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture, cdt
    >>> url = "memory://recorder"
    >>> with tempfile.TemporaryDirectory() as runs, cdt.Target("cdp", servers=url) as target:
    ...     with cdt.Recorder(runs, limit=1, servers=url) as recorder:
    ...         config_id = target.put("app-1", "endpoint-7", b"{}")
    ...         recorder.wait(timeout_s=10)
    ...         recorder.flush()
    ...         recorder.stats.durable
    ...         recorder.close(drain_s=2)
    ...     [type(message).__name__ for message in capture.open(runs)]
    'count'
    1
    ['ConfigNewAvailable']

    ```
    """

    def wait(self, *, timeout_s: float | None = None) -> Literal["count"]:
        """Waits until `limit` messages were recorded.

        Raises:
            TimeoutError: It is still running.
            ClosedError: The recorder is, or was, closed.
        """
        need_timeout("timeout_s", timeout_s)
        recorder = self._recorder
        recorder.check_open()
        if not self._is_done():
            count = _NEVER if self._limit is None else self._limit
            recorder.wait_progress(count, timeout_s)
        if not self._is_done():
            raise self._still_runs(timeout_s)
        return "count"

    def flush(self) -> None:
        """Waits until everything received so far is durable.

        Raises:
            ClosedError: The recorder is, or was, closed.
        """
        recorder = self._recorder
        recorder.check_open()
        recorder.wait_flushed(recorder.ask_flush(False))  # noqa: FBT003 - as the native side takes it


class AsyncRecorder(RecorderBase, AsyncCdtRole):
    """`Recorder` for asyncio: opened by ``async with``.

    ```pycon
    >>> import asyncio, tempfile
    >>> from trunkline import cdt
    >>> async def main(runs):
    ...     url = "memory://async-recorder"
    ...     async with cdt.AsyncTarget("cdp", servers=url) as target:
    ...         async with cdt.AsyncRecorder(runs, limit=1, servers=url) as recorder:
    ...             await target.put("app-1", "endpoint-7", b"{}")
    ...             await recorder.wait(timeout_s=10)
    ...             await recorder.flush()
    ...             await recorder.close(drain_s=2)
    ...             return recorder.stats.durable
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     asyncio.run(main(runs))
    1

    ```
    """

    async def wait(self, *, timeout_s: float | None = None) -> Literal["count"]:
        """Waits until `limit` messages were recorded; see `Recorder.wait`."""
        need_timeout("timeout_s", timeout_s)
        recorder = self._recorder
        recorder.check_open()

        def is_done() -> bool:
            if self._limit is not None:
                recorder.await_progress(self._limit)
            return self._is_done()

        if not await self._waits.until(is_done, timeout_s):
            raise self._still_runs(timeout_s)
        return "count"

    async def flush(self) -> None:
        """Waits until everything received so far is durable; see `Recorder.flush`."""
        recorder = self._recorder
        recorder.check_open()
        ticket = recorder.ask_flush(False)  # noqa: FBT003 - as the native side takes it
        await self._waits.until(lambda: recorder.flushed(ticket) or recorder.closed, None)
        recorder.wait_flushed(ticket, 0)
