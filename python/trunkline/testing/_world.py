"""Who takes part in a simulation, and the clock that moves them all."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from trunkline import _native
from trunkline._frames import Frame
from trunkline._roles.base import Role
from trunkline.errors import LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's

__all__ = ["Entry", "Peer", "Simulated", "World"]

_S = 1_000_000_000

# Queues between a role and its user.
_UNLIMITED = {"queue_messages": sys.maxsize, "queue_bytes": sys.maxsize}

Kind = TypeVar("Kind")


class Entry:
    """A role of a simulation: what reads the events that are delivered to it, and what a crash loses.

    Attributes:
        role: The role.
        simulation: The native simulation, for the engine of the role.
    """

    def __init__(self, world: World, role: object, lose: Callable[[], None] = lambda: None) -> None:
        self.role = role
        self.lose = lose
        self.simulation = world.native
        self._world = world
        self._number = -1
        self._readers: list[Callable[[], None]] = []

    def join(self, number: int) -> None:
        """Gives the role its number in the simulation."""
        self._number = number
        self._world.entries[number] = self

    def watch(self, read: Callable[[], None]) -> None:
        """Calls this from now on after each event that is delivered to the role."""
        self._readers.append(read)

    def read(self) -> None:
        """Calls the readers."""
        for read in self._readers:
            read()

    def until(self, ready: Callable[[], object], timeout_s: float | None) -> bool:
        """See `World.until`."""
        return self._world.until(ready, timeout_s)

    def step(self, until_ns: int | None) -> bool:
        """See `World.step`."""
        return self._world.step(until_ns)

    def crash(self) -> None:
        """Ends the role without notice."""
        self.simulation.crash(self._number)
        self.lose()
        self.read()

    def restart(self) -> None:
        """Starts the role again, without its memory."""
        self.simulation.restart(self._number)


class World:
    """The members of a simulation, and their clock."""

    def __init__(self, seed: int, steps: int) -> None:
        self.native = _native.Simulation(seed, steps)
        self._seed = seed
        self.entries: dict[int, Entry] = {}
        # What was reported and is not dispatched yet.
        self._due: deque[tuple[int | None, int]] = deque()
        self._planned: dict[int, Callable[[], object]] = {}
        self._plans = 0

    @property
    def now_ns(self) -> int:
        return self.native.now_ns

    def first(self, kind: type[Kind]) -> Kind | None:
        return next((entry.role for entry in self.entries.values() if isinstance(entry.role, kind)), None)

    def crash(self, who: object) -> Entry:
        entry = next(entry for entry in self.entries.values() if entry.role is who)
        entry.crash()
        return entry

    def after(self, seconds: float, function: Callable[[], object]) -> None:
        self._plans += 1
        self.native.wake(seconds, self._plans)
        self._planned[self._plans] = function

    def until(self, ready: Callable[[], object], timeout_s: float | None = None) -> bool:
        end = None if timeout_s is None else self._end_ns(timeout_s)
        while not ready():
            if not self.step(end):
                return bool(ready())
        return True

    def step(self, until_ns: int | None) -> bool:
        """Does what is due next, by then at most; False if nothing is.

        Raises:
            RuntimeError: Nothing more happens, and there is no end.
        """
        is_due = self._pass(until_ns, once=True)
        if until_ns is None and not is_due:
            message = f"seed {self._seed}: nothing more will ever happen"
            raise RuntimeError(message)
        return is_due

    def advance(self, seconds: float) -> None:
        end = self._end_ns(seconds)
        while self._pass(end, once=False):
            pass

    def _end_ns(self, seconds: float) -> int:
        return self.native.now_ns + round(seconds * _S)

    def _pass(self, end_ns: int | None, *, once: bool) -> bool:
        """Runs what is due by then and dispatches the events; returns whether anything was due."""
        is_due = False
        if not self._due:
            due, is_due = self.native.run(end_ns, once=once)
            self._due.extend(due)
        is_due |= bool(self._due)
        while self._due:
            self._dispatch(*self._due.popleft())
        return is_due

    def _dispatch(self, number: int | None, plan: int) -> None:
        if number is None:
            self._planned.pop(plan)()
        else:
            self.native.deliver(number)
            self.entries[number].read()


class Simulated(Role):
    """The base class of simulated roles: they are the live ones, on the clock of a world."""

    # Where it listens or connects: the option, and the endpoint.
    _at: tuple[str, str]
    # The options it may be given: for all others there would have to be sockets.
    _takes: frozenset[str] = frozenset()
    _options: Any

    def __init__(self, world: World, /, *given: Any, **settings: Any) -> None:
        self._world = world
        super().__init__(*given, **settings)

    def _made(self) -> None:
        refused = [name for name in self._options if name not in self._takes]
        if refused:
            message = f"a simulation has no sockets: leave out {', '.join(f'{name}=' for name in refused)}"
            raise LocalProtocolError(message)
        self._join()
        self._open()

    def _join(self) -> None:
        """Enters the world, once the options are known to be right."""
        side, endpoint = self._at
        at = {} if self._is_placed else {side: endpoint}
        entry = Entry(self._world, self, self._lose)
        self._options = {**at, **self._options, **_UNLIMITED, "simulation": entry}

    @property
    def _is_placed(self) -> bool:
        """Whether it has endpoints of its own, or finds its peers."""
        return bool(self._options.get("bind") or self._options.get("connect"))

    def _lose(self) -> None:
        """Discards what a crash loses of what it has handed to Python."""

    def __del__(self) -> None:
        """Holds nothing that is to be closed."""


class Peer:
    r"""A raw socket, to send your own frames: it sends what you give it, and keeps what it receives.

    Attributes:
        received: The messages it received, each as its socket gets it: a DEALER gets those of a broker from the empty
            frame on.

    ```pycon
    >>> from trunkline import dcp, testing
    >>> with testing.pair(dcp.Broker, dcp.Worker) as sim:
    ...     peer = sim.peer()
    ...     peer.send([b"", b"DGBX\x01", b"\x04", b"echo", b"", b"", b"hello"])
    ...     peer.receive()[-1]
    b'hello'

    ```
    """

    received: list[tuple[bytes, ...]]

    def __init__(self, world: World, kind: str, bind: Sequence[str], connect: Sequence[str], /) -> None:
        self._world = world
        self._native = world.native.peer(kind, list(bind), list(connect))
        # It belongs to the test, and outlives a crash.
        self.received = []
        entry = Entry(world, self)
        entry.watch(self._read)
        entry.join(self._native.number)

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
        self._native.send(frames, to)

    def receive(self, *, timeout_s: float | None = None) -> tuple[bytes, ...]:
        """Advances the clock until a message has arrived, and takes the oldest one from `received`.

        Raises:
            TimeoutError: Nothing arrived in time.
        """
        if not self._world.until(lambda: self.received, timeout_s):
            message = f"no message came within {timeout_s} s"
            raise TimeoutError(message)
        return self.received.pop(0)

    def _read(self) -> None:
        while (frames := self._native.poll()) is not None:
            self.received.append(frames)
