"""Plots of counts over time, a line per name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from trunkline._text import short
from trunkline.report.clock import ticks
from trunkline.report.colours import COLOURS, OTHERS
from trunkline.report.model import BUCKETS, Clock
from trunkline.report.scales import Scale, decades, steps, symlog
from trunkline.report.svg import HEIGHT, Canvas, beside, colour, digits

__all__ = ["Lines", "ages", "in_order", "levels", "rates", "totals", "volumes"]

# Beyond this ratio of the largest to the smallest, small values are invisible on a linear axis.
_STEEP = 50

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
_TIMES = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))

Names = Mapping[int, str]
Rows = Mapping[int, Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines over time.

    Attributes:
        rows: The value of each bucket of time, by index; `OTHERS` are those that have none.
        unit: The unit of the values.
        clock: The time buckets.
        names: The names of the lines, by index.
        axis: Whether values are plotted as they are, by their logarithm, or so from one on.
        is_stepped: Whether a value is that of its whole bucket, rather than of its end.
        is_whole: Whether the values are whole numbers.
    """

    rows: Mapping[int, Sequence[float]]
    unit: str
    clock: Clock
    names: Names
    axis: Literal["linear", "log", "symlog"] = "linear"
    is_stepped: bool = True
    is_whole: bool = False

    def draw(self, label: str) -> str:
        """The plot."""
        values = [value for line in self.rows.values() for value in line]
        scale, marks = self._scale(values)
        labels = [(at, short(at)) for at in marks]
        canvas = Canvas(HEIGHT, left=beside(words for _, words in labels), top=20)
        up = replace(scale, start=canvas.bottom, end=canvas.top)
        across = Scale(0, BUCKETS, canvas.left, canvas.right)
        canvas.up(up, labels, self.unit)
        length_s = self.clock.bucket_ns / 1e9
        times, title = ticks(self.clock)
        canvas.across(across, [(at / length_s, words) for at, words in times], title)
        for at in in_order(self.rows):
            line = self.rows[at]
            # 0 has no place on a logarithmic axis, and lines down to its foot would hide others.
            points = [up(value) if value or self.axis != "log" else None for value in line]
            path = _stepped(across, points) if self.is_stepped else _joined(across, [up(value) for value in (0, *line)])
            canvas.path(path, colour(at))
        return canvas.svg(label, self._values())

    def _scale(self, values: Sequence[float]) -> tuple[Scale, list[float]]:
        """The axis of the values, and its marks."""
        most = max(values, default=0) or 1
        if self.axis == "linear":
            return Scale(0, most * 1.05, 0, 1), steps(0, most * 1.05, whole=self.is_whole)
        if self.axis == "symlog":
            powers = range(math.ceil(math.log10(most)) + 1)
            return Scale(0, most * 1.2, 0, 1, symlog), [0, *(10**power for power in powers if 10**power <= most * 1.2)]
        least = min((value for value in values if value), default=most)
        margin = max((most / least) ** 0.05, 1.1)
        low, high = least / margin, most * margin
        return Scale(low, high, 0, 1, math.log10), decades(low, high)

    def _values(self) -> dict[str, object]:
        """The data for `hover.js`."""
        rows = [
            {
                "name": self.names.get(at, ""),
                "colour": COLOURS if at == OTHERS else at,
                "values": [float(f"{value:.4g}") for value in self.rows[at]],
            }
            for at in in_order(self.rows)
        ]
        clock = {"first_ms": self.clock.first_ns / 1e6, "bucket_ms": self.clock.bucket_ns / 1e6}
        return {**clock, "unit": self.unit, "rows": rows}


def rates(rows: Rows, clock: Clock, names: Names, what: str = "messages") -> Lines | None:
    """The rate of `what` over time; None without data."""
    return _lines(rows, clock, names, f"{what}/s", 1)


def volumes(rows: Rows, clock: Clock, names: Names) -> Lines | None:
    """Bytes a second over time, in the unit that fits the largest value, or the smallest on a logarithmic axis."""
    numbers = [number for buckets in rows.values() for number in buckets.values() if number]
    is_steep = _is_steep([max(buckets.values(), default=0) for buckets in rows.values()])
    unit, size = _fitting((min if is_steep else max)(numbers, default=0) / clock.bucket_ns * 1e9, _UNITS)
    return _lines(rows, clock, names, f"{unit}/s", size)


def _lines(rows: Rows, clock: Clock, names: Names, unit: str, size: float) -> Lines | None:
    each = clock.bucket_ns / 1e9 * size
    lines = {at: [buckets.get(bucket, 0) / each for bucket in range(BUCKETS)] for at, buckets in rows.items()}
    is_steep = _is_steep([max(line) for line in lines.values()])
    return Lines(lines, unit, clock, names, "log" if is_steep else "linear") if lines else None


def levels(
    rows: Mapping[int, Sequence[float]], clock: Clock, names: Names, what: str, *, is_whole: bool = True
) -> Lines | None:
    """The level of `what` at the end of each bucket; None without data."""
    is_any = any(map(any, rows.values()))
    return Lines(rows, what, clock, names, is_stepped=False, is_whole=is_whole) if is_any else None


def ages(rows: Mapping[int, Sequence[float]], clock: Clock, names: Names) -> Lines | None:
    """Times in seconds at the end of each bucket, in the unit that fits the longest; likewise."""
    unit, size = _fitting(max((age for line in rows.values() for age in line), default=0), _TIMES)
    return levels({at: [age / size for age in line] for at, line in rows.items()}, clock, names, unit, is_whole=False)


def totals(rows: Rows, clock: Clock, names: Names, what: str) -> Lines | None:
    """Cumulative counts of `what`, in which rare events are visible as steps; likewise."""
    lines = {at: list(accumulate(rows[at].get(bucket, 0) for bucket in range(BUCKETS))) for at in rows}
    lines = {at: line for at, line in lines.items() if line[-1]}
    is_steep = _is_steep([line[-1] for line in lines.values()])
    return Lines(lines, what, clock, names, "symlog" if is_steep else "linear", is_whole=True) if lines else None


def in_order(rows: Iterable[int]) -> list[int]:
    """The indices with a colour of their own, and then the others."""
    return sorted(rows, key=lambda at: (at == OTHERS, at))


def _fitting(number: float, units: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """The largest unit that is not larger than a number; else the smallest."""
    return next(((unit, size) for unit, size in units if number >= size), units[-1])


def _is_steep(peaks: Sequence[float]) -> bool:
    """Whether the smallest line would be invisible beside the largest on a linear axis."""
    return max(peaks, default=0) > _STEEP * min(peaks, default=0)


def _stepped(across: Scale, points: Sequence[float | None]) -> str:
    """A stepped line, with gaps for missing values."""
    path, before = "", None
    for bucket, y in enumerate(points):
        if y is None:
            path += "" if before is None else f"H{digits(across(bucket))}"
        elif before is None:
            path += f"M{digits(across(bucket))} {digits(y)}"
        elif y != before:
            path += f"H{digits(across(bucket))}V{digits(y)}"
        before = y
    return path + ("" if before is None else f"H{digits(across.end)}")


def _joined(across: Scale, points: Sequence[float]) -> str:
    """A line from point to point, one at each edge of a bucket."""
    return "M" + "L".join(f"{digits(across(edge))} {digits(y)}" for edge, y in enumerate(points))
