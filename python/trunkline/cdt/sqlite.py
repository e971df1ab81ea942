"""The store in an SQLite file."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from trunkline.cdt.store import Assignment, Config, Rollout, Stored, conflict, content_id, missing, now_ms, outdated
from trunkline.errors import ConfigError, LocalProtocolError

__all__ = ["SqliteStore"]

T = TypeVar("T")

# Bytes cached in memory.
_CACHE_BYTES = 64 << 20

# How long to wait for another process that writes to the file, and how often to retry where SQLite does not wait itself.
_BUSY_S = 60.0
_LOOK_S = 0.01

_SCHEMA = """
CREATE TABLE IF NOT EXISTS configs (
    app TEXT NOT NULL, endpoint TEXT NOT NULL, config_id TEXT NOT NULL,
    content_type TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (app, endpoint, config_id)
);
CREATE TABLE IF NOT EXISTS assignments (
    number INTEGER PRIMARY KEY, app TEXT NOT NULL, endpoint TEXT NOT NULL, config_id TEXT NOT NULL, since_ms INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS assignments_of ON assignments (app, endpoint, number);
CREATE TABLE IF NOT EXISTS endpoints (
    app TEXT NOT NULL, endpoint TEXT NOT NULL, current TEXT NOT NULL, since_ms INTEGER NOT NULL,
    applied TEXT, applied_ms INTEGER, owed INTEGER NOT NULL,
    PRIMARY KEY (app, endpoint)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS endpoints_owed ON endpoints (owed) WHERE owed;
"""

# The application id of our files.
_APPLICATION_ID = 0x74_6C_63_64
_VERSION = 1

_GET = """
SELECT c.config_id, c.content_type, c.content FROM endpoints e JOIN configs c
ON c.app = e.app AND c.endpoint = e.endpoint AND c.config_id = e.current WHERE e.app = ? AND e.endpoint = ?
"""
_GET_ONE = "SELECT config_id, content_type, content FROM configs WHERE app = ? AND endpoint = ? AND config_id = ?"


class SqliteStore:
    """A store in an SQLite file, which several processes may share. Confirmed writes survive a power failure.

    Args:
        path: The file; created if it does not exist.
        read_only: Only read the file, e.g. beside a running target; it must exist.

    Raises:
        LocalProtocolError: The file is not a store.
        OSError: The file cannot be opened.

    ```pycon
    >>> import pathlib, tempfile
    >>> from trunkline import cdt
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "configs.db")
    ...     with cdt.Target("cdp", store=path, servers="memory://sqlite") as target:
    ...         first = target.put("app-1", "endpoint-7", b'{"interval": 5}')
    ...         second = target.put("app-1", "endpoint-7", b'{"interval": 1}')
    ...     store = cdt.SqliteStore(path)
    ...     store.count(), store.get("app-1", "endpoint-7") == store.peek("app-1", "endpoint-7")
    ...     store.rollback("app-1", "endpoint-7", first).content
    ...     store.announced(store.owed())
    ...     store.applied([("app-1", "endpoint-7", first, 1_700_000_000_000)])
    ...     len(store.history("app-1", "endpoint-7")), store.rollout("app-1")[0].applied == first
    ...     store.close()
    (2, True)
    b'{"interval": 5}'
    (3, True)

    ```
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._path = os.fspath(path)
        if read_only and not os.path.exists(self._path):  # noqa: PTH110 - the path as given
            raise FileNotFoundError(2, "no such store", self._path)
        self._read_only = read_only
        self._cache: dict[tuple[str, str, str | None], Config | None] = {}
        self._cached_bytes = 0
        self._version = -1
        # Two connections: one writes, and its transactions wait for the disk; the other reads meanwhile.
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        try:
            self._writer = self._connect()
            self._prepare()
            self._reader = self._connect()
        except sqlite3.DatabaseError as error:
            message = f"{self._path} is not a store of configurations: {error}"
            if isinstance(error, sqlite3.OperationalError) and "unable to open" in str(error):
                raise OSError(2, "cannot be opened", self._path) from error
            raise LocalProtocolError(message) from error

    def _connect(self) -> sqlite3.Connection:
        mode = "ro" if self._read_only else "rwc"
        uri = f"file:{_quoted(self._path)}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None, timeout=_BUSY_S)
        if not self._read_only:
            connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _prepare(self) -> None:
        is_empty = _patiently(self._look)
        if self._read_only:
            return
        _patiently(lambda: self._writer.execute("PRAGMA journal_mode=WAL"))
        if is_empty:
            with self._transaction():
                for statement in _SCHEMA.split(";"):
                    self._writer.execute(statement)
                self._writer.execute(f"PRAGMA application_id={_APPLICATION_ID}")
                self._writer.execute(f"PRAGMA user_version={_VERSION}")

    def _look(self) -> bool:
        """Whether the file is empty; refuses a file that is not a store."""
        # In one transaction: another process may be creating it.
        application, version, tables = self._writer.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if tables and application != _APPLICATION_ID:
            message = f"{self._path} is not a store of configurations, but another database"
            raise LocalProtocolError(message)
        if version > _VERSION:
            message = f"{self._path} was written by a newer trunkline: install its version, or a later one"
            raise LocalProtocolError(message)
        return not tables

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    raise
                message = f"another process writes to {self._path}: try again"
                raise ConfigError(503, message) from error
            try:
                yield self._writer
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

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
        config = Config(config_id or content_id(content_type, content), content_type, content)
        with self._transaction() as writer:
            if if_current is not None:
                current = self._current(writer, app_version_name, endpoint_id)
                if current != if_current:
                    raise outdated(if_current, current)
            row = writer.execute(_GET_ONE, (app_version_name, endpoint_id, config.config_id)).fetchone()
            if row is not None and Config(*row) != config:
                raise conflict(config.config_id)
            if row is None:
                writer.execute(
                    "INSERT INTO configs VALUES (?, ?, ?, ?, ?)",
                    (app_version_name, endpoint_id, config.config_id, content_type, content),
                )
            self._assign(writer, app_version_name, endpoint_id, config.config_id)
        return Stored(config, row is None)

    @staticmethod
    def _current(connection: sqlite3.Connection, app: str, endpoint: str) -> str | None:
        query = "SELECT current FROM endpoints WHERE app = ? AND endpoint = ?"
        row = connection.execute(query, (app, endpoint)).fetchone()
        return None if row is None else str(row[0])

    def _assign(self, writer: sqlite3.Connection, app: str, endpoint: str, config_id: str) -> None:
        since_ms = now_ms()
        if self._current(writer, app, endpoint) != config_id:
            writer.execute(
                "INSERT INTO assignments (app, endpoint, config_id, since_ms) VALUES (?, ?, ?, ?)",
                (app, endpoint, config_id, since_ms),
            )
        writer.execute(
            "INSERT INTO endpoints VALUES (?, ?, ?, ?, NULL, NULL, 1) ON CONFLICT (app, endpoint) DO UPDATE SET owed = 1, "
            "since_ms = iif(current = excluded.current, since_ms, excluded.since_ms), current = excluded.current",
            (app, endpoint, config_id, since_ms),
        )

    def get(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config | None:
        """See `Store.get`."""
        key = (app_version_name, endpoint_id, config_id)
        with self._reading:
            self._refresh()
            if key in self._cache:
                return self._cache[key]
            query, arguments = (_GET, key[:2]) if config_id is None else (_GET_ONE, key)
            row = self._reader.execute(query, arguments).fetchone()
            config = None if row is None else Config(*row)
            # A miss takes room as well: the client chooses the names.
            self._cached_bytes += 512 + sum(map(sys.getsizeof, key)) + (0 if config is None else len(config.content))
            if self._cached_bytes > _CACHE_BYTES:
                self._forget()
            self._cache[key] = config
            return config

    def peek(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config | None:
        """As `get`, but only from memory.

        Raises:
            LookupError: It is not in memory.
        """
        with self._reading:
            self._refresh()
            return self._cache[app_version_name, endpoint_id, config_id]

    def _refresh(self) -> None:
        """Clears the cache after a write by any process."""
        (version,) = self._reader.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._forget()

    def _forget(self) -> None:
        self._cache.clear()
        self._cached_bytes = 0

    def rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> Config:
        """See `Store.rollback`."""
        with self._transaction() as writer:
            row = writer.execute(_GET_ONE, (app_version_name, endpoint_id, config_id)).fetchone()
            if row is None:
                raise missing(config_id)
            self._assign(writer, app_version_name, endpoint_id, config_id)
        return Config(*row)

    def history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        """See `Store.history`."""
        query = (
            "SELECT a.config_id, c.content_type, length(c.content), a.since_ms FROM assignments a JOIN configs c "
            "ON c.app = a.app AND c.endpoint = a.endpoint AND c.config_id = a.config_id "
            "WHERE a.app = ? AND a.endpoint = ? ORDER BY a.number"
        )
        with self._reading:
            return [Assignment(*row) for row in self._reader.execute(query, (app_version_name, endpoint_id))]

    def rollout(self, app_version_name: str) -> Sequence[Rollout]:
        """See `Store.rollout`."""
        query = "SELECT endpoint, current, applied, coalesce(applied_ms, since_ms) FROM endpoints WHERE app = ? ORDER BY endpoint"
        with self._reading:
            return [Rollout(*row) for row in self._reader.execute(query, (app_version_name,))]

    def applied(self, reports: Sequence[tuple[str, str, str, int]]) -> None:
        """See `Store.applied`."""
        update = (
            "UPDATE endpoints SET applied = ?3, applied_ms = ?4 WHERE app = ?1 AND endpoint = ?2 "
            "AND EXISTS (SELECT 1 FROM configs WHERE app = ?1 AND endpoint = ?2 AND config_id = ?3)"
        )
        with self._transaction() as writer:
            writer.executemany(update, reports)

    def owed(self) -> Sequence[tuple[str, str, str]]:
        """See `Store.owed`."""
        with self._reading:
            return list(self._reader.execute("SELECT app, endpoint, current FROM endpoints WHERE owed"))

    def announced(self, sent: Sequence[tuple[str, str, str]]) -> None:
        """See `Store.announced`."""
        with self._transaction() as writer:
            writer.executemany("UPDATE endpoints SET owed = 0 WHERE app = ? AND endpoint = ? AND current = ?", sent)

    def count(self) -> int:
        """See `Store.count`."""
        with self._reading:
            # Rows are never deleted.
            return int(self._reader.execute("SELECT coalesce(max(rowid), 0) FROM configs").fetchone()[0])

    def close(self) -> None:
        """See `Store.close`."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _patiently(do: Callable[[], T]) -> T:
    """Retries a call that SQLite refuses at once while another process opens the same file."""
    end = time.monotonic() + _BUSY_S
    while True:
        try:
            return do()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > end:
                raise
        time.sleep(_LOOK_S)


def _quoted(path: str) -> str:
    """A path as a URI of SQLite has it."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
