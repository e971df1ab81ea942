"""Divides segments among tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from trunkline._locations import Location
from trunkline.spark.source.captures import Span, sizes
from trunkline.spark.source.reading import Part

__all__ = ["parts"]

# The most bytes of a task, except for a single larger segment; with less data, at most two tasks per processor.
_MOST_BYTES = 64 << 20
_LEAST_BYTES = 1 << 20

# The most segments of a task: each is a file to open.
_MOST_SEGMENTS = 4096


def parts(captures: Mapping[Location, Sequence[Span]]) -> list[Part]:
    """Divides the segments of captures among tasks, by their bytes, each capture's in order."""
    sized = {place: [*zip(spans, sizes(place, spans), strict=True)] for place, spans in captures.items()}
    total = sum(size for of_capture in sized.values() for _, size in of_capture)
    tasks = 2 * (os.cpu_count() or 1)
    target = min(_MOST_BYTES, max(_LEAST_BYTES, total // tasks))
    return [Part(place, tuple(group)) for place, of_capture in sized.items() for group in _groups(of_capture, target)]


def _groups(sized: Sequence[tuple[Span, int]], target: int) -> Iterator[list[Span]]:
    group: list[Span] = []
    held = 0
    for span, size in sized:
        if group and (held + size > target or len(group) == _MOST_SEGMENTS):
            yield group
            group, held = [], 0
        group.append(span)
        held += size
    if group:
        yield group
