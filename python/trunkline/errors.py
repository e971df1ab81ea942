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
    """The base class of all exceptions that trunkline raises.

    ```pycon
    >>> import trunkline
    >>> from trunkline import capture
    >>> try:
    ...     capture.open("no/such/capture")
    ... except trunkline.TrunklineError as error:
    ...     print(type(error).__name__)
    CaptureError

    ```
    """


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

    ```pycon
    >>> from trunkline import DecodeError, cdtp
    >>> try:
    ...     cdtp.decode([b"CDTP", b"payload"])
    ... except DecodeError as error:
    ...     print(error.kind, error.frame, error.offset)
    bad_header 0 0

    ```
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
    """The call violates the spec, or is not supported by this transport.

    ```pycon
    >>> from trunkline import LocalProtocolError, cdtp
    >>> try:
    ...     cdtp.Receiver()
    ... except LocalProtocolError as error:
    ...     print(error)
    a role needs an endpoint: give bind= or connect=, or a socket=

    ```
    """


class RemoteProtocolError(TrunklineError):
    """The peer violated the spec, or reports that you did.

    Attributes:
        clause: The requirement that was violated, e.g. ``"DCP-41"``; None if there is no single one.
        status: The status of the reply, e.g. 404; None for protocols without one.
        body: The body of the reply; may be empty.
        sequences: The rejected contents, numbered from 1 in the order they were sent; the last hundred thousand at most.

    ```pycon
    >>> from trunkline import RemoteProtocolError, mtl
    >>> with mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True) as server, mtl.Client(connect=server.endpoints) as client:
    ...     try:
    ...         client.command("Queue.Info", {"name": "jobs"})
    ...     except RemoteProtocolError as error:
    ...         print(error.status)
    404

    ```
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

    ```pycon
    >>> from trunkline import cdtp
    >>> with cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver:
    ...     try:
    ...         receiver.receive(timeout_s=0)
    ...     except TimeoutError as error:
    ...         print(error)
    no message came within 0 s

    ```
    """

    unsent: int | None

    def __init__(self, message: str, unsent: int | None = None) -> None:
        super().__init__(message)
        self.unsent = unsent


class CaptureError(TrunklineError):
    """A capture is locked, missing, corrupt or full.

    ```pycon
    >>> from trunkline import CaptureError, capture
    >>> try:
    ...     capture.open("no/such/capture")
    ... except CaptureError as error:
    ...     print(error)
    no/such/capture: does not exist (No such file or directory)

    ```
    """


class PeerLostError(TrunklineError):
    """The peer disconnected.

    ```pycon
    >>> from trunkline import PeerLostError, cdt
    >>> with cdt.Source("cmx", target="cdp", servers="memory://lost") as source:
    ...     try:
    ...         source.pull("app-1", "endpoint-7")
    ...     except PeerLostError as error:
    ...         print(error)
    no target named cdp is running

    ```
    """


class AuthenticationError(TrunklineError):
    """The peer refused our credentials, or did not prove its identity.

    Attributes:
        mechanisms: The SASL mechanisms it offers; empty if it did not get that far.

    ```pycon
    >>> from trunkline import AuthenticationError, mtl
    >>> with mtl.Server(bind="tcp://127.0.0.1:*", users={"ada": "sesame"}) as server:
    ...     try:
    ...         mtl.Client(connect=server.endpoints, user="ada", password="open")
    ...     except AuthenticationError as error:
    ...         print(error.mechanisms)
    ('SCRAM-SHA-256',)

    ```
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

    ```pycon
    >>> import pathlib, tempfile
    >>> from trunkline import MiddlewareError, mc0
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     policy = pathlib.Path(folder, "policy.toml")
    ...     size = policy.write_text("allow = []")
    ...     with mc0.Middleware(bind="tcp://127.0.0.1:*", policy=policy) as bus, mc0.Connector(connect=bus.endpoints) as ops:
    ...         try:
    ...             ops.subscribe("runs.1", timeout_s=10)
    ...         except MiddlewareError as error:
    ...             print(error.topic)
    runs.1

    ```
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

    ```pycon
    >>> from trunkline import ConfigError, cdt
    >>> with cdt.Target("cdp", servers="memory://config-error") as target:
    ...     try:
    ...         target.get("app-1", "endpoint-7")
    ...     except ConfigError as error:
    ...         print(error)
    404 endpoint-7 of app-1 has no configuration

    ```
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
    """The role is closed: by `close`, or because its ZeroMQ context or connection was.

    ```pycon
    >>> from trunkline import ClosedError, cdtp
    >>> with cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver:
    ...     pass
    >>> try:
    ...     receiver.receive()
    ... except ClosedError as error:
    ...     print(error)
    this cdtp.Receiver is closed

    ```
    """
