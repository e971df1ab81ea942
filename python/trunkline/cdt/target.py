"""The target: stores configurations, and answers requests for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Unpack

from trunkline._arguments import as_bytes, need_seconds, need_text, refuse
from trunkline._frames import Bytes
from trunkline._metrics.counters import Count, Latencies, Level, measured
from trunkline._native.cdt import Target as _Target
from trunkline.cdt._access import Access
from trunkline.cdt._keeper import CONTENT_TYPE, Keeper
from trunkline.cdt._roles import DRAIN_S, AsyncEvents, BlockingEvents, CdtRole, need_names, need_room_in
from trunkline.cdt.options import DEFAULTS, CdtOptions
from trunkline.cdt.sqlite import SqliteStore
from trunkline.cdt.store import Assignment, Config, MemoryStore, Rollout, Store, Stored
from trunkline.errors import ConfigError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import spelled_out

__all__ = ["AsyncTarget", "Target", "TargetBase", "TargetStats"]


@dataclass(frozen=True, slots=True)
class TargetStats:
    """Counters of a target since its start.

    Attributes:
        received: Messages received.
        sent: Messages handed to the connection.
        dropped: Dropped messages by kind; only kinds that occurred. ``own_event`` is no fault, and no metric has it: NATS
            delivers to a role what it announces itself.
        bytes: The bytes of all messages received, good or bad, with their NATS headers.
        pulls: Pulls answered, whatever the answer.
        pushes: Pushes answered, whatever the answer.
        not_found: Pulls answered with 404.
        expired: Messages that had expired.
        events: Events received from others.
        latency: How long pulls and pushes took from their arrival until the store had answered or its time was up.
        configs: Configurations in the store, of all endpoints.
        capture_lost: Rows dropped because the capture could not keep up.
    """

    received: Count
    sent: Count
    dropped: Mapping[str, Count]
    bytes: Count
    pulls: Count
    pushes: Count
    not_found: Count
    expired: Count
    events: Count
    latency: Latencies
    configs: Level
    capture_lost: Count


def _opened_store(store: Any) -> Any:
    if isinstance(store, str | os.PathLike):
        return MemoryStore() if os.fspath(store) == ":memory:" else SqliteStore(store)
    if not isinstance(store, Store):
        missing = [name for name in ("put", "get", "rollback", "history", "rollout") if not hasattr(store, name)]
        refuse("store", "a path, or an object with the methods of cdt.Store", store, f": it lacks {', '.join(missing)}")
    return store


def found(config: Config | None, app_version_name: str, endpoint_id: str, config_id: str | None) -> Config:
    """The requested configuration; raises if there is none."""
    if config is None:
        which = f"no configuration {config_id}" if config_id else "no configuration"
        raise ConfigError(404, f"{endpoint_id} of {app_version_name} has {which}")
    return config


class TargetBase(CdtRole):
    """The base class of the target, without its waits."""

    @spelled_out(CdtOptions, defaults=DEFAULTS)
    def __init__(
        self,
        name: str,
        *,
        store: str | os.PathLike[str] | Store = ":memory:",
        store_timeout_s: float = 10.0,
        **options: Unpack[CdtOptions],
    ) -> None:
        self._set_up("target", name, options)
        need_seconds("store_timeout_s", store_timeout_s)
        self._given_store = store
        self._store_timeout_s = float(store_timeout_s)
        self._made()

    def _open(self) -> None:
        access, is_ours = self._opened_store()
        chosen = self._chosen
        try:
            configs = access.call("count")
            native = _Target(
                self._native_options(),
                self._taking(),
                queue=chosen["queue"],
                include_content=chosen["include_content"],
                store_timeout_s=self._store_timeout_s,
            )
        except BaseException:
            if is_ours:
                access.call("close")
            access.end()
            raise
        notices = self._noticing()

        def need_room(*given: Any) -> None:
            need_room_in(native.max_payload, chosen, *given)

        # From here on it closes the store when the engine ends.
        self._keeper = keeper = Keeper(native, access, notices, need_room, configs, is_ours=is_ours)
        try:
            self._connect(native, notices, keeper.announce_owed)
        except BaseException:
            keeper.finish(0.0)
            raise
        keeper.announce_owed()

    def _opened_store(self) -> tuple[Access, bool]:
        """The store, and whether it is closed at the end."""
        if self._given_store != "jetstream":
            store = _opened_store(self._given_store)
            return Access(store), store is not self._given_store
        from trunkline.cdt.jetstream import JetStreamStore, bucket_prefix

        access = Access(
            JetStreamStore(self._native_options(), self._chosen["connect_timeout_s"], prefix=bucket_prefix(self._name))
        )
        try:
            access.call("open")
        except BaseException:
            access.end()
            raise
        return access, True

    @property
    def _target(self) -> _Target:
        native: _Target = self._opened()
        return native

    def _let_go(self, native: Any) -> None:
        super()._let_go(native)
        # The threads of its store hold the engine, and end with it.
        native.close(0.0)

    def _still_runs(self, timeout_s: float | None) -> TimeoutError:
        return TimeoutError(f"{self!r} is still running after {timeout_s} s")

    @staticmethod
    def _need_put(
        app_version_name: str,
        endpoint_id: str,
        content_type: str,
        config_id: str | None,
        if_current: str | None,
    ) -> None:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        need_text("content_type", content_type)
        if config_id is not None:
            need_names(config_id=config_id)
        if if_current is not None:
            need_names(if_current=if_current)

    def _putting(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: Bytes,
        content_type: str,
        config_id: str | None,
        if_current: str | None,
    ) -> Future[Stored]:
        kept = as_bytes("content", content)
        self._need_put(app_version_name, endpoint_id, content_type, config_id, if_current)
        keeper, content_type = self._open_keeper(), content_type or CONTENT_TYPE
        return keeper.ask(lambda: keeper.put(app_version_name, endpoint_id, kept, content_type, config_id, if_current))

    def _getting(self, app_version_name: str, endpoint_id: str, config_id: str | None) -> Future[Config]:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        keeper = self._open_keeper()

        def get() -> Config:
            about = app_version_name, endpoint_id
            return found(keeper.access.call("get", *about, config_id or None), *about, config_id)

        return keeper.ask(get)

    def _rolling_back(self, app_version_name: str, endpoint_id: str, config_id: str) -> Future[Stored]:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id, config_id=config_id)
        keeper = self._open_keeper()
        return keeper.ask(lambda: keeper.roll_back(app_version_name, endpoint_id, config_id))

    def _open_keeper(self) -> Keeper:
        """The keeper of the store; refuses calls to a target that no longer uses it."""
        self._target.check_open()
        return self._keeper

    @property
    def stats(self) -> TargetStats:
        """The current counters; the final ones once closed."""
        counts = self._target.stats()
        if self._keeper.lost:
            dropped = counts["dropped"]
            counts["dropped"] = {**dropped, "queue_full": dropped.get("queue_full", 0) + self._keeper.lost}
        expired = counts["dropped"].get("expired", 0)
        return TargetStats(**measured(counts), expired=expired, configs=self._keeper.count())


class Target(TargetBase, BlockingEvents):
    """Stores configurations of endpoints, answers pulls, accepts pushes, and announces changes (CDT-38).

    It runs on a thread of its own until it is closed. Requests go to any replica of the
    service `name`, or to this one. Malformed requests are answered with 400, unknown configurations with 404, and failures of
    the store with 500. Iterating over it returns the events of others: configurations that other targets
    announce, and those that endpoints have applied.

    Args:
        name: The service it is a replica of, one token of a NATS subject.
        store: An SQLite file, created if it does not exist, which several processes may share; ``":memory:"``; ``"jetstream"`` for
            the key-value store of the server, which replicas on several machines may share; or an object with the methods of
            `trunkline.cdt.Store`, which you close yourself.
        store_timeout_s: How long the store may take, in seconds, before the request is answered with 500.
        **options: Servers, credentials, encoding and capture, each in `trunkline.cdt.CdtOptions`.

    Raises:
        PeerLostError: No server answers within `connect_timeout_s`.
        AuthenticationError: The server refuses the credentials, or the permission to subscribe.
        LocalProtocolError: A name cannot be part of a subject, a server is not a URL, or a file is not a store or credentials file.
        OSError: The store cannot be opened, or the credentials cannot be read.

    ```pycon
    >>> import threading
    >>> with Target("cdp", servers="memory://guide") as target:
    ...     first = target.put("app-1", "endpoint-7", b'{"interval": 5}')
    ...     second = target.put("app-1", "endpoint-7", b'{"interval": 1}')
    ...     target.rollback("app-1", "endpoint-7", first) == first
    ...     target.get("app-1", "endpoint-7").content
    ...     [each.config_id == first for each in target.history("app-1", "endpoint-7")]
    ...     [(each.endpoint_id, each.applied) for each in target.rollout("app-1")]
    ...     threading.Timer(0.1, lambda: target.close(drain_s=2)).start()
    ...     target.wait(timeout_s=10)
    True
    b'{"interval": 5}'
    [True, False, True]
    [('endpoint-7', None)]

    ```
    """

    def put(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: Bytes,
        *,
        content_type: str = CONTENT_TYPE,
        config_id: str | None = None,
        if_current: str | None = None,
    ) -> str:
        """Assigns a configuration to an endpoint. It is durable when this returns, and is announced then (CDT-38).

        Args:
            app_version_name: The version of the application.
            endpoint_id: The endpoint.
            content: The configuration.
            content_type: Its type, opaque.
            config_id: Its id; None: a hash of type and content, so that equal configurations have the same id.
            if_current: Assign it only if this is the endpoint's current configuration (compare and set).

        Returns:
            Its id.

        Raises:
            ConfigError: 409: another configuration has this id, or `if_current` is not the endpoint's current one; 413: it does not
                fit into a message; 503: another process has been writing to the store's file for a minute.
            ClosedError: The target is closed.
        """
        storing = self._putting(app_version_name, endpoint_id, content, content_type, config_id, if_current)
        return storing.result().config.config_id

    def get(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config:
        """Returns the configuration of an endpoint, the current one or one by its id.

        Raises:
            ConfigError: 404: no such configuration.
            ClosedError: The target is closed.
        """
        return self._getting(app_version_name, endpoint_id, config_id).result()

    def history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        """Returns the assignments of an endpoint, oldest first: one for each time it changed.

        Raises:
            ClosedError: The target is closed.
        """
        rows: Sequence[Assignment] = self._open_keeper().read("history", app_version_name, endpoint_id).result()
        return rows

    def rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> str:
        """Assigns an earlier configuration to an endpoint again, announces it, and returns its id.

        Raises:
            ConfigError: 404: the endpoint never had it.
            ClosedError: The target is closed.
        """
        return self._rolling_back(app_version_name, endpoint_id, config_id).result().config.config_id

    def rollout(self, app_version_name: str) -> Sequence[Rollout]:
        """Returns the state of each endpoint of an application version, ordered by name.

        Raises:
            ClosedError: The target is closed.
        """
        rows: Sequence[Rollout] = self._open_keeper().read("rollout", app_version_name).result()
        return rows

    def wait(self, *, timeout_s: float | None = None) -> None:
        """Waits until the target is closed by another thread; it runs without this.

        Raises:
            TimeoutError: It is still running.
        """
        if not self._target.join(timeout_s):
            raise self._still_runs(timeout_s)
        self._target.raise_failure()

    def close(self, *, drain_s: float = DRAIN_S) -> None:
        """Completes what is in progress for at most `drain_s` seconds, and closes."""
        try:
            super().close(drain_s=drain_s)
        finally:
            self._keeper.finish(drain_s)


class AsyncTarget(TargetBase, AsyncEvents):
    """`Target` for asyncio: opened by ``async with``.

    ```pycon
    >>> import asyncio
    >>> from trunkline import cdt
    >>> async def main():
    ...     async with cdt.AsyncTarget("cdp", servers="memory://async-target") as target:
    ...         first = await target.put("app-1", "endpoint-7", b'{"interval": 5}')
    ...         await target.put("app-1", "endpoint-7", b'{"interval": 1}')
    ...         await target.rollback("app-1", "endpoint-7", first)
    ...         current = await target.get("app-1", "endpoint-7")
    ...         assigned = await target.history("app-1", "endpoint-7")
    ...         states = await target.rollout("app-1")
    ...         closing = asyncio.create_task(target.close(drain_s=2))
    ...         await target.wait(timeout_s=10)
    ...         await closing
    ...         return current.content, len(assigned), states[0].applied
    >>> asyncio.run(main())
    (b'{"interval": 5}', 3, None)

    ```
    """

    async def put(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: Bytes,
        *,
        content_type: str = CONTENT_TYPE,
        config_id: str | None = None,
        if_current: str | None = None,
    ) -> str:
        """Assigns a configuration to an endpoint; see `Target.put`. If this is cancelled, it is stored and announced all the same."""
        self._need_home()
        storing = self._putting(app_version_name, endpoint_id, content, content_type, config_id, if_current)
        return (await asyncio.shield(asyncio.wrap_future(storing))).config.config_id

    async def get(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config:
        """Returns the configuration of an endpoint; see `Target.get`."""
        self._need_home()
        return await asyncio.wrap_future(self._getting(app_version_name, endpoint_id, config_id))

    async def history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        """Returns the assignments of an endpoint; see `Target.history`."""
        self._need_home()
        rows: Sequence[Assignment] = await asyncio.wrap_future(
            self._open_keeper().read("history", app_version_name, endpoint_id)
        )
        return rows

    async def rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> str:
        """Assigns an earlier configuration to an endpoint again; see `Target.rollback`."""
        self._need_home()
        storing = self._rolling_back(app_version_name, endpoint_id, config_id)
        return (await asyncio.shield(asyncio.wrap_future(storing))).config.config_id

    async def rollout(self, app_version_name: str) -> Sequence[Rollout]:
        """Returns the state of each endpoint; see `Target.rollout`."""
        self._need_home()
        rows: Sequence[Rollout] = await asyncio.wrap_future(self._open_keeper().read("rollout", app_version_name))
        return rows

    async def wait(self, *, timeout_s: float | None = None) -> None:
        """Waits until the target is closed by another task; see `Target.wait`."""
        self._need_home()
        role = self._target
        if not await self._waits.until(lambda: role.closed, timeout_s):
            raise self._still_runs(timeout_s)
        role.raise_failure()

    async def close(self, *, drain_s: float = DRAIN_S) -> None:
        """Completes what is in progress for at most `drain_s` seconds, and closes."""
        try:
            await super().close(drain_s=drain_s)
        finally:
            if self.closed:
                await asyncio.to_thread(self._keeper.finish, drain_s)
