"""The roles of CDT in a simulation."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from trunkline._arguments import need_bytes
from trunkline._iteration import Receiving
from trunkline._native.cdt import ConfigPushResponse, ConfigResponse
from trunkline.cdt import source as _source
from trunkline.cdt import target as _target
from trunkline.cdt._roles import CdtRole, Event, need_names
from trunkline.cdt.source import Confirm, refusal
from trunkline.cdt.store import Assignment, Config, MemoryStore, Rollout, Stored, content_id
from trunkline.cdt.target import CONTENT_TYPE
from trunkline.errors import LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.testing._calls import Calls, Future
from trunkline.testing._world import Engine, Member, SimulatedNotices, World

__all__ = ["Source", "Target", "Watch"]

# What says where a NATS is, what is written on disks, and what is served.
_OF_NATS = frozenset(
    {"servers", "credentials", "nkey_seed", "user", "password", "token", "tls", "capture", "capture_options", "metrics"}
)

# The default max_payload of NATS.
MAX_PAYLOAD = 1 << 20


def _need_none(settings: dict[str, Any]) -> None:
    refused = sorted(_OF_NATS & settings.keys())
    if refused:
        message = f"a simulation has its own NATS, and writes and serves nothing: leave out {', '.join(f'{name}=' for name in refused)}"
        raise LocalProtocolError(message)


class _Connection:
    """The part of a connection that roles read."""

    max_payload = MAX_PAYLOAD


class _Engine(Engine):
    connection = _Connection()

    def __init__(self, world: World, who: Target | Source) -> None:
        self._who = who
        super().__init__(world, who, [], [])

    def _handle(self, kind: str, *details: Any) -> None:
        self._who.hear(kind, *details)

    def _lose(self) -> None:
        self._who.lose()


class _RoleBase(Member, CdtRole, Receiving[Event]):
    """The base class of both roles: events of others."""

    _world: World

    def lose(self) -> None:
        """Discards what a crash loses."""
        self._events.clear()
        self._event_bytes = 0

    def receive(self, *, timeout_s: float | None = None) -> Event:
        """Advances the clock until an event arrives; see `receive` of the simulated role."""
        return self._hand_out(self._world.take(self._events, self._native, timeout_s, "no event came"))


class Target(_RoleBase, _target.TargetBase):
    """A simulated `trunkline.cdt.Target`: the same keywords, without those of NATS and captures, and the same counters.

    Its store answers at the moment it is asked; announcements that were pending when it crashed are not sent after a
    restart.
    """

    def __init__(self, world: World, name: str, /, **settings: Any) -> None:
        _need_none(settings)
        self._world = world
        super().__init__(name, **settings)

    def _open(self) -> None:
        given = self._given_store
        self._store = MemoryStore() if given == ":memory:" else given
        self._notices = SimulatedNotices("cdt", "target", self._chosen["on_drop"])
        self._refusals = None
        self._configs = 0
        self._native = _Engine(self._world, self)

    def hear(self, kind: str, *details: Any) -> None:
        """Handles an event of its machine."""
        if kind == "get":
            token, _, app, endpoint, config_id = details
            self._try(token, lambda: self._answer(token, self._store.get(app, endpoint, config_id)))
        elif kind == "put":
            self._take_in(*details)
        elif kind == "announced":
            *about, is_sent = details
            if is_sent:
                self._store.announced([(about[0], about[1], about[2])])
        elif kind == "updated":
            self._store.applied([(details[0], details[1], details[2], details[3])])
        else:
            super()._handle(kind, *details)

    def _try(self, token: int, answer: Any) -> None:
        try:
            answer()
        except Exception as error:  # noqa: BLE001 - the source gets an error response
            self._fail(token, error)

    def _take_in(
        self, token: int, _: str, app: str, endpoint: str, config_id: str, content_type: str, content: bytes | None
    ) -> None:
        def take_in() -> None:
            if content is None:
                stored = Stored(self._store.rollback(app, endpoint, config_id), is_new=False)
            else:
                stored = self._store.put(
                    app, endpoint, content, content_type=content_type or CONTENT_TYPE, config_id=config_id
                )
            self._confirm(token, app, endpoint, stored)

        self._try(token, take_in)

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
        """Assigns a configuration to an endpoint without advancing the clock; see `trunkline.cdt.Target.put`."""
        self._need_put(app_version_name, endpoint_id, content, content_type, config_id, if_current)
        self._need_open()
        content_type = content_type or CONTENT_TYPE
        self._need_room(app_version_name, endpoint_id, content, content_type, config_id)
        stored = self._store.put(
            app_version_name,
            endpoint_id,
            bytes(content),
            content_type=content_type,
            config_id=config_id,
            if_current=if_current,
        )
        self._announce(app_version_name, endpoint_id, stored.config)
        config: Config = stored.config
        return config.config_id

    def get(self, app_version_name: str, endpoint_id: str, config_id: str | None = None) -> Config:
        """Returns the configuration of an endpoint; see `trunkline.cdt.Target.get`."""
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        self._need_open()
        config: Config | None = self._store.get(app_version_name, endpoint_id, config_id or None)
        return _target.found(config, app_version_name, endpoint_id, config_id)

    def rollback(self, app_version_name: str, endpoint_id: str, config_id: str) -> str:
        """Assigns an earlier configuration to an endpoint again; see `trunkline.cdt.Target.rollback`."""
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id, config_id=config_id)
        self._need_open()
        config: Config = self._store.rollback(app_version_name, endpoint_id, config_id)
        self._announce(app_version_name, endpoint_id, config)
        return config.config_id

    def history(self, app_version_name: str, endpoint_id: str) -> Sequence[Assignment]:
        """Returns the assignments of an endpoint; see `trunkline.cdt.Target.history`."""
        self._need_open()
        rows: Sequence[Assignment] = self._store.history(app_version_name, endpoint_id)
        return rows

    def rollout(self, app_version_name: str) -> Sequence[Rollout]:
        """Returns the state of each endpoint; see `trunkline.cdt.Target.rollout`."""
        self._need_open()
        rows: Sequence[Rollout] = self._store.rollout(app_version_name)
        return rows

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.cdt.Target.close`; advances the clock until it is closed."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)


class Watch(Receiving[ConfigResponse]):
    """A simulated `trunkline.cdt.Watch`: an iterator, and a context manager that ends it."""

    def __init__(self, world: World, engine: Any, number: int) -> None:
        self._world = world
        self._engine = engine
        self._number = number
        self._is_over = False
        self.changes: deque[ConfigResponse] = deque(maxlen=1)

    def receive(self, *, timeout_s: float | None = None) -> ConfigResponse:
        """Advances the clock until there is a configuration other than the last one.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The watch is closed, or its source has crashed or ended.
        """
        return self._world.take(self.changes, self, timeout_s, "no configuration came")

    @property
    def closed(self) -> bool:
        """Whether the watch has ended."""
        return self._is_over or bool(self._engine.closed)

    def close(self) -> None:
        """Ends the watch."""
        if not self.closed:
            self._engine.ask("cancel", call=self._number)
        self._is_over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Source(_RoleBase, _source.SourceBase):
    """A simulated `trunkline.cdt.Source`: the same keywords, without those of NATS and captures, and the same counters."""

    def __init__(self, world: World, name: str, /, **settings: Any) -> None:
        _need_none(settings)
        self._world = world
        super().__init__(name, **settings)

    def _open(self) -> None:
        self._notices = SimulatedNotices("cdt", "source", self._chosen["on_drop"])
        self._refusals = None
        self._watches: dict[int, Watch] = {}
        # Apart from the numbers of calls, which begin with 0.
        self._numbers = itertools.count(1 << 32)
        self._native = _Engine(self._world, self)
        self._asked: Calls[Any] = Calls(self._world, self._native)

    def hear(self, kind: str, *details: Any) -> None:
        """Takes what its machine has to say."""
        if kind == "ended":
            call, how, what = details
            self._asked.complete("done", call, self._outcome(how, what, self._asked.timeout_of(call)))
        elif kind == "changed":
            watch, response = details
            if watch in self._watches and not self._watches[watch].closed:
                self._watches[watch].changes.append(response)
        else:
            super()._handle(kind, *details)

    def lose(self) -> None:
        """Discards what a crash loses."""
        super().lose()
        self._watches.clear()
        self._asked.lose()

    def _outcome(self, how: str, what: Any, timeout_s: float | None) -> Any:
        if how == "answered":
            if not 200 <= what.status_code < 300:
                return refusal(what)
            return what.config_id if isinstance(what, ConfigPushResponse) else what
        return what if how in ("applied", "sent") else self._failed(how, timeout_s)

    def submit(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str | None = None,
        *,
        timeout_s: float | None = 3.0,
        retries: int = 0,
        endpoint_message_id: str | None = None,
    ) -> Future[ConfigResponse]:
        """Requests the configuration of an endpoint without advancing the clock."""
        self._need_pull(app_version_name, endpoint_id, config_id, timeout_s, retries)
        return self._asked.put(
            "pull",
            timeout_s,
            app_version_name=app_version_name,
            endpoint_id=endpoint_id,
            config_id=config_id or None,
            endpoint_message_id=endpoint_message_id,
            retries=retries,
        )

    def pull(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str | None = None,
        *,
        timeout_s: float | None = 3.0,
        retries: int = 0,
        endpoint_message_id: str | None = None,
    ) -> ConfigResponse:
        """Advances the clock until the target answers; see `trunkline.cdt.Source.pull`."""
        return self.submit(
            app_version_name,
            endpoint_id,
            config_id,
            timeout_s=timeout_s,
            retries=retries,
            endpoint_message_id=endpoint_message_id,
        ).result()

    def push(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: bytes,
        *,
        content_type: str = CONTENT_TYPE,
        config_id: str | None = None,
        confirm: Confirm | None = "stored",
        timeout_s: float | None = 3.0,
    ) -> str:
        """Advances the clock until it is confirmed; see `trunkline.cdt.Source.push`."""
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        need_bytes("content", content)
        self._need_room(app_version_name, endpoint_id, content, content_type, config_id)
        content_type = content_type or CONTENT_TYPE
        return self._assign(app_version_name, endpoint_id, bytes(content), content_type, config_id, confirm, timeout_s)

    def rollback(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str,
        *,
        confirm: Confirm | None = "stored",
        timeout_s: float | None = 3.0,
    ) -> str:
        """Advances the clock until it is confirmed; see `trunkline.cdt.Source.rollback`."""
        need_names(config_id=config_id)
        return self._assign(app_version_name, endpoint_id, None, "", config_id, confirm, timeout_s)

    def _assign(
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
        expected = config_id or content_id(content_type, content or b"")
        key = (app_version_name, endpoint_id, expected)
        if confirm == "applied":
            self._applying[key] = False
        try:
            given: str | None = self._asked.put(
                "push",
                timeout_s,
                app_version_name=app_version_name,
                endpoint_id=endpoint_id,
                content=content,
                content_type=content_type,
                config_id=config_id or None,
                confirm=confirm,
            ).result()
        except TimeoutError:
            if confirm != "applied":
                raise
            raise self._unapplied(expected, self._applying[key], timeout_s) from None
        finally:
            self._applying.pop(key, None)
        # Without a confirmation, the id is the expected one.
        return given or expected

    def report_applied(self, app_version_name: str, endpoint_id: str, config_id: str) -> None:
        """Reports to everyone that an endpoint has applied a configuration; see
        `trunkline.cdt.Source.report_applied`.
        """
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id, config_id=config_id)
        self._asked.put(
            "report", None, app_version_name=app_version_name, endpoint_id=endpoint_id, config_id=config_id
        ).result()

    def watch(self, app_version_name: str, endpoint_id: str) -> Watch:
        """Follows the configuration of an endpoint; see `trunkline.cdt.Source.watch`."""
        need_names(app_version_name=app_version_name, endpoint_id=endpoint_id)
        number = next(self._numbers)
        watch = self._watches[number] = Watch(self._world, self._native, number)
        self._native.ask("watch", call=number, app_version_name=app_version_name, endpoint_id=endpoint_id)
        return watch

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.cdt.Source.close`; advances the clock until it is closed."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)
        self._asked.lose()
