"""MTL messages, field tables, and the engines of its roles."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, final

import zmq
from typing_extensions import Buffer

from trunkline._native import Caller, Outgoing, Role, Told

__all__ = [
    "Client",
    "Command",
    "Content",
    "Flow",
    "Message",
    "Outbound",
    "Reply",
    "Server",
    "_restore",
    "decode",
    "decode_table",
    "encode",
    "encode_table",
]

_Frame: TypeAlias = Buffer | zmq.Frame
_Type: TypeAlias = Literal["lease", "response", "summon", "dismiss", "content", "confirm", "reject", "ping", "pong"]

@final
class Command:
    """A command of the control flow (MTL-07). Frozen, comparable, picklable.

    Args:
        name: Its class and method, as ``"Queue.Info"``; case does not matter to servers (MTL-09).
        body: What it says: what JSON has, numbers of up to 64 bits.

    Raises:
        LocalProtocolError: The name is none of a class and a method.
    """

    def __new__(cls, name: str, body: Mapping[str, Any] | None = None) -> Self: ...
    @property
    def name(self) -> str:
        """The class and the method, as they are written (MTL-07)."""

    @property
    def body(self) -> dict[str, Any]:
        """What it says."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[tuple[bytes, ...]]]: ...

@final
class Reply:
    """A reply of the control flow (MTL-08). Frozen, comparable, picklable.

    Args:
        status: 200 … 599.
        body: What it says: what JSON has, numbers of up to 64 bits.

    Raises:
        LocalProtocolError: The status is none.
    """

    def __new__(cls, status: int, body: Mapping[str, Any] | None = None) -> Self: ...
    @property
    def status(self) -> int:
        """200 … 599 (MTL-08)."""

    @property
    def body(self) -> dict[str, Any]:
        """What it says."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[tuple[bytes, ...]]]: ...

@final
class Message:
    """A message of the data flow (MTL-33). Frozen, comparable by its frames, picklable; a decoded one keeps its bytes.

    Args:
        type: Which of the nine it is.
        sequence: The number of the command or content; all but ``ping`` and ``pong`` have one.
        lease: The lease of a ``lease``.
        resource: The resource of a ``summon``, a ``dismiss`` or a ``content``, where it may be left out.
        properties: The field table of a ``content`` (MTL-60).
        multiple: Whether a ``confirm`` or ``reject`` is about all contents up to its sequence.
        recycle: Whether what a ``reject`` is about is to be sent again.
        status: What a ``response`` says, 200 … 599.
        body: The body of a ``content``.

    Raises:
        LocalProtocolError: It would be no message, as a ``lease`` without a lease.
    """

    def __new__(
        cls,
        type: _Type,
        *,
        sequence: int | None = None,
        lease: str | None = None,
        resource: str | None = None,
        properties: Mapping[str, Any] | None = None,
        multiple: bool | None = None,
        recycle: bool | None = None,
        status: int | None = None,
        body: _Frame | None = None,
    ) -> Self: ...
    @property
    def type(self) -> _Type:
        """Which of the nine it is (MTL-33)."""

    @property
    def sequence(self) -> int | None:
        """The number of the command or content; None where there is none."""

    @property
    def lease(self) -> str | None:
        """The lease of a lease (MTL-34); None for the others."""

    @property
    def resource(self) -> str | None:
        """The resource of a summon, a dismiss or a content, where it may be empty; None for the others."""

    @property
    def properties(self) -> dict[str, Any] | None:
        """The field table of a content (MTL-60); None for the others."""

    @property
    def multiple(self) -> bool | None:
        """Whether a confirm or a reject is about all contents up to its sequence (MTL-51); None for the others."""

    @property
    def recycle(self) -> bool | None:
        """Whether what a reject is about is to be sent again (MTL-54); None for the others."""

    @property
    def status(self) -> int | None:
        """What a response says, 200 … 599 (MTL-35); None for the others."""

    @property
    def body(self) -> bytes | None:
        """The body of a content; None for the others."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[tuple[bytes, ...]]]: ...

def decode(frames: Iterable[_Frame]) -> Command | Reply | Message:
    """The message in these frames, of either flow, without the envelope that a ROUTER puts in front.

    Headers of data begin below 0x20, commands and statuses never do.

    Args:
        frames: Bytes-like objects, as any socket gives them.

    Raises:
        DecodeError: They are no message.
    """

def encode(message: Command | Reply | Message) -> tuple[bytes, ...]:
    """The frames of a message, without an envelope; of a decoded one of the data flow, bit for bit."""

def decode_table(table: _Frame) -> dict[str, Any]:
    """The dictionary in a field table, which is all of the bytes (MTL-60).

    Every letter of RabbitMQ's dialect is read. Text that is no UTF-8 is bytes; a time after the year 9999 is a number of
    seconds.

    Raises:
        DecodeError: They are none: ``bad_field_table``.
    """

def encode_table(fields: Mapping[str, Any]) -> bytes:
    """A field table (MTL-60): bool t, int I or l, float d, str S, bytes x, datetime T, Decimal D, None V, list A, dict F.

    Raises:
        LocalProtocolError: A name has more than 128 bytes, or there are more than 16 tables and arrays inside each other.
        OverflowError: A number does not fit in 64 bits, or a Decimal in 32.
        TypeError, ValueError: There is something else in it.
    """

def _restore(frames: Iterable[_Frame]) -> Command | Reply | Message:
    """A pickled message."""

@final
class Content:
    """A content that came to a reader."""

    @property
    def resource(self) -> str:
        """The resource it is from."""

    @property
    def properties(self) -> dict[str, Any]:
        """Its properties (MTL-60), `redelivered` among them where it may have been delivered before."""

    @property
    def body(self) -> bytes:
        """Its body."""

    @property
    def sequence(self) -> int:
        """Its number on the connection it came on (MTL-47)."""

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before (MTL-54)."""

    def confirm(self) -> None:
        """Says that it is safe (MTL-51); nothing comes of it once the connection that it came on is lost."""

    def reject(self, *, recycle: bool = False) -> None:
        """Says that it is not wanted (MTL-53); with `recycle` it is sent again, to somebody else first."""

@final
class Outbound:
    """A content on its way to the engine."""

@final
class Server(Role):
    """A server's engine."""

    def __new__(cls, options: Mapping[str, Any], given: Mapping[str, Any]) -> Server: ...
    @property
    def told(self) -> Told:
        """The notices, for those who tell them."""

    @property
    def asked(self) -> Told:
        """The questions, for those who answer them."""

    @property
    def listens(self) -> tuple[list[str], list[str]]:
        """Where it listens for commands, and where for data."""

    def challenge(self, token: int, challenge: bytes, state: bytes) -> None:
        """A login goes on."""

    def welcome(self, token: int, name: str, read: Sequence[str] | None, write: Sequence[str] | None) -> None:
        """A login is done."""

    def refuse(self, token: int, name: str | None) -> None:
        """A login has failed."""

    def reply(self, token: int, reply: Reply) -> None:
        """A command of the user's own is replied to."""

    def fail(self, token: int) -> None:
        """A question has no answer."""

    def revoke(self, users: Sequence[str], *, leases: bool) -> None:
        """Sessions of these users have to authenticate again; with `leases` their data connections end too."""

    def bar(self, users: Sequence[str]) -> None:
        """Whoever has proved one of these names by a key is let in no more; they replace those of before."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

@final
class Client(Caller):
    """A client's engine, as far as commands go."""

    def __new__(
        cls,
        options: Mapping[str, Any],
        *,
        virtual_host: str,
        profile: str,
        timeout_s: float,
        capture_secrets: bool,
    ) -> Client: ...
    @property
    def told(self) -> Told:
        """The notices, for those who tell them."""

    @property
    def asked(self) -> Told:
        """The questions, for those who answer them."""

    @property
    def endpoint(self) -> str:
        """The endpoint it is connected to, of those it was given."""

    @property
    def logs_in(self) -> bool:
        """Whether the session that was begun last has come to a login."""

    def call(self, name: str | None, body: Mapping[str, Any] | None, timeout_s: float | None) -> Outgoing:
        """A call of a command; without a name, of a session."""

    def respond(self, token: int, mechanism: str, response: bytes, *, is_done: bool) -> None:
        """A login goes on with this; whether the server may end it now."""

    def give_up(self, token: int, reason: str) -> None:
        """A login does not go on."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

@final
class Flow(Caller):
    """The engine of a data connection."""

    def __new__(cls, options: Mapping[str, Any], given: Mapping[str, Any], client: Role) -> Flow: ...
    @property
    def told(self) -> Told:
        """The notices, for those who tell them."""

    @property
    def asked(self) -> Told:
        """The questions for another lease, for those who get one."""

    def call(self, asked: Literal["open", "summon", "dismiss"], resource: str, timeout_s: float | None) -> Outgoing:
        """A call that asks this of a resource."""

    def outbound(self, body: _Frame, properties: Mapping[str, Any] | None, resource: str | None) -> Outbound:
        """A content to send."""

    def offer_outbound(self, outbound: Outbound) -> bool:
        """Hands a content to the engine; false when there is no room."""

    def put_outbound(self, outbound: Outbound, timeout_s: float | None = None) -> None:
        """Hands a content to the engine, waiting for room."""

    def receive(self, timeout_s: float | None = None) -> Content:
        """Waits for a content."""

    def poll(self) -> Content | None:
        """The next content if there is one now."""

    def __iter__(self) -> Iterator[Content]: ...
    def __next__(self) -> Content: ...
    def confirm(self, content: Content, *, multiple: bool) -> None:
        """Says that a content is safe, or that all up to it are."""

    def reject(self, content: Content, *, multiple: bool, recycle: bool) -> None:
        """Says that a content is not wanted, or that none up to it is."""

    def granted(self, token: int, endpoint: str, lease: str) -> None:
        """There is another lease."""

    def denied(self, token: int, reason: str | None) -> None:
        """There is no other lease: for good where a reason is given, else so far."""

    def times(self) -> list[float]:
        """Seconds from when contents were given until they were settled: of the last ten thousand."""

    def rejects(self) -> list[int]:
        """Which contents were rejected, by their order: the last hundred thousand."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""
