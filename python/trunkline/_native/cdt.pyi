"""CDT messages, and what subjects say."""

from collections.abc import Callable
from typing import Any, Literal, NoReturn, Self, TypeAlias, final

from trunkline._frames import Bytes
from trunkline._native import Caller, NoticeQueue, Outgoing, Role

__all__ = [
    "ConfigNewAvailable",
    "ConfigPush",
    "ConfigPushResponse",
    "ConfigRequest",
    "ConfigResponse",
    "ConfigUpdated",
    "Recorder",
    "Source",
    "Target",
    "Watch",
    "_restore",
    "decode",
    "encode",
    "is_token",
]

_Buffer: TypeAlias = Bytes
_Codec: TypeAlias = Literal["json", "avro"]
_Bytes: TypeAlias = Literal["base64", "latin1"]
_Type: TypeAlias = Literal[
    "ConfigRequest",
    "ConfigResponse",
    "ConfigPush",
    "ConfigPushResponse",
    "ConfigNewAvailable",
    "ConfigUpdated",
]
_Message: TypeAlias = (
    ConfigRequest | ConfigResponse | ConfigPush | ConfigPushResponse | ConfigNewAvailable | ConfigUpdated
)

@final
class ConfigRequest:
    """The request of a source to a target for a configuration (CDT-12 to CDT-19). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Its arguments are its attributes, by name. By default, ids are random, the time is now, and other attributes are empty.

    Raises:
        LocalProtocolError: The message would be invalid, e.g. with an empty `endpoint_id`.
    """

    __match_args__ = ("app_version_name", "endpoint_id")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(
        cls,
        *,
        correlation_id: str | None = None,
        timestamp_ms: int | None = None,
        timeout_ms: int = -1,
        endpoint_message_id: str | None = None,
        app_version_name: str,
        endpoint_id: str,
        config_id: str | None = None,
    ) -> Self: ...
    @property
    def correlation_id(self) -> str:
        """The id for tracing messages; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When the message was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it is valid from then on, in milliseconds; -1 means indefinitely (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The id of the endpoint (CDT-17)."""

    @property
    def endpoint_message_id(self) -> str:
        """The id of the endpoint's own message (CDT-15)."""

    @property
    def config_id(self) -> str | None:
        """The id of the configuration; None for the current one (CDT-18)."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(
        self,
    ) -> tuple[Callable[..., Any], tuple[str, bytes, tuple[_Codec, _Bytes, bool, str | None] | None]]: ...

@final
class ConfigResponse:
    """The answer to a `ConfigRequest` (CDT-21 to CDT-28). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Its arguments are its attributes, by name. By default, ids are random, the time is now, and other attributes are empty.

    Raises:
        LocalProtocolError: The message would be invalid, e.g. with an empty `endpoint_id`.
    """

    __match_args__ = ("app_version_name", "endpoint_id")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(
        cls,
        *,
        correlation_id: str | None = None,
        timestamp_ms: int | None = None,
        timeout_ms: int = -1,
        endpoint_message_id: str = "",
        app_version_name: str = "",
        endpoint_id: str = "",
        config_id: str = "",
        content_type: str = "",
        status_code: int = 200,
        reason_phrase: str | None = None,
        content: _Buffer | None = None,
    ) -> Self: ...
    @property
    def correlation_id(self) -> str:
        """The id for tracing messages; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When the message was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it is valid from then on, in milliseconds; -1 means indefinitely (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The id of the endpoint (CDT-17)."""

    @property
    def endpoint_message_id(self) -> str:
        """The id of the endpoint's own message (CDT-23)."""

    @property
    def config_id(self) -> str:
        """The id of the configuration; on failure that of the request, or empty (CDT-25)."""

    @property
    def content_type(self) -> str:
        """The type of the content (CDT-24)."""

    @property
    def status_code(self) -> int:
        """An HTTP status (CDT-26)."""

    @property
    def reason_phrase(self) -> str | None:
        """The reason for the status; None if not given (CDT-27)."""

    @property
    def content(self) -> bytes | None:
        """The configuration itself; None if absent (CDT-28)."""

    def array(self, dtype: Any = None, *, frame: int | None = None) -> Any:
        """The content as a NumPy array of one dimension; one frame is not copied, and cannot be written to.

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
    def __reduce__(
        self,
    ) -> tuple[Callable[..., Any], tuple[str, bytes, tuple[_Codec, _Bytes, bool, str | None] | None]]: ...

@final
class ConfigPush:
    """The push of a configuration from a source to a target, an extension of this package (CDT-39). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Its arguments are its attributes, by name. By default, ids are random, the time is now, and other attributes are empty.

    Raises:
        LocalProtocolError: The message would be invalid, e.g. with an empty `endpoint_id`.
    """

    __match_args__ = ("app_version_name", "endpoint_id")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(
        cls,
        *,
        correlation_id: str | None = None,
        timestamp_ms: int | None = None,
        timeout_ms: int = -1,
        endpoint_message_id: str | None = None,
        app_version_name: str,
        endpoint_id: str,
        config_id: str | None = None,
        content_type: str = "",
        content: _Buffer | None = None,
    ) -> Self: ...
    @property
    def correlation_id(self) -> str:
        """The id for tracing messages; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When the message was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it is valid from then on, in milliseconds; -1 means indefinitely (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The id of the endpoint (CDT-17)."""

    @property
    def endpoint_message_id(self) -> str:
        """The id of the endpoint's own message."""

    @property
    def config_id(self) -> str | None:
        """The id of the configuration; None: the target derives it from the content."""

    @property
    def content_type(self) -> str:
        """The type of the content."""

    @property
    def content(self) -> bytes | None:
        """The configuration itself; None to return to an earlier one."""

    def array(self, dtype: Any = None, *, frame: int | None = None) -> Any:
        """The content as a NumPy array of one dimension; one frame is not copied, and cannot be written to.

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
    def __reduce__(
        self,
    ) -> tuple[Callable[..., Any], tuple[str, bytes, tuple[_Codec, _Bytes, bool, str | None] | None]]: ...

@final
class ConfigPushResponse:
    """The answer to a `ConfigPush`. Frozen, comparable, picklable; a decoded one keeps its bytes.

    Its arguments are its attributes, by name. By default, ids are random, the time is now, and other attributes are empty.

    Raises:
        LocalProtocolError: The message would be invalid, e.g. with an empty `endpoint_id`.
    """

    __match_args__ = ("app_version_name", "endpoint_id")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(
        cls,
        *,
        correlation_id: str | None = None,
        timestamp_ms: int | None = None,
        timeout_ms: int = -1,
        endpoint_message_id: str = "",
        app_version_name: str = "",
        endpoint_id: str = "",
        config_id: str = "",
        status_code: int = 200,
        reason_phrase: str | None = None,
    ) -> Self: ...
    @property
    def correlation_id(self) -> str:
        """The id for tracing messages; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When the message was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it is valid from then on, in milliseconds; -1 means indefinitely (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The id of the endpoint (CDT-17)."""

    @property
    def endpoint_message_id(self) -> str:
        """The id of the endpoint's own message."""

    @property
    def config_id(self) -> str:
        """The id of the configuration at the target."""

    @property
    def status_code(self) -> int:
        """An HTTP status."""

    @property
    def reason_phrase(self) -> str | None:
        """The reason for the status; None if not given."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(
        self,
    ) -> tuple[Callable[..., Any], tuple[str, bytes, tuple[_Codec, _Bytes, bool, str | None] | None]]: ...

@final
class ConfigNewAvailable:
    """A target's announcement that a configuration was assigned to an endpoint (CDT-38, CDT-41). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Its arguments are its attributes, by name. By default, ids are random, the time is now, and other attributes are empty.

    Raises:
        LocalProtocolError: The message would be invalid, e.g. with an empty `endpoint_id`.
    """

    __match_args__ = ("app_version_name", "endpoint_id")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(
        cls,
        *,
        correlation_id: str | None = None,
        timestamp_ms: int | None = None,
        timeout_ms: int = -1,
        app_version_name: str,
        endpoint_id: str,
        config_id: str,
        originator_replica_id: str | None = None,
        content_type: str | None = None,
        content: _Buffer | None = None,
    ) -> Self: ...
    @property
    def correlation_id(self) -> str:
        """The id for tracing messages; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When the message was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it is valid from then on, in milliseconds; -1 means indefinitely (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The id of the endpoint (CDT-17)."""

    @property
    def config_id(self) -> str:
        """The id of the configuration (CDT-41)."""

    @property
    def originator_replica_id(self) -> str | None:
        """The replica that sent it; None if not given (CDT-44)."""

    @property
    def originator(self) -> str | None:
        """The service that sent it, from the subject it came by (CDT-07); None for one that was not received by a role."""

    @property
    def content_type(self) -> str | None:
        """The type of the content; None if absent (CDT-45)."""

    @property
    def content(self) -> bytes | None:
        """The configuration itself; None if it must be pulled (CDT-45)."""

    def array(self, dtype: Any = None, *, frame: int | None = None) -> Any:
        """The content as a NumPy array of one dimension; one frame is not copied, and cannot be written to.

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
    def __reduce__(
        self,
    ) -> tuple[Callable[..., Any], tuple[str, bytes, tuple[_Codec, _Bytes, bool, str | None] | None]]: ...

@final
class ConfigUpdated:
    """A source's report that an endpoint has applied a configuration (CDT-40, CDT-41). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Its arguments are its attributes, by name. By default, ids are random, the time is now, and other attributes are empty.

    Raises:
        LocalProtocolError: The message would be invalid, e.g. with an empty `endpoint_id`.
    """

    __match_args__ = ("app_version_name", "endpoint_id")
    def to_dict(self) -> dict[str, Any]:
        """All attributes, by name."""

    def __new__(
        cls,
        *,
        correlation_id: str | None = None,
        timestamp_ms: int | None = None,
        timeout_ms: int = -1,
        app_version_name: str,
        endpoint_id: str,
        config_id: str,
        originator_replica_id: str | None = None,
    ) -> Self: ...
    @property
    def correlation_id(self) -> str:
        """The id for tracing messages; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When the message was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it is valid from then on, in milliseconds; -1 means indefinitely (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The id of the endpoint (CDT-17)."""

    @property
    def config_id(self) -> str:
        """The id of the configuration (CDT-41)."""

    @property
    def originator_replica_id(self) -> str | None:
        """The replica that sent it; None if not given (CDT-44)."""

    @property
    def originator(self) -> str | None:
        """The service that sent it, from the subject it came by (CDT-07); None for one that was not received by a role."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(
        self,
    ) -> tuple[Callable[..., Any], tuple[str, bytes, tuple[_Codec, _Bytes, bool, str | None] | None]]: ...

def decode(
    body: _Buffer,
    message_type: _Type,
    *,
    codec: _Codec = "json",
    bytes_encoding: _Bytes = "base64",
    strict: bool = True,
) -> _Message:
    """Decodes a message from a body.

    Args:
        body: A bytes-like object.
        message_type: The type of the message: the last token of its subject.
        codec: The encoding of the body.
        bytes_encoding: The encoding of bytes in JSON.
        strict: Refuse messages without a timeout, and content that is not declared as bytes.

    Raises:
        DecodeError: The body is not a message of this type.
    """

def encode(message: _Message, *, codec: _Codec = "json", bytes_encoding: _Bytes = "base64") -> bytes:
    """Encodes the body of a message; that of a decoded one bit for bit, in the codec it was decoded from."""

def _restore(kind: str, body: bytes, read: tuple[_Codec, _Bytes, bool, str | None] | None = None) -> _Message:
    """Restores a pickled message."""

def is_token(text: str) -> bool:
    """Whether a text is one token of a subject (CDT-11)."""

_Event: TypeAlias = ConfigNewAvailable | ConfigUpdated

@final
class Source(Caller):
    """A source's engine."""

    def __new__(cls, options: dict[str, Any], taking: dict[str, Any], *, target: str, resync_s: float) -> Self: ...
    @property
    def notice_queue(self) -> NoticeQueue:
        """The notices, to be reported."""
    @property
    def max_payload(self) -> int:
        """The largest body of a message."""
    def pull(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str | None,
        endpoint_message_id: str | None,
        timeout_s: float | None,
        retries: int,
    ) -> Outgoing:
        """A call that pulls a configuration."""
    def push(
        self,
        app_version_name: str,
        endpoint_id: str,
        content: _Buffer | None,
        content_type: str,
        config_id: str | None,
        confirm: str | None,
        timeout_s: float | None,
    ) -> Outgoing:
        """A call that pushes one, or without content rolls back to one."""
    def report(self, app_version_name: str, endpoint_id: str, config_id: str) -> Outgoing:
        """A call that reports an applied configuration."""
    def watch(self, app_version_name: str, endpoint_id: str) -> Watch:
        """Watches the configuration of an endpoint."""
    def watches_fileno(self) -> int:
        """The descriptor that is readable when there is something for a watch."""
    def disarm_watches(self) -> None:
        """Ends a wait on `watches_fileno`."""
    def receive(self, timeout_s: float | None = None) -> _Event:
        """Waits for an event of others."""
    def poll(self) -> _Event | None:
        """The next event if there is one now."""
    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

@final
class Watch:
    """A watch of a source, which ends with this."""

    def receive(self, timeout_s: float | None = None) -> ConfigResponse:
        """Waits for a configuration other than the last one."""
    def poll(self) -> ConfigResponse | None:
        """The next configuration if there is one now."""
    def arm(self) -> bool:
        """Announces a wait on the source's `watches_fileno`; true when there is no reason to wait."""
    def close(self) -> None:
        """Ends it."""

@final
class Target(Role):
    """A target's engine."""

    def __new__(
        cls,
        options: dict[str, Any],
        taking: dict[str, Any],
        *,
        queue: bool,
        include_content: bool,
        store_timeout_s: float,
    ) -> Self: ...
    @property
    def notice_queue(self) -> NoticeQueue:
        """The notices, to be reported."""
    @property
    def asked(self) -> NoticeQueue:
        """What is for the store, to be answered or recorded."""
    @property
    def max_payload(self) -> int:
        """The largest body of a message."""
    def answer_found(self, token: int, config_id: str, content_type: str, content: _Buffer) -> None:
        """Answers a pull with this configuration."""
    def answer_missing(self, token: int) -> None:
        """Answers a pull: there is no such configuration."""
    def answer_stored(self, token: int, config_id: str, content_type: str, content: _Buffer, is_new: bool) -> None:
        """Confirms a push of this configuration."""
    def answer_failed(self, token: int, status: int, reason: str) -> None:
        """Answers with an error."""
    def announce(
        self, app_version_name: str, endpoint_id: str, config_id: str, content_type: str, content: _Buffer
    ) -> None:
        """Announces a configuration of an endpoint."""
    def receive(self, timeout_s: float | None = None) -> _Event:
        """Waits for an event of others."""
    def poll(self) -> _Event | None:
        """The next event if there is one now."""
    def stats(self) -> dict[str, Any]:
        """Counters, by name."""

@final
class Recorder(Role):
    """A recorder's engine."""

    def __new__(
        cls,
        options: dict[str, Any],
        *,
        prefix: str,
        codec: str,
        bytes_encoding: str,
        strict: bool,
        limit: int | None,
    ) -> Self: ...
    @property
    def notice_queue(self) -> NoticeQueue:
        """The notices, to be reported."""
    def receive(self, timeout_s: float | None = None) -> NoReturn:
        """Waits for its end: a recorder takes no events."""
    def poll(self) -> None:
        """Raises what has ended it, once it is over."""
    def stats(self) -> dict[str, Any]:
        """Counters, by name."""
