"""CDT messages, and what subjects say."""

from collections.abc import Callable
from typing import Any, Literal, Self, TypeAlias, final

from typing_extensions import Buffer

from trunkline._native import Messages

__all__ = [
    "ConfigNewAvailable",
    "ConfigPush",
    "ConfigPushResponse",
    "ConfigRequest",
    "ConfigResponse",
    "ConfigUpdated",
    "Inflow",
    "_restore",
    "decode",
    "encode",
    "fault",
    "is_token",
    "matches",
    "publications",
    "told",
]

_Buffer: TypeAlias = Buffer
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

def fault(subject: str, body: _Buffer, codec: str, bytes_encoding: str, strict: bool) -> str | None:
    """The kind of error of a message with this subject; None if it is valid, or the subject is unknown."""

def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a pattern."""

def is_token(text: str) -> bool:
    """Whether a text is one token of a subject (CDT-11)."""

def told(subject: str) -> tuple[str | None, str | None, str | None, str | None]:
    """The message type of a subject, and the instance, the replica or the originator in it."""

@final
class Inflow:
    """What a NATS server has sent, however it was cut, and which of its subscriptions are ours."""

    def __new__(cls) -> Self: ...
    def take(self, subscription: int, number: int) -> None:
        """Takes messages of a subscription from now on, under a number of ours."""

    def leave(self, subscription: int) -> None:
        """Takes them no longer."""

    def reset(self) -> None:
        """Forgets what has only begun: another connection begins."""

    def feed(self, buffer: bytearray, nbytes: int) -> tuple[Messages, bytes]:
        """Takes more of it: the first bytes of a buffer.

        Returns:
            Our messages: the socket is our number, the peer the subject, and the frames are the reply subject, the header
            block and the body; and all other complete lines as they came, but only the last one of INFO.

        Raises:
            ValueError: A message or a line is longer than any server of NATS has.
        """

def publications(messages: Messages, most: int) -> tuple[bytes, list[int]]:
    """Writes messages as a client publishes them.

    Args:
        messages: Their peers are subjects, and their frames reply subject, header block, which stays here, and body.
        most: The largest body that may be, in bytes.

    Returns:
        What is to be sent, and the positions of messages that cannot be: too large, or of a bad subject.
    """
