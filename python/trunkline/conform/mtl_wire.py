"""Messages of MTL, packed and read by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from trunkline.conform.checks import Failed
from trunkline.conform.reading import json_object
from trunkline.conform.sockets import shown

__all__ = [
    "CONFIRM",
    "CONTENT",
    "FIELDS",
    "LAST",
    "MECHANISM",
    "PING",
    "PONG",
    "RESOURCE",
    "RESPONSE",
    "SUMMON",
    "TEST",
    "Content",
    "Reply",
    "confirm",
    "content_of",
    "dismiss",
    "lease_of",
    "named",
    "read_content",
    "read_reply",
    "reject",
    "summon",
]

LEASE, RESPONSE, SUMMON, DISMISS, CONTENT, CONFIRM, REJECT = range(1, 8)
PING, PONG = [b"\x08", b""], [b"\x09", b""]
_EMPTY = b"\0\0\0\0"
TEST, RESOURCE = "test", "resource"
LAST = 2**64 - 1
MECHANISM = "SCRAM-SHA-256"

# One field of every type of RabbitMQ's dialect.
FIELDS = b"".join(
    bytes([2]) + b"f" + kind + kind + value
    for kind, value in (
        (b"t", b"\x01"),
        (b"b", b"\x80"),
        (b"B", b"\xff"),
        (b"s", b"\x80\0"),
        (b"u", b"\xff\xff"),
        (b"I", b"\x80\0\0\0"),
        (b"i", b"\xff\0\0\0"),
        (b"l", b"\x80" + b"\0" * 7),
        (b"f", struct.pack(">f", 1.5)),
        (b"d", struct.pack(">d", -1.5)),
        (b"D", b"\x02" + struct.pack(">I", 150)),
        (b"S", struct.pack(">I", 2) + b"\xc3\xa4"),
        (b"x", struct.pack(">I", 2) + b"\0\xff"),
        (b"T", struct.pack(">Q", 1_700_000_000)),
        (b"V", b""),
        (b"A", struct.pack(">I", 2) + b"t\0"),
        (b"F", struct.pack(">I", 4) + b"\x01at\x01"),
    )
)


def _short(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return bytes([len(data)]) + data


def named(kind: int, sequence: int, name: str | bytes) -> list[bytes]:
    """A message of a type, a sequence and a name."""
    return [struct.pack(">BQ", kind, sequence) + _short(name), b""]


def lease_of(sequence: int, lease: str | bytes) -> list[bytes]:
    """A Lease."""
    return named(LEASE, sequence, lease)


def summon(sequence: int, resource: str) -> list[bytes]:
    """A Summon."""
    return named(SUMMON, sequence, resource)


def dismiss(sequence: int, resource: str) -> list[bytes]:
    """A Dismiss."""
    return named(DISMISS, sequence, resource)


def content_of(sequence: int, resource: str, body: bytes, table: bytes = _EMPTY) -> list[bytes]:
    """A Content."""
    return [struct.pack(">BQ", CONTENT, sequence) + _short(resource) + table, body]


def confirm(sequence: int, *, multiple: bool = False) -> list[bytes]:
    """A Confirm."""
    return [struct.pack(">BQ?", CONFIRM, sequence, multiple), b""]


def reject(sequence: int, *, multiple: bool = False, recycle: bool = False) -> list[bytes]:
    """A Reject."""
    return [struct.pack(">BQ??", REJECT, sequence, multiple, recycle), b""]


class Reply(NamedTuple):
    """A reply of the control flow."""

    status: int
    body: dict[str, Any]


class Content(NamedTuple):
    """A content; the table with its length."""

    sequence: int
    resource: str
    table: bytes
    body: bytes


def read_reply(frames: Sequence[bytes]) -> Reply:
    """A reply without its envelope.

    Raises:
        Failed: It is none.
    """
    if len(frames) == 2 and len(frames[0]) == 3 and frames[0].isdigit() and frames[0][:1] in b"2345":
        body = json_object(frames[1])
        if body is not None and isinstance(body.get("status"), str):
            return Reply(int(frames[0]), body)
    message = f"{shown(frames)} is no reply of three digits and a JSON object with a status"
    raise Failed(message)


def read_content(frames: Sequence[bytes]) -> Content:
    """A content.

    Raises:
        Failed: It is none.
    """
    if len(frames) == 2 and len(frames[0]) > 9 and frames[0][0] == CONTENT:
        header = frames[0]
        (sequence,) = struct.unpack_from(">Q", header, 1)
        name, rest = header[10 : 10 + header[9]], header[10 + header[9] :]
        if len(rest) >= len(_EMPTY) and len(rest) == len(_EMPTY) + int.from_bytes(rest[:4], "big"):
            return Content(sequence, name.decode("utf-8", "replace"), rest, frames[1])
    message = f"{shown(frames)} is no content: a type, a sequence, a resource and a field table"
    raise Failed(message)
