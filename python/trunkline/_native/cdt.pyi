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
    """A source asks a target for a configuration (CDT-12 to CDT-19). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Args are its attributes, by name. What is left out is chance (ids), now (the time), or empty.

    Raises:
        LocalProtocolError: It would be no message, as with an empty id of an endpoint.
    """

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
        """What those who trace messages go by; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When it was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it holds from then on, in milliseconds; -1 is for ever (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The endpoint (CDT-17)."""

    @property
    def endpoint_message_id(self) -> str:
        """What the endpoint asked with (CDT-15)."""

    @property
    def config_id(self) -> str | None:
        """The configuration; None is the latest (CDT-18)."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, bytes]]: ...

@final
class ConfigResponse:
    """The answer to a `ConfigRequest` (CDT-21 to CDT-28). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Args are its attributes, by name. What is left out is chance (ids), now (the time), or empty.

    Raises:
        LocalProtocolError: It would be no message, as with an empty id of an endpoint.
    """

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
        """What those who trace messages go by; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When it was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it holds from then on, in milliseconds; -1 is for ever (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The endpoint (CDT-17)."""

    @property
    def endpoint_message_id(self) -> str:
        """What the endpoint asked with (CDT-23)."""

    @property
    def config_id(self) -> str:
        """The configuration; that of the request, or empty, where there is none (CDT-25)."""

    @property
    def content_type(self) -> str:
        """The type of the content (CDT-24)."""

    @property
    def status_code(self) -> int:
        """What HTTP would say (CDT-26)."""

    @property
    def reason_phrase(self) -> str | None:
        """The same in words; None where there are none (CDT-27)."""

    @property
    def content(self) -> bytes | None:
        """The configuration itself; None where there is none (CDT-28)."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, bytes]]: ...

@final
class ConfigPush:
    """A source hands a configuration to a target: an extension of ours (CDT-39). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Args are its attributes, by name. What is left out is chance (ids), now (the time), or empty.

    Raises:
        LocalProtocolError: It would be no message, as with an empty id of an endpoint.
    """

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
        """What those who trace messages go by; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When it was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it holds from then on, in milliseconds; -1 is for ever (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The endpoint (CDT-17)."""

    @property
    def endpoint_message_id(self) -> str:
        """What the endpoint asked with."""

    @property
    def config_id(self) -> str | None:
        """The configuration; None is the name of its content."""

    @property
    def content_type(self) -> str:
        """The type of the content."""

    @property
    def content(self) -> bytes | None:
        """The configuration itself; None goes back to one that the target has."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, bytes]]: ...

@final
class ConfigPushResponse:
    """The answer to a `ConfigPush`. Frozen, comparable, picklable; a decoded one keeps its bytes.

    Args are its attributes, by name. What is left out is chance (ids), now (the time), or empty.

    Raises:
        LocalProtocolError: It would be no message, as with an empty id of an endpoint.
    """

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
        """What those who trace messages go by; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When it was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it holds from then on, in milliseconds; -1 is for ever (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The endpoint (CDT-17)."""

    @property
    def endpoint_message_id(self) -> str:
        """What the endpoint asked with."""

    @property
    def config_id(self) -> str:
        """The configuration, as the target names it."""

    @property
    def status_code(self) -> int:
        """What HTTP would say."""

    @property
    def reason_phrase(self) -> str | None:
        """The same in words; None where there are none."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, bytes]]: ...

@final
class ConfigNewAvailable:
    """A target tells everybody that an endpoint is to have a configuration (CDT-38, CDT-41). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Args are its attributes, by name. What is left out is chance (ids), now (the time), or empty.

    Raises:
        LocalProtocolError: It would be no message, as with an empty id of an endpoint.
    """

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
        """What those who trace messages go by; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When it was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it holds from then on, in milliseconds; -1 is for ever (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The endpoint (CDT-17)."""

    @property
    def config_id(self) -> str:
        """The configuration (CDT-41)."""

    @property
    def originator_replica_id(self) -> str | None:
        """Which replica tells it; None where it does not say (CDT-44)."""

    @property
    def content_type(self) -> str | None:
        """The type of the content; None where there is none (CDT-45)."""

    @property
    def content(self) -> bytes | None:
        """The configuration itself; None where it is to be pulled (CDT-45)."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, bytes]]: ...

@final
class ConfigUpdated:
    """A source tells everybody that an endpoint has taken a configuration on (CDT-40, CDT-41). Frozen, comparable, picklable; a decoded one keeps its bytes.

    Args are its attributes, by name. What is left out is chance (ids), now (the time), or empty.

    Raises:
        LocalProtocolError: It would be no message, as with an empty id of an endpoint.
    """

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
        """What those who trace messages go by; an answer has that of its request (CDT-12, CDT-21)."""

    @property
    def timestamp_ms(self) -> int:
        """When it was made: Unix time in milliseconds (CDT-13)."""

    @property
    def timeout_ms(self) -> int:
        """How long it holds from then on, in milliseconds; -1 is for ever (CDT-14, CDT-33)."""

    @property
    def app_version_name(self) -> str:
        """The version of the application (CDT-16)."""

    @property
    def endpoint_id(self) -> str:
        """The endpoint (CDT-17)."""

    @property
    def config_id(self) -> str:
        """The configuration (CDT-41)."""

    @property
    def originator_replica_id(self) -> str | None:
        """Which replica tells it; None where it does not say (CDT-44)."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, bytes]]: ...

def decode(
    body: _Buffer,
    message_type: _Type,
    *,
    codec: _Codec = "json",
    bytes_encoding: _Bytes = "base64",
    strict: bool = True,
) -> _Message:
    """The message in a body.

    Args:
        body: A bytes-like object.
        message_type: What it is: the last token of its subject.
        codec: How it is written.
        bytes_encoding: What stands for bytes in JSON.
        strict: Whether a timeout must be there, and content must say that it is bytes.

    Raises:
        DecodeError: It is none.
    """

def encode(message: _Message, *, codec: _Codec = "json", bytes_encoding: _Bytes = "base64") -> bytes:
    """The body of a message; of a decoded one bit for bit, where it is wanted as it was."""

def _restore(kind: str, body: bytes) -> _Message:
    """A pickled message."""

def fault(subject: str, body: _Buffer, codec: str, bytes_encoding: str, strict: bool) -> str | None:
    """What is wrong with a message of this subject; None where nothing is, or nothing is known of it."""

def matches(pattern: str, subject: str) -> bool:
    """Whether a subject is one of those that a pattern means."""

def is_token(text: str) -> bool:
    """Whether a text is one token of a subject (CDT-11)."""

def told(subject: str) -> tuple[str | None, str | None, str | None, str | None]:
    """The kind of the messages of a subject, and the instance, the replica or the originator that it names."""

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
            The messages of ours, whose socket is our number, whose peer is the subject, and whose frames are the reply subject, the header
            block and the body; and whatever else is whole, as it came.
        """

def publications(messages: Messages, most: int) -> tuple[bytes, list[int]]:
    """Writes messages as a client publishes them.

    Args:
        messages: Their peers are subjects, and their frames reply subject, header block, which stays here, and body.
        most: The largest body that may be, in bytes.

    Returns:
        What is to be sent, and the positions of messages that cannot be: too large, or of a bad subject.
    """
