"""A decoder of MTL written from its specification and the table of requirements alone, for nothing but comparing.

It is slow, keeps everything in plain dicts and shares no code with the package.
"""

# ruff: noqa: EM101 - kinds are best read where they are raised
from __future__ import annotations

import json
import math
import re
import struct
from decimal import Decimal
from typing import Any

from .cdtp import DecodeFaultError

TYPES = ("lease", "response", "summon", "dismiss", "content", "confirm", "reject", "ping", "pong")
NUMBERS = {"b": "b", "B": "B", "s": "h", "U": "h", "u": "H", "I": "i", "i": "I", "l": "q", "L": "q", "f": "f", "d": "d"}
MAX_DEPTH = 16
MAX_NAME = 128
MAX_JSON_DEPTH = 127


class Time(int):
    """Seconds since 1970."""


class Fields:
    """What stands one after another in some bytes, up to an end."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def rest(self) -> int:
        return self.end - self.at

    def take(self, count: int) -> bytes | None:
        if self.rest() < count:
            return None
        self.at += count
        return self.data[self.at - count : self.at]


def decode(frames: list[bytes]) -> dict[str, Any]:
    """The message in these frames, without an envelope."""
    if len(frames) != 2:
        raise DecodeFaultError("bad_frame_count", min(len(frames), 2), 0)
    first, body = frames
    if not first or first[0] < 0x20:
        return data(first, body)
    if re.fullmatch(rb"[0-9]+", first):
        if not re.fullmatch(rb"[2-5][0-9][0-9]", first):
            raise DecodeFaultError("bad_status", 0, 0)
        return {"status": int(first), "body": json_object(body)}
    name = printable(first, "bad_command", 0)
    decoded = {"name": name, "body": json_object(body)}
    class_, _, method = name.partition(".")
    if not class_ or not method:
        raise DecodeFaultError("bad_command", 0, len(first))
    return decoded


def printable(text: bytes, kind: str, offset: int) -> str:
    """UTF-8 without control characters."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise DecodeFaultError(kind, 0, offset + error.start) from None
    for at, byte in enumerate(text):
        if byte < 0x20 or byte == 0x7F:
            raise DecodeFaultError(kind, 0, offset + at)
    return decoded


def json_object(body: bytes) -> dict[str, Any]:
    """A JSON object that every parser takes; where in it the fault is, is not said."""
    bad = DecodeFaultError("bad_json", 1, 0)

    def refuse(_: str) -> Any:
        raise bad

    def finite(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise bad
        return number

    def integer(text: str) -> int | float:
        number = int(text)
        # What needs more than 64 bits is a number with less precision.
        return number if -(2**63) <= number < 2**64 and text != "-0" else finite(text)

    try:
        text = body.decode()
        found = json.loads(text, parse_constant=refuse, parse_float=finite, parse_int=integer)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise bad from None
    if not isinstance(found, dict) or text.startswith("\ufeff"):
        raise bad
    check_json(found, bad, MAX_JSON_DEPTH)
    return found


def check_json(value: Any, bad: DecodeFaultError, depth: int) -> None:
    """No halves of characters, and not too deep."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise bad from None
    elif isinstance(value, dict | list):
        if depth == 0:
            raise bad
        for inner in value if isinstance(value, list) else (part for item in value.items() for part in item):
            check_json(inner, bad, depth - 1)


def data(header: bytes, body: bytes) -> dict[str, Any]:
    """A command of the data flow."""
    if not header:
        raise DecodeFaultError("empty_header", 0, 0)
    if not 1 <= header[0] <= len(TYPES):
        raise DecodeFaultError("unknown_type", 0, 0)
    kind = TYPES[header[0] - 1]
    fields = Fields(header, 1, len(header))
    decoded: dict[str, Any] = {"type": kind}
    if kind not in {"ping", "pong"}:
        decoded["sequence"] = struct.unpack(">Q", whole(fields, 8))[0]
    if kind == "lease":
        decoded["lease"] = short_string(fields)
    if kind in {"summon", "dismiss", "content"}:
        decoded["resource"] = short_string(fields)
    if kind == "content":
        length = struct.unpack(">I", whole(fields, 4))[0]
        inside = fields.at
        whole(fields, length)
        decoded["properties"] = table(Fields(header, inside, fields.at), 1)
        decoded["body"] = body
    if kind in {"confirm", "reject"}:
        decoded["multiple"] = boolean(fields)
    if kind == "reject":
        decoded["recycle"] = boolean(fields)
    if fields.rest():
        raise DecodeFaultError("trailing_bytes", 0, fields.at)
    if kind == "response":
        if not re.fullmatch(rb"[2-5][0-9][0-9]", body):
            raise DecodeFaultError("bad_status", 1, 0)
        decoded["status"] = int(body)
    return decoded


def whole(fields: Fields, count: int) -> bytes:
    """So many bytes of a header."""
    taken = fields.take(count)
    if taken is None:
        raise DecodeFaultError("truncated", 0, fields.end)
    return taken


def short_string(fields: Fields) -> str:
    """A byte of length and text."""
    length = whole(fields, 1)[0]
    start = fields.at
    return printable(whole(fields, length), "bad_short_string", start)


def boolean(fields: Fields) -> bool:
    """A byte, 0 or 1."""
    at = fields.at
    byte = whole(fields, 1)[0]
    if byte > 1:
        raise DecodeFaultError("bad_boolean", 0, at)
    return bool(byte)


def bad(at: int) -> DecodeFaultError:
    """There is no field table here."""
    return DecodeFaultError("bad_field_table", 0, at)


def piece(fields: Fields, count: int) -> bytes:
    """So many bytes of a table."""
    taken = fields.take(count)
    if taken is None:
        raise bad(fields.at)
    return taken


def table(fields: Fields, depth: int) -> dict[str, Any]:
    """Names and values up to the end."""
    found: dict[str, Any] = {}
    while fields.rest():
        start = fields.at
        name = piece(fields, piece(fields, 1)[0])
        try:
            text = name.decode()
        except UnicodeDecodeError:
            raise bad(start) from None
        if len(name) > MAX_NAME or text in found:
            raise bad(start)
        found[text] = value(fields, depth)
    return found


def value(fields: Fields, depth: int) -> Any:
    """A value: its type letter, and the value itself."""
    start = fields.at
    letter = chr(piece(fields, 1)[0])
    if letter in NUMBERS:
        form = ">" + NUMBERS[letter]
        return struct.unpack(form, piece(fields, struct.calcsize(form)))[0]
    match letter:
        case "t":
            byte = piece(fields, 1)[0]
            if byte > 1:
                raise bad(start + 1)
            return bool(byte)
        case "D":
            places = piece(fields, 1)[0]
            digits = struct.unpack(">i", piece(fields, 4))[0]
            sign = 1 if digits < 0 else 0
            return Decimal((sign, tuple(map(int, str(abs(digits)))), -places))
        case "T":
            return Time(struct.unpack(">Q", piece(fields, 8))[0])
        case "V":
            return None
        case "S" | "x" | "F" | "A":
            if letter in "FA" and depth == MAX_DEPTH:
                raise bad(start)
            length = struct.unpack(">I", piece(fields, 4))[0]
            inside = fields.at
            held = piece(fields, length)
            if letter == "F":
                return table(Fields(fields.data, inside, fields.at), depth + 1)
            if letter == "A":
                return array(Fields(fields.data, inside, fields.at), depth + 1)
            if letter == "S":
                try:
                    return held.decode()
                except UnicodeDecodeError:
                    pass
            return held
    raise bad(start)


def array(fields: Fields, depth: int) -> list[Any]:
    """Values up to the end."""
    found = []
    while fields.rest():
        found.append(value(fields, depth))
    return found
