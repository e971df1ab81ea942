"""DCP messages, and the engines of its roles."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Self, TypeAlias, final

from trunkline._frames import Bytes, Frame
from trunkline._native import Caller, Outgoing, Role

__all__ = [
    "Broker",
    "Client",
    "Message",
    "Reply",
    "Request",
    "Worker",
    "_restore",
    "decode",
    "encode",
]

_Type: TypeAlias = Literal["register", "ping", "pong", "request", "reply", "reconnect"]
_Reader: TypeAlias = Literal["broker", "worker", "client"]
_Frame: TypeAlias = Frame
_Parts: TypeAlias = _Frame | Iterable[_Frame]

@final
class Message:
    """A message of any of the six types. Frozen, comparable, picklable; a decoded one keeps its bytes.

    Args:
        type: The message type (DCP-11).
        service: The service; a registration and a request name one, the others do not.
        client: The client's address: a reply has one, a request may lack it (DCP-20).
        metadata: The parts that a reply copies of its request, none of them empty.
        data: The parts of what is asked or answered.

    Raises:
        LocalProtocolError: The type has no such part, or needs one that is not given.
    """

    __match_args__ = ("type",)
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(
        cls,
        type: _Type,
        *,
        service: Bytes | None = None,
        client: Bytes | None = None,
        metadata: _Parts | None = None,
        data: _Parts | None = None,
    ) -> Self: ...
    @property
    def type(self) -> _Type:
        """The message type (DCP-11)."""

    @property
    def service(self) -> bytes | None:
        """The service of a registration or request; None for the others."""

    @property
    def client(self) -> bytes | None:
        """The client's address in a reply or request; None if it has none (DCP-20)."""

    @property
    def metadata(self) -> tuple[bytes, ...]:
        """The parts that a reply copies from its request (DCP-22)."""

    @property
    def data(self) -> tuple[bytes, ...]:
        """The parts of the request or reply, empty ones included (DCP-25)."""

    def array(self, dtype: Any = None, *, frame: int | None = None) -> Any:
        """The data as a NumPy array of one dimension; one frame is not copied, and cannot be written to.

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
    def __reduce__(self) -> tuple[Callable[..., Message], tuple[tuple[bytes, ...]]]: ...

def decode(frames: Iterable[_Frame], *, role: _Reader | None = None, compat_dagbox: bool = False) -> Message:
    """The message in these frames, without the address that a ROUTER prepends.

    Args:
        frames: Bytes-like objects, as any socket gives them.
        role: Who reads it: types that this role is never sent are errors; all are messages if None.
        compat_dagbox: Whether types of four bytes, as the original implementation writes them, are messages (DCP-11).

    Raises:
        DecodeError: They are no message.
    """

def encode(message: Message) -> tuple[bytes, ...]:
    """The frames of a message, without the address that a ROUTER prepends; of a decoded one, bit for bit."""

def _restore(frames: Iterable[_Frame]) -> Message:
    """A pickled message."""

@final
class Reply:
    """The reply to a request. Frozen, comparable, picklable.

    Args:
        data: The parts of the answer: one, or a sequence of them.
        metadata: The parts of metadata.
    """

    __match_args__ = ("data", "metadata")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(cls, data: _Parts, metadata: _Parts | None = None) -> Self: ...
    @property
    def data(self) -> tuple[bytes, ...]:
        """The parts of the reply; none if the work failed."""

    def array(self, dtype: Any = None, *, frame: int | None = None) -> Any:
        """The data as a NumPy array of one dimension; one frame is not copied, and cannot be written to.

        Args:
            dtype: The type of its items; of bytes if None.
            frame: The number of the only frame to take, from 0 on, below 0 from the end; all of them, one after another, if None.

        Raises:
            IndexError: There is no such frame.
            ValueError: The bytes are no whole number of items.
            LocalProtocolError: numpy is not installed.
        """

    @property
    def metadata(self) -> tuple[bytes, ...]:
        """The metadata parts of the request (DCP-23)."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[type[Reply], tuple[tuple[bytes, ...], tuple[bytes, ...]]]: ...

@final
class Request:
    """A request that a worker is to answer, once, from any thread.

    One that is let go of unanswered frees its place at the worker; its client waits in vain.
    """

    __match_args__ = ("service", "data")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    @property
    def service(self) -> bytes:
        """The requested service."""

    @property
    def client(self) -> bytes:
        """The address of the client that its reply goes to (DCP-20)."""

    @property
    def metadata(self) -> tuple[bytes, ...]:
        """The parts that its reply will contain too (DCP-23)."""

    @property
    def data(self) -> tuple[bytes, ...]:
        """The parts of the request."""

    def array(self, dtype: Any = None, *, frame: int | None = None) -> Any:
        """The data as a NumPy array of one dimension; one frame is not copied, and cannot be written to.

        Args:
            dtype: The type of its items; of bytes if None.
            frame: The number of the only frame to take, from 0 on, below 0 from the end; all of them, one after another, if None.

        Raises:
            IndexError: There is no such frame.
            ValueError: The bytes are no whole number of items.
            LocalProtocolError: numpy is not installed.
        """

    @property
    def answered(self) -> bool:
        """Whether it has been answered or forwarded."""

    def reply(self, data: _Parts) -> None:
        """Answers it; never waits.

        Args:
            data: The parts of the answer: one, or a sequence of them.

        Raises:
            LocalProtocolError: It has been answered, or a part is larger than ``max_message_bytes``.
            ClosedError: Its worker is closed.
        """

    def fail(self, data: _Parts | None = None) -> None:
        """Answers that the work failed; counted in `WorkerStats.failed`.

        Args:
            data: Data for the client; none unless given.

        Raises:
            LocalProtocolError: It has been answered, or a part is larger than ``max_message_bytes``.
            ClosedError: Its worker is closed.
        """

    def forward(self, service: Bytes, data: _Parts) -> None:
        """Forwards it, with its metadata: the reply of the other service goes to the client (DCP-34).

        Args:
            service: The other service.
            data: What that is asked.

        Raises:
            LocalProtocolError: It has been answered, or a part is larger than ``max_message_bytes``.
            ClosedError: Its worker is closed.
        """

@final
class Broker(Role):
    """A broker's engine."""

    def __new__(cls, options: Mapping[str, Any], settings: Mapping[str, Any]) -> Self: ...
    def notices(self) -> list[tuple[Any, ...]]:
        """Notices since the last call, each ``(kind, *details)``."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

@final
class Worker(Caller):
    """A worker's engine."""

    def __new__(
        cls,
        options: Mapping[str, Any],
        on_notice: Callable[..., None],
        service: Bytes,
        *,
        concurrency: int,
        heartbeat_interval_s: float,
        liveness: int,
        max_message_bytes: int,
    ) -> Self: ...
    def outgoing(
        self, service: Bytes, data: _Parts, *, metadata: _Parts, timeout_s: float | None, retries: int
    ) -> Outgoing:
        """A request of its own."""
    def receive(self, timeout_s: float | None = None) -> Request:
        """Waits for a request."""

    def poll(self) -> Request | None:
        """The next request if there is one now; reports pending notices."""

    def __iter__(self) -> Iterator[Request]: ...
    def __next__(self) -> Request: ...
    def report(self) -> None:
        """Reports the notices that need no reader of requests: those of a simulation."""

    def give_back(self) -> None:
        """Returns requests that were not begun to the broker."""

    def finish(self) -> None:
        """Waits until the role has ended, and returns requests that were not begun meanwhile."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

@final
class Client(Caller):
    """A client's engine."""

    def __new__(
        cls, options: Mapping[str, Any], *, heartbeat_interval_s: float, liveness: int, max_message_bytes: int
    ) -> Self: ...
    def outgoing(
        self, service: Bytes, data: _Parts, *, metadata: _Parts, timeout_s: float | None, retries: int
    ) -> Outgoing:
        """A request."""
    def notices(self) -> list[tuple[Any, ...]]:
        """Notices since the last call, each ``(kind, *details)``."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""
