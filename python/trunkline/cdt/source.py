"""The role that pulls configurations, pushes them and watches them."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, Unpack

from trunkline._arguments import need_bytes, need_number, need_seconds, need_text
from trunkline._counters import Count, Latencies, Level, measured
from trunkline._iteration import AsyncReceiving, Receiving
from trunkline._native.cdt import ConfigNewAvailable, ConfigResponse
from trunkline.cdt._roles import AsyncCdtRole, BlockingCdtRole, CdtRole, need_name, need_names
from trunkline.cdt._waits import until
from trunkline.cdt.options import DEFAULTS, CdtOptions
from trunkline.cdt.store import content_id
from trunkline.cdt.target import CONTENT_TYPE
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

# The least timeout that is left after a wait for room: 0 would mean no limit.
_LEAST_S = 0.001

# The message type of each call, as in the error of a server that refuses it.
_ASKED_BY = {"configrequest": "pull", "configpush": "push", "configupdated": "report"}
_RESYNC_S = 300.0

# The largest number of retries that can be counted.
_MOST_RETRIES = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class SourceStats:
    """Counters of a source since its start.

    Attributes:
        received: Messages received.
        sent: Messages handed to the connection.
        dropped: Dropped messages by kind; only kinds that occurred.
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


class Watching:
    """The latest unread configuration of a watch."""

    def __init__(self) -> None:
        self.changes: deque[ConfigResponse] = deque(maxlen=1)
        self.changed = asyncio.Event()
        self.is_over = False
        # The id of the configuration handed out last.
        self._last: str | None = None

    def put(self, response: ConfigResponse) -> None:
        # A slow reader gets only the latest.
        self.changes.clear()
        if response.config_id != self._last:
            self.changes.append(response)
            self.changed.set()

    def end(self) -> None:
        self.is_over = True
        self.changed.set()

    async def take(self, timeout_s: float | None) -> ConfigResponse:
        need_seconds("timeout_s", timeout_s, may_be_none=True)
        if not await until(self.changed, lambda: self.changes or self.is_over, timeout_s):
            message = f"no configuration came within {timeout_s} s"
            raise TimeoutError(message)
        if not self.changes:
            message = "the watch has ended"
            raise ClosedError(message)
        response = self.changes.popleft()
        self._last = response.config_id
        return response

    def give_back(self, response: ConfigResponse) -> None:
        """Takes back a response that its caller did not get, unless a newer one has replaced it."""
        self._last = None
        if not self.changes:
            self.put(response)


# A watch in progress: its number, and its state.
_Begun: TypeAlias = tuple[int, Watching]


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
        # Pending calls: the verb and the future of each.
        self._calls: dict[int, tuple[str, asyncio.Future[tuple[str, Any]]]] = {}
        self._watching: dict[int, Watching] = {}
        # Pushes that wait for `applied`, by version, endpoint and id: whether each was announced, as it is once stored.
        self._applying: dict[tuple[str, str, str], bool] = {}
        self._last_call = 0
        self._made()

    def _machine(self) -> tuple[str, dict[str, Any]]:
        return "cdt.source", {**self._taking_part(), "target": self._target, "resync_s": self._resync_s}

    async def _end(self, drain_s: float) -> None:
        try:
            await super()._end(drain_s)
        finally:
            self._lose(self._over())
            for watching in self._watching.values():
                watching.end()

    def _handle(self, kind: str, *details: Any) -> None:
        if kind == "ended":
            call, how, what = details
            if how == "answered" and self._log.isEnabledFor(logging.DEBUG):
                self._log.debug("source: %s of %s", type(what).__name__, what.correlation_id)
            _, future = self._calls.pop(call, (None, None))
            if future is not None and not future.done():
                future.set_result((how, what))
        elif kind == "changed":
            watching = self._watching.get(details[0])
            if watching is not None:
                watching.put(details[1])
        else:
            if kind == "event" and self._applying and isinstance(details[0], ConfigNewAvailable):
                self._see_stored(details[0])
            super()._handle(kind, *details)
            if kind == "refused" and self._refusals is None:
                # The server names the subject, in lower case, not the message: fail all pending calls of that kind.
                refused = [verb for kind, verb in _ASKED_BY.items() if kind in details[0].lower()]
                self._lose(AuthenticationError(details[0]), refused)

    def _see_stored(self, event: ConfigNewAvailable) -> None:
        key = (event.app_version_name, event.endpoint_id, event.config_id)
        if key in self._applying:
            self._applying[key] = True

    def _lose(self, error: Exception, verbs: Collection[str] = ("pull", "push", "report")) -> None:
        for call, (verb, future) in list(self._calls.items()):
            if verb in verbs and not future.done():
                future.set_exception(error)
                self._give_up(call)

    def _give_up(self, call: int) -> None:
        """Forgets a call that was given up, here and in the machine."""
        self._calls.pop(call, None)
        if not self._pump.closed:
            self._pump.ask("cancel", call=call)

    def _number(self) -> int:
        self._last_call += 1
        return self._last_call

    async def _call(self, verb: str, given: dict[str, Any]) -> tuple[str, Any]:
        pump = self._pump
        if pump.is_held_up:
            timeout_s, began = given.get("timeout_s"), pump.loop.time()
            if not await pump.room(timeout_s):
                return "timed_out", None
            if timeout_s is not None:
                given["timeout_s"] = max(timeout_s - (pump.loop.time() - began), _LEAST_S)
        given["call"] = call = self._number()
        pump.ask(verb, **given)
        future: asyncio.Future[tuple[str, Any]] = pump.loop.create_future()
        self._calls[call] = verb, future
        try:
            if verb == "push" and given["confirm"] is None:
                return await self._sent(call, future, given["timeout_s"])
            return await future
        except asyncio.CancelledError:
            self._give_up(call)
            raise

    async def _sent(
        self, call: int, future: asyncio.Future[tuple[str, Any]], timeout_s: float | None
    ) -> tuple[str, Any]:
        """Waits until the server has a push that gets no answer, for the caller's timeout at most."""
        await asyncio.wait([future], timeout=timeout_s)
        if not future.done():
            self._give_up(call)
            return "timed_out", None
        return future.result()

    def _failed(self, how: str, timeout_s: float | None) -> Exception:
        if how == "no_target":
            return PeerLostError(f"no target named {self._target} is running")
        if how == "timed_out":
            return TimeoutError(f"{self._target} did not answer within {timeout_s} s")
        if how == "too_large":
            return ConfigError(413, "larger than a message may be")
        if how == "unsent":
            return PeerLostError("there is no connection to a NATS server, or it does not answer")
        return ClosedError("the role was closed before there was an answer")

    @staticmethod
    def _need_time(timeout_s: float | None) -> None:
        need_seconds("timeout_s", timeout_s, may_be_none=True)
        if timeout_s is not None and timeout_s <= 0:
            # On the wire 0 means no limit.
            message = f"no answer within {timeout_s} s"
            raise TimeoutError(message)

    def _need_pull(
        self, app_version_name: str, endpoint_id: str, config_id: str | None, timeout_s: float | None, retries: int
    ) -> None:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        # Pulls are frequent, and most leave these at their defaults.
        if config_id is not None:
            need_text("config_id", config_id, may_be_none=True)
        if type(retries) is not int or retries:
            need_number("retries", retries, most=_MOST_RETRIES)
        self._need_time(timeout_s)

    async def _pull(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str | None,
        timeout_s: float | None,
        retries: int,
        endpoint_message_id: str | None,
    ) -> ConfigResponse:
        self._need_pull(app_version_name, endpoint_id, config_id, timeout_s, retries)
        key = (app_version_name, endpoint_id, config_id or "")
        if key in self._cached and not self._pump.closed:
            self._cached.move_to_end(key)
            return self._cached[key]
        given = {
            "app_version_name": app_version_name,
            "endpoint_id": endpoint_id,
            "config_id": config_id or None,
            "endpoint_message_id": endpoint_message_id,
            "timeout_s": timeout_s,
            "retries": retries,
        }
        how, response = await self._call("pull", given)
        if how != "answered":
            raise self._failed(how, timeout_s)
        answer: ConfigResponse = _good(response)
        if self._room and config_id:
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

    async def _push(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes | None,
        content_type: str,
        config_id: str | None,
        confirm: Confirm | None,
        timeout_s: float | None,
    ) -> str:
        self._need_push(app_version_name, endpoint_id, content_type, config_id, confirm, timeout_s)
        if content is not None:
            content_type = content_type or CONTENT_TYPE
        expected = config_id or content_id(content_type, content or b"")
        key = (app_version_name, endpoint_id, expected)
        if confirm == "applied":
            self._applying.setdefault(key, False)
        try:
            given = {
                "app_version_name": app_version_name,
                "endpoint_id": endpoint_id,
                "content": content,
                "content_type": content_type,
                "config_id": config_id or None,
                "confirm": confirm,
                "timeout_s": timeout_s,
            }
            how, what = await self._call("push", given)
        finally:
            is_stored = self._applying.pop(key, False)
        if how == "answered":
            return str(_good(what).config_id)
        if how == "applied":
            return str(what)
        if how == "sent":
            return expected
        if how == "timed_out" and confirm == "applied":
            raise self._unapplied(expected, is_stored, timeout_s)
        raise self._failed(how, timeout_s)

    async def _push_content(self, app: str, endpoint: str, content: bytes, *given: Any) -> str:
        need_names(app_version_name=app, endpoint_id=endpoint)
        need_bytes("content", content)
        self._need_room(app, endpoint, content, str(given[0]), given[1])
        return await self._push(app, endpoint, bytes(content), *given)

    async def _report(self, app_version_name: str, endpoint_id: str, config_id: str) -> None:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id, config_id=config_id)
        given = {"app_version_name": app_version_name, "endpoint_id": endpoint_id, "config_id": config_id}
        how, _ = await self._call("report", given)
        if how != "sent":
            raise self._failed(how, None)

    async def _watch(self, app_version_name: str, endpoint_id: str) -> _Begun:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        call = self._number()
        self._pump.ask("watch", call=call, app_version_name=app_version_name, endpoint_id=endpoint_id)
        watching = self._watching[call] = Watching()
        return call, watching

    def _forget(self, begun: _Begun) -> None:
        """Ends a watch: called in the loop."""
        call, watching = begun
        if self._watching.pop(call, None) is not None:
            watching.end()
            if not self._pump.closed:
                self._pump.ask("cancel", call=call)

    async def _unwatch(self, begun: _Begun) -> None:
        self._forget(begun)

    def _end_with(self, watch: object, begun: _Begun) -> None:
        """Ends a watch when it is garbage-collected, e.g. after a loop over it."""
        weakref.finalize(watch, self._let_go_of, begun).atexit = False

    def _let_go_of(self, begun: _Begun) -> None:
        """Ends a watch: called in any thread."""
        if self._pump.loop.is_running() and not self._pump.closed:
            self._pump.loop.call_soon_threadsafe(self._forget, begun)

    @property
    def stats(self) -> SourceStats:
        """The current counters; the final ones once closed."""
        counts = self._counted()
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
    """

    def __init__(self, source: Source, app_version_name: str, endpoint_id: str) -> None:
        self._source = source
        self._begun = source._run(source._watch(app_version_name, endpoint_id), source._forget)  # noqa: SLF001 - its own
        source._end_with(self, self._begun)  # noqa: SLF001 - its own

    def receive(self, *, timeout_s: float | None = None) -> ConfigResponse:
        """Waits for a configuration other than the last one.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The watch or its source is closed.
        """
        _, watching = self._begun
        return self._source._run(watching.take(timeout_s), watching.give_back)  # noqa: SLF001 - its own

    def close(self) -> None:
        """Ends it."""
        if not self._source.closed:
            self._source._run(self._source._unwatch(self._begun))  # noqa: SLF001 - its own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncWatch(AsyncReceiving[ConfigResponse]):
    """`Watch` for asyncio."""

    def __init__(self, source: AsyncSource, app_version_name: str, endpoint_id: str) -> None:
        self._source = source
        self._about = (app_version_name, endpoint_id)
        self._begun: _Begun | None = None

    async def receive(self, *, timeout_s: float | None = None) -> ConfigResponse:
        """Waits for a configuration other than the last one; see `Watch.receive`."""
        if self._begun is None:
            self._begun = await self._source._run(self._source._watch(*self._about))  # noqa: SLF001 - its own
            self._source._end_with(self, self._begun)  # noqa: SLF001 - its own
        _, watching = self._begun
        return await self._source._run(watching.take(timeout_s))  # noqa: SLF001 - its own

    async def close(self) -> None:
        """Ends it."""
        if self._begun is not None and not self._source.closed:
            await self._source._run(self._source._unwatch(self._begun))  # noqa: SLF001 - its own

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Source(SourceBase, BlockingCdtRole):
    """Pulls configurations from a target, pushes them to it, watches them, and reports which ones endpoints have applied.

    It runs in a thread that all blocking roles of CDT share, until it is closed; its methods may be called from any thread.
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
    >>> with cdt.Target("cdp", servers="memory://pull") as target, cdt.Source("cmx", target="cdp", servers="memory://pull") as source:
    ...     config_id = target.put("app-1", "endpoint-7", b"{}")
    ...     response = source.pull("app-1", "endpoint-7")
    ...     response.content, response.config_id == config_id
    (b'{}', True)

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
        return self._run(self._pull(app_version_name, endpoint_id, config_id, timeout_s, retries, endpoint_message_id))

    def push(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
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
        return self._run(
            self._push_content(app_version_name, endpoint_id, content, content_type, config_id, confirm, timeout_s)
        )

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
        need_names(config_id=config_id)
        return self._run(self._push(app_version_name, endpoint_id, None, "", config_id, confirm, timeout_s))

    def report_applied(self, app_version_name: str, endpoint_id: str, config_id: str) -> None:
        """Announces that an endpoint has applied a configuration (CDT-40); returns once the server has the message.

        Raises:
            PeerLostError: There is no connection.
            LocalProtocolError: A name is empty.
        """
        self._run(self._report(app_version_name, endpoint_id, config_id))

    def watch(self, app_version_name: str, endpoint_id: str) -> Watch:
        """Watches the configuration of an endpoint: the current one, then each new one.

        It waits if there is none yet, survives restarts of server and target, and hands out only the latest of several that
        arrived unread (CDT-49).
        """
        return Watch(self, app_version_name, endpoint_id)


class AsyncSource(SourceBase, AsyncCdtRole):
    """`Source` for asyncio: opened by ``async with``; thousands of pulls may be in flight."""

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
        return await self._run(
            self._pull(app_version_name, endpoint_id, config_id, timeout_s, retries, endpoint_message_id)
        )

    async def push(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
        *,
        content_type: str = CONTENT_TYPE,
        config_id: str | None = None,
        confirm: Confirm | None = "stored",
        timeout_s: float | None = _TIMEOUT_S,
    ) -> str:
        """Assigns a configuration to an endpoint through the target; see `Source.push`."""
        return await self._run(
            self._push_content(app_version_name, endpoint_id, content, content_type, config_id, confirm, timeout_s)
        )

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
        need_names(config_id=config_id)
        return await self._run(self._push(app_version_name, endpoint_id, None, "", config_id, confirm, timeout_s))

    async def report_applied(self, app_version_name: str, endpoint_id: str, config_id: str) -> None:
        """Announces that an endpoint has applied a configuration; see `Source.report_applied`."""
        await self._run(self._report(app_version_name, endpoint_id, config_id))

    def watch(self, app_version_name: str, endpoint_id: str) -> AsyncWatch:
        """Watches the configuration of an endpoint; see `Source.watch`."""
        return AsyncWatch(self, app_version_name, endpoint_id)
