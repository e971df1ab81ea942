"""CDTP messages, and the engines of its roles."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, final, overload

from trunkline._frames import Frame
from trunkline._native import Role

__all__ = ["Batch", "Message", "Outgoing", "Receiver", "Sender", "_restore", "_restore_batch", "decode", "encode"]

_Header: TypeAlias = Literal["S", "A", "B", "2"]
_Type: TypeAlias = Literal["BOR", "DAT", "EOR"]
_Frame: TypeAlias = Frame
_Payload: TypeAlias = _Frame | Iterable[_Frame]

@final
class Message:
    """A message of CDTP, of any header. Frozen, comparable, picklable; a decoded one keeps its bytes.

    Args:
        sender: The sender's name.
        payload: The payload: one frame, or several.
        variant: Which header it has.
        tags: The tags map; keys are strings, values any of MessagePack's types.
        timestamp_ns: Nanoseconds since 1970; headers S and A need it, B and 2 have none.
        type: What a message of header A, B or 2 is for; a DAT unless said otherwise.
        sequence: Its number in the run, with header A, B or 2.

    Raises:
        LocalProtocolError: The header has no such field, or needs one that is not given.
    """

    __match_args__ = ("sender", "payload")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(
        cls,
        sender: str,
        payload: _Payload | None = None,
        *,
        variant: _Header = "S",
        tags: Mapping[str, Any] | None = None,
        timestamp_ns: int | None = None,
        type: _Type | None = None,
        sequence: int | None = None,
    ) -> Self: ...
    @property
    def sender(self) -> str:
        """The sender's name (CDTP-04)."""

    @property
    def variant(self) -> _Header:
        """Which header it has: "S", "A", "B" or "2"."""

    @property
    def type(self) -> _Type | None:
        """The message type: "BOR", "DAT" or "EOR"; None for S, which has none."""

    @property
    def sequence(self) -> int | None:
        """The number in the run; None for S."""

    @property
    def timestamp_ns(self) -> int | None:
        """Nanoseconds since 1970; None if the header has no timestamp (B, 2)."""

    @property
    def tags(self) -> dict[str, Any]:
        """The tags map, decoded on first use; a copy, since a message does not change.

        Raises:
            DecodeError: They are more than 1,000,000 objects, of the kind `too_many_objects`. The message is good all the same.
        """

    @property
    def config(self) -> dict[str, Any] | None:
        """The configuration in a BOR, whatever the header: the payload of A and B, the tags of CDTP2's record 1; else None (CDTP-13, CDTP-21).

        Raises:
            DecodeError: It is more than 1,000,000 objects, of the kind `too_many_objects`.
        """

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The metadata in an EOR, likewise."""

    def array(self, dtype: Any = None, *, frame: int | None = None) -> Any:
        """The payload as a NumPy array of one dimension; one frame is not copied, and cannot be written to.

        Args:
            dtype: What the numbers are, as NumPy takes it; the tag ``dtype`` if None, bytes without that.
            frame: The number of the only frame to take, from 0 on, below 0 from the end; all of them, one after another, if None.

        Raises:
            IndexError: There is no such frame.
            LocalProtocolError: NumPy is not installed.
            TypeError: There is no such type.
            ValueError: The payload is no whole number of them.
        """

    @property
    def payload(self) -> tuple[bytes, ...]:
        """The payload frames."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Message], tuple[tuple[bytes, ...]]]: ...

@final
class Batch(Sequence[Message]):
    """The messages of one CDTP2 wire message."""

    __match_args__ = ("sender", "type")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    @property
    def sender(self) -> str:
        """The sender's name (CDTP-04)."""

    @property
    def type(self) -> _Type:
        """The type of all its records: "BOR", "DAT" or "EOR"."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> Message: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[Message, ...]: ...
    def index(self, value: object, start: int = 0, stop: int = ...) -> int:
        """The position of a message, of the first one if several are equal.

        Raises:
            ValueError: There is none.
        """

    def count(self, value: object) -> int:
        """The number of messages equal to this one."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Batch], tuple[tuple[bytes, ...]]]: ...

def decode(
    frames: Iterable[_Frame], *, accept: _Header | Sequence[_Header] | None = None, strict: bool = True
) -> Message | Batch:
    """The message in these frames: a `Message`, or a `Batch` for CDTP2.

    Args:
        frames: Bytes-like objects, as any socket gives them.
        accept: The header that is a message, or several; all four if None.
        strict: Whether bytes after the header are an error (CDTP-10).

    Raises:
        DecodeError: They are no message.
    """

def encode(message: Message | Batch) -> tuple[bytes, ...]:
    """The frames of a message or batch; of a decoded one, bit for bit."""

def _restore(frames: Iterable[_Frame]) -> Message:
    """A pickled message."""

def _restore_batch(frames: Iterable[_Frame]) -> Batch:
    """A pickled batch."""

@final
class Outgoing:
    """A message on its way to the engine."""

@final
class Sender(Role):
    """A sender's engine."""

    def __new__(
        cls,
        options: Mapping[str, Any],
        name: str,
        *,
        header: _Header,
        max_message_bytes: int,
        batch_bytes: int,
        batch_s: float,
        beacon: Mapping[str, Any] | None = None,
    ) -> Self: ...
    def data(self, payload: _Payload, tags: Mapping[str, Any] | None, timestamp_ns: int | None) -> Outgoing:
        """A data message."""

    def begin_run(self, config: Mapping[str, Any]) -> Outgoing:
        """The begin of a run."""

    def end_run(self, metadata: Mapping[str, Any]) -> Outgoing:
        """The end of a run."""

    def raw(self, frames: Iterable[_Frame]) -> Outgoing:
        """A message as it is."""

    def complete(self) -> None:
        """Ends the run, if one is in progress, without waiting for room."""

    def flush(self) -> None:
        """Lets nothing wait for others to go with."""

    def offer(self, outgoing: Outgoing) -> bool:
        """Hands a message to the engine; false when there is no room."""

    def put(self, outgoing: Outgoing, timeout_s: float | None = None) -> None:
        """Hands a message to the engine, waiting for room."""

    def notices(self) -> list[tuple[str, str, str]]:
        """Notices since the last call, each ``(kind, endpoint, detail)``."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

@final
class Receiver(Role):
    """A receiver's or recorder's engine."""

    def __new__(
        cls,
        options: Mapping[str, Any],
        on_notice: Callable[..., None],
        *,
        accept: _Header | Sequence[_Header],
        strict: bool,
        deliver: bool,
        limit: int | None = None,
        message_limit: int | None = None,
        beacon: Mapping[str, Any] | None = None,
    ) -> Self: ...
    def receive(self, timeout_s: float | None = None) -> Message:
        """Waits for a message."""

    def poll(self) -> Message | None:
        """The next message if there is one now; reports pending notices."""

    def report(self) -> None:
        """Reports the notices that need no reader of messages: those of a simulation."""

    def give_up(self) -> None:
        """Drops unread messages of a role that has ended; reports pending notices."""

    def __iter__(self) -> Iterator[Message]: ...
    def __next__(self) -> Message: ...
    def limit(self, count: int | None) -> None:
        """Reads no more after so many messages in all; None reads on."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""
