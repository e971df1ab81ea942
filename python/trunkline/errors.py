"""Everything trunkline raises.

```
TrunklineError
├── DecodeError(ValueError)      these bytes are not a valid message
├── LocalProtocolError           the call violates the spec, or is not supported by this transport
├── RemoteProtocolError          the peer violated the spec, or reports that you did
├── TimeoutError                 a wait timed out; also a builtins.TimeoutError
├── CaptureError                 a capture is locked, missing, corrupt or full
├── PeerLostError                the peer disconnected
├── AuthenticationError          the peer refused our credentials, or did not prove its identity
├── LeaseRefusedError            the peer refused a lease
├── MiddlewareError              the middleware answered with an error
├── ConfigError                  the store answered with an error
└── ClosedError                  the role is closed
```
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

__all__ = [
    "AuthenticationError",
    "CaptureError",
    "ClosedError",
    "ConfigError",
    "DecodeError",
    "LeaseRefusedError",
    "LocalProtocolError",
    "MiddlewareError",
    "PeerLostError",
    "RemoteProtocolError",
    "TimeoutError",
    "TrunklineError",
]
__dir__ = __all__.copy


class TrunklineError(Exception):
    """The base class of all exceptions that trunkline raises."""


# Protocols over NATS, whose messages have no frames: what is decoded is their body.
_WITHOUT_FRAMES = {"cdt"}


class DecodeError(TrunklineError, ValueError):
    """These bytes are not a valid message.

    Attributes:
        protocol: The protocol they were decoded as, e.g. ``"cdtp"``.
        kind: What is wrong, one of the slugs of ``trunkline.error_kinds()``; ``too_many_objects`` for a valid message whose
            tags need more Python objects than there is memory for.
        frame: The index of the invalid frame, from 0; with CDT, whose messages have none, it says nothing.
        offset: The offset of the first invalid byte in that frame, from 0.
        meaning: A description of the kind; may be empty.
    """

    protocol: str
    kind: str
    frame: int
    offset: int
    meaning: str

    def __init__(self, protocol: str, kind: str, frame: int, offset: int, meaning: str = "") -> None:
        super().__init__(protocol, kind, frame, offset)
        self.protocol = protocol
        self.kind = kind
        self.frame = frame
        self.offset = offset
        self.meaning = meaning

    def __str__(self) -> str:
        article = "an" if self.protocol.startswith("m") else "a"
        frame = "" if self.protocol in _WITHOUT_FRAMES else f" in frame {self.frame}"
        where = f"{self.kind}{frame} at byte {self.offset} of {article} {self.protocol.upper()} message"
        return f"{where}: {self.meaning}" if self.meaning else where


class LocalProtocolError(TrunklineError):
    """The call violates the spec, or is not supported by this transport."""


class RemoteProtocolError(TrunklineError):
    """The peer violated the spec, or reports that you did.

    Attributes:
        clause: The requirement that was violated, e.g. ``"DCP-41"``; None if there is no single one.
        status: The status of the reply, e.g. 404; None for protocols without one.
        body: The body of the reply; may be empty.
        sequences: The rejected contents, numbered from 1 in the order they were sent; the last hundred thousand at most.
    """

    clause: str | None
    status: int | None
    body: Mapping[str, Any]
    sequences: tuple[int, ...]

    def __init__(
        self,
        message: str,
        clause: str | None = None,
        *,
        status: int | None = None,
        body: Mapping[str, Any] | None = None,
        sequences: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.clause = clause
        self.status = status
        self.body = {} if body is None else body
        self.sequences = sequences


class TimeoutError(TrunklineError, builtins.TimeoutError):  # noqa: A001 - it is one, under the name users look for
    """A wait timed out.

    Attributes:
        unsent: How many messages were not sent, if the wait was for sending; else None.
    """

    unsent: int | None

    def __init__(self, message: str, unsent: int | None = None) -> None:
        super().__init__(message)
        self.unsent = unsent


class CaptureError(TrunklineError):
    """A capture is locked, missing, corrupt or full."""


class PeerLostError(TrunklineError):
    """The peer disconnected."""


class AuthenticationError(TrunklineError):
    """The peer refused our credentials, or did not prove its identity.

    Attributes:
        mechanisms: The SASL mechanisms it offers; empty if it did not get that far.
    """

    mechanisms: tuple[str, ...]

    def __init__(self, message: str, mechanisms: tuple[str, ...] = ()) -> None:
        super().__init__(message, mechanisms)
        self.mechanisms = mechanisms

    def __str__(self) -> str:
        return str(self.args[0])


class LeaseRefusedError(TrunklineError):
    """The peer refused a lease.

    Attributes:
        status: The status of its reply.
    """

    status: int

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class MiddlewareError(TrunklineError):
    """The middleware answered with an error.

    Attributes:
        text: The text of the error; may be empty.
        topic: The topic the request was about; None for none or several.
    """

    text: str
    topic: str | None

    def __init__(self, text: str, topic: str | None = None) -> None:
        super().__init__(text, topic)
        self.text = text
        self.topic = topic

    def __str__(self) -> str:
        return self.text or "the middleware gave no reason"


class ConfigError(TrunklineError):
    """The store answered with an error.

    Attributes:
        status_code: The HTTP status code of the answer.
        reason_phrase: The reason phrase of the answer.
        subject: What was asked for; empty where the reason says it.
    """

    status_code: int
    reason_phrase: str
    subject: str

    def __init__(self, status_code: int, reason_phrase: str, subject: str = "") -> None:
        super().__init__(status_code, reason_phrase, subject)
        self.status_code = status_code
        self.reason_phrase = reason_phrase
        self.subject = subject

    def __str__(self) -> str:
        said = f"{self.status_code} {self.reason_phrase}".rstrip()
        return f"{said}: {self.subject}" if self.subject else said


class ClosedError(TrunklineError):
    """The role is closed: by `close`, or because its ZeroMQ context or connection was."""
