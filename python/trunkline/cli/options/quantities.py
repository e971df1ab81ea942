"""Numbers of the command line, of files and of variables. Sizes and durations may have units.

The metavar of an option says what it takes: BYTES is a size, S, MS and D are durations in seconds, milliseconds and days.
Anything else is a plain number.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer

__all__ = ["take_units"]

_SIZES = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgtp", 1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}

_QUANTITY = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)

_MOST = 2**63 - 1
_DIGITS = 100
# Comparing with them works for integers of any size, as math.isfinite does not.
_INFINITE = (math.inf, -math.inf)
# Thirty years. Beyond, libraries and systems run out of bits one after the other.
_LONGEST = 1e9


@dataclass(frozen=True)
class _Kind:
    """What an option takes.

    Attributes:
        name: What it is, with an article.
        expected: What to give instead of something else.
        units: The factors of the units, in small letters; a number without a unit has the factor 1.
        most: The maximum, unless the option has one of its own. So large a number below zero is the minimum.
        unit: What follows a bound.
    """

    name: str
    expected: str
    units: Mapping[str, float]
    most: float
    unit: str = ""


def _duration(unit: str, letters: str, seconds: float) -> _Kind:
    units = {name: factor / seconds for name, factor in _SECONDS.items()} | {"": 1}
    return _Kind(
        "a duration", f"{unit} such as 10, or with a unit 500ms, 10s, 5m, 2h or 1d", units, _LONGEST, f" {letters}"
    )


_KINDS = {
    "BYTES": _Kind("a size", "bytes such as 500000000, or with a unit 50MB or 1.5GiB", _SIZES, _MOST, " bytes"),
    "S": _duration("seconds", "s", 1),
    "MS": _duration("milliseconds", "ms", 1e-3),
    "D": _duration("days", "days", 86_400),
}
_WHOLE = _Kind("a whole number", "digits such as 1000", {"": 1}, _MOST)
_NUMBER = _Kind("a number", "digits such as 0.5", {"": 1}, sys.float_info.max)


def take_units(parameter: Any) -> None:
    """Lets a parameter that takes a number take one with a unit, and refuses others in our own words."""
    annotation = parameter.type_descriptor.annotation
    if annotation in (int, float):
        parameter.process_value = functools.partial(_processed, parameter, parameter.process_value)


def _processed(parameter: Any, process: Any, context: Any, value: Any) -> Any:
    if value is not None:
        is_whole = parameter.type_descriptor.annotation is int
        kind = _KINDS.get((parameter.metavar or "").strip("[]"), _WHOLE if is_whole else _NUMBER)
        try:
            number = _number(kind, value, is_whole=is_whole)
            _check(kind, number, parameter.type_descriptor.parameter_info, value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=context, param=parameter) from None
        value = number
    return process(context, value)


def _number(kind: _Kind, value: Any, *, is_whole: bool) -> float:
    """The number of a value as it was given: text, or a number of a file or a default."""
    number: float | None = None
    factor: float | None = None
    is_number = isinstance(value, int) or (isinstance(value, float) and not math.isnan(value))
    if is_number and not isinstance(value, bool):
        number, factor = value, 1
    elif isinstance(value, str) and (found := _QUANTITY.fullmatch(value)):
        digits, unit = found[1].replace("_", ""), found[2]
        factor = kind.units.get(unit.lower())
        # Python refuses to read integers of thousands of digits.
        is_short = len(digits) < _DIGITS
        number = int(digits) if is_short and digits.lstrip("+-").isdigit() else float(digits)
    if (
        number is None
        or factor is None
        or (kind is _WHOLE and number not in _INFINITE and number != math.floor(number))
    ):
        message = f"{value!r} is not {kind.name}: expected {kind.expected}."
        raise ValueError(message)
    quantity = number * factor
    return round(quantity) if is_whole and quantity not in _INFINITE else quantity


def _check(kind: _Kind, number: float, info: Any, value: Any) -> None:
    least = -kind.most if info.min is None else info.min
    most = kind.most if info.max is None else info.max
    shown = value if isinstance(value, str) else repr(value)
    if not number >= least:
        message = f"{shown} is too small: the minimum is {_shown(least)}{kind.unit}."
        raise ValueError(message)
    if not number <= most:
        message = f"{shown} is too large: the maximum is {_shown(most)}{kind.unit}."
        raise ValueError(message)


def _shown(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:,.0f}" if bound == math.floor(bound) else f"{bound:g}"
