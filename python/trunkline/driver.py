r"""The state machine of a role, for applications with their own sockets, clock and event loop.

A machine does nothing by itself. **After each input, take all outputs of `Driver.poll_output` and all events of
`Driver.poll_event`; then wait for a socket, or until `Driver.timeout_ns`.** It opens its sockets by an `Open` among its outputs.

```pycon
>>> from trunkline import dcp
>>> from trunkline.driver import Driver, Open, Send
>>> driver = Driver(dcp.Client, connect="tcp://broker:1", seed=7)
>>> driver.poll_output(0)
Open(socket=0, kind='DEALER', bind=(), connect=('tcp://broker:1',))
>>> driver.ask(0, "request", call=1, service=b"echo", data=b"hello", metadata=(), timeout_s=1, retries=0)
>>> asked = driver.poll_output(0)
>>> asked.frames[2:4], asked.frames[-1], driver.timeout_ns
((b'\x04', b'echo'), b'hello', 1000000000)
>>> driver.handle_socket(0, 0, "sent", send=asked.id)
>>> driver.handle_timeout(1_000_000_000)
>>> driver.poll_event(1_000_000_000)
('timed_out', 1)

```

Times are nanoseconds, from an origin of your own, and never go back. The guide "A loop of your own" lists the verbs and the
events of each machine, with their arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from trunkline import _native
from trunkline._frames import Frame
from trunkline._roles import Role, endpoints
from trunkline.errors import LocalProtocolError
from trunkline.mtl.flows import FlowBase

__all__ = ["Close", "Connect", "Disconnect", "Driver", "Open", "Output", "Send", "Verdict", "Withdraw"]
__dir__ = __all__.copy

SocketHappening: TypeAlias = Literal[
    "bound", "connected", "disconnected", "open_failed", "handshake_failed", "sent", "unsent", "closed"
]


@dataclass(frozen=True, slots=True)
class Open:
    """Open a socket.

    Attributes:
        socket: Its number from now on.
        kind: Its kind: "DEALER", "NATS", "PULL", "PUSH", "REQ", "ROUTER" or "UDP".
        bind: Where it is to listen: report ``"bound"`` with the real endpoint of each, or ``"open_failed"``.
        connect: Where it is to connect.
    """

    socket: int
    kind: str
    bind: Sequence[str]
    connect: Sequence[str]


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message.

    Attributes:
        socket: On which socket.
        id: Report ``"sent"`` or ``"unsent"`` with this number, unless it is None.
        to: The routing id (ROUTER) or address (UDP) of the receiver.
        frames: The frames, without routing id.
        until_ns: When to give up.
    """

    socket: int
    id: int | None
    to: bytes | None
    frames: tuple[bytes, ...]
    until_ns: int | None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Give up a send that the transport has not accepted yet, and report ``"unsent"``, ``"expired"``. One that it has
    accepted is sent.

    Attributes:
        socket: On which socket.
        id: Its number.
    """

    socket: int
    id: int


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to one more endpoint.

    Attributes:
        socket: With which socket.
        endpoint: Which.
    """

    socket: int
    endpoint: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Disconnect from an endpoint.

    Attributes:
        socket: On which socket.
        endpoint: Which.
    """

    socket: int
    endpoint: str


@dataclass(frozen=True, slots=True)
class Close:
    """Close a socket, and report ``"closed"``.

    Attributes:
        socket: Which.
        linger_s: How long accepted messages may still be sent.
    """

    socket: int
    linger_s: float


Output: TypeAlias = Open | Send | Withdraw | Connect | Disconnect | Close

_OUTPUTS: dict[str, type[Any]] = {
    "open": Open,
    "send": Send,
    "withdraw": Withdraw,
    "connect": Connect,
    "disconnect": Disconnect,
    "close": Close,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a received message was classified.

    Attributes:
        error: Why its bytes are not a message, by kind; None if they are one.
        framing: Its framing, where a role has several.
        topic: Its topic, where the frames do not contain it.
    """

    error: str | None
    framing: str | None
    topic: bytes | None


class Driver:
    """The state machine of a role.

    Args:
        role: The role: a class of `trunkline.cdt`, `trunkline.cdtp`, `trunkline.chirp`, `trunkline.dcp`,
            `trunkline.mc0` or `trunkline.mtl`.
        *given: The positional arguments of the class: the name of a sender, the service of a worker.
        now_ns: The time.
        seed: The seed of its random numbers; random if None.
        **settings: The keyword arguments of the class; of the socket options only ``bind`` and ``connect``. A writer or
            reader of MTL takes what `trunkline.mtl.Client.writer` does, ``timeout_s``, ``ping_interval_s`` and
            ``liveness`` as a client has them, and of the reply that leases it ``connect`` and ``lease``.

    Raises:
        LocalProtocolError: An option is a socket option, or the role has no machine of its own.
    """

    def __init__(
        self, role: type[Role], /, *given: Any, now_ns: int = 0, seed: int | None = None, **settings: Any
    ) -> None:
        kind, machine, options = _described(role, given, settings)
        refused = [name for name in options if name not in ("bind", "connect")]
        if refused:
            message = f"a driver opens no sockets: leave out {', '.join(f'{name}=' for name in refused)}"
            raise LocalProtocolError(message)
        machine["bind"] = endpoints("bind", options.get("bind", ()))
        machine["connect"] = endpoints("connect", options.get("connect", ()))
        self._native = _native.Driver(kind, machine, now_ns=now_ns, seed=seed)

    def handle_message(
        self,
        now_ns: int,
        socket: int,
        frames: Sequence[Frame],
        *,
        peer: bytes | None = None,
        user_id: bytes | None = None,
        host: str | None = None,
    ) -> Verdict:
        """Handles one complete received message, which may contain anything.

        Args:
            now_ns: The time.
            socket: The socket it arrived on.
            frames: The frames, without routing id.
            peer: The routing id (ROUTER) or address (UDP) of the sender.
            user_id: What authentication found the sender to be.
            host: The host of the sender, if known: libzmq has it in a frame's ``Peer-Address``.
        """
        return Verdict(*self._native.handle_message(now_ns, socket, frames, peer=peer, user_id=user_id, host=host))

    def handle_socket(
        self,
        now_ns: int,
        socket: int,
        happening: SocketHappening,
        *,
        endpoint: str | None = None,
        send: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Handles an event of a socket.

        Args:
            now_ns: The time.
            socket: Which.
            happening: What.
            endpoint: The endpoint; not for a send.
            send: The number of the send that was sent or not.
            reason: The reason: text, or for a send "unreachable", "peer_full", "expired" or "closed".

        Raises:
            ValueError: The event is unknown, or an argument is missing.
        """
        self._native.handle_socket(now_ns, socket, happening, endpoint=endpoint, send=send, reason=reason)

    def handle_timeout(self, now_ns: int) -> None:
        """Has the machine act on everything that is due. Early calls are harmless."""
        self._native.handle_timeout(now_ns)

    def handle_close(self, now_ns: int, grace_s: float) -> None:
        """Begins a graceful shutdown that takes at most this many seconds; `closed` says when it is complete."""
        self._native.handle_close(now_ns, grace_s)

    def ask(self, now_ns: int, verb: str, /, **given: Any) -> None:
        """Requests an action of the machine: one of its verbs, with arguments.

        Raises:
            ValueError: The verb is unknown.
            TypeError: An argument is missing.
            LocalProtocolError: The specification forbids it.
        """
        self._native.ask(now_ns, verb, **given)

    def poll_output(self, now_ns: int) -> Output | None:
        """The next action to perform on a socket; None if there is none left."""
        shown = self._native.poll_output(now_ns)
        if shown is None:
            return None
        output: Output = _OUTPUTS[shown.pop("output")](**shown)
        return output

    def poll_event(self, now_ns: int) -> tuple[Any, ...] | None:
        """The next event, ``(kind, *details)``; None if there is none left."""
        return self._native.poll_event(now_ns)

    @property
    def timeout_ns(self) -> int | None:
        """The latest time to call `handle_timeout`."""
        return self._native.timeout_ns

    def reads(self, socket: int) -> bool:
        """Whether this socket should be read now; if not, leave its messages where they are."""
        return self._native.reads(socket)

    @property
    def closed(self) -> bool:
        """Whether the shutdown is complete and every socket closed."""
        return self._native.closed

    @property
    def stats(self) -> dict[str, Any]:
        """Counters, with the same names as in `stats` of the role."""
        return self._native.stats()


def _described(
    role: type[Role], given: tuple[Any, ...], settings: dict[str, Any]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The kind of a role's machine, how it is set up, and the options of the role, without a role that runs."""
    if issubclass(role, FlowBase):
        # Only the flow knows its settings.
        return ("mtl.flow", *role._driven(*given, **settings))  # noqa: SLF001
    base = next((base for base in getattr(role, "__mro__", ()) if "_machine" in vars(base)), Role)
    if base is Role:
        message = f"{getattr(role, '__name__', repr(role))} has no machine of its own"
        raise LocalProtocolError(message)
    described: Any = type(base.__name__, (base,), {"_made": lambda _: None})(*given, **settings)
    kind, machine = described._machine()  # noqa: SLF001 - what both faces of a role share
    # A beacon has no options, and one of CDT none that say anything of sockets.
    options: Any = described._options if kind != "chirp.beacon" else {}  # noqa: SLF001 - likewise
    if described._metrics is not None:  # noqa: SLF001 - likewise
        options = {**options, "metrics": described._metrics}  # noqa: SLF001 - likewise
    return kind, dict(machine), options
