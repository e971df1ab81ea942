"""A plain reader of Parquet's VARIANT, from its specification."""

from __future__ import annotations

import itertools
import struct
from decimal import Decimal
from typing import Any

__all__ = ["read"]

_NUMBERS = {3: "<b", 4: "<h", 5: "<i", 6: "<q", 7: "<d", 12: "<q", 14: "<f"}
_DECIMALS = {8: 4, 9: 8, 10: 16}


def read(variant: dict[str, bytes] | None) -> Any:
    """The value of a variant; a timestamp is the number of its microseconds."""
    if variant is None:
        return None
    metadata = variant["metadata"]
    width = (metadata[0] >> 6) + 1
    count = _number(metadata, 1, width)
    offsets = [_number(metadata, 1 + width * (1 + at), width) for at in range(count + 1)]
    text = metadata[1 + width * (count + 2) :]
    names = [text[begin:end].decode() for begin, end in itertools.pairwise(offsets)]
    return _value(variant["value"], names)


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


def _value(data: bytes, names: list[str]) -> Any:
    kind, more = data[0] & 3, data[0] >> 2
    if kind == 1:
        return data[1 : 1 + more].decode()
    if kind == 0:
        return _primitive(more, data[1:])
    width = (more & 3) + 1
    ids = ((more >> 2) & 3) + 1 if kind == 2 else 0
    counted = 4 if more >> (4 if kind == 2 else 2) & 1 else 1
    count = _number(data, 1, counted)
    first = 1 + counted + ids * count
    begin = first + width * (count + 1)
    members = [_value(data[begin + _number(data, first + width * at, width) :], names) for at in range(count)]
    if kind == 3:
        return members
    keys = [names[_number(data, 1 + counted + ids * at, ids)] for at in range(count)]
    assert keys == sorted(keys, key=str.encode)
    return dict(zip(keys, members, strict=True))


def _primitive(kind: int, data: bytes) -> Any:
    if kind < 3:
        return (None, True, False)[kind]
    if kind in _NUMBERS:
        return struct.unpack_from(_NUMBERS[kind], data)[0]
    if kind in _DECIMALS:
        return Decimal(int.from_bytes(data[1 : 1 + _DECIMALS[kind]], "little", signed=True)).scaleb(-data[0])
    length = _number(data, 0, 4)
    found = data[4 : 4 + length]
    return found.decode() if kind == 16 else found
