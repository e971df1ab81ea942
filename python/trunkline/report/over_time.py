"""Plots of counts over time, by who they are of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import matplotlib as mpl
from matplotlib.ticker import MaxNLocator

from trunkline.report.clock import time_axis
from trunkline.report.model import BUCKETS, COLOURS, OTHERS, Clock
from trunkline.report.plots import STYLE, Values, colour, counted, plot, svg

__all__ = ["ages", "colour_of", "in_order", "levels", "rates", "totals", "volumes"]

# From so many times the smallest to the largest, small ones cannot be seen on a linear axis.
_STEEP = 50

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
_TIMES = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))

Names = Mapping[int, str]
Rows = Mapping[int, Mapping[int, float]]


def rates(rows: Rows, clock: Clock, names: Names, title: str, what: str = "messages") -> str | None:
    """How many of `what` came a second over time, a line each."""
    return _lines(rows, clock, names, title, f"{what}/s", 1)


def volumes(rows: Rows, clock: Clock, names: Names, title: str) -> str | None:
    """Bytes a second over time, a line each, in the unit that fits the most there is; the least, on a logarithmic axis."""
    numbers = [number for buckets in rows.values() for number in buckets.values() if number]
    is_steep = _is_steep([max(buckets.values(), default=0) for buckets in rows.values()])
    unit, size = _fitting((min if is_steep else max)(numbers, default=0) / clock.bucket_ns * 1e9, _UNITS)
    return _lines(rows, clock, names, title, f"{unit}/s", size)


def ages(rows: Mapping[int, Sequence[float]], clock: Clock, names: Names, title: str) -> str | None:
    """Times in seconds at the end of each bucket, a line each, in the unit that fits the longest."""
    unit, size = _fitting(max((age for line in rows.values() for age in line), default=0), _TIMES)
    return levels({at: [age / size for age in line] for at, line in rows.items()}, clock, names, unit, title)


def _fitting(number: float, units: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """The largest unit that a number has at least one of; else the smallest."""
    return next(((unit, size) for unit, size in units if number >= size), units[-1])


def _is_steep(peaks: Sequence[float]) -> bool:
    """Whether the smallest line cannot be seen beside the largest on a linear axis."""
    return max(peaks, default=0) > _STEEP * min(peaks, default=0)


def _lines(rows: Rows, clock: Clock, names: Names, title: str, unit: str, size: float) -> str | None:
    if not rows:
        return None
    with mpl.rc_context(STYLE):
        figure, axes = plot()
        each = clock.bucket_ns / 1e9 * size
        lines = {at: [rows[at].get(bucket, 0) / each for bucket in range(BUCKETS)] for at in in_order(rows)}
        peaks = [max(line) for line in lines.values()]
        is_steep = _is_steep(peaks)
        for at, line in lines.items():
            # Nothing has no place on a logarithmic axis, and lines that fall to its foot hide the others.
            shown = [value or math.nan for value in line] if is_steep else line
            axes.plot(_edges(clock), [*shown, shown[-1]], drawstyle="steps-post", color=colour_of(at))
        if is_steep:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_ylabel(unit)
        counted(axes.yaxis)
        time_axis(axes, clock)
        return svg(figure, title, values=_values(lines, clock, names, unit))


def levels(rows: Mapping[int, Sequence[float]], clock: Clock, names: Names, what: str, title: str) -> str | None:
    """How much of `what` there is at the end of each bucket, a line each."""
    if not any(any(line) for line in rows.values()):
        return None
    with mpl.rc_context(STYLE):
        figure, axes = plot()
        for at in in_order(rows):
            axes.plot(_edges(clock), [0, *rows[at]], color=colour_of(at))
        axes.set_ylim(bottom=0)
        axes.set_ylabel(what)
        counted(axes.yaxis)
        time_axis(axes, clock)
        return svg(figure, title, values=_values(rows, clock, names, what))


def totals(rows: Rows, clock: Clock, names: Names, what: str, title: str) -> str | None:
    """Counts of `what` up to each time, a line each: what comes seldom is seen by its steps."""
    lines = {at: list(accumulate(rows[at].get(bucket, 0) for bucket in range(BUCKETS))) for at in in_order(rows)}
    lines = {at: line for at, line in lines.items() if line[-1]}
    if not lines:
        return None
    with mpl.rc_context(STYLE):
        figure, axes = plot()
        for at, line in lines.items():
            axes.plot(_edges(clock), [*line, line[-1]], drawstyle="steps-post", color=colour_of(at))
        if max(line[-1] for line in lines.values()) > _STEEP * min(line[-1] for line in lines.values()):
            axes.set_yscale("symlog", linthresh=1)
        else:
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_ylim(bottom=0)
        counted(axes.yaxis)
        axes.set_ylabel(what)
        time_axis(axes, clock)
        return svg(figure, title, values=_values(lines, clock, names, what))


def in_order(rows: Iterable[int]) -> list[int]:
    """What has a colour of its own, and then the others."""
    return sorted(rows, key=lambda at: (at == OTHERS, at))


def colour_of(at: int) -> str:
    """The colour of what has this place."""
    return colour(COLOURS if at == OTHERS else at)


def _edges(clock: Clock) -> list[float]:
    """Where the buckets begin, and where the last one ends, on the axis."""
    return [bucket * clock.bucket_ns / 1e9 for bucket in range(BUCKETS + 1)]


def _values(rows: Mapping[int, Sequence[float]], clock: Clock, names: Names, unit: str) -> Values:
    return Values(
        clock, unit, [(names.get(at, ""), COLOURS if at == OTHERS else at, rows[at]) for at in in_order(rows)]
    )
