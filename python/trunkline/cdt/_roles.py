"""Base classes of the roles of CDT: options, opening, events and closing."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, get_args

from trunkline._arguments import (
    named,
    need_callable,
    need_choice,
    need_flag,
    need_number,
    need_path,
    need_seconds,
    need_text,
    need_timeout,
    refuse,
)
from trunkline._metrics.counters import NO_FAULTS
from trunkline._native import NoticeQueue
from trunkline._native.cdt import ConfigNewAvailable, ConfigResponse, ConfigUpdated, encode, is_token
from trunkline._roles.base import AsyncRole, BlockingRole, Role
from trunkline._roles.iteration import AsyncReceiving, Receiving
from trunkline._roles.notices import Dropped, Notices, watch
from trunkline._roles.options import capture_options
from trunkline._text import counted
from trunkline._tls import Tls
from trunkline.cdt._opening import await_connected
from trunkline.cdt.options import DEFAULTS, BytesEncoding, CdtOptions, Codec
from trunkline.errors import ConfigError, LocalProtocolError

__all__ = [
    "DRAIN_S",
    "AsyncCdtRole",
    "AsyncEvents",
    "BlockingCdtRole",
    "BlockingEvents",
    "CdtRole",
    "Event",
    "need_name",
    "need_names",
    "need_room_in",
]

Event: TypeAlias = ConfigNewAvailable | ConfigUpdated

# A NATS in this process.
MEMORY = "memory://"

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
    servers = named("servers", chosen["servers"])
    if not servers:
        message = "servers must not be empty"
        raise LocalProtocolError(message)
    if len(servers) > 1 and servers[0].startswith(MEMORY):
        message = f"servers: {servers[0]} cannot be combined with others"
        raise LocalProtocolError(message)
    need_path("credentials", chosen["credentials"], may_be_none=True)
    for secret in ("nkey_seed", "user", "password", "token"):
        need_text(secret, chosen[secret], may_be_none=True)
    if isinstance(chosen["tls"], ssl.SSLContext):
        message = "tls: an ssl.SSLContext cannot be used: give a trunkline.Tls"
        raise LocalProtocolError(message)
    if not isinstance(chosen["tls"], Tls | None):
        refuse("tls", "a trunkline.Tls or None", chosen["tls"])
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


def need_room_in(
    room: int,
    chosen: CdtOptions,
    app: str,
    endpoint: str,
    content: bytes,
    content_type: str,
    config_id: str | None = None,
) -> None:
    """Refuses content that does not fit into a message (CDT-31)."""
    most = chosen["max_content_bytes"]
    if most is not None and len(content) > most:
        message = f"{counted(len(content), 'byte')} of content, and {most:,} is the limit"
        raise ConfigError(413, message)
    size = len(content)
    if size <= room:
        answer = ConfigResponse(
            app_version_name=app,
            endpoint_id=endpoint,
            config_id=config_id or _A_HASH,
            content_type=content_type,
            content=content,
        )
        codec, bytes_encoding = chosen["codec"], chosen["bytes_encoding"]
        size = _IDS + len(encode(answer, codec=codec, bytes_encoding=bytes_encoding))
    if size > room:
        message = (
            f"{counted(len(content), 'byte')} of content: a message of {size:,} bytes, and the server takes {room:,}"
        )
        raise ConfigError(413, message)


class _Engine(Protocol):
    """The engine of any role of CDT."""

    @property
    def simulation(self) -> Any: ...
    @property
    def notice_queue(self) -> NoticeQueue: ...


class CdtRole(Role):
    """The base class of the roles of CDT, without their waits."""

    # What `trunkline.testing` adds.
    _options: dict[str, Any]

    def _set_up(self, who: str, name: str, options: CdtOptions) -> None:
        need_name("name", name)
        self._who, self._name = who, name
        self._options = {}
        self._chosen = _checked(options)
        self._capture_options = capture_options(self._chosen["capture_options"])
        self._replica_id = self._chosen["replica_id"] or secrets.token_hex(8)
        self._log = logging.getLogger("trunkline.cdt")

    @property
    def name(self) -> str:
        """The service that this is a replica of."""
        return self._name

    @property
    def replica_id(self) -> str:
        """The id of this replica."""
        return self._replica_id

    def _taking(self) -> dict[str, Any]:
        """How it takes part, as the native side takes it."""
        chosen = self._chosen
        shared = (
            "prefix",
            "protocol_token",
            "codec",
            "bytes_encoding",
            "strict",
            "queue_events",
            "include_own",
            "clock_skew_ms",
        )
        return {
            "name": self._name,
            "replica_id": self._replica_id,
            **{option: chosen[option] for option in shared},  # type: ignore[literal-required] # they are names of options
        }

    def _native_options(self, capture: Any = None) -> dict[str, Any]:
        """Its server, its queue and its capture, as the native side takes them."""
        chosen = self._chosen
        path, tls = chosen["credentials"], chosen["tls"]
        logins = ("nkey_seed", "user", "password", "token", "queue_messages")
        return {
            "servers": named("servers", chosen["servers"]),
            "name": self._name,
            "credentials": None if path is None else (path, Path(path).read_text(errors="replace")),
            **{option: chosen[option] for option in logins},  # type: ignore[literal-required] # they are names of options
            "tls": tls,
            "capture": chosen["capture"] if capture is None else capture,
            **self._capture_options,
            "simulation": self._options.get("simulation"),
        }

    def _connect(self, native: Any, notices: Notices, connected: Any = None) -> None:
        """Waits until the server has its subscriptions, and reports its notices from then on.

        `connected` is called whenever it is connected again.
        """
        engine: _Engine = native
        notices.is_simulated = engine.simulation is not None
        if not notices.is_simulated:
            self._opening = native
            try:
                await_connected(
                    native, named("servers", self._chosen["servers"]), self._chosen["connect_timeout_s"], notices
                )
            finally:
                self._opening = None
        queue = engine.notice_queue
        watch(queue, lambda: _report_all(queue, notices, connected))
        self._notices = notices
        self._native = native

    def _noticing(self) -> Notices:
        return Notices("cdt", self._who, self._chosen["on_drop"])

    def _notices_of(self, native: Any) -> Any:
        return native.notice_queue

    @property
    def _metrics(self) -> str | None:
        return self._chosen["metrics"]

    def _open_state(self, native: Any) -> str:
        if native.closing:
            return "closing"
        return "serving" if native.endpoints else "disconnected"

    def _check_sent(self, native: Any, waited_s: float) -> None:
        """Logs it: that the server does not read is no error of the caller of `close`."""
        if native.unsent:
            text = f"the last messages were not sent within {waited_s} s: the server does not read"
            self._notices.log(logging.WARNING, "unsent", text)

    def _need_room(self, *given: Any) -> None:
        """See `need_room_in`."""
        need_room_in(self._opened().max_payload, self._chosen, *given)

    def _logged(self, event: Event) -> Event:
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("%s: %s of %s", self._who, type(event).__name__, event.correlation_id)
        return event


def _report_all(queue: NoticeQueue, notices: Notices, connected: Any) -> None:
    for kind, *details in queue.read():
        report(notices, kind, *details)
        if kind == "connected" and connected is not None:
            connected()


def report(notices: Notices, kind: str, *details: Any) -> None:
    """Reports a notice of the engine of any role of CDT."""
    if kind == "dropped":
        dropped = Dropped(*details)
        notices.dropped(dropped, level=logging.DEBUG if dropped.kind in NO_FAULTS else logging.WARNING)
    elif kind in ("failed", "denied"):
        # There is one connection: its reason is enough.
        notices.report("failed", details[-1] or details[0])
    elif kind == "unsent":
        notices.report("failed", details[0])
    else:
        notices.report(kind, *details)


class BlockingCdtRole(CdtRole, BlockingRole):
    """A role of CDT with blocking calls."""

    def close(self, *, drain_s: float = DRAIN_S) -> None:
        """Completes what is in progress for at most `drain_s` seconds, and closes."""
        self._finish(drain_s)

    def _abandon(self) -> None:
        self.close(drain_s=0.0)


class BlockingEvents(BlockingCdtRole, Receiving[Event]):
    """A role with blocking calls; an iterator over the events of others."""

    def receive(self, *, timeout_s: float | None = None) -> Event:
        """Waits for an event.

        Args:
            timeout_s: How long to wait; None for no limit, 0 to return at once.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The role is closed.

        ```pycon
        >>> from trunkline import cdt
        >>> url = "memory://events"
        >>> with cdt.Target("cdp", servers=url) as target, cdt.Source("cmx", target="cdp", servers=url) as source:
        ...     config_id = target.put("app-1", "endpoint-7", b"{}")
        ...     event = source.receive(timeout_s=10)
        ...     type(event).__name__, event.endpoint_id, event.config_id == config_id
        ('ConfigNewAvailable', 'endpoint-7', True)

        ```
        """
        need_timeout("timeout_s", timeout_s)
        return self._logged(self._opened().receive(timeout_s))


class AsyncCdtRole(CdtRole, AsyncRole):
    """A role of CDT for asyncio."""

    _home: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        if self._home is None:
            self._home = asyncio.get_running_loop()
        return await super().__aenter__()

    def _need_home(self) -> None:
        """Refuses another event loop than the one that opened it."""
        if self._native is None or asyncio.get_running_loop() is not self._home:
            self._opened()
            message = f"{self!r} is bound to the event loop it was opened in"
            raise LocalProtocolError(message)

    async def close(self, *, drain_s: float = DRAIN_S) -> None:
        """Completes what is in progress for at most `drain_s` seconds, and closes."""
        if self._native is not None and not self._native.closed:
            self._need_home()
        await self._finish(drain_s)

    async def _abandon(self) -> None:
        await self.close(drain_s=0.0)


class AsyncEvents(AsyncCdtRole, AsyncReceiving[Event]):
    """A role for asyncio; an asynchronous iterator over the events of others."""

    async def receive(self, *, timeout_s: float | None = None) -> Event:
        """Waits for an event; see the blocking class.

        ```pycon
        >>> import asyncio
        >>> from trunkline import cdt
        >>> async def main():
        ...     url = "memory://async-events"
        ...     async with cdt.AsyncTarget("cdp", servers=url) as target:
        ...         async with cdt.AsyncSource("cmx", target="cdp", servers=url) as source:
        ...             await target.put("app-1", "endpoint-7", b"{}")
        ...             return (await source.receive(timeout_s=10)).endpoint_id
        >>> asyncio.run(main())
        'endpoint-7'

        ```
        """
        self._need_home()
        need_timeout("timeout_s", timeout_s)
        return self._logged(await self._waits.taken(self._opened().poll, timeout_s, "no event came"))
