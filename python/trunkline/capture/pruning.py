"""What a condition says of the numbers, times and names of rows: what cannot have such rows is not read.

Spans are inclusive, in order, and do not overlap.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from trunkline._protocols import RECORDED

__all__ = [
    "EVERY",
    "NOTED",
    "ROWS",
    "Names",
    "Spans",
    "Wanted",
    "at_least",
    "both",
    "compared",
    "moment_ns",
    "named",
    "within",
]

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

# The columns of which segments note the names, by what they note them as: one is called differently by each protocol.
NOTED = {
    **{name: name for name in ("protocol", "endpoint", "direction")},
    **dict.fromkeys(("sender", *(protocol.subject for protocol in RECORDED if protocol.subject)), "subject"),
}


@dataclass(frozen=True)
class Names:
    """Some names of a column, or all others; None stands for no name."""

    names: frozenset[str | None]
    is_others: bool = False

    def __or__(self, other: Names) -> Names:
        if self.is_others:
            return Names(self.names & other.names if other.is_others else self.names - other.names, is_others=True)
        return other | self if other.is_others else Names(self.names | other.names)

    def __and__(self, other: Names) -> Names:
        return ~(~self | ~other)

    def __invert__(self) -> Names:
        return Names(self.names, is_others=not self.is_others)


_ALL_NAMES = Names(frozenset(), is_others=True)


@dataclass(frozen=True)
class Wanted:
    """The rows that are wanted: what has none of them need not be read.

    Attributes:
        numbers: Their numbers.
        times_ns: When they were received, in nanoseconds since 1970.
        names: Names of which each has one at least, by the column as segments note it. What is noted as one column may be
            several of rows, so these are not joined.
    """

    numbers: Spans = field(default_factory=lambda: ROWS)
    times_ns: Spans = field(default_factory=lambda: EVERY)
    names: tuple[tuple[str, Names], ...] = ()

    def __and__(self, other: Wanted) -> Wanted:
        numbers, times_ns = both(self.numbers, other.numbers), both(self.times_ns, other.times_ns)
        return Wanted(numbers, times_ns, self.names + other.names)


def within(tree: Any) -> Wanted:
    """The rows for which a condition may be true."""
    names = [(noted, _may(tree, _of_names(column), _ANY_NAME).be_true) for column, noted in NOTED.items()]
    return Wanted(
        _may(tree, _of_seq, _ANY_NUMBER).be_true.spans,
        _may(tree, _of_moment, _ANY_NUMBER).be_true.spans,
        tuple(each for each in names if each[1] != _ALL_NAMES),
    )


def named(column: str, *names: str) -> Wanted:
    """The rows that have one of these names in a column; all, if its names are not noted."""
    noted = NOTED.get(column)
    return Wanted(names=() if noted is None else ((noted, Names(frozenset(names))),))


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


@dataclass(frozen=True)
class _Numbers:
    """Numbers of rows, or times."""

    spans: Spans

    def __or__(self, other: _Numbers) -> _Numbers:
        return _Numbers(_either(self.spans, other.spans))

    def __and__(self, other: _Numbers) -> _Numbers:
        return _Numbers(both(self.spans, other.spans))


@dataclass(frozen=True)
class _May:
    """The rows for which a condition may be true, and those for which it may be false; it may also be null."""

    be_true: Any
    be_false: Any

    def __or__(self, other: _May) -> _May:
        return _May(self.be_true | other.be_true, self.be_false & other.be_false)

    def __and__(self, other: _May) -> _May:
        return ~(~self | ~other)

    def __invert__(self) -> _May:
        return _May(self.be_false, self.be_true)


_ANY_NUMBER = _May(_Numbers(EVERY), _Numbers(EVERY))
_ANY_NAME = _May(_ALL_NAMES, _ALL_NAMES)

# What the comparison of a column with a token says; None if it says nothing.
_Compares = Callable[[str, str, Any], _May | None]


def _may(tree: Any, compares: _Compares, anything: _May) -> _May:
    def of(part: Any) -> _May:
        return _may(part, compares, anything)

    def compared(left: Any, how: str, right: Any) -> _May:
        if left.data == "literal":
            left, how, right = right, _SWAPPED.get(how, how), left
        if left.data != "column" or right.data != "literal" or len(left.children) != 1:
            return anything
        return compares(left.children[0].strip('"'), how, right.children[0]) or anything

    parts = tree.children
    match tree.data.replace("is_not_", "is_"):
        case "either":
            found = functools.reduce(operator.or_, map(of, parts))
        case "both":
            found = functools.reduce(operator.and_, map(of, parts))
        case "negation":
            found = ~of(parts[0])
        case "compares":
            found = compared(*parts)
        case "is_in":
            found = functools.reduce(operator.or_, (compared(parts[0], "=", part) for part in parts[1:]))
        case "is_between":
            found = compared(parts[0], ">=", parts[1]) & compared(parts[0], "<=", parts[2])
        case _:
            return anything
    return ~found if tree.data.startswith("is_not_") else found


def _of_names(wanted: str) -> _Compares:
    def compares(column: str, how: str, token: Any) -> _May | None:
        if column != wanted or token.type != "TEXT" or how not in ("=", "==", "!=", "<>"):
            return None
        name = token[1:-1].replace("''", "'")
        # Without a name a comparison is null.
        equal = _May(Names(frozenset({name})), Names(frozenset({name, None}), is_others=True))
        return ~equal if how in ("!=", "<>") else equal

    return compares


def _of_seq(column: str, how: str, token: Any) -> _May | None:
    return _of_number(how, token) if column == "seq" else None


def _of_number(how: str, token: Any) -> _May | None:
    if token.type != "NUMBER":
        return None
    text = str(token)
    if text.lstrip("+-").isdigit():
        return _exactly(how, int(text), int(text))
    value = float(text)
    if not math.isfinite(value) or abs(value) > _EXACT:
        return None
    return _exactly(how, math.ceil(value), math.floor(value))


def _of_moment(column: str, how: str, token: Any) -> _May | None:
    if column == "received_at_ns":
        return _of_number(how, token)
    if column != "received_at":
        return None
    moment = datetime.fromisoformat(token[1:-1].replace("''", "'"))
    return _exactly(how, *moment_ns(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)))


def _exactly(how: str, first: int, last: int) -> _May:
    if how in ("!=", "<>"):
        return ~_exactly("=", first, last)
    true = compared(how, first, last)
    return _May(_Numbers(true), _Numbers(_others(true)))
