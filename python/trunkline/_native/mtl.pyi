"""MTL messages, field tables, and the engines of its roles."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, final

from trunkline._frames import Frame
from trunkline._native import Caller, NoticeQueue, Outgoing, Role

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
    "define_queues",
    "encode",
    "encode_table",
]

_Frame: TypeAlias = Frame
_Type: TypeAlias = Literal["lease", "response", "summon", "dismiss", "content", "confirm", "reject", "ping", "pong"]

@final
class Command:
    """A command of the control flow (MTL-07). Frozen, comparable, picklable.

    Args:
        name: Class and method, e.g. ``"Queue.Info"``; case does not matter to servers (MTL-09).
        body: Its arguments, a JSON object; numbers have up to 64 bits.

    Raises:
        LocalProtocolError: The name is not ``Class.Method``.
    """

    __match_args__ = ("name", "body")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(cls, name: str, body: Mapping[str, Any] | None = None) -> Self: ...
    @property
    def name(self) -> str:
        """Class and method, as written (MTL-07)."""

    @property
    def body(self) -> dict[str, Any]:
        """The arguments."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[tuple[bytes, ...]]]: ...

@final
class Reply:
    """A reply of the control flow (MTL-08). Frozen, comparable, picklable.

    Args:
        status: From 200 to 599.
        body: Its results, a JSON object; numbers have up to 64 bits.

    Raises:
        LocalProtocolError: The status is out of range.
    """

    __match_args__ = ("status", "body")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(cls, status: int, body: Mapping[str, Any] | None = None) -> Self: ...
    @property
    def status(self) -> int:
        """The status, from 200 to 599 (MTL-08)."""

    @property
    def body(self) -> dict[str, Any]:
        """The results."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[tuple[bytes, ...]]]: ...

@final
class Message:
    """A message of the data flow (MTL-33). Frozen, comparable by its frames, picklable; a decoded one keeps its bytes.

    Args:
        type: One of the nine message types.
        sequence: The number of the command or content; all types but ``ping`` and ``pong`` have one.
        lease: The lease that a ``lease`` redeems.
        resource: The resource of a ``summon``, a ``dismiss`` or a ``content``, where it is optional.
        properties: The field table of a ``content`` (MTL-60).
        multiple: Whether a ``confirm`` or ``reject`` covers all contents up to its sequence.
        recycle: Whether rejected contents are to be delivered again.
        status: The status of a ``response``, from 200 to 599.
        body: The body of a ``content``.

    Raises:
        LocalProtocolError: The message would be invalid, e.g. a ``lease`` without a lease.
    """

    __match_args__ = ("type",)
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

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
        """The message type, one of nine (MTL-33)."""

    @property
    def sequence(self) -> int | None:
        """The number of the command or content; None for ``ping`` and ``pong``."""

    @property
    def lease(self) -> str | None:
        """The lease that a ``lease`` redeems (MTL-34); None for the others."""

    @property
    def resource(self) -> str | None:
        """The resource of a ``summon``, a ``dismiss`` or a ``content``, where it may be empty; None for the others."""

    @property
    def properties(self) -> dict[str, Any] | None:
        """The field table of a ``content`` (MTL-60); None for the others."""

    @property
    def multiple(self) -> bool | None:
        """Whether a ``confirm`` or ``reject`` covers all contents up to its sequence (MTL-51); None for the others."""

    @property
    def recycle(self) -> bool | None:
        """Whether the contents of a ``reject`` are to be delivered again (MTL-54); None for the others."""

    @property
    def status(self) -> int | None:
        """The status of a ``response``, from 200 to 599 (MTL-35); None for the others."""

    @property
    def body(self) -> bytes | None:
        """The body of a ``content``; None for the others."""

    def array(self, dtype: Any = None, *, frame: int | None = None) -> Any:
        """The body of a "content" as a NumPy array of one dimension; one frame is not copied, and cannot be written to.

        Args:
            dtype: The type of its items; of bytes if None.
            frame: The number of the only frame to take, from 0 on, below 0 from the end; all of them, one after another, if None.

        Raises:
            IndexError: There is no such frame.
            ValueError: The bytes are no whole number of items.
            LocalProtocolError: numpy is not installed.
        """

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[tuple[bytes, ...]]]: ...

def decode(frames: Iterable[_Frame]) -> Command | Reply | Message:
    """Decodes a message of either flow from its frames, without the envelope that a ROUTER prepends.

    The first byte distinguishes the flows: data headers begin below 0x20, commands and statuses do not.

    Args:
        frames: Bytes-like objects, as any socket gives them.

    Raises:
        DecodeError: They are not a message.
    """

def define_queues(directory: str, descriptions: Sequence[bytes]) -> None:
    """Adds queues to the store of a directory, which no server may use meanwhile."""

def encode(message: Command | Reply | Message) -> tuple[bytes, ...]:
    """Encodes a message as frames, without an envelope; a decoded one of the data flow bit for bit."""

def decode_table(table: _Frame) -> dict[str, Any]:
    """Decodes a field table (MTL-60).

    All types of RabbitMQ's dialect are read. Text that is not UTF-8 becomes bytes, and a time after the year 9999 a number
    of seconds.

    Raises:
        DecodeError: The bytes are not one field table: ``bad_field_table``.
    """

def encode_table(fields: Mapping[str, Any]) -> bytes:
    """Encodes a field table (MTL-60): bool t, int I or l, float d, str S, bytes x, datetime T, Decimal D, None V, list A, dict F.

    Bools, integers and floats of NumPy are taken as Python's. A time has whole seconds: those of a datetime are rounded down.

    Raises:
        LocalProtocolError: A name has more than 128 bytes, or tables and arrays are nested more than 16 deep.
        OverflowError: A number does not fit in 64 bits, or a Decimal in 32.
        TypeError, ValueError: A value is of another type.
    """

def _restore(frames: Iterable[_Frame]) -> Command | Reply | Message:
    """Restores a pickled message."""

@final
class Content:
    """A content delivered to a reader."""

    __match_args__ = ("resource", "body")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    @property
    def resource(self) -> str:
        """The resource it was delivered from."""

    @property
    def properties(self) -> dict[str, Any]:
        """The properties (MTL-60), including `redelivered` if it may have been delivered before."""

    @property
    def body(self) -> bytes:
        """The body."""

    def array(self, dtype: Any = None, *, frame: int | None = None) -> Any:
        """The body as a NumPy array of one dimension; one frame is not copied, and cannot be written to.

        Args:
            dtype: The type of its items; of bytes if None.
            frame: The number of the only frame to take, from 0 on, below 0 from the end; all of them, one after another, if None.

        Raises:
            IndexError: There is no such frame.
            ValueError: The bytes are no whole number of items.
            LocalProtocolError: numpy is not installed.
        """

    @property
    def sequence(self) -> int:
        """Its number on the connection that delivered it (MTL-47)."""

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before (MTL-54)."""

    def confirm(self) -> None:
        """Confirms it (MTL-51); has no effect once the connection that delivered it is lost."""

    def reject(self, *, recycle: bool = False) -> None:
        """Rejects it (MTL-53); with `recycle` it is delivered again, preferably to another reader."""

@final
class Outbound:
    """A content on its way to the engine."""

@final
class Server(Role):
    """A server's engine."""

    def __new__(cls, options: Mapping[str, Any], given: Mapping[str, Any]) -> Server: ...
    @property
    def notice_queue(self) -> NoticeQueue:
        """The notices, to be logged."""

    @property
    def asked(self) -> NoticeQueue:
        """The questions to be answered."""

    @property
    def listens(self) -> tuple[list[str], list[str]]:
        """The endpoints for commands, and those for data."""

    def challenge(self, token: int, challenge: bytes, state: bytes, proven: str | None) -> None:
        """Answers a question: the login continues with this challenge; `proven` is the user who has proved the password, if any."""

    def welcome(self, token: int, name: str, read: Sequence[str] | None, write: Sequence[str] | None) -> None:
        """Answers a question: the login has succeeded."""

    def refuse(self, token: int, name: str | None) -> None:
        """Answers a question: the login has failed."""

    def reply(self, token: int, reply: Reply) -> None:
        """Answers a question: the reply to a custom command."""

    def fail(self, token: int) -> None:
        """Answers a question: it could not be decided, or the handler failed."""

    def revoke(self, users: Sequence[str], *, leases: bool) -> None:
        """Makes sessions of these users authenticate again; with `leases` their data connections end too."""

    def bar(self, users: Sequence[str]) -> None:
        """Replaces the set of names, proved by keys, that are no longer admitted."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

@final
class Client(Caller):
    """A client's engine for commands."""

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
    def notice_queue(self) -> NoticeQueue:
        """The notices, to be logged."""

    @property
    def asked(self) -> NoticeQueue:
        """The questions to be answered."""

    @property
    def endpoint(self) -> str:
        """Which of the given endpoints it is connected to."""

    @property
    def logs_in(self) -> bool:
        """Whether the current session has reached its login."""

    def call(self, name: str | None, body: Mapping[str, Any] | None, timeout_s: float | None) -> Outgoing:
        """A call that sends a command; without a name, one that opens a session."""

    def respond(self, token: int, mechanism: str, response: bytes, *, is_done: bool) -> None:
        """Continues a login with this response; `is_done`: the server may end it now."""

    def give_up(self, token: int, reason: str) -> None:
        """Gives up a login."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

@final
class Flow(Caller):
    """The engine of a data connection."""

    def __new__(cls, options: Mapping[str, Any], given: Mapping[str, Any], client: Role) -> Flow: ...
    @property
    def notice_queue(self) -> NoticeQueue:
        """The notices, to be logged."""

    @property
    def asked(self) -> NoticeQueue:
        """The questions for a new lease, to be answered."""

    @property
    def rejected(self) -> int:
        """How many contents were rejected so far."""

    def call(self, asked: Literal["open", "summon", "dismiss"], resource: str, timeout_s: float | None) -> Outgoing:
        """A call that redeems the lease, or summons or dismisses a resource."""

    def outbound(self, body: _Frame, properties: Mapping[str, Any] | None, resource: str | None) -> Outbound:
        """A content to send."""

    @staticmethod
    def flushing() -> Outbound:
        """What has contents without confirmation count as waiting until they are known to have arrived; goes where they go."""

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
        """Confirms a content, or all up to it."""

    def reject(self, content: Content, *, multiple: bool, recycle: bool) -> None:
        """Rejects a content, or all up to it."""

    def granted(self, token: int, endpoint: str, lease: str) -> None:
        """Answers a question: a new lease was granted."""

    def denied(self, token: int, reason: str | None) -> None:
        """Answers a question: no new lease was granted; with a reason, none will be."""

    def times(self) -> list[float]:
        """Seconds from sending a content until it was settled: those of the last ten thousand."""

    def rejects(self, known: int) -> tuple[int, list[int]]:
        """How many contents were rejected, and the numbers of those beyond the first `known`, the last hundred thousand."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""
