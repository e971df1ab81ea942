"""The recorder of a whole deployment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from trunkline._arguments import need_number, need_path, need_seconds
from trunkline._counters import Count
from trunkline._native import Messages
from trunkline._native.cdt import fault
from trunkline.cdt._connection import Happened
from trunkline.cdt._roles import AsyncCdtRole, BlockingCdtRole, CdtRole, connector
from trunkline.cdt._tap import Tap
from trunkline.cdt._waits import until
from trunkline.cdt.options import DEFAULTS, CdtOptions
from trunkline.errors import LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import spelled_out

__all__ = ["AsyncRecorder", "Recorder", "RecorderBase", "RecorderStats"]


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
    bytes: Count
    errors: Mapping[str, Count]
    capture_lost: Count


class _Ear:
    """Records the messages of a connection."""

    def __init__(self, chosen: CdtOptions, name: str, tap: Tap, happened: Happened, limit: int | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.tap = tap
        self.received = self.bytes = 0
        self.errors: dict[str, int] = {}
        self.done = asyncio.Event()
        self.closed = False
        self._chosen = chosen
        self._limit = limit
        self._connection = connector(chosen, name)(self._deliver, happened)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return self._connection.endpoints

    async def open(self) -> None:
        try:
            await self._connection.open()
            await self._connection.subscribe(0, f"{self._chosen['prefix']}.>", "")
            await self._connection.flush()
        except BaseException:
            await self.close(0.0)
            raise

    def _deliver(self, messages: Messages) -> None:
        chosen, where = self._chosen, ",".join(self.endpoints) or None
        for _, _, subject, frames in messages:
            if self.done.is_set():
                return
            *_, body = frames
            topic = subject.decode(errors="replace")
            error = fault(topic, body, chosen["codec"], chosen["bytes_encoding"], chosen["strict"])
            self.tap.record("in", where, subject, frames, error)
            self.received += 1
            self.bytes += len(body)
            if error is not None:
                self.errors[error] = self.errors.get(error, 0) + 1
            if self.received == self._limit:
                self.done.set()

    def drain(self, _grace_s: float) -> None:
        """Ends at once: there is nothing to drain."""
        self.done.set()

    async def close(self, grace_s: float) -> None:
        self.drain(grace_s)
        try:
            await self._connection.close()
        finally:
            await self.tap.close()
            self.closed = True


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

    def _machine(self) -> tuple[str, dict[str, Any]]:
        message = "a recorder has no machine: it only records"
        raise LocalProtocolError(message)

    async def _start(self) -> None:
        tap = await asyncio.to_thread(Tap, self._directory, self._capture_options, self._notices)
        ear = _Ear(self._chosen, self._name, tap, self._handle, self._limit)
        await ear.open()
        await self._adopt(ear)

    @property
    def _ear(self) -> _Ear:
        ear: _Ear = self._opened()
        return ear

    async def _wait(self, timeout_s: float | None) -> Literal["count"]:
        need_seconds("timeout_s", timeout_s, may_be_none=True)
        done = self._ear.done
        if not await until(done, done.is_set, timeout_s):
            message = f"{self!r} is still running after {timeout_s} s"
            raise TimeoutError(message)
        return "count"

    @property
    def stats(self) -> RecorderStats:
        """The current counters; the final ones once closed."""
        ear = self._ear
        recorded, durable, segments = ear.tap.progress()
        errors = dict(ear.errors)
        return RecorderStats(
            received=ear.received,
            accepted=ear.received - sum(errors.values()),
            dropped=errors,
            recorded=recorded,
            durable=durable,
            segments=segments,
            bytes=ear.bytes,
            errors=errors,
            capture_lost=ear.tap.lost,
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
    """

    def wait(self, *, timeout_s: float | None = None) -> Literal["count"]:
        """Waits until `limit` messages were recorded, or the recorder is closed.

        Raises:
            TimeoutError: It is still running.
        """
        return self._run(self._wait(timeout_s))

    def flush(self) -> None:
        """Waits until everything received so far is durable."""
        self._ear.tap.flush()


class AsyncRecorder(RecorderBase, AsyncCdtRole):
    """`Recorder` for asyncio: opened by ``async with``."""

    async def wait(self, *, timeout_s: float | None = None) -> Literal["count"]:
        """Waits until `limit` messages were recorded; see `Recorder.wait`."""
        return await self._run(self._wait(timeout_s))

    async def flush(self) -> None:
        """Waits until everything received so far is durable."""
        await asyncio.to_thread(self._ear.tap.flush)
