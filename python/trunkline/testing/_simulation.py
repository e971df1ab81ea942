"""Roles, the network between them, and the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar, overload

from trunkline import cdt, cdtp, dcp, mc0, mtl
from trunkline.dcp.worker import Handler, OnError
from trunkline.errors import LocalProtocolError
from trunkline.testing._roles import (
    BROKER,
    Broker,
    Client,
    Connector,
    Middleware,
    QueueClient,
    QueueServer,
    Receiver,
    Sender,
    Source,
    Target,
    Worker,
    echo,
)
from trunkline.testing._world import Peer, World

__all__ = ["Simulation", "pair"]

_S = 1_000_000_000

Kind = TypeVar("Kind")

Who: TypeAlias = (
    Broker
    | Client
    | Connector
    | Middleware
    | Peer
    | QueueClient
    | QueueServer
    | Receiver
    | Sender
    | Source
    | Target
    | Worker
)
SocketKind: TypeAlias = Literal["DEALER", "PULL", "PUSH", "REQ", "ROUTER"]
Role: TypeAlias = type[
    cdtp.Receiver
    | cdtp.Sender
    | dcp.Broker
    | dcp.Client
    | dcp.Worker
    | mc0.Connector
    | mc0.Middleware
    | mtl.Client
    | mtl.Server
    | cdt.Source
    | cdt.Target
]

# What stands for each role.
_SIMULATED: dict[type, type] = {
    cdt.Source: Source,
    cdt.Target: Target,
    cdtp.Receiver: Receiver,
    cdtp.Sender: Sender,
    dcp.Broker: Broker,
    dcp.Client: Client,
    dcp.Worker: Worker,
    mc0.Connector: Connector,
    mc0.Middleware: Middleware,
    mtl.Client: QueueClient,
    mtl.Server: QueueServer,
}

# There is one of each, which everybody finds.
_ONLY = {Broker: "broker", Middleware: "middleware", QueueServer: "server"}

# What `pair` puts in where a class alone does not say enough.
_GIVEN: dict[type, tuple[tuple[Any, ...], dict[str, Any]]] = {
    Sender: (("sender",), {}),
    Source: (("source",), {"target": "target"}),
    Target: (("target",), {}),
    Worker: ((b"echo", echo), {}),
    QueueServer: ((), {"anonymous": True, "resources": ("jobs",)}),
}


class Simulation:
    """Roles and raw sockets, the network between them, and the clock.

    Time stands still unless you advance it: by `advance`, `until`, or any role's method that waits. Processing takes no
    time: a handler answers at the moment it is called, unless its worker has ``work_s``.

    The network connects roles to the endpoints they name: in DCP all to the broker, in mc0 connectors to the middleware
    at ``tcp://middleware:1``, in MTL clients to the server, in CDT all to a NATS server, and CDTP senders to the
    receiver, unless they have endpoints of their own or find each other in a group. A connection breaks when either
    side crashes or closes, and messages in transit are lost with it; it is restored when both are running again, and a
    broker then knows the peer by another address, as with ZeroMQ.

    Args:
        seed: The seed of all random numbers; the same seed gives the same history.
        latency_s: How long a message takes.
        jitter_s: How much longer it may take.
        loss: The share of messages that are lost, from 0 to 1.
        duplication: The share that arrives twice.
        reorder: Whether messages may overtake each other on one connection; they do only with `jitter_s`.
        steps: The most events in total, so that no test runs for ever.

    Raises:
        ValueError: A time is negative, or a share not from 0 to 1.

    ```pycon
    >>> from trunkline import dcp, testing
    >>> with testing.Simulation(seed=7, latency_s=0.01) as sim:
    ...     broker = sim.add(dcp.Broker, requeue=True)
    ...     first, second = (sim.add(dcp.Worker, b"upper", lambda request: b"X", work_s=5) for _ in range(2))
    ...     future = sim.add(dcp.Client).submit(b"upper", b"x")
    ...     sim.advance(1)
    ...     sim.crash(first)
    ...     future.result().data, second.stats.replies
    ...     sim.set_network(latency_s=0.5)
    ...     sim.after(10, lambda: sim.restart(first))
    ...     sim.until(lambda: not first.closed, timeout_s=60)
    ((b'X',), 1)
    True

    ```
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
        self._world = World(seed, steps)
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
    def add(self, role: type[cdtp.Sender], name: str, /, **settings: Any) -> Sender: ...
    @overload
    def add(self, role: type[cdtp.Receiver], /, **settings: Any) -> Receiver: ...
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
    @overload
    def add(self, role: type[mc0.Connector], /, **settings: Any) -> Connector: ...
    @overload
    def add(self, role: type[mc0.Middleware], /, **settings: Any) -> Middleware: ...
    @overload
    def add(self, role: type[mtl.Client], /, **settings: Any) -> QueueClient: ...
    @overload
    def add(self, role: type[mtl.Server], /, **settings: Any) -> QueueServer: ...
    @overload
    def add(self, role: type[cdt.Source], name: str, /, **settings: Any) -> Source: ...
    @overload
    def add(self, role: type[cdt.Target], name: str, /, **settings: Any) -> Target: ...
    def add(self, role: Role, /, *given: Any, **settings: Any) -> Any:
        """Adds a role, which is available at once.

        Args:
            role: A class of `trunkline.cdt`, `trunkline.cdtp`, `trunkline.dcp`, `trunkline.mc0` or `trunkline.mtl`, of those that block.
                There is one broker (DCP-01), one middleware and one server.
            *given: Of a sender, a source or a target, its name. Of a worker, its service and its handler, as `trunkline.dcp.Worker.serve` takes it.
            **settings: What the role takes, without the options of sockets but for CDTP's ``bind`` and ``connect``; of a
                worker also ``on_error``, as ``serve`` takes it, and ``work_s``, how long its handler takes to begin.

        Raises:
            LocalProtocolError: There already is a broker, middleware or server, an option is a socket option, or the
                role is not simulated.
        """
        kind = _simulated(role)
        if kind in _ONLY and self._world.first(kind) is not None:
            message = f"there is a {_ONLY[kind]} already"
            raise LocalProtocolError(message)
        return kind(self._world, *given, **settings)

    def peer(
        self, *, kind: SocketKind = "DEALER", bind: Sequence[str] = (), connect: Sequence[str] | None = None
    ) -> Peer:
        """Adds a raw socket, to send your own frames: by default a DEALER that connects to the broker.

        ```pycon
        >>> from trunkline import cdtp, testing
        >>> with testing.pair(cdtp.Sender) as sim:
        ...     peer = sim.peer(kind="PULL", bind=["tcp://receiver:1"])
        ...     sim.sender.send(b"event")
        ...     peer.receive()[-1]
        b'event'

        ```
        """
        if connect is None:
            connect = () if bind else [BROKER]
        return Peer(self._world, kind, bind, connect)

    @property
    def broker(self) -> Broker:
        """The broker."""
        return self._first(Broker)

    @property
    def client(self) -> Client:
        """The client that was added first."""
        return self._first(Client)

    @property
    def worker(self) -> Worker:
        """The worker that was added first."""
        return self._first(Worker)

    @property
    def connector(self) -> Connector:
        """The connector that was added first."""
        return self._first(Connector)

    @property
    def middleware(self) -> Middleware:
        """The middleware."""
        return self._first(Middleware)

    @property
    def queue_client(self) -> QueueClient:
        """The MTL client that was added first."""
        return self._first(QueueClient)

    @property
    def queue_server(self) -> QueueServer:
        """The server of MTL."""
        return self._first(QueueServer)

    @property
    def source(self) -> Source:
        """The source that was added first."""
        return self._first(Source)

    @property
    def target(self) -> Target:
        """The target that was added first."""
        return self._first(Target)

    @property
    def sender(self) -> Sender:
        """The sender that was added first."""
        return self._first(Sender)

    @property
    def receiver(self) -> Receiver:
        """The receiver that was added first."""
        return self._first(Receiver)

    @property
    def now_s(self) -> float:
        """The simulated time, in seconds."""
        return self._world.now_ns / _S

    def advance(self, seconds: float) -> None:
        """Advances the clock by this many seconds; 0 processes everything that is due now.

        Raises:
            RuntimeError: More happens than `steps` allows.
        """
        self._world.advance(seconds)

    def until(self, ready: Callable[[], object], *, timeout_s: float | None = None) -> bool:
        """Advances the clock until a condition holds.

        Args:
            ready: The condition; called after every event.
            timeout_s: How far at most; None as far as it takes, 0 not at all.

        Returns:
            Whether the condition holds.

        Raises:
            RuntimeError: It never will: nothing more happens, or more than `steps` allows.
        """
        return self._world.until(ready, timeout_s)

    def after(self, seconds: float, function: Callable[[], object]) -> None:
        """Calls a function once the clock has advanced by this many seconds.

        Raises:
            ValueError: The time is negative.
        """
        self._world.after(seconds, function)

    def crash(self, who: Who) -> None:
        """Crashes a role in the middle of whatever it does, without notice to anyone.

        Its connections end. Its requests in progress can no longer be answered, and its own requests raise `ClosedError`.
        """
        self._world.crash(who)

    def restart(self, who: Who) -> None:
        """Restarts a role without its memory; one that has not crashed is crashed first."""
        self._world.crash(who).restart()

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


def _simulated(role: Any) -> Any:
    kind = next((kind for real, kind in _SIMULATED.items() if isinstance(role, type) and issubclass(role, real)), None)
    if kind is None:
        name = getattr(role, "__name__", repr(role))
        names = ", ".join(f"{real.__module__.split('.')[1]}.{real.__name__}" for real in _SIMULATED)
        message = f"{name} is not simulated: take one of {names}, whose waits move the clock"
        raise LocalProtocolError(message)
    return kind


def pair(
    *roles: Role,
    seed: int = 0,
    latency_s: float = 0.0,
    jitter_s: float = 0.0,
    loss: float = 0.0,
    duplication: float = 0.0,
    reorder: bool = False,
    steps: int = 1_000_000,
) -> Simulation:
    """A simulation with these roles, each with its defaults; a worker offers ``b"echo"``, a sender is named
    ``"sender"``.

    An MTL server admits anyone and has the resource ``"jobs"``.

    Add more, or others, by `Simulation.add`. See `Simulation` for the other arguments.

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
        given, settings = _GIVEN.get(_simulated(role), ((), {}))
        simulation.add(role, *given, **settings)
    return simulation
