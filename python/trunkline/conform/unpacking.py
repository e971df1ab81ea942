"""Reads MessagePack as it stands on the wire: strings and bytes apart, maps as pairs, and where an object ends."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from trunkline.conform.checks import Failed

__all__ = ["Ext", "Map", "objects"]

_DEPTH = 64
_LENGTHS = {1: ">B", 2: ">H", 4: ">I"}

# The formats of fixed size.
_FIXED = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}


class Ext(NamedTuple):
    """An extension."""

    code: int
    data: bytes


class Map(list[tuple[Any, Any]]):
    """A map as its pairs, whose keys may be anything and come twice."""


def objects(data: bytes) -> tuple[list[Any], str | None]:
    """The objects that stand one after another, and why reading ended before the end; None if it did not."""
    reader = _Reader(data)
    found = []
    while reader.at < len(data):
        try:
            found.append(reader.take())
        except Failed as failed:
            return found, f"{failed} at byte {reader.at}"
    return found, None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def _bytes(self, size: int) -> bytes:
        if self.at + size > len(self._data):
            message = "it is cut off"
            raise Failed(message)
        taken = self._data[self.at : self.at + size]
        self.at += size
        return taken

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack(form, self._bytes(struct.calcsize(form)))
        return value

    def _text(self, size: int) -> str:
        data = self._bytes(size)
        try:
            return data.decode()
        except UnicodeDecodeError:
            message = "a string is not UTF-8"
            raise Failed(message) from None

    def take(self, depth: int = 0) -> Any:
        """The next object.

        Raises:
            Failed: It is none.
        """
        if depth > _DEPTH:
            message = "it is nested too deeply"
            raise Failed(message)
        kind = self._number(">B")
        if kind < 0x80:
            return kind
        if kind >= 0xE0:
            return kind - 0x100
        if kind < 0x90:
            return self._map(kind & 0x0F, depth)
        if kind < 0xA0:
            return self._array(kind & 0x0F, depth)
        if kind < 0xC0:
            return self._text(kind & 0x1F)
        if kind in _FIXED:
            return self._number(_FIXED[kind])
        return self._long(kind, depth)

    def _long(self, kind: int, depth: int) -> Any:
        """An object whose length, if any, follows its type."""
        if kind in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[kind]
        if 0xC4 <= kind <= 0xC6:
            return self._bytes(self._number(_LENGTHS[1 << (kind - 0xC4)]))
        if 0xC7 <= kind <= 0xC9:
            return self._ext(self._number(_LENGTHS[1 << (kind - 0xC7)]))
        if 0xD4 <= kind <= 0xD8:
            return self._ext(1 << (kind - 0xD4))
        if 0xD9 <= kind <= 0xDB:
            return self._text(self._number(_LENGTHS[1 << (kind - 0xD9)]))
        if 0xDC <= kind <= 0xDD:
            return self._array(self._number(_LENGTHS[2 << (kind - 0xDC)]), depth)
        if 0xDE <= kind <= 0xDF:
            return self._map(self._number(_LENGTHS[2 << (kind - 0xDE)]), depth)
        message = f"there is no type {kind:#x}"
        raise Failed(message)

    def _ext(self, size: int) -> Ext:
        code = self._number(">b")
        return Ext(code, self._bytes(size))

    def _array(self, count: int, depth: int) -> list[Any]:
        return [self.take(depth + 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> Map:
        return Map((self.take(depth + 1), self.take(depth + 1)) for _ in range(count))
