"""Roles for tests of your own: the real machines of DCP, without sockets, threads or sleeping, under a clock you move.

```pycon
>>> from trunkline import dcp, testing
>>> with testing.pair(dcp.Broker, dcp.Client, dcp.Worker, seed=7, latency_s=0.001, loss=0.1) as sim:
...     sim.client.request(b"echo", [b"hello"], timeout_s=1, retries=9).data
(b'hello',)

```

What happens depends on nothing but the seed and your calls: a test that fails once fails every time. An exception that leaves
the ``with`` bears the seed and the time as a note.
"""

from __future__ import annotations

import concurrent.futures
import functools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from trunkline import dcp
from trunkline._frames import Frame, Parts
from trunkline._native.dcp import Reply, Request
from trunkline._native.dcp import Simulated as _Simulated
from trunkline._native.dcp import Simulation as _Simulation
from trunkline._notices import Notices
from trunkline._roles import Role, need_known
from trunkline.dcp import broker as _broker
from trunkline.dcp import client as _client
from trunkline.dcp import worker as _worker
from trunkline.dcp.worker import Handler, OnError
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's

__all__ = ["Broker", "Client", "Future", "Peer", "Simulation", "Worker", "pair"]

_S = 1_000_000_000

# What is told of a call, which is for its future.
_OUTCOMES = frozenset({"reply", "timed_out", "unanswered"})

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class _Part:
    """Somebody who takes part: what runs it, what hears of it, and what lets go of what is lost when it crashes."""

    who: object
    engine: _Simulated
    tell: Callable[..., None]
    lose: Callable[[], None]


class _World:
    """Who takes part, and the clock that moves them all."""

    def __init__(self, seed: int, steps: int) -> None:
        self.native = _Simulation(seed, steps)
        self._seed = seed
        self._parts: dict[int, _Part] = {}
        self._told: deque[tuple[int | None, tuple[Any, ...]]] = deque()
        self._planned: dict[int, Callable[[], object]] = {}
        self._plans = 0

    def join(self, who: object, engine: _Simulated, tell: Callable[..., None], lose: Callable[[], None]) -> _Simulated:
        self._parts[engine.number] = _Part(who, engine, tell, lose)
        return engine

    def first(self, kind: type[Kind]) -> Kind | None:
        return next((part.who for part in self._parts.values() if isinstance(part.who, kind)), None)

    def crash(self, who: object) -> _Part:
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
                    message = f"seed {self._seed}: nothing will ever happen any more"
                    raise RuntimeError(message)
                return bool(ready())
        return True

    def advance(self, seconds: float) -> None:
        end = self._end_ns(seconds)
        while self._pass(end, once=False):
            pass

    def _end_ns(self, seconds: float) -> int:
        return self.native.now_ns + round(seconds * _S)

    def _pass(self, end_ns: int | None, *, once: bool) -> bool:
        """Lets something happen that is due by then, and tells whom it concerns; whether there was anything."""
        is_due = False
        if not self._told:
            told, is_due = self.native.run(end_ns, once=once)
            self._told.extend(told)
        is_due |= bool(self._told)
        while self._told:
            self._tell(*self._told.popleft())
        return is_due

    def _tell(self, number: int | None, told: tuple[Any, ...]) -> None:
        kind, *details = told
        if number is None:
            self._planned.pop(details[0])()
        else:
            self._parts[number].tell(kind, *details)


class _Notices(Notices):
    """Every line of the log, as it comes: nobody waits for a thread, and time does not pass as the log has it."""

    def log(self, level: int, kind: str, text: str, error: BaseException | None = None) -> None:  # noqa: ARG002 - all kinds
        self._logger.log(level, "%s: %s", self._who, text, exc_info=error)


class Future(concurrent.futures.Future[Reply]):
    """A reply to come. To wait for it is to move the clock."""

    def __init__(self, wait: Callable[[Callable[[], object], float | None], bool], forget: Callable[[], None]) -> None:
        super().__init__()
        self._wait = wait
        self._forget = forget

    def cancel(self) -> bool:
        """Waits for the reply no more; the request is not sent any more if that has not been done."""
        cancelled = super().cancel()
        if cancelled:
            self._forget()
        return cancelled

    def result(self, timeout: float | None = None) -> Reply:
        """Moves the clock until the reply is there, or so far; see `concurrent.futures.Future.result`."""
        self._wait(self.done, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Moves the clock as `result` does; see `concurrent.futures.Future.exception`."""
        self._wait(self.done, timeout)
        return super().exception(0)


class _Calls:
    """The futures of one role."""

    def __init__(self, world: _World, engine: _Simulated) -> None:
        self._world = world
        self._engine = engine
        self._futures: dict[int, tuple[Future, float | None]] = {}

    def put(
        self, service: bytes, data: Parts, metadata: Sequence[Frame], timeout_s: float | None, retries: int
    ) -> Future:
        if self._engine.closed:
            message = "this role is closed"
            raise ClosedError(message)
        call = self._engine.request(service, data, metadata=metadata, timeout_s=timeout_s, retries=retries)
        future = Future(self._world.until, functools.partial(self._cancel, call))
        self._futures[call] = future, timeout_s
        return future

    def complete(self, kind: str, call: int, reply: Reply | None = None) -> None:
        future, timeout_s = self._futures.pop(call, (None, None))
        if future is None or not future.set_running_or_notify_cancel():
            return
        if reply is not None:
            future.set_result(reply)
        elif kind == "timed_out":
            future.set_exception(TimeoutError(f"no reply came within {timeout_s} s"))
        else:
            future.set_exception(ClosedError("this role is closed"))

    def lose(self) -> None:
        for call in list(self._futures):
            self.complete("unanswered", call)

    def _cancel(self, call: int) -> None:
        self._futures.pop(call, None)
        self._engine.cancel(call)


class _Member(Role):
    """What those that take part have in common."""

    _native: Any = None
    _options: Any = None
    _world: _World

    @property
    def endpoints(self) -> tuple[str, ...]:
        """None: there are no sockets."""
        return ()

    def _made(self) -> None:
        need_known(self._options)
        if self._options:
            message = f"a simulation has no sockets: leave out {', '.join(f'{name}=' for name in self._options)}"
            raise LocalProtocolError(message)
        self._open()

    def __del__(self) -> None:
        """Holds nothing that is to be closed."""


class Broker(_Member, _broker.Brokering):
    """A simulated `trunkline.dcp.Broker`: the same keywords, without those of sockets, and the same counters."""

    def __init__(self, world: _World, /, **settings: Any) -> None:
        self._world = world
        super().__init__(**settings)

    def _open(self) -> None:
        self._notices = _Notices("dcp", "broker", self._on_drop)
        engine = self._world.native.add_broker(self._settings)
        self._native = self._world.join(self, engine, self._tell, lambda: None)

    def _tell(self, kind: str, *details: Any) -> None:
        _broker.tell(self._notices, kind, *details)

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.dcp.Broker.close`; moves the clock until it has ended."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)


class Worker(_Member, _worker.Working):
    """A simulated `trunkline.dcp.Worker`: the same keywords, without those of sockets, and the same counters.

    Without a handler, take its requests with `receive` and answer them when you like.
    """

    def __init__(
        self,
        world: _World,
        service: bytes,
        handler: Handler | None = None,
        /,
        *,
        on_error: OnError | None = None,
        work_s: float = 0.0,
        **settings: Any,
    ) -> None:
        self._world = world
        self._handler = handler
        self._on_error = on_error
        self._work_s = work_s
        self._requests: deque[Request] = deque()
        super().__init__(service, **settings)

    def _open(self) -> None:
        self._notices = _Notices("dcp", self._who, self._on_drop)
        engine = self._world.native.add_worker(
            self.service,
            concurrency=self.concurrency,
            heartbeat_interval_s=self._heartbeat_interval_s,
            liveness=self._liveness,
        )
        self._calls = _Calls(self._world, engine)
        self._native = self._world.join(self, engine, self._tell, self._lose)

    def _tell(self, kind: str, *details: Any) -> None:
        if kind in _OUTCOMES:
            self._calls.complete(kind, *details)
        elif kind != "request":
            _worker.tell(self._notices, kind, *details)
        elif self._handler is None:
            self._requests.append(details[0])
        elif self._work_s:
            work = functools.partial(self._answer, self._handler, self._on_error, details[0])
            self._world.after(self._work_s, work)
        else:
            self._answer(self._handler, self._on_error, details[0])

    def _lose(self) -> None:
        self._requests.clear()
        self._calls.lose()

    def request(
        self, service: bytes, data: Parts, *, metadata: Sequence[Frame] = (), timeout_s: float | None = None
    ) -> Reply:
        """Asks another service and moves the clock until the reply is there; see `trunkline.dcp.Worker.request`.

        From inside a handler as well: everybody else goes on meanwhile.
        """
        return self._calls.put(service, data, metadata, timeout_s, 0).result()

    def receive(self, *, timeout_s: float | None = None) -> Request:
        """Moves the clock until a request comes.

        Args:
            timeout_s: How far at most; None as far as it takes, 0 not at all.

        Raises:
            TimeoutError: None came.
            ClosedError: The worker has crashed or ended.
        """
        self._world.until(lambda: self._requests or self.closed, timeout_s)
        if self._requests:
            return self._requests.popleft()
        if self.closed:
            message = "this role is closed"
            raise ClosedError(message)
        message = f"no request came within {timeout_s} s"
        raise TimeoutError(message)

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.dcp.Worker.close`; moves the clock until it has ended."""
        self.stop(drain_s=drain_s)
        self._world.until(self._is_over)
        self._calls.lose()

    def _is_over(self) -> bool:
        # Nobody takes them any more.
        while self._requests and not self.closed:
            request = self._requests.popleft()
            request.forward(request.service, request.data)
        return self.closed


class Client(_Member, _client.Asking):
    """A simulated `trunkline.dcp.Client`: the same keywords, without those of sockets, and the same counters."""

    def __init__(self, world: _World, /, **settings: Any) -> None:
        self._world = world
        super().__init__(**settings)

    def _open(self) -> None:
        self._notices = _Notices("dcp", "client", self._on_drop)
        engine = self._world.native.add_client(heartbeat_interval_s=self._heartbeat_interval_s, liveness=self._liveness)
        self._calls = _Calls(self._world, engine)
        self._native = self._world.join(self, engine, self._tell, self._calls.lose)

    def _tell(self, kind: str, *details: Any) -> None:
        if kind in _OUTCOMES:
            self._calls.complete(kind, *details)
        else:
            _client.tell(self._notices, kind, *details)

    def request(
        self,
        service: bytes,
        data: Parts,
        *,
        metadata: Sequence[Frame] = (),
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> Reply:
        """Asks a service and moves the clock until the reply is there; see `trunkline.dcp.Client.request`.

        Raises:
            TimeoutError: No reply came.
            LocalProtocolError: A part of the metadata is empty.
            ClosedError: The client has crashed or ended.
        """
        return self.submit(service, data, metadata=metadata, timeout_s=timeout_s, retries=retries).result()

    def submit(
        self,
        service: bytes,
        data: Parts,
        *,
        metadata: Sequence[Frame] = (),
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> Future:
        """Asks a service and leaves the clock alone; see `trunkline.dcp.Client.submit`."""
        return self._calls.put(service, data, metadata, timeout_s, retries)

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.dcp.Client.close`; moves the clock until it has ended."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)
        # What it had to say of its end is told by now.
        self._calls.lose()


class Peer:
    """A bare DEALER: it sends what you give it, and keeps what it is sent.

    Attributes:
        received: The messages it was sent, each as a DEALER gets it: from the empty frame on.
    """

    def __init__(self, world: _World, /) -> None:
        self._world = world
        # What it has received is the test's, and outlives it.
        self._native = world.join(self, world.native.add_peer(), self._tell, lambda: None)
        self.received: list[tuple[bytes, ...]] = []

    @property
    def address(self) -> bytes | None:
        """The routing id the broker knows it by; None while there is no broker."""
        return self._native.address

    @property
    def closed(self) -> bool:
        """Whether it has crashed."""
        return self._native.closed

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends one message, of whatever frames; it arrives once the clock moves.

        Raises:
            LocalProtocolError: It has no frames.
        """
        self._native.send(frames)

    def receive(self, *, timeout_s: float | None = None) -> tuple[bytes, ...]:
        """Moves the clock until a message is there, and takes the oldest one from `received`.

        Raises:
            TimeoutError: None came.
        """
        if not self._world.until(lambda: self.received, timeout_s):
            message = f"no message came within {timeout_s} s"
            raise TimeoutError(message)
        return self.received.pop(0)

    def _tell(self, _kind: str, frames: tuple[bytes, ...]) -> None:
        self.received.append(frames)


def echo(request: Request) -> tuple[bytes, ...]:
    """The handler of a worker that `pair` is given by its class alone: the data come back."""
    return request.data


class Simulation:
    """A broker, workers, clients and bare peers, the network between them, and the clock.

    Time stands still unless you move it: by `advance`, `until`, or whatever of the roles waits. Roles that are busy take no
    time: a handler answers in the moment it is asked, unless its worker has ``work_s``.

    The network connects everybody to the broker while there is one. A connection ends when either side crashes or ends, and
    what was on its way with it; it comes back by itself when both are there again, and the broker then knows the peer by
    another address, as with ZeroMQ.

    Args:
        seed: What chance is made of, the same each time.
        latency_s: How long a message takes.
        jitter_s: How much longer it may take.
        loss: The share of the messages that is lost, from 0 to 1.
        duplication: The share that arrives twice.
        reorder: Whether messages may overtake each other on one connection; they do only with `jitter_s`.
        steps: How many things may happen in all, so that no test goes on for ever.

    Raises:
        ValueError: A time is negative, or a share not from 0 to 1.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        latency_s: float = 0.0,
        jitter_s: float = 0.0,
        loss: float = 0.0,
        duplication: float = 0.0,
        reorder: bool = False,
        steps: int = 1_000_000,
    ) -> None:
        self.seed = seed
        self._world = _World(seed, steps)
        self._network: dict[str, Any] = {}
        self.set_network(latency_s=latency_s, jitter_s=jitter_s, loss=loss, duplication=duplication, reorder=reorder)

    def set_network(
        self,
        *,
        latency_s: float | None = None,
        jitter_s: float | None = None,
        loss: float | None = None,
        duplication: float | None = None,
        reorder: bool | None = None,
    ) -> None:
        """Changes what happens to messages that are sent from now on; see `Simulation`. What is None stays as it is.

        Raises:
            ValueError: A time is negative, or a share not from 0 to 1.
        """
        given = {
            "latency_s": latency_s,
            "jitter_s": jitter_s,
            "loss": loss,
            "duplication": duplication,
            "reorder": reorder,
        }
        network = {**self._network, **{name: value for name, value in given.items() if value is not None}}
        self._world.native.set_network(**network)
        self._network = network

    @overload
    def add(self, role: type[dcp.Broker], /, **settings: Any) -> Broker: ...
    @overload
    def add(self, role: type[dcp.Client], /, **settings: Any) -> Client: ...
    @overload
    def add(
        self,
        role: type[dcp.Worker],
        service: bytes,
        handler: Handler | None = None,
        /,
        *,
        on_error: OnError | None = None,
        work_s: float = 0.0,
        **settings: Any,
    ) -> Worker: ...
    def add(self, role: type[dcp.Broker | dcp.Client | dcp.Worker], /, *given: Any, **settings: Any) -> Any:
        """Puts somebody in, who is there at once.

        Args:
            role: `trunkline.dcp.Broker`, `trunkline.dcp.Client` or `trunkline.dcp.Worker`. There is one broker (DCP-01).
            *given: Of a worker, its service and its handler, as `trunkline.dcp.Worker.serve` takes it.
            **settings: What the role takes, without the options of sockets; of a worker also ``on_error``, as ``serve``
                takes it, and ``work_s``, how long its handler takes to begin.

        Raises:
            LocalProtocolError: There is a broker already, an option is one of sockets, or the role is of asyncio.
        """
        _need_simulated(role)
        if issubclass(role, dcp.Broker):
            if self._world.first(Broker) is not None:
                message = "there is a broker already"
                raise LocalProtocolError(message)
            return Broker(self._world, **settings)
        if issubclass(role, dcp.Client):
            return Client(self._world, **settings)
        return Worker(self._world, *given, **settings)

    def peer(self) -> Peer:
        """Puts a bare DEALER in, to send frames of your own to the broker."""
        return Peer(self._world)

    @property
    def broker(self) -> Broker:
        """The broker."""
        return self._first(Broker)

    @property
    def client(self) -> Client:
        """The client that was put in first."""
        return self._first(Client)

    @property
    def worker(self) -> Worker:
        """The worker that was put in first."""
        return self._first(Worker)

    @property
    def now_s(self) -> float:
        """How far the clock has gone, in seconds."""
        return self._world.native.now_ns / _S

    def advance(self, seconds: float) -> None:
        """Moves the clock so far; 0 lets all happen that is due now.

        Raises:
            RuntimeError: More happens than `steps` allows.
        """
        self._world.advance(seconds)

    def until(self, ready: Callable[[], object], *, timeout_s: float | None = None) -> bool:
        """Moves the clock until something is the case.

        Args:
            ready: Says whether it is; asked whenever anything has happened.
            timeout_s: How far at most; None as far as it takes, 0 not at all.

        Returns:
            Whether it is the case.

        Raises:
            RuntimeError: It never will be: nothing happens any more, or more than `steps` allows.
        """
        return self._world.until(ready, timeout_s)

    def after(self, seconds: float, function: Callable[[], object]) -> None:
        """Calls a function once the clock has gone so much further.

        Raises:
            ValueError: The time is negative.
        """
        self._world.after(seconds, function)

    def crash(self, who: Broker | Client | Peer | Worker) -> None:
        """Takes somebody out in the middle of whatever it does, without a word to anybody.

        Its connections end. Its requests in hand cannot be answered any more, and those it has asked raise `ClosedError`.
        """
        self._world.crash(who)

    def restart(self, who: Broker | Client | Peer | Worker) -> None:
        """Puts somebody back in, who remembers nothing; one that has not crashed does so first."""
        self._world.crash(who).engine.restart()

    def _first(self, kind: type[Kind]) -> Kind:
        found = self._world.first(kind)
        if found is None:
            message = f"this simulation has no {kind.__name__.lower()}"
            raise LocalProtocolError(message)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"in a simulation with seed {self.seed}, after {self.now_s} s")

    def __repr__(self) -> str:
        return f"<trunkline.testing.Simulation with seed {self.seed}, after {self.now_s} s>"


def _need_simulated(role: object) -> None:
    if not isinstance(role, type) or not issubclass(role, dcp.Broker | dcp.Client | dcp.Worker):
        name = getattr(role, "__name__", repr(role))
        message = f"{name} is not simulated: take dcp.Broker, dcp.Client or dcp.Worker, whose waits move the clock"
        raise LocalProtocolError(message)


def pair(
    *roles: type[dcp.Broker | dcp.Client | dcp.Worker],
    seed: int = 0,
    latency_s: float = 0.0,
    jitter_s: float = 0.0,
    loss: float = 0.0,
    duplication: float = 0.0,
    reorder: bool = False,
    steps: int = 1_000_000,
) -> Simulation:
    """A simulation with these roles in it, each as it is by default; a worker offers ``b"echo"``.

    Put in more, or others, by `Simulation.add`. See `Simulation` for the other arguments.

    ```pycon
    >>> with pair(dcp.Broker, dcp.Client) as sim:
    ...     worker = sim.add(dcp.Worker, b"upper", lambda request: request.data[0].upper(), work_s=0.5)
    ...     sim.client.request(b"upper", b"hello").data, sim.now_s, worker.stats.replies
    ((b'HELLO',), 0.5, 1)

    ```
    """
    simulation = Simulation(
        seed=seed,
        latency_s=latency_s,
        jitter_s=jitter_s,
        loss=loss,
        duplication=duplication,
        reorder=reorder,
        steps=steps,
    )
    for role in roles:
        _need_simulated(role)
        if issubclass(role, dcp.Worker):
            simulation.add(role, b"echo", echo)
        else:
            simulation.add(role)
    return simulation
