"""The annotation of Parquet by which readers know a VARIANT, which pyarrow does not write."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["annotate"]

# At the end of a file: the length of the footer, and the magic.
_END = struct.Struct("<I4s")

# The fields of Thrift that say where the schema is in a footer, and what an element of it is.
_SCHEMA = 2
_NAME, _CHILDREN, _LOGICAL_TYPE = 4, 5, 10

# LogicalType::VARIANT, the field 16 of a union, of version 1 of its specification.
_VARIANT = bytes([0x0C, 16 << 1, 0x13, 1, 0, 0])

_BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = 3, (4, 5, 6), 7, 8, (9, 10), 12


def annotate(path: Path, columns: Collection[str]) -> None:
    """Says of columns at the top of a Parquet file, which are structs of ``value`` and ``metadata``, that they are VARIANT."""
    if not columns:
        return
    with path.open("r+b") as file:
        footer, start = _footer(file)
        for element in reversed(list(_elements(footer))):
            if element.is_top and element.name in columns and element.last < _LOGICAL_TYPE:
                field = bytes([(_LOGICAL_TYPE - element.last) << 4 | _STRUCT])
                footer[element.end : element.end] = field + _VARIANT
        file.seek(start)
        file.write(footer + _END.pack(len(footer), b"PAR1"))


def _footer(file: BinaryIO) -> tuple[bytearray, int]:
    end = file.seek(-_END.size, 2)
    length, _ = _END.unpack(file.read(_END.size))
    start = file.seek(end - length)
    return bytearray(file.read(length)), start


class _Element:
    """An element of a schema."""

    def __init__(self, *, is_top: bool) -> None:
        self.is_top = is_top
        self.name = ""
        self.children = 0
        # The id of its last field, and where its fields end.
        self.last = 0
        self.end = 0


def _elements(footer: bytearray) -> Iterator[_Element]:
    walk = _Walk(footer)
    for field, kind in walk.fields():
        if field != _SCHEMA:
            walk.skip(kind)
            continue
        # The root, then what it holds, each before what that holds.
        left: list[int] = []
        for _ in range(walk.list()[0]):
            element = _Element(is_top=len(left) == 1)
            for element.last, held in walk.fields():
                if element.last == _NAME:
                    element.name = walk.binary().decode()
                elif element.last == _CHILDREN:
                    element.children = walk.number()
                else:
                    walk.skip(held)
            element.end = walk.at - 1
            yield element
            left.append(element.children)
            while left and left[-1] == 0:
                left.pop()
                if left:
                    left[-1] -= 1
        return


class _Walk:
    """A place in Thrift's compact protocol."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """The id and the kind of each field of a struct; whoever takes them passes over the value."""
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self.number()
            yield field, head & 0x0F

    def list(self) -> tuple[int, int]:
        """The length of a list, and the kind of what is in it."""
        head = self._byte()
        return self._varint() if head >> 4 == 0x0F else head >> 4, head & 0x0F

    def binary(self) -> bytes:
        length = self._varint()
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def number(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def skip(self, kind: int) -> None:
        if kind in _INTEGERS:
            self._varint()
        elif kind in _LISTS:
            length, kind = self.list()
            for _ in range(length):
                # Among others a boolean is a byte; as a field it is its kind.
                self.skip(max(kind, _BYTE))
        elif kind == _STRUCT:
            for _, kind in self.fields():
                self.skip(kind)
        elif kind == _BINARY:
            self.binary()
        else:
            self.at += {_BYTE: 1, _DOUBLE: 8}.get(kind, 0)

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
