"""The roles of CDTP in a simulation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from trunkline import cdtp
from trunkline._iteration import Receiving
from trunkline._native.cdtp import Message
from trunkline._roles import endpoints
from trunkline.cdtp import sender as _sender
from trunkline.testing._world import Engine, Member, SimulatedNotices, World

__all__ = ["Receiver", "Sender"]

# Where a receiver listens and senders dial by default.
ENDPOINT = "tcp://receiver:1"


class _SenderEngine(Engine):
    """As `trunkline._native.cdtp.Sender`."""

    def __init__(self, world: World, who: Sender, bind: list[str], connect: list[str]) -> None:
        self._notices = SimulatedNotices("cdtp", who.name, None)
        _, settings = who._machine()  # noqa: SLF001 - its own
        self._header: str = settings["header"]
        super().__init__(world, who, bind, connect)

    def data(self, payload: Any, tags: Any, timestamp_ns: int | None) -> dict[str, Any]:
        has_timestamp = self._header in ("S", "A")
        now_ns = self._world.now_ns if has_timestamp and timestamp_ns is None else timestamp_ns
        return {"verb": "data", "payload": payload, "tags": tags, "timestamp_ns": now_ns, "header": self._header}

    def begin_run(self, config: Any) -> dict[str, Any]:
        return {"verb": "begin_run", "config": config, "timestamp_ns": self._world.now_ns}

    def end_run(self, metadata: Any) -> dict[str, Any]:
        return {"verb": "end_run", "metadata": metadata, "timestamp_ns": self._world.now_ns}

    def raw(self, frames: Any) -> dict[str, Any]:
        return {"verb": "raw", "frames": frames}

    def put(self, outgoing: dict[str, Any], _timeout_s: float | None = None) -> None:
        self.ask(**outgoing)

    def flush(self) -> None:
        self.ask("flush")

    def wait_drained(self, timeout_s: float | None = None) -> bool:
        return self._world.until(lambda: not self.stats()["queued"] or self.closed, timeout_s)

    def _handle(self, kind: str, *details: Any) -> None:
        _sender.report(self._notices, kind, *details)


class Sender(Member, cdtp.Sender):
    """A simulated `trunkline.cdtp.Sender`: the same keywords, of those of sockets ``bind`` and ``connect`` alone.

    Without them, and without a group, it sends to the receiver at the default endpoint. In a group it listens at a
    port of its own. Its messages carry the time of the simulation, from 1970 on. Its queue is unlimited.
    """

    _takes = frozenset({"bind", "connect"})

    def __init__(self, world: World, name: str, /, **settings: Any) -> None:
        self._world = world
        if settings.get("group") is not None:
            settings.setdefault("bind", "tcp://*:*")
        super().__init__(name, **settings)

    def _open(self) -> None:
        bind, connect = endpoints("bind", self._options.get("bind", ())), self._options.get("connect", ())
        connect = endpoints("connect", connect)
        engine = _SenderEngine(self._world, self, bind, connect if bind or connect else [ENDPOINT])
        self._native = engine
        self._unsent = _sender.Unsent(engine, engine._notices)  # type: ignore[arg-type]  # noqa: SLF001 - its own


class _ReceiverEngine(Engine, Receiving[Message]):
    """As `trunkline._native.cdtp.Receiver`."""

    def __init__(
        self, world: World, who: Receiver, bind: list[str], connect: list[str], on_notice: Callable[..., None]
    ) -> None:
        self._messages: deque[Message] = deque()
        self._on_notice = on_notice
        super().__init__(world, who, bind, connect)

    def receive(self, timeout_s: float | None = None) -> Message:
        return self._world.take(self._messages, self._native, timeout_s, "no message came")

    def limit(self, count: int | None) -> None:
        self.ask("limit", count=count)

    def give_up(self) -> None:
        self._messages.clear()

    def _handle(self, kind: str, *details: Any) -> None:
        if kind == "messages":
            self._messages.extend(details[0])
        else:
            self._on_notice(kind, *details)

    def _lose(self) -> None:
        self._messages.clear()


class Receiver(Member, cdtp.Receiver):
    """A simulated `trunkline.cdtp.Receiver`: the same keywords, of those of sockets ``bind`` and ``connect`` alone.

    Without them, and without a group, it listens at the default endpoint of senders. Its waits advance the
    clock; if nothing more will ever arrive, they raise `RuntimeError`.
    """

    _takes = frozenset({"bind", "connect"})

    def __init__(self, world: World, /, **settings: Any) -> None:
        self._world = world
        super().__init__(**settings)

    def _open(self) -> None:
        bind = endpoints("bind", self._options.get("bind", ()))
        connect = endpoints("connect", self._options.get("connect", ()))
        finds = self._settings["group"] is not None
        notices = SimulatedNotices("cdtp", "receiver", self._on_drop)
        is_given = bind or connect or finds
        engine = _ReceiverEngine(self._world, self, bind if is_given else [ENDPOINT], connect, notices.report)
        self._native = engine
