"""mc0 messages, and the engines of its roles."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, final

from trunkline._frames import Frame
from trunkline._native import Caller, NoticeQueue, Outgoing, Role

__all__ = [
    "Connector",
    "Message",
    "Middleware",
    "OutgoingPut",
    "_restore",
    "decode",
    "encode",
]

_Verb: TypeAlias = Literal["CONNECT", "DISCONNECT", "SUB", "UNSUB", "PUT", "NOOP", "MESSAGE", "OK", "ERROR"]
_Frame: TypeAlias = Frame
_Text: TypeAlias = str | bytes
_Parts: TypeAlias = _Frame | Iterable[_Frame]
_Headers: TypeAlias = Mapping[str, _Text] | Mapping[bytes, _Text] | Iterable[tuple[_Text, _Text]]

@final
class Message:
    """A message with any of the nine verbs. Frozen, comparable by its frames, picklable; a decoded one keeps its bytes.

    Topics, keys and values are bytes on the wire and `str` here: UTF-8, and bytes that are none as surrogates, as
    `os.fsdecode` has it. `str` and `bytes` are taken.

    Args:
        verb: The verb (MC0-06).
        headers: Pairs of a key, which is not empty, and a value.
        positional: The frames after the headers: topics, or a body.
        leading_delimiter: Whether it begins with an empty frame (MC0-07).

    Raises:
        LocalProtocolError: It would be no message, as a PUT without TOPIC.
    """

    __match_args__ = ("verb", "headers", "positional")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(
        cls,
        verb: _Verb,
        headers: _Headers = (),
        positional: Iterable[_Frame] = (),
        *,
        leading_delimiter: bool = True,
    ) -> Self: ...
    @property
    def verb(self) -> _Verb:
        """The verb (MC0-06)."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All headers, including reserved ones: keys and values in wire order."""

    @property
    def positional(self) -> tuple[bytes, ...]:
        """The frames after the headers."""

    @property
    def leading_delimiter(self) -> bool:
        """Whether it begins with an empty frame (MC0-07)."""

    @property
    def id(self) -> str | None:
        """The ID of the message, or of the one it answers; None if it has none (MC0-12)."""

    @property
    def topic(self) -> str | None:
        """The topic of a PUT or a MESSAGE; None for the others."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of a SUB or an UNSUB; none for the others."""

    @property
    def body(self) -> tuple[bytes, ...]:
        """The body of a PUT or a MESSAGE; empty for the others."""

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
    def version(self) -> str | None:
        """The version of a CONNECT; None if not given, and for the others (MC0-20)."""

    @property
    def ttl_ms(self) -> int | None:
        """How long the connector of a CONNECT may be silent; 0 means no limit, None not given (MC0-24)."""

    @property
    def text(self) -> str | None:
        """The text of an ERROR; None if it has none, and for the others (MC0-16)."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Message], tuple[tuple[bytes, ...]]]: ...

@final
class Middleware(Role):
    """A middleware's engine."""

    def __new__(cls, options: dict[str, Any], settings: Mapping[str, Any]) -> Middleware: ...
    def enforce(self, entries: Sequence[tuple[bytes, bool, Sequence[bytes], Sequence[bytes]]] | None) -> None:
        """Has these entries be the policy from the next message on; without any, everything is allowed."""

    def notices(self) -> list[tuple[Any, ...]]:
        """Notices since the last call, each `(kind, *details)`."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

def decode(frames: Iterable[_Frame]) -> Message:
    """The message in these frames, without the address that a ROUTER prepends; with or without the leading empty frame.

    Args:
        frames: Bytes-like objects, as any socket gives them.

    Raises:
        DecodeError: They are no message.
    """

def encode(message: Message) -> tuple[bytes, ...]:
    """The frames of a message, without the address that a ROUTER prepends; of a decoded one, bit for bit."""

def _restore(frames: Iterable[_Frame]) -> Message:
    """A pickled message."""

@final
class OutgoingPut:
    """A PUT on its way to the engine, without confirmation."""

@final
class Connector(Caller):
    """A connector's engine."""

    def __new__(
        cls, options: Mapping[str, Any], *, ttl_ms: int | None, leading_delimiter: bool, max_message_bytes: int
    ) -> Self: ...
    @property
    def notice_queue(self) -> NoticeQueue:
        """The notices, to be reported."""

    def subscribe(self, topics: Iterable[_Text], timeout_s: float | None) -> Outgoing:
        """A call that subscribes."""

    def unsubscribe(self, topics: Iterable[_Text], timeout_s: float | None) -> Outgoing:
        """A call that unsubscribes."""

    def submit(self, topic: _Text, body: _Parts, headers: _Headers, timeout_s: float | None) -> Outgoing:
        """A call that puts."""

    def ping(self, timeout_s: float | None) -> Outgoing:
        """A call that asks for a sign of life."""

    def prepare_put(self, topic: _Text, body: _Parts, headers: _Headers) -> OutgoingPut:
        """A PUT without confirmation."""

    def offer_put(self, put: OutgoingPut) -> bool:
        """Hands a message to the engine; false when there is no room."""

    def send_put(self, put: OutgoingPut, timeout_s: float | None = None) -> None:
        """Hands a message to the engine, waiting for room."""

    def receive(self, timeout_s: float | None = None) -> Message:
        """Waits for a message."""

    def poll(self) -> Message | None:
        """The next message if there is one now."""

    def __iter__(self) -> Iterator[Message]: ...
    def __next__(self) -> Message: ...
    def stats(self) -> dict[str, Any]:
        """Counters, by name."""
