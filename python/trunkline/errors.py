"""Everything trunkline raises.

```
TrunklineError
├── DecodeError(ValueError)      these bytes are not a message
├── LocalProtocolError           you asked for what the spec, or this transport, forbids
├── RemoteProtocolError          the peer did
├── TimeoutError                 every wait that runs out; also a builtins.TimeoutError
├── CaptureError                 a capture is locked, missing, corrupt or full
├── PeerLostError                the peer went away
├── AuthenticationError          the peer did not let us in, or did not prove who it is
├── LeaseRefusedError            the peer refused a lease
├── MiddlewareError              the middleware answered with an error
├── ConfigError                  the store answered with an error
└── ClosedError                  the role is over
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


class TrunklineError(Exception):
    """The base of everything trunkline raises."""


class DecodeError(TrunklineError, ValueError):
    """These bytes are not a message.

    Attributes:
        protocol: The protocol they were to be a message of, as ``"cdtp"``.
        kind: What is wrong with them, a slug of ``trunkline.error_kinds()``; ``too_many_objects`` where they are a good message
            whose tags Python makes no room for.
        frame: The frame the fault is in, from 0.
        offset: The byte of that frame the fault is at, from 0.
        meaning: What the kind means, in words; empty where nobody has said.
    """

    def __init__(self, protocol: str, kind: str, frame: int, offset: int, meaning: str = "") -> None:
        super().__init__(protocol, kind, frame, offset)
        self.protocol = protocol
        self.kind = kind
        self.frame = frame
        self.offset = offset
        self.meaning = meaning

    def __str__(self) -> str:
        article = "an" if self.protocol.startswith("m") else "a"
        where = f"{self.kind} in frame {self.frame} at byte {self.offset} of {article} {self.protocol.upper()} message"
        return f"{where}: {self.meaning}" if self.meaning else where


class LocalProtocolError(TrunklineError):
    """You asked for what the spec, or this transport, forbids."""


class RemoteProtocolError(TrunklineError):
    """The peer did what the spec forbids, or says that you did.

    Attributes:
        clause: The requirement it broke, as ``"DCP-41"``; None when there is no single one.
        status: The status it answered with, as 404; None where the protocol has none.
        body: What it answered; empty where there is nothing.
        sequences: The contents it rejected, by the order in which they were sent, from 1; at most the last thousand.
    """

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
    """A wait ran out.

    Attributes:
        unsent: How many messages were given up, where the wait was for sending; else None.
    """

    def __init__(self, message: str, unsent: int | None = None) -> None:
        super().__init__(message)
        self.unsent = unsent


class CaptureError(TrunklineError):
    """A capture is locked, missing, corrupt or full."""


class PeerLostError(TrunklineError):
    """The peer went away."""


class AuthenticationError(TrunklineError):
    """The peer did not let us in, or did not prove who it is.

    Attributes:
        mechanisms: The mechanisms it offers; empty where it did not come to that.
    """

    def __init__(self, message: str, mechanisms: tuple[str, ...] = ()) -> None:
        super().__init__(message, mechanisms)
        self.mechanisms = mechanisms

    def __str__(self) -> str:
        return str(self.args[0])


class LeaseRefusedError(TrunklineError):
    """The peer refused a lease.

    Attributes:
        status: The status it answered with.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class MiddlewareError(TrunklineError):
    """The middleware answered with an error.

    Attributes:
        text: Its words for it; empty where it has none.
        topic: The topic that was asked about; None where it was none or several.
    """

    def __init__(self, text: str, topic: str | None = None) -> None:
        super().__init__(text, topic)
        self.text = text
        self.topic = topic

    def __str__(self) -> str:
        return self.text or "the middleware does not say why"


class ConfigError(TrunklineError):
    """The store answered with an error.

    Attributes:
        status_code: The status it answered with.
        reason_phrase: Its words for it.
    """

    def __init__(self, status_code: int, reason_phrase: str) -> None:
        super().__init__(status_code, reason_phrase)
        self.status_code = status_code
        self.reason_phrase = reason_phrase

    def __str__(self) -> str:
        return f"{self.status_code} {self.reason_phrase}"


class ClosedError(TrunklineError):
    """The role is over: it was closed, or what it ran on was."""
