"""Divides segments among tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trunkline._locations import Location
from trunkline._native import capture as _native
from trunkline.capture.passed import Span
from trunkline.spark.source.captures import Segment
from trunkline.spark.source.division import Division
from trunkline.spark.source.reading import Part, Piece

__all__ = ["NOTES", "parts"]

# How many files of notes are read of a capture, to know the rows of its segments.
NOTES = 64

# What a row takes besides its frames, and what opening a segment costs, in bytes that are read meanwhile.
_ROW_BYTES = 64
_OPENING_BYTES = 64 << 10

# Frames take more than this many times their bytes on disk, where nothing else is known.
_EXPANSION = 2


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is not divided: a segment, or a row group of one."""

    location: Location
    segment: Segment
    cost: int
    within: Span | None = None


def parts(captures: Mapping[Location, Sequence[Segment]], division: Division | None = None) -> list[Part]:
    """Divides the segments of captures among tasks, by their bytes, each capture's in order.

    A task takes what follows the last one's, so that it may have segments of several captures, and a part of a segment.

    Raises:
        CaptureError: The footer of a segment that is to be divided cannot be read.
    """
    units = [unit for location, segments in captures.items() for unit in _units(location, segments)]
    target = (division or Division()).target(sum(unit.cost for unit in units))
    divided = (part for unit in units for part in (_divided(unit) if unit.cost > target else [unit]))
    return [Part(tuple(_pieces(group))) for group in _groups(divided, target)]


def _units(location: Location, segments: Sequence[Segment]) -> Iterator[_Unit]:
    known = [
        None if segment.rows is None or segment.frame_bytes is None else segment.frame_bytes + segment.rows * _ROW_BYTES
        for segment in segments
    ]
    costs = [(cost, segment.bytes) for cost, segment in zip(known, segments, strict=True) if cost is not None]
    on_disk = sum(size for _, size in costs)
    expansion = sum(cost for cost, _ in costs) / on_disk if on_disk else _EXPANSION
    for segment, cost in zip(segments, known, strict=True):
        yield _Unit(location, segment, _OPENING_BYTES + (int(segment.bytes * expansion) if cost is None else cost))


def _divided(unit: _Unit) -> list[_Unit]:
    """The row groups of a segment."""
    groups = _native.groups(unit.location, unit.segment.span, unit.segment.bytes)
    rows = sum(last - first + 1 for first, last in groups)
    if len(groups) < 2:
        return [unit]
    return [replace(unit, cost=unit.cost * (last - first + 1) // rows, within=(first, last)) for first, last in groups]


def _groups(units: Iterator[_Unit], target: int) -> Iterator[list[_Unit]]:
    group: list[_Unit] = []
    held = 0
    for unit in units:
        if group and held + unit.cost > target:
            yield group
            group, held = [], 0
        group.append(unit)
        held += unit.cost
    if group:
        yield group


def _pieces(group: Sequence[_Unit]) -> Iterator[Piece]:
    # What is divided is a piece of its own.
    for (location, divided), members in itertools.groupby(
        group, lambda unit: (unit.location, unit.within and unit.segment)
    ):
        units = [*members]
        if divided is None:
            spans, sizes = tuple(unit.segment.span for unit in units), tuple(unit.segment.bytes for unit in units)
            yield Piece(location, spans, sizes)
        else:
            [(first, _), *_], (_, last) = [unit.within or (0, 0) for unit in units], units[-1].within or (0, 0)
            yield Piece(location, (divided.span,), (divided.bytes,), (first, last))
