"""Stores of a target's configurations."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from trunkline.errors import ConfigError

__all__ = ["Assignment", "Config", "MemoryStore", "Rollout", "Store", "Stored", "content_id"]


def content_id(content_type: str, content: bytes) -> str:
    """The default id of a configuration: 32 hexadecimal digits of a hash of its type and content."""
    digest = hashlib.sha256(content_type.encode() + b"\0")
    digest.update(content)
    return digest.hexdigest()[:32]


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration.

    Attributes:
        config_id: Its id, opaque.
        content_type: Its type.
        content: The configuration itself.
    """

    config_id: str
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of putting a configuration.

    Attributes:
        config: The configuration.
        is_new: Whether its id was not stored before.
    """

    config: Config
    is_new: bool


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of a configuration to an endpoint.

    Attributes:
        config_id: The configuration.
        content_type: Its type.
        content_bytes: Its size, in bytes.
        since_ms: When it was assigned, as Unix time in milliseconds.
    """

    config_id: str
    content_type: str
    content_bytes: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Rollout:
    """The state of an endpoint in a rollout.

    Attributes:
        endpoint_id: The endpoint.
        current: The configuration assigned to it.
        applied: The one it has reported as applied; None if it has not reported any.
        since_ms: When it reported that or, if it has not, when the configuration was assigned; Unix time in milliseconds.
    """

    endpoint_id: str
    current: str
    applied: str | None
    since_ms: int


@runtime_checkable
class Store(Protocol):
    """The interface of a target's store, for stores of your own.

    The methods are called in threads of the target, several at a time. Each may be a coroutine function instead, which is
    awaited in the target's event loop. Exceptions other than `ConfigError` are answered with 500 and logged.

    ```pycon
    >>> from trunkline import cdt
    >>> class CountingStore(cdt.MemoryStore):
    ...     puts = 0
    ...     def put(self, *args, **kwargs):
    ...         self.puts += 1
    ...         return super().put(*args, **kwargs)
    >>> store = CountingStore()
    >>> with cdt.Target("cdp", store=store, servers="memory://own-store") as target:
    ...     config_id = target.put("app-1", "endpoint-7", b"{}")
    >>> store.puts, isinstance(store, cdt.Store)
    (1, True)

    ```
    """

    def put(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
        *,
        content_type: str,
        config_id: str | None,
        if_current: str | None = None,
    ) -> Stored:
        """Stores a configuration and assigns it to an endpoint, durably; its announcement is pending then.

        Raises:
            ConfigError: 409: another configuration has this id, or `if_current` is not the endpoint's current one.
        """

    def get(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config | None:
        """Returns the configuration of an endpoint, the current one or one by its id; None if it has none."""

    def rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> Config:
        """Assigns an earlier configuration to an endpoint again; its announcement is pending then.

        Raises:
            ConfigError: 404: the endpoint never had it.
        """

    def history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        """Returns the assignments of an endpoint, oldest first."""

    def rollout(self, app_version_name: str) -> Sequence[Rollout]:
        """Returns the state of each endpoint, ordered by name."""

    def applied(self, reports: Sequence[tuple[str, str, str, int]]) -> None:
        """Records reports of applied configurations: application version, endpoint, configuration, and Unix time in
        milliseconds. A configuration that was never assigned to that endpoint is ignored.
        """

    def owed(self) -> Sequence[tuple[str, str, str]]:
        """Returns the pending announcements: application version, endpoint, configuration."""

    def announced(self, sent: Sequence[tuple[str, str, str]]) -> None:
        """Marks announcements as sent."""

    def count(self) -> int:
        """Returns the number of configurations of all endpoints."""

    def close(self) -> None:
        """Closes the store."""


def conflict(config_id: str) -> ConfigError:
    """The error for an id that another configuration has."""
    return ConfigError(409, f"another configuration has the id {config_id}")


def missing(config_id: str) -> ConfigError:
    """The error for a configuration that the endpoint never had."""
    return ConfigError(404, f"this endpoint never had {config_id}")


def outdated(if_current: str, current: str | None) -> ConfigError:
    """The error if `if_current` is not the current configuration."""
    return ConfigError(409, f"its configuration is {current or 'none'}, not {if_current}")


class MemoryStore:
    """A store in memory, which is lost with its target.

    ```pycon
    >>> from trunkline import cdt
    >>> store = cdt.MemoryStore()
    >>> with cdt.Target("cdp", store=store, servers="memory://store") as target:
    ...     first = target.put("app-1", "endpoint-7", b'{"interval": 5}')
    ...     second = target.put("app-1", "endpoint-7", b'{"interval": 1}')
    >>> store.count(), store.get("app-1", "endpoint-7").content
    (2, b'{"interval": 1}')
    >>> store.rollback("app-1", "endpoint-7", first) == store.peek("app-1", "endpoint-7")
    True
    >>> store.owed() == [("app-1", "endpoint-7", first)]
    True
    >>> store.announced(store.owed())
    >>> store.applied([("app-1", "endpoint-7", first, 1_700_000_000_000)])
    >>> len(store.history("app-1", "endpoint-7")), store.rollout("app-1")[0].applied == first
    (3, True)
    >>> store.close()

    ```
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._configs: dict[tuple[str, str], dict[str, Config]] = {}
        self._history: dict[tuple[str, str], list[Assignment]] = {}
        self._applied: dict[tuple[str, str], tuple[str, int]] = {}
        self._owed: dict[tuple[str, str], str] = {}
        self._count = 0

    def put(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
        *,
        content_type: str,
        config_id: str | None,
        if_current: str | None = None,
    ) -> Stored:
        """See `Store.put`."""
        endpoint = (app_version_name, endpoint_id)
        config = Config(config_id or content_id(content_type, content), content_type, content)
        with self._lock:
            history = self._history.get(endpoint, ())
            current = history[-1].config_id if history else None
            if if_current is not None and if_current != current:
                raise outdated(if_current, current)
            configs = self._configs.setdefault(endpoint, {})
            known = configs.get(config.config_id)
            if known is not None and known != config:
                raise conflict(config.config_id)
            if known is None:
                configs[config.config_id] = config
                self._count += 1
            self._assign(endpoint, config)
        return Stored(config, known is None)

    def _assign(self, endpoint: tuple[str, str], config: Config) -> None:
        history = self._history.setdefault(endpoint, [])
        if not history or history[-1].config_id != config.config_id:
            history.append(Assignment(config.config_id, config.content_type, len(config.content), now_ms()))
        self._owed[endpoint] = config.config_id

    def get(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config | None:
        """See `Store.get`."""
        endpoint = (app_version_name, endpoint_id)
        with self._lock:
            configs = self._configs.get(endpoint)
            if configs is None:
                return None
            return configs.get(config_id or self._history[endpoint][-1].config_id)

    peek = get

    def rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> Config:
        """See `Store.rollback`."""
        with self._lock:
            config = self.get(app_version_name, endpoint_id, config_id)
            if config is None:
                raise missing(config_id)
            self._assign((app_version_name, endpoint_id), config)
            return config

    def history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        """See `Store.history`."""
        with self._lock:
            return tuple(self._history.get((app_version_name, endpoint_id), ()))

    def rollout(self, app_version_name: str) -> Sequence[Rollout]:
        """See `Store.rollout`."""
        with self._lock:
            rows = []
            for (app, endpoint_id), history in self._history.items():
                if app == app_version_name:
                    applied, at_ms = self._applied.get((app, endpoint_id), (None, history[-1].since_ms))
                    rows.append(Rollout(endpoint_id, history[-1].config_id, applied, at_ms))
        return sorted(rows, key=lambda row: row.endpoint_id)

    def applied(self, reports: Sequence[tuple[str, str, str, int]]) -> None:
        """See `Store.applied`."""
        with self._lock:
            for app_version_name, endpoint_id, config_id, timestamp_ms in reports:
                endpoint = (app_version_name, endpoint_id)
                if config_id in self._configs.get(endpoint, ()):
                    self._applied[endpoint] = (config_id, timestamp_ms)

    def owed(self) -> Sequence[tuple[str, str, str]]:
        """See `Store.owed`."""
        with self._lock:
            return [(app, endpoint, config_id) for (app, endpoint), config_id in self._owed.items()]

    def announced(self, sent: Sequence[tuple[str, str, str]]) -> None:
        """See `Store.announced`."""
        with self._lock:
            for app_version_name, endpoint_id, config_id in sent:
                endpoint = (app_version_name, endpoint_id)
                if self._owed.get(endpoint) == config_id:
                    del self._owed[endpoint]

    def count(self) -> int:
        """See `Store.count`."""
        return self._count

    def close(self) -> None:
        """See `Store.close`."""
