"""What a target does with its store: it answers requests, announces what is stored, and records what was reported."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from trunkline._native.cdt import Target as _Target
from trunkline._roles.notices import Dropped, Notices, log
from trunkline._roles.pool import Pool
from trunkline._roles.questions import poll_engine
from trunkline.cdt._access import Access
from trunkline.cdt.sqlite import SqliteStore
from trunkline.cdt.store import Config, MemoryStore, Stored
from trunkline.errors import ClosedError, ConfigError

__all__ = ["CONTENT_TYPE", "Keeper"]

Result = TypeVar("Result")

# The default type of a configuration.
CONTENT_TYPE = "application/json"

_NAME = "trunkline-cdt-store"
_THREADS = 4

# Limits of what waits for a slow store: bytes of configurations, and reports.
_MOST_HELD = 256 << 20
_MOST_UPDATES = 65_536

# How long a store may take at the end, unless its target has more time.
_PARTING_S = 0.5

_log = logging.getLogger("trunkline.cdt")


def _answers_at_once(store: Any) -> bool:
    """Whether `peek` of the store does not wait: only of our stores, with an unchanged `get`."""
    return type(store) in (MemoryStore, SqliteStore) and "get" not in vars(store)


class Keeper:
    """The store of one target, and the threads that ask it. They hold the engine, and not the target.

    Args:
        native: The engine.
        access: The store.
        is_ours: Whether it is closed at the end.
        notices: Where losses are reported.
        need_room: Refuses content that does not fit into a message.
        configs: The configurations in the store.

    Attributes:
        access: The store.
        lost: Reports that a slow store had no room for.
    """

    def __init__(
        self,
        native: _Target,
        access: Access,
        notices: Notices,
        need_room: Callable[..., None],
        configs: int,
        *,
        is_ours: bool,
    ) -> None:
        self.lost = 0
        self.access = access
        self._native = native
        self._is_ours = is_ours
        self._configs = configs
        self._notices = notices
        self._need_room = need_room
        self._answers_at_once = _answers_at_once(access.store)
        self._changed = threading.Condition()
        # Calls of the store in progress, and bytes of pushes among them.
        self._busy = 0
        self._held = 0
        self._announced: list[tuple[str, str, str]] = []
        self._updated: list[tuple[str, str, str, int]] = []
        self._is_noting = False
        self._parting_s = _PARTING_S
        self._process = os.getpid()
        self._pool: Pool | None = None
        # Waits for the end of the engine, and ends the store after it.
        self._thread: threading.Thread | None = None
        simulation = native.simulation
        if simulation is None:
            self._pool = Pool(_THREADS, _NAME)
            self._thread = poll_engine(native.asked, self._look, f"{_NAME}-questions", self._end)
        else:
            simulation.watch(self._look)

    def finish(self, drain_s: float) -> None:
        """Waits until the store has what is in progress, for so long at most, and is closed. The engine has ended."""
        self._parting_s = max(drain_s, _PARTING_S)
        # In a child after fork its threads do not exist: those of the parent go on.
        if self._thread is not None and self._process == os.getpid():
            self._thread.join()

    def count(self) -> int:
        """The configurations in the store; in one on a server, without those of others since the start."""
        if not self.access.is_remote and not self._native.closed:
            self._configs = self.access.store.count()
        return self._configs

    def read(self, method: str, *about: Any) -> Future[Any]:
        """Calls a method of the store that changes nothing."""
        return self.ask(lambda: self.access.call(method, *about))

    def ask(self, work: Callable[[], Result]) -> Future[Result]:
        """Calls the store in one of its threads."""
        future: Future[Result] = Future()

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - its caller gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        self._run(run)
        return future

    def put(
        self, app: str, endpoint: str, content: bytes, content_type: str, config_id: str | None, if_current: str | None
    ) -> Stored:
        """Stores a configuration and announces it."""
        stored = self._keep(app, endpoint, content, content_type, config_id, if_current)
        self._announce(app, endpoint, stored.config)
        return stored

    def roll_back(self, app: str, endpoint: str, config_id: str) -> Stored:
        """Assigns an earlier configuration again, and announces it."""
        stored = Stored(self.access.call("rollback", app, endpoint, config_id), is_new=False)
        self._announce(app, endpoint, stored.config)
        return stored

    def announce_owed(self) -> None:
        """Announces what an earlier target, or a lost connection, has left to be announced."""
        self._run(self._announce_owed)

    def _run(self, work: Callable[[], object]) -> None:
        """Calls the store in one of its threads, or at once in a simulation."""
        if self._pool is None:
            work()
            return

        def run() -> None:
            try:
                work()
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()

        with self._changed:
            self._busy += 1
        self._pool.run(run)

    def _look(self) -> None:
        for kind, *details in self._native.asked.read():
            if kind == "get":
                self._on_get(*details)
            elif kind == "put":
                self._on_put(*details)
            elif kind == "updated":
                self._on_updated(details[0], details[1], details[2], details[3])
            elif details[3]:
                self._announced.append((details[0], details[1], details[2]))
        self._note_soon()

    def _on_get(self, token: int, correlation_id: str, app: str, endpoint: str, config_id: str | None) -> None:
        _log.debug("target: ConfigRequest of %s", correlation_id)
        if self._answers_at_once:
            try:
                config = self.access.store.peek(app, endpoint, config_id)
            except LookupError:
                pass
            except Exception as error:  # noqa: BLE001 - the store's: the source gets an error response
                self._fail(token, error)
                return
            else:
                with suppress(ClosedError):
                    self._answer(token, config)
                return
        self._run(
            lambda: self._try(token, lambda: self._answer(token, self.access.call("get", app, endpoint, config_id)))
        )

    def _answer(self, token: int, config: Config | None) -> None:
        if config is None:
            self._native.answer_missing(token)
        else:
            self._native.answer_found(token, config.config_id, config.content_type, config.content)

    def _try(self, token: int, answer: Callable[[], None]) -> None:
        """Answers; an error is the answer, too."""
        try:
            answer()
        except Exception as error:  # noqa: BLE001 - the store's: the source gets an error response
            self._fail(token, error)

    def _fail(self, token: int, error: Exception) -> None:
        if isinstance(error, ClosedError) and self._native.closed:
            return
        status, reason = 500, "the store failed"
        if isinstance(error, ConfigError) and error.status_code in range(400, 600):
            status, reason = error.status_code, error.reason_phrase
        else:
            log(_log, logging.ERROR, "target: the store failed", error)
        with suppress(ClosedError):
            self._native.answer_failed(token, status, reason)

    def _on_put(
        self,
        token: int,
        correlation_id: str,
        app: str,
        endpoint: str,
        config_id: str | None,
        content_type: str,
        content: bytes | None,
    ) -> None:
        _log.debug("target: ConfigPush of %s", correlation_id)
        size = len(content or b"")
        with self._changed:
            has_room = self._held + size <= _MOST_HELD
            self._held += size if has_room else 0
        if not has_room:
            with suppress(ClosedError):
                self._native.answer_failed(token, 503, "the store has too much to do")
            return

        def answer() -> None:
            if content is None:
                stored = self.roll_back(app, endpoint, config_id or "")
            else:
                stored = self.put(app, endpoint, content, content_type or CONTENT_TYPE, config_id, None)
            # Stored, announced, confirmed: in this order, on one connection (CDT-38, CDT-39).
            config = stored.config
            self._native.answer_stored(token, config.config_id, config.content_type, config.content, stored.is_new)

        def work() -> None:
            try:
                self._try(token, answer)
            finally:
                with self._changed:
                    self._held -= size

        self._run(work)

    def _keep(
        self, app: str, endpoint: str, content: bytes, content_type: str, config_id: str | None, if_current: str | None
    ) -> Stored:
        self._need_room(app, endpoint, content, content_type, config_id)
        stored: Stored = self.access.call(
            "put", app, endpoint, content, content_type=content_type, config_id=config_id, if_current=if_current
        )
        with self._changed:
            self._configs += stored.is_new
        return stored

    def _announce(self, app: str, endpoint: str, config: Config) -> None:
        self._native.announce(app, endpoint, config.config_id, config.content_type, config.content)

    def _announce_owed(self) -> None:
        # One that ends meanwhile announces it at the next start.
        with suppress(ClosedError):
            for app, endpoint, config_id in self.access.call("owed"):
                config = self.access.call("get", app, endpoint, config_id)
                if config is not None:
                    self._announce(app, endpoint, config)

    def _on_updated(self, app: str, endpoint: str, config_id: str, timestamp_ms: int) -> None:
        if len(self._updated) < _MOST_UPDATES:
            self._updated.append((app, endpoint, config_id, timestamp_ms))
        else:
            self.lost += 1
            self._notices.dropped(Dropped(None, "queue_full", ()))

    def _note_soon(self) -> None:
        with self._changed:
            starts = not self._is_noting and bool(self._announced or self._updated)
            self._is_noting |= starts
        if starts:
            self._run(self._note)

    def _note(self) -> None:
        """Records in the store which announcements were sent, and what endpoints reported, a burst at a time."""
        while True:
            with self._changed:
                announced, self._announced = self._announced, []
                updated, self._updated = self._updated, []
                if not announced and not updated:
                    self._is_noting = False
                    return
            # If one fails, the other is still recorded.
            for method, rows in (("announced", announced), ("applied", updated)):
                try:
                    if rows:
                        self.access.call(method, rows)
                except Exception as error:  # noqa: BLE001 - the store's
                    log(_log, logging.ERROR, "target: the store failed", error)

    def _end(self) -> None:
        """Ends the store after its engine."""
        with suppress(ClosedError):
            self._look()
        assert self._pool is not None
        with self._changed:
            # Longer than that the store is not waited for: what it stores is announced at the next start.
            self._changed.wait_for(lambda: not self._busy, self._parting_s)
            is_idle = not self._busy
        self._pool.end()
        try:
            if self._is_ours:
                # A store of ours always comes to an end.
                with self._changed:
                    self._changed.wait_for(lambda: not self._busy)
                self._note()
                self.access.call("close")
            elif is_idle:
                self._note()
        finally:
            self.access.end()
