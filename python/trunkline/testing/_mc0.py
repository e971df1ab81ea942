"""The roles of mc0 in a simulation."""

from __future__ import annotations

from collections import deque
from typing import Any

from trunkline._frames import Parts
from trunkline._native.mc0 import Message
from trunkline.mc0 import connector as _connector
from trunkline.mc0 import middleware as _middleware
from trunkline.mc0.connector import Headers, Text
from trunkline.testing._calls import Calls, Future
from trunkline.testing._world import Member, SimulatedNotices, World, need_open

__all__ = ["ENDPOINT", "Connector", "Middleware"]

# Where the middleware listens.
ENDPOINT = "tcp://middleware:1"

# Events of a call, for its future.
_OUTCOMES = frozenset({"done", "alive", "refused", "timed_out", "lost", "unanswered"})


class Middleware(Member, _middleware.MiddlewareBase):
    """A simulated `trunkline.mc0.Middleware`: the same keywords, without those of sockets, and the same counters."""

    def __init__(self, world: World, /, **settings: Any) -> None:
        self._world = world
        super().__init__(**settings)

    def _open(self) -> None:
        self._notices = SimulatedNotices("mc0", "middleware", self._on_drop)
        engine = self._world.add(*self._machine(), bind=[ENDPOINT], connect=())
        self._native = self._world.join(self, engine, self._handle, lambda: None)

    def _handle(self, kind: str, *details: Any) -> None:
        _middleware.report(self._notices, kind, *details)

    def reload(self) -> None:
        """See `trunkline.mc0.Middleware.reload`."""
        need_open(self._native)
        self._native.ask("enforce", policy=self._entries())

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.mc0.Middleware.close`; advances the clock until it is closed."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)


class Connector(Member, _connector.ConnectorBase):
    """A simulated `trunkline.mc0.Connector`: the same keywords, without those of sockets, and the same counters."""

    def __init__(self, world: World, /, **settings: Any) -> None:
        self._world = world
        self._messages: deque[Message] = deque()
        super().__init__(**settings)

    def _open(self) -> None:
        self._notices = SimulatedNotices("mc0", "connector", self._on_drop)
        engine = self._world.add(*self._machine(), bind=(), connect=[ENDPOINT])
        self._calls: Calls[Any] = Calls(self._world, engine)
        self._native = self._world.join(self, engine, self._handle, self._lose)

    def _handle(self, kind: str, *details: Any) -> None:
        if kind in _OUTCOMES:
            self._calls.complete(kind, *details)
        elif kind == "message":
            self._messages.append(details[0])
        else:
            _connector.report(self._notices, self._on_error, kind, *details)

    def _lose(self) -> None:
        self._messages.clear()
        self._calls.lose()

    def subscribe(self, *topics: Text, timeout_s: float | None = None) -> None:
        """Advances the clock until the middleware confirms it; see `trunkline.mc0.Connector.subscribe`."""
        self._calls.put("subscribe", timeout_s, topics=topics).result()

    def unsubscribe(self, *topics: Text, timeout_s: float | None = None) -> None:
        """Advances the clock until the middleware confirms it; see `trunkline.mc0.Connector.unsubscribe`."""
        self._calls.put("unsubscribe", timeout_s, topics=topics).result()

    def put(
        self,
        topic: Text,
        body: Parts,
        *,
        headers: Headers = (),
        confirm: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """See `trunkline.mc0.Connector.put`; advances the clock if it is to be confirmed."""
        if confirm:
            self.submit(topic, body, headers=headers, timeout_s=timeout_s).result()
        else:
            need_open(self._native)
            self._native.ask("put", topic=topic, body=body, headers=headers)

    def submit(
        self, topic: Text, body: Parts, *, headers: Headers = (), timeout_s: float | None = None
    ) -> Future[None]:
        """Publishes a message with confirmation, without advancing the clock; see `trunkline.mc0.Connector.submit`."""
        return self._calls.put("submit", timeout_s, topic=topic, body=body, headers=headers)

    def ping(self, *, timeout_s: float | None = None) -> float:
        """Advances the clock until the middleware answers; see `trunkline.mc0.Connector.ping`."""
        round_trip_s: float = self._calls.put("ping", timeout_s).result()
        return round_trip_s

    def receive(self, *, timeout_s: float | None = None) -> Message:
        """Advances the clock until a message arrives.

        Args:
            timeout_s: By how many seconds at most; None for no limit, 0 not at all.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The connector has crashed or ended.
        """
        return self._world.take(self._messages, self._native, timeout_s, "no message came")

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.mc0.Connector.close`; advances the clock until it is closed."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)
        self._calls.lose()
