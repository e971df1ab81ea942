"""Plots of counts over time, by who they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter, MaxNLocator

from trunkline.spark.report.model import BUCKETS, COLOURS, OTHERS
from trunkline.spark.report.plots import STYLE, colour, counted, plot, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["colour_of", "in_order", "levels", "rates", "stacks"]

# From so many times the smallest to the largest, small ones cannot be seen on a linear axis.
_STEEP = 50


def rates(rows: Mapping[int, Mapping[int, int]], bucket_ns: int, title: str) -> str | None:
    """Messages a second over time, a line each."""
    if not rows:
        return None
    with mpl.rc_context(STYLE):
        figure, axes = plot()
        times, unit = _times(bucket_ns)
        seconds = bucket_ns / 1e9
        lines = {at: [buckets.get(bucket, 0) / seconds for bucket in range(BUCKETS)] for at, buckets in rows.items()}
        for at in in_order(lines):
            axes.plot(times, [*lines[at], lines[at][-1]], drawstyle="steps-post", color=colour_of(at))
        peaks = [max(line) for line in lines.values()]
        if max(peaks) > _STEEP * min(peaks):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_ylabel("messages/s")
        counted(axes.yaxis)
        _time_axis(axes, times, unit)
        return svg(figure, title)


def levels(rows: Mapping[int, Sequence[float]], bucket_ns: int, what: str, title: str) -> str | None:
    """How much of `what` there is at the end of each bucket, a line each."""
    if not any(any(line) for line in rows.values()):
        return None
    with mpl.rc_context(STYLE):
        figure, axes = plot()
        times, unit = _times(bucket_ns)
        for at in in_order(rows):
            axes.plot(times, [0, *rows[at]], color=colour_of(at))
        axes.set_ylim(bottom=0)
        axes.set_ylabel(what)
        counted(axes.yaxis)
        _time_axis(axes, times, unit)
        return svg(figure, title)


def stacks(rows: Mapping[int, Mapping[int, int]], bucket_ns: int, what: str, title: str) -> str | None:
    """Counts of `what` over time, on top of each other."""
    rows = {at: buckets for at, buckets in rows.items() if any(buckets.values())}
    if not rows:
        return None
    with mpl.rc_context(STYLE):
        figure, axes = plot()
        times, unit = _times(bucket_ns)
        bottom = [0] * BUCKETS
        for at in in_order(rows):
            heights = [rows[at].get(bucket, 0) for bucket in range(BUCKETS)]
            axes.bar(times[:-1], heights, width=times[1] - times[0], bottom=bottom, align="edge", color=colour_of(at))
            bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        counted(axes.yaxis)
        axes.set_ylabel(what)
        _time_axis(axes, times, unit)
        return svg(figure, title)


def in_order(rows: Iterable[int]) -> list[int]:
    """What has a colour of its own, and then the others."""
    return sorted(rows, key=lambda at: (at == OTHERS, at))


def colour_of(at: int) -> str:
    """The colour of what has this place."""
    return colour(COLOURS if at == OTHERS else at)


def _times(bucket_ns: int) -> tuple[list[float], str]:
    """Where the buckets begin, and where the last one ends, since the first message, in the unit of that name."""
    length = BUCKETS * bucket_ns / 1e9
    units = ((86400, "days"), (3600, "hours"), (60, "minutes"))
    unit, name = next((known for known in units if length >= 3 * known[0]), (1, "seconds"))
    return [bucket * bucket_ns / 1e9 / unit for bucket in range(BUCKETS + 1)], name


def _time_axis(axes: Axes, times: Sequence[float], name: str) -> None:
    axes.set_xlim(0, times[-1])
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 1.5, 2, 3, 5, 6, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time, _: f"{time:.4g}"))
    axes.set_xlabel(f"{name} since the first message")
