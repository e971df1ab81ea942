"""One datagram: the same 42 bytes in every release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from trunkline._frames import Bytes
from trunkline._native import chirp as _chirp

__all__ = ["Kind", "Message", "Service", "decode", "encode", "hash_name"]

Kind = Literal["offer", "request", "depart"]


class Service(IntEnum):
    """A kind of service (CHIRP-02), by its number on the wire.

    ```pycon
    >>> from trunkline import chirp
    >>> chirp.Service.DATA, chirp.Service(3)
    (<Service.DATA: 4>, <Service.MONITORING: 3>)

    ```
    """

    CONTROL = 1
    HEARTBEAT = 2
    MONITORING = 3
    DATA = 4


@dataclass(frozen=True, slots=True)
class Message:
    """The content of a datagram.

    Attributes:
        kind: "offer", "request" or "depart".
        group: The group it is for, as `hash_name` returns it.
        host: The host it comes from, as `hash_name` returns it.
        service: The service it is about.
        port: The TCP port of the service; 0 in a request.
    """

    kind: Kind
    group: str
    host: str
    service: Service
    port: int = 0


def decode(frames: Bytes | Iterable[Bytes]) -> Message:
    """The message in a datagram.

    Args:
        frames: The datagram, or a sequence with the datagram as its only frame.

    Raises:
        DecodeError: The datagram is malformed (CHIRP-07).

    ```pycon
    >>> from trunkline import chirp
    >>> offer = chirp.Message("offer", chirp.hash_name("lab"), chirp.hash_name("Detector.one"), chirp.Service.DATA, 23999)
    >>> message = chirp.decode(chirp.encode(offer))
    >>> message.kind, message.service, message.port
    ('offer', <Service.DATA: 4>, 23999)

    ```
    """
    kind, group, host, service, port = _chirp.decode(frames)
    return Message(kind, group, host, Service(service), port)


def encode(message: Message) -> tuple[bytes]:
    """The one frame of a message: its datagram.

    Raises:
        ValueError: A field has a value that a datagram cannot hold.

    ```pycon
    >>> (datagram,) = encode(Message("request", hash_name("lab"), hash_name("Viewer.one"), Service.DATA))
    >>> len(datagram), decode(datagram).kind
    (42, 'request')

    ```
    """
    return (_chirp.encode(message.kind, message.group, message.host, message.service, message.port),)


def hash_name(name: str, *, lower_case: bool = True) -> str:
    """The hash of a group or host in a datagram: the MD5 digest of its name, as 32 hexadecimal digits (CHIRP-03).

    Args:
        name: The name.
        lower_case: Hash the name in lower case, as releases from 0.7 on do; else as it is.

    ```pycon
    >>> from trunkline import chirp
    >>> chirp.hash_name("lab")
    'f9664ea1803311b35f81d07d8c9e072d'
    >>> chirp.hash_name("Lab") == chirp.hash_name("lab") != chirp.hash_name("Lab", lower_case=False)
    True

    ```
    """
    return _chirp.hash_name(name, lower_case)
