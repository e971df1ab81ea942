"""The role that pulls configurations, pushes them and watches them."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, Unpack

from trunkline._arguments import as_bytes, need_number, need_seconds, need_text, need_timeout
from trunkline._frames import Bytes
from trunkline._metrics.counters import Count, Latencies, Level, measured
from trunkline._native import Outgoing
from trunkline._native.cdt import ConfigResponse
from trunkline._native.cdt import Source as _Source
from trunkline._native.cdt import Watch as _Watch
from trunkline._roles.calls import AsyncCalls
from trunkline._roles.iteration import AsyncReceiving, Receiving
from trunkline._roles.waits import Arrivals
from trunkline.cdt._keeper import CONTENT_TYPE
from trunkline.cdt._roles import AsyncEvents, BlockingEvents, CdtRole, need_name, need_names
from trunkline.cdt.options import DEFAULTS, CdtOptions
from trunkline.cdt.store import content_id
from trunkline.errors import (
    AuthenticationError,
    ClosedError,
    ConfigError,
    LocalProtocolError,
    PeerLostError,
    TimeoutError,  # noqa: A004 - trunkline's
)
from trunkline.options import spelled_out

__all__ = ["AsyncSource", "AsyncWatch", "Confirm", "Source", "SourceBase", "SourceStats", "Watch"]

Confirm = Literal["stored", "applied"]

_TIMEOUT_S = 3.0

# How a call ended, and with what.
_Outcome: TypeAlias = tuple[str, Any]

_RESYNC_S = 300.0

# The largest number of retries that can be counted.
_MOST_RETRIES = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class SourceStats:
    """Counters of a source since its start.

    Attributes:
        received: Messages received.
        sent: Messages handed to the connection.
        dropped: Dropped messages by kind; only kinds that occurred. ``own_event`` is no fault, and no metric has it: NATS
            delivers to a role what it announces itself.
        bytes: The bytes of all messages received, good or bad, with their NATS headers.
        pulls: Pulls started.
        pushes: Pushes started.
        retries: Requests sent again.
        expired: Messages that had expired.
        events: Events received from others.
        waiting: Pulls and pushes waiting for an answer.
        latency: How long pulls and pushes took until they were answered, with all attempts.
        capture_lost: Rows dropped because the capture could not keep up.
    """

    received: Count
    sent: Count
    dropped: Mapping[str, Count]
    bytes: Count
    pulls: Count
    pushes: Count
    retries: Count
    expired: Count
    events: Count
    waiting: Level
    latency: Latencies
    capture_lost: Count


class SourceBase(CdtRole):
    """The base class of the source, without its waits."""

    @spelled_out(CdtOptions, defaults=DEFAULTS)
    def __init__(
        self,
        name: str,
        *,
        target: str,
        cache: int = 0,
        resync_s: float = _RESYNC_S,
        **options: Unpack[CdtOptions],
    ) -> None:
        self._set_up("source", name, options)
        need_name("target", target)
        need_number("cache", cache)
        need_seconds("resync_s", resync_s)
        self._target, self._resync_s, self._room = target, float(resync_s), cache
        self._cached: OrderedDict[tuple[str, str, str], ConfigResponse] = OrderedDict()
        self._made()

    def _open(self) -> None:
        native = _Source(self._native_options(), self._taking(), target=self._target, resync_s=self._resync_s)
        self._connect(native, self._noticing())

    @property
    def _source(self) -> _Source:
        native: _Source = self._opened()
        return native

    def _failed(self, how: str, what: Any, timeout_s: float | None) -> Exception:
        if how == "no_target":
            return PeerLostError(f"no target named {self._target} is running")
        if how == "timed_out":
            return TimeoutError(f"{self._target} did not answer within {timeout_s} s")
        if how == "too_large":
            return ConfigError(413, "larger than a message may be")
        if how == "unsent":
            return PeerLostError("there is no connection to a NATS server, or it does not answer")
        if how == "forbidden":
            return AuthenticationError(what)
        return ClosedError("the role was closed before there was an answer")

    @staticmethod
    def _need_time(timeout_s: float | None) -> None:
        need_timeout("timeout_s", timeout_s)
        if timeout_s is not None and timeout_s <= 0:
            # On the wire 0 means no limit.
            message = f"no answer within {timeout_s} s"
            raise TimeoutError(message)

    def _need_pull(
        self, app_version_name: str, endpoint_id: str, config_id: str | None, timeout_s: float | None, retries: int
    ) -> None:
        # Pulls are frequent: what most of them have is not looked at closely.
        for name in (app_version_name, endpoint_id):
            if type(name) is not str or not name or not name.isascii():
                need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        if config_id is not None:
            need_text("config_id", config_id, may_be_none=True)
        if type(retries) is not int or retries:
            need_number("retries", retries, most=_MOST_RETRIES)
        if timeout_s is not None:
            self._need_time(timeout_s)

    def _kept(self, key: tuple[str, str, str]) -> ConfigResponse | None:
        """A configuration that was pulled by its id before."""
        if key not in self._cached or self._source.closed:
            return None
        self._cached.move_to_end(key)
        return self._cached[key]

    def _pulled(self, key: tuple[str, str, str], outcome: _Outcome, timeout_s: float | None) -> ConfigResponse:
        how, response = outcome
        if how != "answered":
            raise self._failed(how, response, timeout_s)
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("source: ConfigResponse of %s", response.correlation_id)
        answer: ConfigResponse = _good(response)
        if self._room and key[2]:
            self._cached[key] = answer
            if len(self._cached) > self._room:
                self._cached.popitem(last=False)
        return answer

    def _need_push(
        self,
        app_version_name: str,
        endpoint_id: str,
        content_type: str,
        config_id: str | None,
        confirm: Confirm | None,
        timeout_s: float | None,
    ) -> None:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        need_text("content_type", content_type)
        need_text("config_id", config_id, may_be_none=True)
        if confirm not in ("stored", "applied", None):
            message = f"confirm is 'stored', 'applied' or None, not {confirm!r}"
            raise LocalProtocolError(message)
        self._need_time(timeout_s)

    @staticmethod
    def _unapplied(config_id: str, is_stored: bool, timeout_s: float | None) -> Exception:  # noqa: FBT001 - what is known
        state = "is" if is_stored else "may be"
        message = (
            f"the configuration {state} stored as {config_id}, but nobody reported it applied within {timeout_s} s"
        )
        return TimeoutError(message)

    def _pushing(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: Bytes,
        content_type: str,
        config_id: str | None,
        confirm: Confirm | None,
        timeout_s: float | None,
    ) -> tuple[Outgoing, str]:
        """A push, and the id that the configuration will have."""
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        held = as_bytes("content", content)
        self._need_room(app_version_name, endpoint_id, held, content_type, config_id)
        self._need_push(app_version_name, endpoint_id, content_type, config_id, confirm, timeout_s)
        content_type = content_type or CONTENT_TYPE
        call = self._source.push(
            app_version_name, endpoint_id, held, content_type, config_id or None, confirm, timeout_s
        )
        return call, config_id or content_id(content_type, held)

    def _going_back(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str,
        confirm: Confirm | None,
        timeout_s: float | None,
    ) -> Outgoing:
        need_names(config_id=config_id)
        self._need_push(app_version_name, endpoint_id, "", config_id, confirm, timeout_s)
        return self._source.push(app_version_name, endpoint_id, None, "", config_id, confirm, timeout_s)

    def _pushed(self, outcome: _Outcome, expected: str, timeout_s: float | None) -> str:
        how, what = outcome
        if how == "answered":
            if self._log.isEnabledFor(logging.DEBUG):
                self._log.debug("source: ConfigPushResponse of %s", what.correlation_id)
            return str(_good(what).config_id)
        if how == "applied":
            return str(what)
        if how == "sent":
            return expected
        if how == "unapplied":
            raise self._unapplied(expected, what, timeout_s)
        raise self._failed(how, what, timeout_s)

    def _reporting(self, app_version_name: str, endpoint_id: str, config_id: str) -> Outgoing:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id, config_id=config_id)
        return self._source.report(app_version_name, endpoint_id, config_id)

    def _reported(self, outcome: _Outcome) -> None:
        how, what = outcome
        if how != "sent":
            raise self._failed(how, what, None)

    @property
    def stats(self) -> SourceStats:
        """The current counters; the final ones once closed."""
        counts = self._source.stats()
        return SourceStats(**measured(counts), expired=counts["dropped"].get("expired", 0))


def refusal(response: Any) -> ConfigError:
    """The exception for an error response, with the name of the requested configuration."""
    which = f"configuration {response.config_id}" if response.config_id else "the configuration"
    subject = f"{which} of {response.endpoint_id} ({response.app_version_name})"
    return ConfigError(response.status_code, response.reason_phrase or "", subject)


def _good(response: Any) -> Any:
    """The response, unless it is an error."""
    if not 200 <= response.status_code < 300:
        raise refusal(response)
    return response


class Watch(Receiving[ConfigResponse]):
    """Follows the configuration of an endpoint: an iterator, and a context manager that ends it.

    It also ends when it is garbage-collected.

    ```pycon
    >>> from trunkline import cdt
    >>> url = "memory://watch"
    >>> with cdt.Target("cdp", servers=url) as target, cdt.Source("cmx", target="cdp", servers=url) as source:
    ...     watch = source.watch("app-1", "endpoint-7")
    ...     config_id = target.put("app-1", "endpoint-7", b'{"interval": 5}')
    ...     watch.receive(timeout_s=10).content
    ...     config_id = target.put("app-1", "endpoint-7", b'{"interval": 1}')
    ...     for config in watch:
    ...         watch.close()
    ...     config.content
    b'{"interval": 5}'
    b'{"interval": 1}'

    ```
    """

    def __init__(self, source: Source, app_version_name: str, endpoint_id: str) -> None:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        # Kept alive.
        self._source = source
        self._watch = source._source.watch(app_version_name, endpoint_id)  # noqa: SLF001 - its own

    def receive(self, *, timeout_s: float | None = None) -> ConfigResponse:
        """Waits for a configuration other than the last one.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The watch or its source is closed.
        """
        need_timeout("timeout_s", timeout_s)
        return self._watch.receive(timeout_s)

    def close(self) -> None:
        """Ends it."""
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncWatch(AsyncReceiving[ConfigResponse]):
    """`Watch` for asyncio.

    ```pycon
    >>> import asyncio
    >>> from trunkline import cdt
    >>> async def main():
    ...     url = "memory://async-watch"
    ...     async with cdt.AsyncTarget("cdp", servers=url) as target:
    ...         async with cdt.AsyncSource("cmx", target="cdp", servers=url) as source:
    ...             watch = source.watch("app-1", "endpoint-7")
    ...             await target.put("app-1", "endpoint-7", b'{"interval": 5}')
    ...             first = await watch.receive(timeout_s=10)
    ...             await target.put("app-1", "endpoint-7", b'{"interval": 1}')
    ...             async for config in watch:
    ...                 await watch.close()
    ...             return first.content, config.content
    >>> asyncio.run(main())
    (b'{"interval": 5}', b'{"interval": 1}')

    ```
    """

    def __init__(self, source: AsyncSource, app_version_name: str, endpoint_id: str) -> None:
        self._source = source
        self._about = (app_version_name, endpoint_id)
        self._watch: _Watch | None = None

    async def receive(self, *, timeout_s: float | None = None) -> ConfigResponse:
        """Waits for a configuration other than the last one; see `Watch.receive`."""
        self._source._need_home()  # noqa: SLF001 - its own
        need_timeout("timeout_s", timeout_s)
        if self._watch is None:
            app_version_name, endpoint_id = self._about
            need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
            self._watch = self._source._source.watch(app_version_name, endpoint_id)  # noqa: SLF001 - its own
        watch, arrivals = self._watch, self._source._changes  # noqa: SLF001 - its own
        return await arrivals.taken(watch.poll, watch.arm, timeout_s, "no configuration came")

    async def close(self) -> None:
        """Ends it."""
        if self._watch is not None:
            self._source._need_home()  # noqa: SLF001 - its own
            self._watch.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Source(SourceBase, BlockingEvents):
    """Pulls configurations from a target, pushes them to it, watches them, and reports which ones endpoints have applied.

    It runs on a thread of its own until it is closed; its methods may be called from any thread.
    Iterating over it gives the events of others: configurations that are available, and that endpoints have applied.

    Args:
        name: The service it is a replica of, one token of a NATS subject.
        target: The service to pull from and push to.
        cache: The number of configurations pulled by their id to keep, so that they are not requested again.
        resync_s: How often a watch polls, in seconds, in case an announcement was lost (CDT-49).
        **options: Servers, credentials, encoding and capture, each in `trunkline.cdt.CdtOptions`.

    Raises:
        PeerLostError: No server answers within `connect_timeout_s`.
        AuthenticationError: The server refuses the credentials, or the permission to subscribe.
        LocalProtocolError: A name cannot be part of a subject, a server is no URL, or the file holds no credentials.
        OSError: The credentials cannot be read.

    ```pycon
    >>> from trunkline import cdt
    >>> with cdt.Target("cdp", servers="memory://pull") as target:
    ...     source = cdt.Source("cmx", target="cdp", servers="memory://pull")
    ...     with source.watch("app-1", "endpoint-7") as watch:
    ...         first = source.push("app-1", "endpoint-7", b'{"interval": 5}')
    ...         watch.receive(timeout_s=10).content
    ...     source.push("app-1", "endpoint-7", b'{"interval": 1}') == first
    ...     source.rollback("app-1", "endpoint-7", first) == first
    ...     response = source.pull("app-1", "endpoint-7")
    ...     source.report_applied("app-1", "endpoint-7", response.config_id)
    ...     source.close(drain_s=2)
    ...     event = target.receive(timeout_s=10)
    ...     type(event).__name__, event.config_id == first
    b'{"interval": 5}'
    False
    True
    ('ConfigUpdated', True)

    ```
    """

    def pull(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str | None = None,
        *,
        timeout_s: float | None = _TIMEOUT_S,
        retries: int = 0,
        endpoint_message_id: str | None = None,
    ) -> ConfigResponse:
        """Requests the configuration of an endpoint.

        Args:
            app_version_name: The version of the application.
            endpoint_id: The endpoint.
            config_id: Which one; None is the latest (CDT-18, CDT-19).
            timeout_s: How long to wait for the answer of an attempt, in seconds; None for no limit (CDT-14).
            retries: How many times to retry (CDT-34).
            endpoint_message_id: The id of the endpoint's own request; None: a generated one (CDT-15).

        Raises:
            ConfigError: The target answered with a status other than 2xx: 404 if there is none.
            PeerLostError: No replica of the target is connected.
            TimeoutError: No answer arrived in time.
            LocalProtocolError: A name is empty.
            ClosedError: The source is closed.
        """
        self._need_pull(app_version_name, endpoint_id, config_id, timeout_s, retries)
        key = (app_version_name, endpoint_id, config_id or "")
        if (kept := self._kept(key)) is not None:
            return kept
        call = self._source.pull(
            app_version_name, endpoint_id, config_id or None, endpoint_message_id, timeout_s, retries
        )
        return self._pulled(key, self._ask(call, timeout_s), timeout_s)

    def push(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: Bytes,
        *,
        content_type: str = CONTENT_TYPE,
        config_id: str | None = None,
        confirm: Confirm | None = "stored",
        timeout_s: float | None = _TIMEOUT_S,
    ) -> str:
        """Assigns a configuration to an endpoint through the target, by `ConfigPush`, an extension of the protocol.

        Args:
            app_version_name: The version of the application.
            endpoint_id: The endpoint.
            content: The configuration.
            content_type: Its type, opaque.
            config_id: Its id; None: a hash of type and content.
            confirm: Wait until the target has stored it, until the endpoint has applied it, or not at all (CDT-39).
            timeout_s: How long to wait, in seconds; None for no limit.

        Returns:
            Its id.

        Raises:
            ConfigError: The target answered with a status other than 2xx; 413: it is larger than a message may be.
            PeerLostError: No replica of the target is connected.
            TimeoutError: It was not confirmed in time; it may have been stored nevertheless.
            ClosedError: The source is closed.
        """
        call, expected = self._pushing(
            app_version_name, endpoint_id, content, content_type, config_id, confirm, timeout_s
        )
        return self._pushed(self._ask(call, timeout_s), expected, timeout_s)

    def rollback(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str,
        *,
        confirm: Confirm | None = "stored",
        timeout_s: float | None = _TIMEOUT_S,
    ) -> str:
        """Assigns an earlier configuration to an endpoint again, and returns its id. See `push`.

        Raises:
            ConfigError: 404: the endpoint never had it.
        """
        call = self._going_back(app_version_name, endpoint_id, config_id, confirm, timeout_s)
        return self._pushed(self._ask(call, timeout_s), config_id, timeout_s)

    def report_applied(self, app_version_name: str, endpoint_id: str, config_id: str) -> None:
        """Announces that an endpoint has applied a configuration (CDT-40); returns once the server has the message.

        Raises:
            PeerLostError: There is no connection.
            LocalProtocolError: A name is empty.
        """
        self._reported(self._ask(self._reporting(app_version_name, endpoint_id, config_id), None))

    def watch(self, app_version_name: str, endpoint_id: str) -> Watch:
        """Watches the configuration of an endpoint: the current one, then each new one.

        It waits if there is none yet, survives restarts of server and target, and hands out only the latest of several that
        arrived unread (CDT-49).
        """
        return Watch(self, app_version_name, endpoint_id)

    def _ask(self, call: Outgoing, timeout_s: float | None) -> _Outcome:
        outcome: _Outcome = self._source.request(call, room_s=timeout_s, timeout_s=timeout_s)
        return outcome


class AsyncSource(SourceBase, AsyncEvents):
    """`Source` for asyncio: opened by ``async with``; thousands of pulls may be in flight.

    ```pycon
    >>> import asyncio
    >>> from trunkline import cdt
    >>> async def main():
    ...     url = "memory://async-source"
    ...     async with cdt.AsyncTarget("cdp", servers=url) as target:
    ...         async with cdt.AsyncSource("cmx", target="cdp", servers=url) as source:
    ...             async with source.watch("app-1", "endpoint-7") as watch:
    ...                 first = await source.push("app-1", "endpoint-7", b'{"interval": 5}')
    ...                 watched = await watch.receive(timeout_s=10)
    ...             await source.push("app-1", "endpoint-7", b'{"interval": 1}')
    ...             await source.rollback("app-1", "endpoint-7", first)
    ...             response = await source.pull("app-1", "endpoint-7")
    ...             await source.report_applied("app-1", "endpoint-7", response.config_id)
    ...             await source.close(drain_s=2)
    ...         return watched == response, (await target.receive(timeout_s=10)).config_id == first
    >>> asyncio.run(main())
    (False, True)

    ```
    """

    def _open(self) -> None:
        super()._open()
        self._calls: AsyncCalls[_Outcome] = AsyncCalls(self._source, self._waits)
        self._changes = Arrivals(self._source.watches_fileno, self._source.disarm_watches)

    async def _ask(self, call: Outgoing, timeout_s: float | None) -> _Outcome:
        self._need_home()
        return await self._calls.ask(call, timeout_s, timeout_s)

    async def pull(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str | None = None,
        *,
        timeout_s: float | None = _TIMEOUT_S,
        retries: int = 0,
        endpoint_message_id: str | None = None,
    ) -> ConfigResponse:
        """Requests the configuration of an endpoint; see `Source.pull`."""
        self._need_pull(app_version_name, endpoint_id, config_id, timeout_s, retries)
        key = (app_version_name, endpoint_id, config_id or "")
        if self._cached and (kept := self._kept(key)) is not None:
            return kept
        call = self._source.pull(
            app_version_name, endpoint_id, config_id or None, endpoint_message_id, timeout_s, retries
        )
        return self._pulled(key, await self._ask(call, timeout_s), timeout_s)

    async def push(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: Bytes,
        *,
        content_type: str = CONTENT_TYPE,
        config_id: str | None = None,
        confirm: Confirm | None = "stored",
        timeout_s: float | None = _TIMEOUT_S,
    ) -> str:
        """Assigns a configuration to an endpoint through the target; see `Source.push`."""
        call, expected = self._pushing(
            app_version_name, endpoint_id, content, content_type, config_id, confirm, timeout_s
        )
        return self._pushed(await self._ask(call, timeout_s), expected, timeout_s)

    async def rollback(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str,
        *,
        confirm: Confirm | None = "stored",
        timeout_s: float | None = _TIMEOUT_S,
    ) -> str:
        """Assigns an earlier configuration to an endpoint again; see `Source.rollback`."""
        call = self._going_back(app_version_name, endpoint_id, config_id, confirm, timeout_s)
        return self._pushed(await self._ask(call, timeout_s), config_id, timeout_s)

    async def report_applied(self, app_version_name: str, endpoint_id: str, config_id: str) -> None:
        """Announces that an endpoint has applied a configuration; see `Source.report_applied`."""
        self._reported(await self._ask(self._reporting(app_version_name, endpoint_id, config_id), None))

    def watch(self, app_version_name: str, endpoint_id: str) -> AsyncWatch:
        """Watches the configuration of an endpoint; see `Source.watch`."""
        return AsyncWatch(self, app_version_name, endpoint_id)
