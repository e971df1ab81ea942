"""A decoder of CDTP written from its specification and the table of requirements alone, for nothing but comparing.

It is slow, keeps everything in plain dicts and shares no code with the package.
"""

# ruff: noqa: EM101 - kinds are best read where they are raised
from __future__ import annotations

import struct
from typing import Any, NamedTuple

MAX_DEPTH = 32
TYPES = ("DAT", "BOR", "EOR")


class DecodeFaultError(Exception):
    """These bytes are no message."""

    def __init__(self, kind: str, frame: int, offset: int) -> None:
        super().__init__(kind, frame, offset)
        self.kind = kind
        self.frame = frame
        self.offset = offset


class Timestamp(NamedTuple):
    """A moment as MessagePack has it."""

    seconds: int
    nanoseconds: int


class Ext(NamedTuple):
    """An extension that is no timestamp."""

    code: int
    data: bytes


class Pairs(list[tuple[Any, Any]]):
    """A map: its pairs, in the order of the wire."""


def kind_of(first: int) -> str:
    """What an object is, from its first byte."""
    if first <= 0x7F or first >= 0xE0 or 0xCC <= first <= 0xD3:
        return "int"
    if first <= 0x8F or first in {0xDE, 0xDF}:
        return "map"
    if first <= 0x9F or first in {0xDC, 0xDD}:
        return "array"
    if first <= 0xBF or first in {0xD9, 0xDA, 0xDB}:
        return "str"
    if first in {0xC4, 0xC5, 0xC6}:
        return "bin"
    if first in {0xCA, 0xCB}:
        return "float"
    if first in {0xC7, 0xC8, 0xC9} or 0xD4 <= first <= 0xD8:
        return "ext"
    return {0xC0: "nil", 0xC1: "nothing", 0xC2: "bool", 0xC3: "bool"}[first]


class Stream:
    """The objects of a header, one after another."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def fail(self, kind: str, offset: int) -> DecodeFaultError:
        return DecodeFaultError(kind, 0, offset)

    def next_kind(self) -> str | None:
        return kind_of(self.data[self.at]) if self.at < len(self.data) else None

    def first(self, wanted: set[str], otherwise: str) -> int:
        """The first byte of an object that has to be of one of these kinds."""
        if self.at == len(self.data):
            raise self.fail("truncated", len(self.data))
        first = self.data[self.at]
        if kind_of(first) not in wanted:
            raise self.fail(otherwise, self.at)
        self.at += 1
        return first

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise self.fail("truncated", len(self.data))
        taken = self.data[self.at : self.at + count]
        self.at += count
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def length(self, first: int, fixed: int, ones: int | None, twos: int, fours: int) -> int:
        if first == ones:
            return self.number(1)
        if first == twos:
            return self.number(2)
        if first == fours:
            return self.number(4)
        return first - fixed

    def string(self, first: int) -> str:
        data = self.take(self.length(first, 0xA0, 0xD9, 0xDA, 0xDB))
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.fail("bad_utf8", self.at - len(data) + error.start) from None

    def binary(self, first: int) -> bytes:
        return self.take(self.length(first, 0, 0xC4, 0xC5, 0xC6))

    def integer(self, first: int) -> int:
        if first <= 0x7F:
            return first
        if first >= 0xE0:
            return first - 0x100
        formats = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
        form = formats[first]
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def extension(self, first: int, start: int, *, other: str | None) -> Timestamp | Ext:
        """A timestamp or, unless those are called `other`, any other extension."""
        length = 1 << (first - 0xD4) if 0xD4 <= first <= 0xD8 else self.length(first, 0, 0xC7, 0xC8, 0xC9)
        code = struct.unpack(">b", self.take(1))[0]
        if code != -1:
            if other is not None:
                raise self.fail(other, start)
            return Ext(code, self.take(length))
        if length not in {4, 8, 12}:
            raise self.fail("bad_timestamp", start)
        data = self.take(length)
        if length == 4:
            stamp = Timestamp(int.from_bytes(data, "big"), 0)
        elif length == 8:
            both = int.from_bytes(data, "big")
            stamp = Timestamp(both & 0x3FFFFFFFF, both >> 34)
        else:
            nanoseconds, seconds = struct.unpack(">Iq", data)
            stamp = Timestamp(seconds, nanoseconds)
        if stamp.nanoseconds > 999_999_999:
            raise self.fail("bad_timestamp", start)
        return stamp

    def value(self, depth: int) -> Any:
        """Any object, which lies in so many maps and arrays."""
        start = self.at
        first = self.first({"int", "map", "array", "str", "bin", "float", "ext", "nil", "bool"}, "bad_header")
        kind = kind_of(first)
        if kind in {"map", "array"} and depth >= MAX_DEPTH:
            raise self.fail("too_deep", start)
        if kind == "int":
            return self.integer(first)
        if kind == "str":
            return self.string(first)
        if kind == "bin":
            return self.binary(first)
        if kind == "float":
            return struct.unpack(">f" if first == 0xCA else ">d", self.take(4 if first == 0xCA else 8))[0]
        if kind == "ext":
            return self.extension(first, start, other=None)
        if kind == "array":
            return [self.value(depth + 1) for _ in range(self.length(first, 0x90, None, 0xDC, 0xDD))]
        if kind == "map":
            pairs = self.length(first, 0x80, None, 0xDE, 0xDF)
            return Pairs((self.value(depth + 1), self.value(depth + 1)) for _ in range(pairs))
        return {0xC0: None, 0xC2: False, 0xC3: True}[first]

    def unsigned(self, otherwise: str) -> int:
        start = self.at
        number = self.integer(self.first({"int"}, otherwise))
        if number < 0:
            raise self.fail(otherwise, start)
        return number

    def message_type(self) -> str:
        start = self.at
        number = self.unsigned("bad_type")
        if number >= len(TYPES):
            raise self.fail("bad_type", start)
        return TYPES[number]

    def tags(self) -> list[tuple[str, Any]]:
        pairs = self.length(self.first({"map"}, "bad_header"), 0x80, None, 0xDE, 0xDF)
        return [(self.string(self.first({"str"}, "bad_map_key")), self.value(1)) for _ in range(pairs)]

    def end(self, *, strict: bool) -> None:
        if strict and self.at < len(self.data):
            raise self.fail("trailing_bytes", self.at)


def decode(
    frames: list[bytes], accept: tuple[str, ...] = ("S", "A", "B", "2"), *, strict: bool = True
) -> list[dict[str, Any]]:
    """What a message says: one dict, or of CDTP2 one for each record.

    Raises:
        DecodeFaultError: It is none.
    """
    if not frames:
        raise DecodeFaultError("missing_payload", 0, 0)
    stream = Stream(frames[0])
    first = stream.first({"str", "bin"}, "bad_header")
    lengths = (0, 0xC4, 0xC5, 0xC6) if kind_of(first) == "bin" else (0xA0, 0xD9, 0xDA, 0xDB)
    magic = stream.take(stream.length(first, *lengths))
    if len(magic) != 5 or magic[:4] != b"CDTP":
        raise DecodeFaultError("bad_protocol", 0, 0)
    if not {1: {"S", "A", "B"}, 2: {"2"}}.get(magic[4], set()) & set(accept):
        raise DecodeFaultError("unsupported_version", 0, 0)
    sender = stream.string(stream.first({"str"}, "bad_header"))
    if magic[4] == 2:
        return _records(stream, sender, frames, strict=strict)

    message: dict[str, Any] = {"sender": sender, "timestamp": None, "type": None, "sequence": None}
    third = stream.at
    if stream.next_kind() == "int":
        after = Stream(frames[0])
        after.at = third
        after.integer(after.first({"int"}, ""))
        if after.next_kind() == "map":
            raise DecodeFaultError("bad_timestamp", 0, third)
        message["variant"] = "B"
    else:
        message["timestamp"] = stream.extension(stream.first({"ext"}, "bad_header"), third, other="bad_header")
        fourth = stream.next_kind()
        if fourth is None:
            raise DecodeFaultError("truncated", 0, len(frames[0]))
        if fourth not in {"map", "int"}:
            raise DecodeFaultError("bad_header", 0, stream.at)
        message["variant"] = "S" if fourth == "map" else "A"
    if message["variant"] not in accept:
        raise DecodeFaultError("unsupported_version", 0, third)
    if message["variant"] != "S":
        message["type"] = stream.message_type()
        message["sequence"] = stream.unsigned("bad_sequence")
    message["tags"] = stream.tags()
    stream.end(strict=strict)
    if message["variant"] == "S" and len(frames) < 2:
        raise DecodeFaultError("missing_payload", 1, 0)
    if message["type"] in {"BOR", "EOR"} and len(frames) != 2:
        raise DecodeFaultError("bad_payload_count", min(len(frames), 2), 0)
    if len(frames) > 10_000:
        raise DecodeFaultError("too_many_frames", 10_000, 0)
    message["payload"] = frames[1:]
    return [message]


def _records(stream: Stream, sender: str, frames: list[bytes], *, strict: bool) -> list[dict[str, Any]]:
    if stream.next_kind() not in {"int", None}:
        raise DecodeFaultError("bad_header", 0, stream.at)
    message_type = stream.message_type()
    records = []
    for _ in range(stream.length(stream.first({"array"}, "bad_header"), 0x90, None, 0xDC, 0xDD)):
        start = stream.at
        if stream.length(stream.first({"array"}, "bad_record"), 0x90, None, 0xDC, 0xDD) != 3:
            raise DecodeFaultError("bad_record", 0, start)
        sequence = stream.unsigned("bad_sequence")
        tags = stream.tags()
        blocks = stream.length(stream.first({"array"}, "bad_record"), 0x90, None, 0xDC, 0xDD)
        payload = [stream.binary(stream.first({"bin"}, "bad_record")) for _ in range(blocks)]
        records.append(
            {
                "variant": "2",
                "sender": sender,
                "timestamp": None,
                "type": message_type,
                "sequence": sequence,
                "tags": tags,
                "payload": payload,
            }
        )
    stream.end(strict=strict)
    if len(frames) > 1:
        raise DecodeFaultError("bad_payload_count", 1, 0)
    return records
