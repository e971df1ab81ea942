"""Who takes part in a simulation, and the clock that moves them all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from trunkline import _native
from trunkline._frames import Frame
from trunkline._native import Simulated
from trunkline._notices import Notices
from trunkline._roles import Role
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's

__all__ = ["Engine", "Member", "Peer", "SimulatedNotices", "World", "need_open"]

_S = 1_000_000_000

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Entry:
    """A member of the simulation: its engine, its event handler, and what discards its state in a crash."""

    who: object
    engine: Simulated
    handle: Callable[..., None]
    lose: Callable[[], None]


class Closable(Protocol):
    """Something that can end."""

    @property
    def closed(self) -> bool:
        """Whether it has ended."""


def need_open(engine: Closable) -> None:
    """Refuses calls on a role that has crashed or ended."""
    if engine.closed:
        message = "this role is closed"
        raise ClosedError(message)


class World:
    """The members of a simulation, and their clock."""

    def __init__(self, seed: int, steps: int) -> None:
        self.native = _native.Simulation(seed, steps)
        self._seed = seed
        self._parts: dict[int, Entry] = {}
        self._events: deque[tuple[int | None, tuple[Any, ...]]] = deque()
        self._planned: dict[int, Callable[[], object]] = {}
        self._plans = 0

    def add(self, kind: str, settings: Mapping[str, Any], *, bind: Sequence[str], connect: Sequence[str]) -> Simulated:
        return self.native.add(kind, {**settings, "bind": list(bind), "connect": list(connect)})

    def join(self, who: object, engine: Simulated, handle: Callable[..., None], lose: Callable[[], None]) -> Simulated:
        self._parts[engine.number] = Entry(who, engine, handle, lose)
        return engine

    @property
    def now_ns(self) -> int:
        return self.native.now_ns

    def first(self, kind: type[Kind]) -> Kind | None:
        return next((part.who for part in self._parts.values() if isinstance(part.who, kind)), None)

    def crash(self, who: object) -> Entry:
        part = next(part for part in self._parts.values() if part.who is who)
        part.engine.crash()
        part.lose()
        return part

    def after(self, seconds: float, function: Callable[[], object]) -> None:
        self._plans += 1
        self.native.wake(seconds, self._plans)
        self._planned[self._plans] = function

    def until(self, ready: Callable[[], object], timeout_s: float | None = None) -> bool:
        end = None if timeout_s is None else self._end_ns(timeout_s)
        while not ready():
            if not self._pass(end, once=True):
                if end is None and not ready():
                    message = f"seed {self._seed}: nothing more will ever happen"
                    raise RuntimeError(message)
                return bool(ready())
        return True

    def take(self, waiting: deque[Kind], engine: Closable, timeout_s: float | None, what: str) -> Kind:
        """Advances the clock until there is something to take, or the role is closed; `what` begins the error of a timeout."""
        self.until(lambda: waiting or engine.closed, timeout_s)
        if waiting:
            return waiting.popleft()
        need_open(engine)
        message = f"{what} within {timeout_s} s"
        raise TimeoutError(message)

    def advance(self, seconds: float) -> None:
        end = self._end_ns(seconds)
        while self._pass(end, once=False):
            pass

    def _end_ns(self, seconds: float) -> int:
        return self.native.now_ns + round(seconds * _S)

    def _pass(self, end_ns: int | None, *, once: bool) -> bool:
        """Runs what is due by then and dispatches the events; returns whether anything was due."""
        is_due = False
        if not self._events:
            events, is_due = self.native.run(end_ns, once=once)
            self._events.extend(events)
        is_due |= bool(self._events)
        while self._events:
            self._dispatch(*self._events.popleft())
        return is_due

    def _dispatch(self, number: int | None, event: tuple[Any, ...]) -> None:
        kind, *details = event
        if number is None:
            self._planned.pop(details[0])()
        else:
            self._parts[number].handle(kind, *details)


class SimulatedNotices(Notices):
    """Notices that log every line at once: there is no thread, and simulated time does not limit lines."""

    def log(
        self,
        level: int,
        kind: str,  # noqa: ARG002 - all kinds
        text: str,
        error: BaseException | None = None,
        fields: Mapping[str, object] | None = None,
        lines: int | None = None,  # noqa: ARG002 - all lines
    ) -> None:
        self._logger.log(level, "%s: %s", self._who, text, exc_info=error, extra={"fields": fields or {}})


class Engine:
    """What runs one role of those that take part, as its public face knows engines. Its waits move the clock."""

    def __init__(self, world: World, who: Any, bind: Sequence[str], connect: Sequence[str]) -> None:
        self._world = world
        kind, settings = who._machine()  # noqa: SLF001 - what both faces of a role share
        self._native = world.add(kind, settings, bind=bind, connect=connect)
        world.join(who, self._native, self._handle, self._lose)

    # What is sent in a simulation is with its network at once.
    unsent = False

    @property
    def endpoints(self) -> list[str]:
        return self._native.endpoints

    @property
    def closed(self) -> bool:
        return self._native.closed

    def close(self, grace_s: float) -> None:
        self._native.close(grace_s)

    def join(self, timeout_s: float | None = None) -> bool:
        return self._world.until(lambda: self.closed, timeout_s)

    def check_open(self) -> None:
        need_open(self._native)

    def raise_failure(self) -> None:
        """Nothing: a simulated engine does not fail by itself."""

    def stats(self) -> dict[str, Any]:
        return self._native.stats()

    def ask(self, verb: str, **given: Any) -> None:
        self.check_open()
        self._native.ask(verb, **given)

    def _handle(self, kind: str, *details: Any) -> None:
        raise NotImplementedError

    def _lose(self) -> None:
        """Lets go of what is lost with a crash."""


class Member(Role):
    """What those that take part have in common."""

    _native: Any = None
    _options: Any = None
    _world: World
    # The options it may be given: for all others there would have to be sockets.
    _takes: frozenset[str] = frozenset()

    def _made(self) -> None:
        refused = [name for name in self._options if name not in self._takes]
        if refused:
            message = f"a simulation has no sockets: leave out {', '.join(f'{name}=' for name in refused)}"
            raise LocalProtocolError(message)
        self._open()

    def __del__(self) -> None:
        """Holds nothing that is to be closed."""


class Peer:
    """A raw socket, to send your own frames: it sends what you give it, and keeps what it receives.

    Attributes:
        received: The messages it received, each as its socket gets it: a DEALER gets those of a broker from the empty
            frame on.
    """

    received: list[tuple[bytes, ...]]

    def __init__(self, world: World, kind: str, bind: Sequence[str], connect: Sequence[str], /) -> None:
        self._world = world
        engine = world.add("bare", {"kind": kind}, bind=bind, connect=connect)
        # `received` belongs to the test, and outlives a crash.
        self._native = world.join(self, engine, self._handle, lambda: None)
        self.received = []

    @property
    def address(self) -> bytes | None:
        """The routing id that its peer knows it by; None if it has none yet."""
        return self._native.address

    @property
    def closed(self) -> bool:
        """Whether it has crashed."""
        return self._native.closed

    def send(self, frames: Sequence[Frame], *, to: bytes | None = None) -> None:
        """Sends one message, of any frames; it arrives when the clock advances. `to` is the routing id for a ROUTER.

        Raises:
            LocalProtocolError: It has no frames.
        """
        self._native.ask("send", frames=frames, to=to)

    def receive(self, *, timeout_s: float | None = None) -> tuple[bytes, ...]:
        """Advances the clock until a message has arrived, and takes the oldest one from `received`.

        Raises:
            TimeoutError: Nothing arrived in time.
        """
        if not self._world.until(lambda: self.received, timeout_s):
            message = f"no message came within {timeout_s} s"
            raise TimeoutError(message)
        return self.received.pop(0)

    def _handle(self, _kind: str, frames: tuple[bytes, ...], _peer: bytes | None) -> None:
        self.received.append(frames)
