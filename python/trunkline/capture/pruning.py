"""What a condition says of the numbers and times of rows: segments and row groups that cannot have such rows are not read.

Spans are inclusive, in order, and do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["EVERY", "ROWS", "Spans", "at_least", "both", "compared", "moment_ns", "spans"]

Spans = Sequence[tuple[int, int]]

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1

# All values of a column; the numbers of rows begin at 0.
EVERY: Spans = [(_FIRST, _LAST)]
ROWS: Spans = [(0, _LAST)]

# Up to here a double holds every integer, so that comparisons with it are exact.
_EXACT = 1 << 53

_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class _May:
    """The rows for which a condition may be true, and those for which it may be false; it may also be null."""

    be_true: Spans
    be_false: Spans


_ANY = _May(EVERY, EVERY)


def spans(tree: Any, column: str) -> Spans:
    """The values of a column of the rows for which a condition may be true; the column is ``seq`` or ``received_at_ns``."""
    return _may(tree, column).be_true


def at_least(number: int) -> Spans:
    """This number and those after it."""
    return compared(">=", number, number)


def compared(how: str, first: int, last: int) -> Spans:
    """The values that compare so with one that equals all from `first` to `last`, or is between `last` and `first`."""
    match how:
        case "<":
            found = (_FIRST, first - 1)
        case "<=":
            found = (_FIRST, last)
        case ">":
            found = (last + 1, _LAST)
        case ">=":
            found = (first, _LAST)
        case _:
            found = (first, last)
    return both([found], EVERY)


def moment_ns(moment: datetime) -> tuple[int, int]:
    """The first and the last nanosecond since 1970 of a moment: times of receipt are compared in microseconds."""
    first = (moment - _EPOCH) // _MICROSECOND * 1000
    return first, first + 999


def both(one: Spans, other: Spans) -> Spans:
    """What is in both."""
    found = ((max(first, start), min(last, end)) for first, last in one for start, end in other)
    return [(first, last) for first, last in found if first <= last]


def _either(one: Spans, other: Spans) -> Spans:
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*one, *other)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def _others(given: Spans) -> Spans:
    edges = [_FIRST - 1, *(edge for span in given for edge in span), _LAST + 1]
    return [(last + 1, first - 1) for last, first in zip(edges[::2], edges[1::2], strict=True) if last + 1 < first]


def _may(tree: Any, column: str) -> _May:
    parts = tree.children
    match tree.data.replace("is_not_", "is_"):
        case "either":
            found = _any([_may(part, column) for part in parts])
        case "both":
            found = _all([_may(part, column) for part in parts])
        case "negation":
            found = _not(_may(parts[0], column))
        case "compares":
            found = _compared(parts[0], parts[1], parts[2], column)
        case "is_in":
            found = _any([_compared(parts[0], "=", part, column) for part in parts[1:]])
        case "is_between":
            found = _all([_compared(parts[0], how, part, column) for how, part in ((">=", parts[1]), ("<=", parts[2]))])
        case _:
            return _ANY
    return _not(found) if tree.data.startswith("is_not_") else found


def _any(parts: Sequence[_May]) -> _May:
    true, false = parts[0].be_true, parts[0].be_false
    for part in parts[1:]:
        true, false = _either(true, part.be_true), both(false, part.be_false)
    return _May(true, false)


def _all(parts: Sequence[_May]) -> _May:
    return _not(_any([_not(part) for part in parts]))


def _not(part: _May) -> _May:
    return _May(part.be_false, part.be_true)


def _compared(left: Any, how: str, right: Any, column: str) -> _May:
    if left.data == "literal":
        left, how, right = right, _SWAPPED.get(how, how), left
    if left.data != "column" or right.data != "literal" or len(left.children) != 1:
        return _ANY
    name = left.children[0].strip('"')
    if name == column:
        return _of_number(how, right.children[0])
    if name == "received_at" and column == "received_at_ns":
        return _of_moment(how, right.children[0])
    return _ANY


def _of_number(how: str, token: Any) -> _May:
    if token.type != "NUMBER":
        return _ANY
    text = str(token)
    if text.lstrip("+-").isdigit():
        return _exactly(how, int(text), int(text))
    value = float(text)
    if not math.isfinite(value) or abs(value) > _EXACT:
        return _ANY
    return _exactly(how, math.ceil(value), math.floor(value))


def _of_moment(how: str, token: Any) -> _May:
    moment = datetime.fromisoformat(token[1:-1].replace("''", "'"))
    return _exactly(how, *moment_ns(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)))


def _exactly(how: str, first: int, last: int) -> _May:
    if how in ("!=", "<>"):
        return _not(_exactly("=", first, last))
    true = compared(how, first, last)
    return _May(true, _others(true))
