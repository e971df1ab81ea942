"""Segments that are deleted before a reader that follows a capture has come to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from trunkline._locations import Location
from trunkline._native import capture as _native
from trunkline._text import were
from trunkline.capture.reading import Capture, native

__all__ = ["Passed", "Span", "missing"]

# Consecutive segments: the numbers of the first and the last.
Span: TypeAlias = tuple[int, int]

# How many segments are named.
_NAMED = 5


class Passed:
    """The segments that were deleted between two looks at a capture."""

    def __init__(self) -> None:
        # The segment after those of the last look; None before the first one.
        self._next: int | None = None

    def look(self, opened: Capture) -> list[Span]:
        """The segments that were published since the last look, or are missing in between, and are not there any more."""
        published = native(opened).segments
        gone: list[Span] = []
        if self._next is None:
            self._next = published[-1][1] + 1 if published else _native.position(opened.path)[1]
        for first, last in published:
            if first > self._next:
                gone.append((self._next, first - 1))
            self._next = max(self._next, last + 1)
        return gone


def missing(location: Location, spans: Sequence[Span]) -> str:
    """The words about segments that are missing."""
    number = sum(last - first + 1 for first, last in spans)
    named = [str(number) for first, last in spans[:_NAMED] for number in range(first, min(last + 1, first + _NAMED))]
    more = f" and {number - _NAMED:,} more" if number > _NAMED else ""
    names = ", ".join(named[:_NAMED])
    return f"{location}: {were(number, 'segment')} deleted before being read: {names}{more}"
