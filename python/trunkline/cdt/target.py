"""The target: stores configurations, and answers requests for them."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from trunkline._arguments import need_bytes, need_seconds, need_text, refuse
from trunkline._counters import Count, Latencies, Level, measured
from trunkline.cdt._roles import AsyncCdtRole, BlockingCdtRole, CdtRole, connector, need_names
from trunkline.cdt._waits import cut_off
from trunkline.cdt.options import DEFAULTS, CdtOptions
from trunkline.cdt.sqlite import SqliteStore
from trunkline.cdt.store import Assignment, Config, MemoryStore, Rollout, Store, Stored
from trunkline.errors import ConfigError, PeerLostError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import spelled_out

__all__ = ["AsyncTarget", "Target", "TargetBase", "TargetStats"]

Result = TypeVar("Result")

# The default type of a configuration.
CONTENT_TYPE = "application/json"

_THREADS = 4

# Limits of the work queued for a slow store: bytes of configurations, and updates.
_MOST_HELD = 256 << 20
_MOST_UPDATES = 65_536

# How long a store may take at the end, beyond `drain_s`.
_PARTING_S = 0.5

# How many configurations are read at a time for announcements that are still pending from an earlier target.
_OWED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class TargetStats:
    """Counters of a target since its start.

    Attributes:
        received: Messages received.
        sent: Messages handed to the connection.
        dropped: Dropped messages by kind; only kinds that occurred.
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


def _says_at_once(store: Any) -> bool:
    """Whether `peek` of the store may be called in the event loop: only of our stores, with an unchanged `get`."""
    return type(store) in (MemoryStore, SqliteStore) and "get" not in vars(store)


def _asked(method: Callable[..., Result], given: tuple[Any, ...], more: Mapping[str, Any]) -> Callable[[], Result]:
    """The call of a store, for a thread. A future cannot hold `StopIteration`: its wait would never end."""

    def ask() -> Result:
        try:
            return method(*given, **more)
        except StopIteration as error:
            message = f"the store raised {error!r}"
            raise RuntimeError(message) from error

    return ask


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

    def _machine(self) -> tuple[str, dict[str, Any]]:
        chosen = self._chosen
        return "cdt.target", {
            **self._taking_part(),
            "queue": chosen["queue"],
            "include_content": chosen["include_content"],
            "store_timeout_s": self._store_timeout_s,
        }

    async def _start(self) -> None:
        self._store = await self._opened_store()
        self._is_ours = self._store is not self._given_store
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="trunkline-cdt-store")
        self._announced: list[tuple[str, str, str]] = []
        self._updated: list[tuple[str, str, str, int]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._configs = 0
        self._held = 0
        try:
            self._configs = await self._ask_store(self._store.count)
            await super()._start()
        except BaseException:
            await self._end_store()
            raise
        await self._announce_owed()

    async def _opened_store(self) -> Any:
        if self._given_store != "jetstream":
            return await asyncio.to_thread(_opened_store, self._given_store)
        from trunkline.cdt.jetstream import JetStreamStore, bucket_prefix

        store = JetStreamStore(connector(self._chosen, self._name), prefix=bucket_prefix(self._name))
        await store.open()
        return store

    async def _end(self, drain_s: float) -> None:
        end_s = asyncio.get_running_loop().time() + max(drain_s, _PARTING_S)
        try:
            await super()._end(drain_s)
        finally:
            while self._tasks:
                done, left = await asyncio.wait(
                    self._tasks, timeout=max(0.0, end_s - asyncio.get_running_loop().time())
                )
                if left and not done:
                    # Do not wait longer for the store: what it stores is announced at the next start.
                    for task in left:
                        await cut_off(task)
            await self._note()
            await self._end_store()

    async def _end_store(self) -> None:
        # Wait for a store of ours before closing it; another one may take for ever.
        await asyncio.to_thread(self._pool.shutdown, wait=self._is_ours)
        if self._is_ours:
            self._is_ours = False
            if inspect.iscoroutinefunction(self._store.close):
                await self._store.close()
            else:
                await asyncio.to_thread(self._store.close)

    async def _ask_store(self, method: Callable[..., Any], *given: Any, **more: Any) -> Any:
        """Calls the store, in a thread of the target, or in the loop if the method is a coroutine function."""
        try:
            if inspect.iscoroutinefunction(method):
                return await method(*given, **more)
            return await asyncio.get_running_loop().run_in_executor(self._pool, _asked(method, given, more))
        except (SystemExit, KeyboardInterrupt) as error:
            # It would end the event loop, which other roles share.
            message = f"the store raised {error!r}"
            raise RuntimeError(message) from error
        except Exception as error:
            if type(error).__module__.startswith("nats."):
                # From the JetStream store.
                message = f"JetStream: {str(error).removeprefix('nats: ') or 'no answer'}"
                raise PeerLostError(message) from error
            raise

    def _handle(self, kind: str, *details: Any) -> None:
        if kind == "get":
            self._on_get(*details)
        elif kind == "put":
            self._do(self._on_put(*details))
        elif kind == "announced":
            *about, is_sent = details
            if is_sent:
                self._announced.append((about[0], about[1], about[2]))
                self._note_soon()
        elif kind == "updated":
            if len(self._updated) < _MOST_UPDATES:
                self._updated.append((details[0], details[1], details[2], details[3]))
                self._note_soon()
            else:
                self._lose_one()
        else:
            super()._handle(kind, *details)
            if kind == "connected":
                self._do(self._announce_owed())

    def _do(self, what: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_get(self, token: int, correlation_id: str, app: str, endpoint: str, config_id: str | None) -> None:
        self._log.debug("target: ConfigRequest of %s", correlation_id)
        if _says_at_once(self._store):
            try:
                config = self._store.peek(app, endpoint, config_id)
            except LookupError:
                pass
            except Exception as error:  # noqa: BLE001 - the store's: the source gets an error response
                return self._fail(token, error)
            else:
                return self._answer(token, config)
        self._do(self._get_slowly(token, app, endpoint, config_id))
        return None

    def _answer(self, token: int, config: Config | None) -> None:
        if config is None:
            self._pump.ask("missing", token=token)
        else:
            self._pump.ask(
                "found",
                token=token,
                config_id=config.config_id,
                content_type=config.content_type,
                content=config.content,
            )

    async def _get_slowly(self, token: int, app: str, endpoint: str, config_id: str | None) -> None:
        try:
            self._answer(token, await self._ask_store(self._store.get, app, endpoint, config_id))
        except Exception as error:  # noqa: BLE001 - the source gets an error response
            self._fail(token, error)

    def _fail(self, token: int, error: Exception) -> None:
        if isinstance(error, ConfigError) and error.status_code in range(400, 600):
            self._pump.ask("failed", token=token, status=error.status_code, reason=error.reason_phrase)
            return
        self._log.error("target: the store failed", exc_info=error)
        self._pump.ask("failed", token=token, status=500, reason="the store failed")

    async def _on_put(
        self,
        token: int,
        correlation_id: str,
        app: str,
        endpoint: str,
        config_id: str | None,
        content_type: str,
        content: bytes | None,
    ) -> None:
        self._log.debug("target: ConfigPush of %s", correlation_id)
        size = len(content or b"")
        if self._held + size > _MOST_HELD:
            self._pump.ask("failed", token=token, status=503, reason="the store has too much to do")
            return
        self._held += size
        try:
            if content is None:
                stored = await self._go_back(app, endpoint, config_id)
            else:
                stored = await self._keep(app, endpoint, content, content_type or CONTENT_TYPE, config_id, None)
            self._confirm(token, app, endpoint, stored)
        except Exception as error:  # noqa: BLE001 - the source gets an error response
            self._fail(token, error)
        finally:
            self._held -= size

    def _confirm(self, token: int, app: str, endpoint: str, stored: Stored) -> None:
        # Stored, announced, confirmed: in this order, on one connection (CDT-38, CDT-39).
        config = stored.config
        self._announce(app, endpoint, config)
        self._pump.ask(
            "stored",
            token=token,
            config_id=config.config_id,
            content_type=config.content_type,
            content=config.content,
            is_new=stored.is_new,
        )

    def _announce(self, app: str, endpoint: str, config: Config) -> None:
        self._pump.ask(
            "announce",
            app_version_name=app,
            endpoint_id=endpoint,
            config_id=config.config_id,
            content_type=config.content_type,
            content=config.content,
        )

    async def _announce_owed(self) -> None:
        owed = await self._ask_store(self._store.owed)
        # A burst of announcements is recorded in one transaction.
        for start in range(0, len(owed), _OWED_AT_ONCE):
            burst = owed[start : start + _OWED_AT_ONCE]
            configs = await asyncio.gather(*(self._ask_store(self._store.get, *one) for one in burst))
            for (app, endpoint, _), config in zip(burst, configs, strict=True):
                if config is not None:
                    self._announce(app, endpoint, config)

    def _note_soon(self) -> None:
        if len(self._announced) + len(self._updated) == 1:
            self._do(self._note())

    async def _note(self) -> None:
        """Records in the store which announcements were sent, and what endpoints reported."""
        # A burst is one transaction.
        await asyncio.sleep(0)
        announced, self._announced = self._announced, []
        updated, self._updated = self._updated, []
        # If one fails, the other is still recorded.
        for method, rows in ((self._store.announced, announced), (self._store.applied, updated)):
            try:
                if rows:
                    await self._ask_store(method, rows)
            except Exception as error:  # noqa: BLE001 - the store's
                self._log.error("target: the store failed", exc_info=error)

    def _need_open(self) -> None:
        """Refuses calls to a target that no longer uses its store."""
        if self._pump.closed:
            raise self._over()

    async def _room_to_announce(self) -> None:
        """Waits until an announcement has room; raises if the target is closed."""
        await self._pump.room(None)
        self._need_open()

    async def _keep(
        self, app: str, endpoint: str, content: bytes, content_type: str, config_id: str | None, if_current: str | None
    ) -> Stored:
        self._need_room(app, endpoint, content, content_type, config_id)
        stored: Stored = await self._ask_store(
            self._store.put,
            app,
            endpoint,
            content,
            content_type=content_type,
            config_id=config_id,
            if_current=if_current,
        )
        self._configs += stored.is_new
        return stored

    async def _go_back(self, app: str, endpoint: str, config_id: str | None) -> Stored:
        return Stored(await self._ask_store(self._store.rollback, app, endpoint, config_id), is_new=False)

    async def _stored_and_announced(self, app: str, endpoint: str, storing: Coroutine[Any, Any, Stored]) -> str:
        """Stores and announces a configuration, even if the caller is cancelled; returns its id."""

        async def announce() -> str:
            config = (await storing).config
            self._announce(app, endpoint, config)
            return config.config_id

        return await asyncio.shield(self._do(announce()))

    @staticmethod
    def _need_put(
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
        content_type: str,
        config_id: str | None,
        if_current: str | None,
    ) -> None:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        need_bytes("content", content)
        need_text("content_type", content_type)
        if config_id is not None:
            need_names(config_id=config_id)
        if if_current is not None:
            need_names(if_current=if_current)

    async def _put(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
        content_type: str,
        config_id: str | None,
        if_current: str | None,
    ) -> str:
        self._need_put(app_version_name, endpoint_id, content, content_type, config_id, if_current)
        content_type = content_type or CONTENT_TYPE
        await self._room_to_announce()
        kept = bytes(content)
        storing = self._keep(app_version_name, endpoint_id, kept, content_type, config_id, if_current)
        return await self._stored_and_announced(app_version_name, endpoint_id, storing)

    async def _get(self, app_version_name: str, endpoint_id: str, config_id: str | None) -> Config:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        self._need_open()
        config: Config | None = await self._ask_store(self._store.get, app_version_name, endpoint_id, config_id or None)
        return found(config, app_version_name, endpoint_id, config_id)

    async def _history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        self._need_open()
        rows: Sequence[Assignment] = await self._ask_store(self._store.history, app_version_name, endpoint_id)
        return rows

    async def _rollout(self, app_version_name: str) -> Sequence[Rollout]:
        self._need_open()
        rows: Sequence[Rollout] = await self._ask_store(self._store.rollout, app_version_name)
        return rows

    async def _rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> str:
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id, config_id=config_id)
        await self._room_to_announce()
        return await self._stored_and_announced(
            app_version_name, endpoint_id, self._go_back(app_version_name, endpoint_id, config_id)
        )

    @property
    def stats(self) -> TargetStats:
        """The current counters; the final ones once closed."""
        counts = self._counted()
        if not inspect.iscoroutinefunction(self._store.count) and not self._pump.closed:
            self._configs = self._store.count()
        expired = counts["dropped"].get("expired", 0)
        return TargetStats(**measured(counts), expired=expired, configs=self._configs)

    async def _wait(self, timeout_s: float | None) -> None:
        if not await self._pump.wait(timeout_s):
            message = f"{self!r} is still running after {timeout_s} s"
            raise TimeoutError(message)


class Target(TargetBase, BlockingCdtRole):
    """Stores configurations of endpoints, answers pulls, accepts pushes, and announces changes (CDT-38).

    It runs in a thread that all blocking roles of CDT share, until it is closed. Requests go to any replica of the
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
    >>> with Target("cdp", servers="memory://guide") as target:
    ...     config_id = target.put("app-1", "endpoint-7", b'{"interval": 5}')
    ...     target.get("app-1", "endpoint-7").content, len(config_id)
    (b'{"interval": 5}', 32)

    ```
    """

    def put(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
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
        return self._run(self._put(app_version_name, endpoint_id, content, content_type, config_id, if_current))

    def get(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config:
        """Returns the configuration of an endpoint, the current one or one by its id.

        Raises:
            ConfigError: 404: no such configuration.
            ClosedError: The target is closed.
        """
        return self._run(self._get(app_version_name, endpoint_id, config_id))

    def history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        """Returns the assignments of an endpoint, oldest first: one for each time it changed.

        Raises:
            ClosedError: The target is closed.
        """
        return self._run(self._history(app_version_name, endpoint_id))

    def rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> str:
        """Assigns an earlier configuration to an endpoint again, announces it, and returns its id.

        Raises:
            ConfigError: 404: the endpoint never had it.
            ClosedError: The target is closed.
        """
        return self._run(self._rollback(app_version_name, endpoint_id, config_id))

    def rollout(self, app_version_name: str) -> Sequence[Rollout]:
        """Returns the state of each endpoint of an application version, ordered by name.

        Raises:
            ClosedError: The target is closed.
        """
        return self._run(self._rollout(app_version_name))

    def wait(self, *, timeout_s: float | None = None) -> None:
        """Waits until the target is closed by another thread; it runs without this.

        Raises:
            TimeoutError: It is still running.
        """
        self._run(self._wait(timeout_s))


class AsyncTarget(TargetBase, AsyncCdtRole):
    """`Target` for asyncio: opened by ``async with``."""

    async def put(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
        *,
        content_type: str = CONTENT_TYPE,
        config_id: str | None = None,
        if_current: str | None = None,
    ) -> str:
        """Assigns a configuration to an endpoint; see `Target.put`. If this is cancelled, it is stored and announced all the same."""
        return await self._run(self._put(app_version_name, endpoint_id, content, content_type, config_id, if_current))

    async def get(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config:
        """Returns the configuration of an endpoint; see `Target.get`."""
        return await self._run(self._get(app_version_name, endpoint_id, config_id))

    async def history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        """Returns the assignments of an endpoint; see `Target.history`."""
        return await self._run(self._history(app_version_name, endpoint_id))

    async def rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> str:
        """Assigns an earlier configuration to an endpoint again; see `Target.rollback`."""
        return await self._run(self._rollback(app_version_name, endpoint_id, config_id))

    async def rollout(self, app_version_name: str) -> Sequence[Rollout]:
        """Returns the state of each endpoint; see `Target.rollout`."""
        return await self._run(self._rollout(app_version_name))

    async def wait(self, *, timeout_s: float | None = None) -> None:
        """Waits until the target is closed by another task; see `Target.wait`."""
        await self._run(self._wait(timeout_s))
