"""Layouts of payloads as NumPy's dtypes, and dtypes as layouts."""

from __future__ import annotations

import math
from typing import Any

from trunkline.errors import LocalProtocolError

__all__ = ["dtype_of", "text_of"]

# The kinds of NumPy's types that layouts have, and their names there.
_KINDS = {"i": "i", "u": "u", "f": "f", "b": "bool"}

# What to do about other kinds.
_ADVICE = {
    "O": "an object has no bytes of its own: make a field of a fixed type",
    "M": "make it '<i8' and cast the column to a timestamp",
    "m": "make it '<i8' and cast the column to an interval",
    "c": "make it two numbers, such as ('f4', 2)",
    "U": "make it bytes of UTF-8, such as 'S8'",
    "T": "make it bytes of UTF-8, such as 'S8'",
}

# The most bytes of a number.
_WIDEST = 8

# A field as Rust describes it: its name, None for padding; a number's name, a number of bytes or fields; and how many
# items an array of it has.
_Field = tuple[str | None, "str | int | list[_Field]", int | None]


def text_of(given: Any, repeat: bool, /) -> str:  # noqa: FBT001 - called by position, from Rust
    """The layout of a dtype, as text.

    Raises:
        LocalProtocolError: It is no dtype, or one of which there is no layout.
    """
    try:
        import numpy as np

        dtype = np.dtype(given) if not isinstance(given, bool) and given is not None else None
    except ImportError as error:
        message = "a layout made of a dtype requires numpy"
        raise LocalProtocolError(message) from error
    except TypeError:
        dtype = None
    if dtype is None:
        message = f"{given!r} is no layout: it is a text such as 'adc u16[]', a trunkline.Layout or a numpy.dtype"
        raise LocalProtocolError(message)
    if repeat:
        return f"records {_type(dtype, 'records')}[]" if dtype.subdtype is None else _refuse(dtype, "records")
    if dtype.names is None:
        return f"value {_type(dtype, 'value')}"
    return _fields(dtype)


def _refuse(dtype: Any, name: str) -> str:
    message = f"{name}: {dtype} has no layout with repeat=True: make it a field of a structured dtype"
    raise LocalProtocolError(message)


def _fields(dtype: Any) -> str:
    """The fields of a structured dtype, with the bytes between them."""
    parts, at = [], 0
    # By name: of titles there is no column.
    placed = sorted((dtype.fields[name][1], name, dtype.fields[name][0]) for name in dtype.names)
    for offset, name, of in placed:
        if offset < at:
            message = f"{name}: fields of a layout do not overlap, and this one begins within another"
            raise LocalProtocolError(message)
        if offset > at:
            parts.append(f"pad[{offset - at}]")
        quoted = "`" + name.replace("`", "``") + "`"
        parts.append(f"{quoted} {_type(of, name)}")
        at = offset + of.itemsize
    if dtype.itemsize > at:
        parts.append(f"pad[{dtype.itemsize - at}]")
    return ", ".join(parts)


def _type(dtype: Any, name: str, count: int = 1, *, is_array: bool = False) -> str:
    """The type of a field, or of an array of so many; the dimensions of one within another are flattened."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _type(base, name, count * math.prod(shape), is_array=True)
    array = f"[{count}]" if is_array else ""
    if dtype.names is not None:
        return f"({_fields(dtype)}){array}"
    if dtype.kind in "SV" and dtype.itemsize:
        return f"bytes[{dtype.itemsize}]{array}"
    if dtype.kind not in _KINDS or dtype.itemsize > _WIDEST:
        advice = _ADVICE.get(dtype.kind, "make it one of 8 bytes at most" if dtype.itemsize else "give it a length")
        message = f"{name}: {dtype} has no layout: {advice}"
        raise LocalProtocolError(message)
    bits = "" if dtype.kind == "b" else str(8 * dtype.itemsize)
    # NumPy says "=" of this machine's own order, which is the lowest byte first wherever there is a wheel.
    return f"{_KINDS[dtype.kind]}{bits}{'be' if dtype.byteorder == '>' else ''}{array}"


def dtype_of(fields: list[_Field]) -> Any:
    """The dtype of the fields of a frame of fixed size."""
    import numpy as np

    names, formats, offsets, at = [], [], [], 0
    for name, of, repeat in fields:
        dtype = _dtype(of)
        if repeat is not None:
            dtype = np.dtype((dtype, (repeat,)))
        if name is not None:
            names.append(name)
            formats.append(dtype)
            offsets.append(at)
        at += dtype.itemsize
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at})


def _dtype(of: str | int | list[_Field]) -> Any:
    import numpy as np

    if isinstance(of, int):
        return np.dtype(f"S{of}")
    if isinstance(of, list):
        return dtype_of(of)
    plain = of.removesuffix("be")
    order = "<" if plain == of else ">"
    if plain == "bool":
        return np.dtype("?")
    return np.dtype(f"{order}{plain[0]}{int(plain[1:]) // 8}")
