"""Converts values for JSON, in the lines of all commands."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from trunkline._text import finite

__all__ = ["encode", "named", "plain", "text_of_bytes"]

# Encodes a plain value as JSON.
encode = json.JSONEncoder(allow_nan=False, separators=(", ", ": ")).encode


def plain(value: Any) -> Any:
    r"""A value as JSON can hold it.

    Bytes are a string where they are printable UTF-8, else ``{"base64": …}``; so are the bytes that a string stands for which
    is no text, as Python has names and paths that are not UTF-8. Of what MessagePack knows and JSON does
    not, a timestamp is its nanoseconds, an extension ``{"ext", "data"}``, a map with other than string keys a list of
    ``{"key", "value"}``; a float that is no number is its name. Of what MTL knows, a time is ISO 8601 in UTC, a decimal text.

    >>> plain({"a": b"text", "b": b"\xff", 3: float("nan")})
    [{'key': 'a', 'value': 'text'}, {'key': 'b', 'value': {'base64': '/w=='}}, {'key': 3, 'value': 'NaN'}]
    >>> plain("topic"), plain("t\udcff")
    ('topic', {'base64': 'dP8='})
    """
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if _is_text(value) else text_of_bytes(value.encode(errors="surrogateescape"))
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, bytes):
        return text_of_bytes(value)
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and _is_text(key) for key in value):
            return {key: plain(member) for key, member in value.items()}
        return [{"key": plain(key), "value": plain(member)} for key, member in value.items()]
    if isinstance(value, Sequence):
        return [plain(member) for member in value]
    return _special(value)


def text_of_bytes(data: bytes) -> str | dict[str, str]:
    """Bytes as JSON can hold them: printable text as it is, else in base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else {"base64": base64.b64encode(data).decode()}


def _is_text(value: str) -> bool:
    """Whether it has bytes in UTF-8."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _special(value: Any) -> Any:
    from trunkline.msgpack import Ext, Timestamp

    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Timestamp):
        return value.to_ns()
    if isinstance(value, Ext):
        return {"ext": value.code, "data": text_of_bytes(value.data)}
    # A field that is a Python keyword ends with an underscore.
    return {field.name.rstrip("_"): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def named(name: str | Mapping[str, str]) -> bytes:
    r"""The bytes that JSON has as text, or in base64 if they are none.

    >>> named("echo"), named({"base64": "/w=="})
    (b'echo', b'\xff')
    """
    return name.encode() if isinstance(name, str) else base64.b64decode(name["base64"])
