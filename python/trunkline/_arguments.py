"""Checks arguments before anything is opened: an error names the argument, and says what to give."""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from trunkline._locations import need_local

if TYPE_CHECKING:
    from trunkline._frames import Bytes

__all__ = [
    "as_bytes",
    "named",
    "need_bytes",
    "need_callable",
    "need_choice",
    "need_choices",
    "need_flag",
    "need_heartbeat",
    "need_names",
    "need_number",
    "need_path",
    "need_port",
    "need_seconds",
    "need_sequence",
    "need_text",
    "need_timeout",
    "refuse",
]

_LAST_PORT = 65535

# Thirty years, in seconds. Beyond, libraries and systems run out of bits one after the other.
_LONGEST = 1e9

# libzmq counts heartbeats in milliseconds, in 31 bits.
_SHORTEST_HEARTBEAT_S = 0.001
_LONGEST_HEARTBEAT_S = (2**31 - 1) / 1000


def refuse(name: str, takes: str, value: object, advice: str = "") -> NoReturn:
    """Raises the error for an argument of a wrong type."""
    message = f"{name} takes {takes}, not {type(value).__name__}{advice}"
    raise TypeError(message)


def need_bytes(name: str, value: object) -> None:
    """Refuses other types than bytes-like objects."""
    if isinstance(value, str):
        refuse(name, "bytes", value, f": encode it, e.g. {value[:40]!r}.encode()")
    with suppress(TypeError):
        memoryview(value)  # type: ignore[arg-type]
        return
    refuse(name, "bytes", value)


def as_bytes(name: str, value: Bytes) -> bytes:
    """The bytes of a buffer; refuses other types."""
    need_bytes(name, value)
    # Not bytes(value), which takes an array without dimensions for a number.
    return value if isinstance(value, bytes) else memoryview(value).tobytes()  # type: ignore[arg-type]


def need_text(name: str, value: object, *, may_be_none: bool = False) -> None:
    """Refuses other types than strings."""
    if isinstance(value, bytes):
        refuse(name, "a str", value, ": decode it")
    if not isinstance(value, str) and not (may_be_none and value is None):
        refuse(name, "a str or None" if may_be_none else "a str", value)


def need_flag(name: str, value: object) -> None:
    """Refuses other types than booleans: a string such as "no" would count as true."""
    if not isinstance(value, bool):
        refuse(name, "True or False", value)


def need_number(
    name: str,
    value: object,
    *,
    least: int = 0,
    most: int = 2**63 - 1,
    may_be_none: bool = False,
    error: type[Exception] = ValueError,
) -> None:
    """Refuses other types than integers; raises `error` outside of `least` to `most`."""
    if may_be_none and value is None:
        return
    if type(value) is int and least <= value <= most:
        return
    if not hasattr(value, "__index__"):
        refuse(name, "a whole number or None" if may_be_none else "a whole number", value)
    number = operator.index(value)
    if number < least:
        message = f"{name} must be at least {least}, not {number}"
        raise error(message)
    if number > most:
        message = f"{name} must be {'less than 2**63' if most == 2**63 - 1 else f'at most {most}'}, not {number}"
        raise error(message)


def need_seconds(
    name: str,
    value: object,
    *,
    least: float = 0,
    most: float = _LONGEST,
    may_be_none: bool = False,
    unit: str = "seconds",
) -> None:
    """Refuses what is not a finite time from `least` to `most`."""
    if may_be_none and value is None:
        return
    if not hasattr(value, "__float__"):
        takes = f"a number of {unit}"
        refuse(name, f"{takes} or None" if may_be_none else takes, value)
    try:
        seconds = float(value)
    except OverflowError:
        # An integer of hundreds of digits.
        seconds = sys.float_info.max
    if not math.isfinite(seconds) or seconds < least:
        message = f"{name} must be a number of {unit}, {least:g} or more, not {value!r}"
        raise ValueError(message)
    if seconds > most:
        message = f"{name} must be at most {most:,.0f} {unit}, not {seconds:g}"
        raise ValueError(message)


def need_timeout(name: str, value: object) -> None:
    """Refuses what is neither None nor a finite time to wait, of any length."""
    if type(value) is not float or not 0 <= value < math.inf:
        need_seconds(name, value, most=math.inf, may_be_none=True)


def need_heartbeat(interval_s: object, liveness: object) -> None:
    """Refuses invalid intervals and numbers of heartbeats."""
    need_seconds("heartbeat_interval_s", interval_s)
    need_number("liveness", liveness, least=1)
    longest = _LONGEST_HEARTBEAT_S / operator.index(liveness)  # type: ignore[arg-type]
    if not _SHORTEST_HEARTBEAT_S <= float(interval_s) <= longest:  # type: ignore[arg-type]
        message = (
            f"heartbeat_interval_s must be at least {_SHORTEST_HEARTBEAT_S}, and liveness times that at most "
            f"{_LONGEST_HEARTBEAT_S:.0f}, not {liveness} times {interval_s}"
        )
        raise ValueError(message)


def need_port(name: str, value: object, *, least: int = 0, error: type[Exception] = ValueError) -> None:
    """Refuses invalid ports; 0 means a free one, if that is allowed."""
    need_number(name, value, least=least, error=error)
    if operator.index(value) > _LAST_PORT:  # type: ignore[arg-type]
        message = f"{name} must be at most {_LAST_PORT}, not {value!r}"
        raise error(message)


def need_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuses other values than these choices."""
    if not isinstance(value, str) or value not in choices:
        *most, last = map(repr, choices)
        message = f"{name} must be {', '.join(most)} or {last}, not {value!r}"
        raise ValueError(message) if isinstance(value, str) else TypeError(message)


def need_choices(name: str, value: object, choices: Collection[str]) -> None:
    """Refuses other values than one or several of these choices."""
    for each in [value] if isinstance(value, str) or not isinstance(value, Iterable) else value:
        need_choice(name, each, choices)


def need_names(name: str, value: object, *, may_be_none: bool = False) -> None:
    """Refuses other types than a string or a sequence of strings."""
    if isinstance(value, str) or (may_be_none and value is None):
        return
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        refuse(name, "a str, or a sequence of them", value)
    for each in value:
        if not isinstance(each, str):
            refuse(name, "a str, or a sequence of them", each)


def named(name: str, value: str | Iterable[str]) -> list[str]:
    """One string or several, as a list; refuses other types."""
    need_names(name, value)
    return [value] if isinstance(value, str) else list(value)


def need_path(name: str, value: object, *, may_be_none: bool = False, may_be_url: bool = False) -> None:
    """Refuses other types than paths, and URLs unless they are allowed."""
    if may_be_none and value is None:
        return
    if not isinstance(value, str | os.PathLike):
        refuse(name, "a path, as a str or pathlib.Path", value)
    if not may_be_url:
        need_local(value)


def need_callable(name: str, value: Callable[..., Any] | None) -> None:
    """Refuses values that are not callable."""
    if value is not None and not callable(value):
        refuse(name, "a function or None", value)


def need_sequence(name: str, value: object) -> None:
    """Refuses a single value in place of a sequence."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        refuse(name, "a sequence", value, ": put it in a list")
