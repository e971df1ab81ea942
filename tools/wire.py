"""Messages on the pages of the wire: bytes of the vectors, each piece with its offset and what it says.

On a page a block ```` ```wire PROTOCOL/FILE ID ```` stands for a table. The pieces are read here once more, with the
libraries that a peer would take and nothing of the package, and are all bytes of the message in their order.
"""

from __future__ import annotations

import functools
import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack

ROOT = Path(__file__).parents[1]

# A table shows so many bytes of a piece.
_SHOWN = 24

_BLOCK = re.compile(r"^```wire (?P<file>\w+/\w+) (?P<id>\S+)\n```$", re.MULTILINE)

# Offset, bytes, meaning.
Piece = tuple[int, bytes, str]


def expand(markdown: str) -> str:
    """A page with a table in place of each block."""
    return _BLOCK.sub(lambda block: table(block["file"], block["id"]), markdown)


def table(file: str, name: str) -> str:
    """The message of a vector."""
    rows = ["| frame | offset | bytes | meaning |", "|---|---|---|---|"]
    for number, pieces in enumerate(annotated(file.partition("/")[0], frames(file, name))):
        rows += [f"| {number} | {offset} | {_hex(data)} | {meaning} |" for offset, data, meaning in pieces]
    return "\n".join(rows)


@functools.cache
def _vectors(file: str) -> dict[str, dict[str, Any]]:
    return {vector["id"]: vector for vector in json.loads((ROOT / "tests" / "vectors" / f"{file}.json").read_text())}


def frames(file: str, name: str) -> list[bytes]:
    """The frames of a vector."""
    return [bytes.fromhex(frame) for frame in _vectors(file)[name]["frames"]]


def annotated(protocol: str, message: list[bytes]) -> list[list[Piece]]:
    """The pieces of each frame. An empty frame is one piece."""
    return [list(pieces) for pieces in _ANNOTATORS[protocol](message)]


def _hex(data: bytes) -> str:
    if not data:
        return "*empty*"
    more = f" … {len(data):,} bytes" if len(data) > _SHOWN else ""
    return f"`{data[:_SHOWN].hex(' ')}`{more}"


def _quoted(data: bytes) -> str:
    """Bytes as the text that they are, or nothing."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return f" `{text}`" if text.isprintable() and len(text) <= _SHOWN and "`" not in text and text else ""


def _whole(data: bytes, meaning: str) -> list[Piece]:
    return [(0, data, meaning + _quoted(data))]


class _Cursor:
    """Takes one piece after the other from a frame."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.at = 0

    def take(self, size: int, meaning: str | Callable[[bytes], str]) -> Piece:
        data = self.frame[self.at : self.at + size]
        piece = self.at, data, meaning(data) if callable(meaning) else meaning
        self.at += size
        return piece

    def rest(self, meaning: str) -> Iterator[Piece]:
        if self.at < len(self.frame):
            yield self.take(len(self.frame) - self.at, meaning)


# CDTP


_TYPES = {0: "DAT", 1: "BOR", 2: "EOR"}


def _ext(code: int, data: bytes) -> str:
    return f"ext {code}, {len(data)} bytes"


def _objects(frame: bytes) -> Iterator[tuple[int, bytes, Any]]:
    """The MessagePack objects of a frame."""
    unpacker = msgpack.Unpacker(
        strict_map_key=False, object_pairs_hook=list, unicode_errors="surrogateescape", ext_hook=_ext
    )
    unpacker.feed(frame)
    at = 0
    while at < len(frame):
        try:
            value = unpacker.unpack()
        except msgpack.OutOfData:
            return
        end = unpacker.tell()
        yield at, frame[at:end], value
        at = end


# What follows the identity and the sender. What the second number of values is tells the headers apart.
_HEADERS = {
    "S": ["the time", "tags"],
    "A": ["the time", "the type", "the sequence number", "tags"],
    "B": ["the type", "the sequence number", "tags"],
    "2": ["the type", "records: each is a sequence number, tags and blocks"],
}


def _header(objects: list[tuple[int, bytes, Any]]) -> str:
    if objects[0][2] in (b"CDTP\x02", "CDTP\x02"):
        return "2"
    if isinstance(objects[2][2], int):
        return "B"
    return "A" if isinstance(objects[3][2], int) else "S"


def _cdtp(message: list[bytes]) -> Iterator[list[Piece]]:
    header, *payload = message
    objects = list(_objects(header))
    names = ["the protocol and its version", "the sender", *_HEADERS[_header(objects)]]
    objects = objects[: len(names)]
    pieces = [
        (at, data, f"{name}: {_value(name, value)}") for (at, data, value), name in zip(objects, names, strict=True)
    ]
    yield pieces + list(_beyond(header, objects[-1][0] + len(objects[-1][1])))
    yield from (_whole(frame, "payload") for frame in payload)


def _beyond(frame: bytes, at: int) -> Iterator[Piece]:
    if at < len(frame):
        yield at, frame[at:], "bytes after the header"


def _value(name: str, value: Any) -> str:
    if name == "the type":
        return _TYPES.get(value, str(value))
    if isinstance(value, msgpack.Timestamp):
        return f"{value.seconds} s and {value.nanoseconds} ns since 1970"
    if isinstance(value, list):
        shown = json.dumps(_plain(value), ensure_ascii=False)
        return f"`{shown}`" if "`" not in shown and len(shown) < 3 * _SHOWN else f"{len(value)} of them"
    if isinstance(value, str):
        return f"`{ascii(value)[1:-1]}`"
    return f"`{value!r}`"


def _plain(value: Any) -> Any:
    """A value as JSON has it; what it lacks as text."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


# CHIRP


_CHIRP_KINDS = {1: "REQUEST", 2: "OFFER", 3: "DEPART"}


def _chirp(message: list[bytes]) -> Iterator[Iterator[Piece]]:
    def pieces(frame: bytes) -> Iterator[Piece]:
        cursor = _Cursor(frame)
        yield cursor.take(5, "`CHIRP`")
        yield cursor.take(1, "the version")
        yield cursor.take(1, lambda data: f"the kind: {_CHIRP_KINDS[data[0]]}")
        yield cursor.take(16, "the group: the MD5 sum of its name")
        yield cursor.take(16, "the host: the MD5 sum of its name")
        yield cursor.take(1, "the service")
        yield cursor.take(2, lambda data: f"the port: {struct.unpack('>H', data)[0]}")

    yield from (pieces(frame) for frame in message)


# DCP


_DCP_TYPES = {1: "REGISTER", 2: "PING", 3: "PONG", 4: "REQUEST", 5: "REPLY", 6: "RECONNECT"}


def _dcp(message: list[bytes]) -> Iterator[list[Piece]]:
    delimiter, header, kind, *rest = message
    yield _whole(delimiter, "the delimiter")
    yield [(0, header[:4], "`DGBX`"), (4, header[4:], "the version")]
    name = _DCP_TYPES[kind[0]]
    yield [(0, kind, f"the type: {name}")]
    if name == "REGISTER":
        names = ["the service"]
    elif name == "REQUEST":
        names = ["the service", "the client"] if rest[1] else ["the service"]
    elif name == "REPLY":
        names = ["the client"]
    else:
        names = []
    fixed = len(names)
    for number, frame in enumerate(rest):
        if number < fixed:
            yield _whole(frame, names[number])
        elif number == fixed:
            yield _whole(frame, "the begin of the metadata")
        elif b"" in rest[fixed + 1 : number]:
            yield _whole(frame, "data")
        elif frame:
            yield _whole(frame, "metadata")
        else:
            yield _whole(frame, "the end of the metadata")


# mc0


def _mc0(message: list[bytes]) -> Iterator[list[Piece]]:
    rest = message
    if not rest[0]:
        yield _whole(rest[0], "the delimiter")
        rest = rest[1:]
    verb, *rest = rest
    yield _whole(verb, "the verb")
    while rest and rest[0]:
        key, value, *rest = rest
        yield _whole(key, "a header's key")
        yield _whole(value, "its value")
    if rest:
        end, *rest = rest
        yield _whole(end, "the end of the headers")
    what = "a topic" if verb in (b"SUB", b"UNSUB") else "body"
    yield from (_whole(frame, what) for frame in rest)


# MTL


_MTL_TYPES = {
    1: "LEASE",
    2: "RESPONSE",
    3: "SUMMON",
    4: "DISMISS",
    5: "CONTENT",
    6: "CONFIRM",
    7: "REJECT",
    8: "PING",
    9: "PONG",
}


def _mtl(message: list[bytes]) -> Iterator[Iterator[Piece] | list[Piece]]:
    header, *bodies = message
    if header[0] >= 0x20:
        yield _whole(header, "the command" if b"." in header else "the status")
        yield from (_whole(body, "JSON:") if len(body) <= _SHOWN else [(0, body, _json(body))] for body in bodies)
        return
    yield _data_header(header)
    name = _MTL_TYPES[header[0]]
    what = {"RESPONSE": "the status", "CONTENT": "the body"}.get(name, "nothing")
    yield from (_whole(body, what) for body in bodies)


def _data_header(header: bytes) -> Iterator[Piece]:
    cursor = _Cursor(header)
    yield cursor.take(1, lambda data: f"the type: {_MTL_TYPES[data[0]]}")
    if header[0] >= 8:
        return
    yield cursor.take(8, lambda data: f"the sequence: {struct.unpack('>Q', data)[0]}")
    if header[0] in (1, 3, 4, 5):
        what = "lease" if header[0] == 1 else "resource"
        size = header[cursor.at]
        yield cursor.take(1, f"the length of the {what}")
        if size:
            yield cursor.take(size, lambda data: f"the {what}{_quoted(data)}")
    if header[0] == 5:
        yield cursor.take(4, "the length of the properties")
        yield from cursor.rest("the properties: a field table")
    if header[0] in (6, 7):
        yield cursor.take(1, "whether all up to this one are meant")
    if header[0] == 7:
        yield cursor.take(1, "whether they are to be delivered again")


def _json(body: bytes) -> str:
    text = json.dumps(json.loads(body), ensure_ascii=False)
    return f"JSON: `{text}`" if "`" not in text and "|" not in text else "JSON"


# CDT


def _cdt(message: list[bytes]) -> Iterator[list[Piece]]:
    for frame in message:
        yield [(0, frame, _json(frame) if frame[:1] == b"{" else "a record of Avro")]


_ANNOTATORS: dict[str, Callable[[list[bytes]], Iterator[Any]]] = {
    "cdt": _cdt,
    "cdtp": _cdtp,
    "chirp": _chirp,
    "dcp": _dcp,
    "mc0": _mc0,
    "mtl": _mtl,
}
