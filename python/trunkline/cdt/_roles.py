"""Base classes of the roles of CDT: opening, events and closing."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import ssl
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from threading import get_ident
from typing import Any, Self, TypeAlias, TypeVar, get_args

from trunkline._arguments import (
    named,
    need_callable,
    need_choice,
    need_flag,
    need_number,
    need_path,
    need_seconds,
    need_text,
    refuse,
)
from trunkline._iteration import AsyncReceiving, Receiving
from trunkline._native.cdt import ConfigNewAvailable, ConfigResponse, ConfigUpdated, encode, is_token
from trunkline._notices import Dropped, Notices
from trunkline._roles import AsyncRole, BlockingRole, Role, closed
from trunkline._text import counted
from trunkline.cdt import _portal
from trunkline.cdt._connection import Connection, Deliver, Happened
from trunkline.cdt._pump import Pump
from trunkline.cdt._tap import Tap, settings_of
from trunkline.cdt._waits import until
from trunkline.cdt.options import DEFAULTS, BytesEncoding, CdtOptions, Codec
from trunkline.errors import (
    AuthenticationError,
    ClosedError,
    ConfigError,
    LocalProtocolError,
    TimeoutError,  # noqa: A004 - trunkline's
)

__all__ = ["AsyncCdtRole", "BlockingCdtRole", "CdtRole", "Event", "connector", "need_name", "need_names"]

Event: TypeAlias = ConfigNewAvailable | ConfigUpdated
Result = TypeVar("Result")

# Limits of queued events in bytes: their content, and an overhead for each.
_EVENT_BYTES = 512
_MOST_EVENT_BYTES = 256 << 20

# Room for the ids of the request, and a configuration id of the usual length.
_IDS = 256
_A_HASH = "0" * 32

# A subject has several tokens, and a server accepts lines of 4 KiB.
_TOKEN_BYTES = 512

# How long a role drains by default.
DRAIN_S = 5.0


def need_names(**names: object) -> None:
    """Refuses ids that are not text, or empty (CDT-16, CDT-17)."""
    for argument, name in names.items():
        if type(name) is not str or not name:
            need_text(argument, name)
            if not name:
                message = f"{argument} must not be empty"
                raise LocalProtocolError(message)
        if not str(name).isascii():
            need_utf8(argument, name)


def need_utf8(argument: str, name: object) -> None:
    """Refuses a lone surrogate, which no message can hold."""
    try:
        str(name).encode()
    except UnicodeEncodeError:
        message = f"{argument} is not valid Unicode: {name!r}"
        raise LocalProtocolError(message) from None


def need_name(argument: str, name: object) -> None:
    """Refuses names that are not one token of a subject (CDT-11)."""
    need_text(argument, name)
    need_utf8(argument, name)
    if len(str(name).encode()) > _TOKEN_BYTES:
        message = f"{argument} must be at most {_TOKEN_BYTES} bytes: it is part of a NATS subject"
        raise LocalProtocolError(message)
    if not is_token(str(name)):
        message = f"{argument} must be one token of a NATS subject, without dots, wildcards and spaces, not {name!r}"
        raise LocalProtocolError(message)


def _checked(given: CdtOptions) -> CdtOptions:
    chosen: CdtOptions = {**DEFAULTS, **given}
    if not named("servers", chosen["servers"]):
        message = "servers must not be empty"
        raise LocalProtocolError(message)
    need_path("credentials", chosen["credentials"], may_be_none=True)
    for secret in ("nkey_seed", "user", "password", "token"):
        need_text(secret, chosen[secret], may_be_none=True)
    if not isinstance(chosen["tls"], ssl.SSLContext | None):
        refuse("tls", "an ssl.SSLContext or None", chosen["tls"])
    need_seconds("connect_timeout_s", chosen["connect_timeout_s"])
    need_choice("codec", chosen["codec"], get_args(Codec))
    need_choice("bytes_encoding", chosen["bytes_encoding"], get_args(BytesEncoding))
    for flag in ("strict", "queue", "queue_events", "include_own", "include_content"):
        need_flag(flag, chosen[flag])
    need_name("protocol_token", chosen["protocol_token"])
    need_text("prefix", chosen["prefix"])
    for token in chosen["prefix"].split("."):
        need_name("prefix", token)
    if chosen["replica_id"] is not None:
        need_name("replica_id", chosen["replica_id"])
    need_number("clock_skew_ms", chosen["clock_skew_ms"])
    need_number("max_content_bytes", chosen["max_content_bytes"], may_be_none=True)
    need_number("queue_messages", chosen["queue_messages"])
    need_callable("on_drop", chosen["on_drop"])
    need_text("metrics", chosen["metrics"], may_be_none=True)
    need_path("capture", chosen["capture"], may_be_none=True)
    return chosen


def connector(chosen: CdtOptions, name: str) -> Callable[[Deliver, Happened], Connection]:
    """The factory of connections to the given servers."""
    servers = named("servers", chosen["servers"])
    if servers[0].startswith("memory://"):
        from trunkline.cdt._memory import MemoryConnection

        if len(servers) > 1:
            message = f"servers: {servers[0]} cannot be combined with others"
            raise LocalProtocolError(message)
        return lambda deliver, happened: MemoryConnection(servers[0], deliver, happened)
    from trunkline.cdt._nats import Identity, NatsConnection

    credentials = chosen["credentials"]
    identity = Identity(
        credentials=None if credentials is None else os.fspath(credentials),
        nkey_seed=chosen["nkey_seed"],
        user=chosen["user"],
        password=chosen["password"],
        token=chosen["token"],
        tls=chosen["tls"],
    )
    connect_s = chosen["connect_timeout_s"]
    return lambda deliver, happened: NatsConnection(servers, identity, name, connect_s, deliver, happened)


class CdtRole(Role):
    """The base class of the roles of CDT, without their waits."""

    # For `driver`: a machine without a pump has no socket options and no capture.
    _options: dict[str, Any]

    def _set_up(self, who: str, name: str, options: CdtOptions) -> None:
        need_name("name", name)
        self._who, self._name = who, name
        self._chosen = _checked(options)
        self._capture_options = settings_of(self._chosen["capture_options"])
        self._tap: Tap | None = None
        self._options = {}
        self._replica_id = self._chosen["replica_id"] or secrets.token_hex(8)
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._event_bytes = 0
        self._unqueued = 0
        self._refusals: list[str] | None = []
        self._notices = Notices("cdt", who, self._chosen["on_drop"])
        self._log = logging.getLogger("trunkline.cdt")

    @property
    def name(self) -> str:
        """The service that this is a replica of."""
        return self._name

    @property
    def replica_id(self) -> str:
        """The id of this replica."""
        return self._replica_id

    def _taking_part(self) -> dict[str, Any]:
        """The settings of its machine."""
        chosen = self._chosen
        return {
            "name": self._name,
            "replica_id": self._replica_id,
            "prefix": chosen["prefix"],
            "protocol_token": chosen["protocol_token"],
            "codec": chosen["codec"],
            "bytes_encoding": chosen["bytes_encoding"],
            "strict": chosen["strict"],
            "queue_events": chosen["queue_events"],
            "include_own": chosen["include_own"],
            "clock_skew_ms": chosen["clock_skew_ms"],
            "max_payload": 1 << 20,
            "unix_ms": 0,
        }

    async def _start(self) -> None:
        kind, settings = self._machine()
        # The pump must not keep the role alive.
        weak_role = weakref.ref(self)

        def handle(events: Iterable[tuple[Any, ...]]) -> None:
            role = weak_role()
            if role is not None:
                for event in events:
                    role._handle(*event)  # noqa: SLF001 - it is this very class

        if self._chosen["capture"] is not None:
            self._tap = await asyncio.to_thread(Tap, self._chosen["capture"], self._capture_options, self._notices)
        pump = Pump(kind, settings, connector(self._chosen, self._name), handle, self._tap)
        try:
            await pump.open()
        except BaseException:
            if self._tap is not None:
                await self._tap.close()
            raise
        await self._adopt(pump)
        pump.begin()

    async def _adopt(self, native: Any) -> None:
        """Adopts the engine, unless the server has refused its subscriptions."""
        self._native = native
        refusals, self._refusals = self._refusals, None
        if refusals:
            await self._stop(0.0)
            raise AuthenticationError(refusals[0])
        self._notices.report("connected", ", ".join(self.endpoints))

    @property
    def _metrics(self) -> str | None:
        return self._chosen["metrics"]

    def _open_state(self, native: Any) -> str:
        if self._stopping is not None:
            return "closing"
        return "serving" if native.endpoints else "disconnected"

    @property
    def _is_stopped(self) -> bool:
        """Whether it was never opened, or has ended completely."""
        return self._native is None or (self._native.closed if self._stopping is None else self._stopping.done())

    async def _stop(self, drain_s: float) -> None:
        """Closes in a task of its own, which completes even if this is cancelled.

        A cancellation, or a second close with less time, gives up pending calls.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._end(drain_s))
        else:
            self._native.drain(drain_s)
        try:
            await asyncio.shield(self._stopping)
        except asyncio.CancelledError:
            self._native.drain(0.0)
            raise

    async def _end(self, drain_s: float) -> None:
        try:
            await self._native.close(drain_s)
        finally:
            self._changed.set()
            if self._tap is not None:
                await self._tap.close()

    @property
    def _pump(self) -> Pump:
        pump: Pump = self._opened()
        return pump

    def _let_go(self, native: Any) -> None:
        if native.loop.is_running() and not native.closed:
            asyncio.run_coroutine_threadsafe(native.close(0.0), native.loop)

    def _handle(self, kind: str, *details: Any) -> None:
        """Handles an event of its machine or its connection."""
        if kind == "event":
            self._queue(details[0])
        elif kind == "dropped":
            dropped = Dropped(*details)
            # NATS delivers a role's own events to it as well.
            self._notices.dropped(dropped, level=logging.DEBUG if dropped.kind == "own_event" else logging.WARNING)
        elif kind == "refused" and self._refusals is not None:
            self._refusals.append(details[0])
        else:
            self._notices.report(kind, *details)

    def _queue(self, event: Event) -> None:
        self._log.debug("%s: %s of %s", self._who, type(event).__name__, event.correlation_id)
        if not self._chosen["queue_messages"]:
            return
        cost = _cost(event)
        if len(self._events) >= self._chosen["queue_messages"] or self._event_bytes + cost > _MOST_EVENT_BYTES:
            self._lose_one()
            return
        self._event_bytes += cost
        self._events.append(event)
        self._changed.set()

    def _lose_one(self) -> None:
        """Counts a valid event that had no room."""
        self._unqueued += 1
        self._notices.dropped(Dropped(None, "queue_full", ()))

    def _need_room(
        self, app: str, endpoint: str, content: bytes, content_type: str, config_id: str | None = None
    ) -> None:
        """Refuses content that does not fit into a message (CDT-31)."""
        most = self._chosen["max_content_bytes"]
        if most is not None and len(content) > most:
            message = f"{counted(len(content), 'byte')} of content, and {most:,} is the limit"
            raise ConfigError(413, message)
        room = self._pump.connection.max_payload
        size = len(content)
        if size <= room:
            answer = ConfigResponse(
                app_version_name=app,
                endpoint_id=endpoint,
                config_id=config_id or _A_HASH,
                content_type=content_type,
                content=content,
            )
            codec, bytes_encoding = self._chosen["codec"], self._chosen["bytes_encoding"]
            size = _IDS + len(encode(answer, codec=codec, bytes_encoding=bytes_encoding))
        if size > room:
            message = f"{counted(len(content), 'byte')} of content: a message of {size:,} bytes, and the server takes {room:,}"
            raise ConfigError(413, message)

    def _over(self) -> ClosedError:
        """The error of calls once it is closed."""
        return closed(f"cdt.{type(self).__name__.removeprefix('Async')}")

    async def _receive(self, timeout_s: float | None) -> Event:
        need_seconds("timeout_s", timeout_s, may_be_none=True)
        if not await until(self._changed, lambda: self._events or self._pump.closed, timeout_s):
            message = f"no event came within {timeout_s} s"
            raise TimeoutError(message)
        if not self._events:
            raise self._over()
        return self._hand_out(self._events.popleft())

    def _hand_out(self, event: Event) -> Event:
        """Frees the room of an event that has left the queue."""
        self._event_bytes -= _cost(event)
        return event

    def _give_back(self, event: Event) -> None:
        """Puts back an event that its caller did not get, as the next one."""
        self._event_bytes += _cost(event)
        self._events.appendleft(event)
        self._changed.set()

    def _counted(self) -> dict[str, Any]:
        """Counters of the machine, and of events dropped after it."""
        counts = self._pump.stats()
        if self._unqueued:
            counts["dropped"] = {**counts["dropped"], "queue_full": self._unqueued}
        return {**counts, "capture_lost": 0 if self._tap is None else self._tap.lost}


def _cost(event: Event) -> int:
    content = event.content if isinstance(event, ConfigNewAvailable) else None
    return _EVENT_BYTES + len(content or b"")


class BlockingCdtRole(CdtRole, BlockingRole, Receiving[Event]):
    """A role of CDT with blocking calls; an iterator over the events of others."""

    def _open(self) -> None:
        self._loop = _portal.loop()
        _portal.call(self._loop, self._begin())

    async def _begin(self) -> None:
        with _portal.opening():
            await self._start()

    def _run(self, coroutine: Coroutine[Any, Any, Result], give_back: Callable[[Result], None] | None = None) -> Result:
        """Runs a coroutine in the loop of all blocking roles, and waits for it; see `_portal.call`."""
        return _portal.call(self._loop, coroutine, give_back)

    def receive(self, *, timeout_s: float | None = None) -> Event:
        """Waits for an event.

        Args:
            timeout_s: How long to wait; None for no limit, 0 to return at once.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The role is closed.
        """
        return self._run(self._receive(timeout_s), self._give_back)

    def close(self, *, drain_s: float = DRAIN_S) -> None:
        """Completes what is in progress for at most `drain_s` seconds, and closes."""
        if not self._is_stopped:
            self._run(self._stop(drain_s))

    def _abandon(self) -> None:
        with suppress(ClosedError):
            self.close(drain_s=0.0)


class AsyncCdtRole(CdtRole, AsyncRole, AsyncReceiving[Event]):
    """A role of CDT for asyncio; an asynchronous iterator over the events of others."""

    async def __aenter__(self) -> Self:
        if self._native is None:
            self._thread = get_ident()
            await asyncio.to_thread(self._begin_scrapes)
            try:
                await self._start()
            except BaseException:
                await asyncio.to_thread(self._end_scrapes)
                raise
        return self

    @property
    def _is_at_home(self) -> bool:
        """Whether the running loop is the one that opened it."""
        loop = self._native.loop
        # Not `get_running_loop`: that of Python 3.11 makes a system call, which takes as long as a message.
        if get_ident() == self._thread and asyncio.current_task(loop) is not None:
            return True
        return asyncio.get_running_loop() is loop

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Coroutine[Any, Any, Result]:
        """The coroutine, if this is the loop that opened it; refuses others."""
        if self._native is None or not self._is_at_home:
            coroutine.close()
            self._opened()
            message = f"{self!r} is bound to the event loop it was opened in"
            raise LocalProtocolError(message)
        return coroutine

    async def receive(self, *, timeout_s: float | None = None) -> Event:
        """Waits for an event; see the blocking class."""
        return await self._run(self._receive(timeout_s))

    async def close(self, *, drain_s: float = DRAIN_S) -> None:
        """Completes what is in progress for at most `drain_s` seconds, and closes."""
        if not self._is_stopped:
            await self._run(self._stop(drain_s))

    async def _abandon(self) -> None:
        await self.close(drain_s=0.0)
