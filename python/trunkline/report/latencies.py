"""The plots of how long something took: percentiles, and how all times are spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from trunkline._text import latency
from trunkline.report.counting import DECADE
from trunkline.report.html import figure, legend
from trunkline.report.over_time import colour_of, in_order
from trunkline.report.plots import INK, LINE, STYLE, Tips, colour, counted, cut, plot, svg

__all__ = ["figures"]

# How many have their percentiles plotted.
_PLOTTED = 12


class _Timed(Protocol):
    """Something whose times are counted; it has a percentile for each mark, as ``p50_ns``."""

    @property
    def title(self) -> str: ...
    @property
    def max_ns(self) -> int | None: ...


def figures(
    key: str,
    title: str,
    what: str,
    *,
    of: Sequence[_Timed],
    marks: Sequence[str],
    which: str,
    spread: Mapping[int, Mapping[int, int]],
    names: Mapping[int, str],
    unit: str,
    none: str,
) -> list[str]:
    """The plots of `what`, a time: the percentiles `marks` of each, and the number of `unit` in each class of `spread`.

    `which` says what the first of all are, where not all have a row; `none` is said where nothing took a time.
    """
    timed = [each for each in of[:_PLOTTED] if each.max_ns is not None]
    rows = [(each.title, [getattr(each, f"{mark}_ns") for mark in marks]) for each in timed]
    chosen = f", of the {_PLOTTED} {which}" if len(of) > _PLOTTED else ""
    dots = _percentiles(rows, marks, f"Percentiles of {what}")
    caption = f"Percentiles of {what}{chosen}"
    found = [figure(key, title, caption, dots, legend(dict(enumerate(marks))), none)]
    bars = _histogram(spread, names, unit, f"Distribution of {what}")
    if bars is not None:
        caption = f"Number of {unit} by {what}"
        whose = legend({at: names[at] for at in in_order(spread)}) if len(names) > 1 else ""
        found.append(figure(f"{key}-spread", f"{title}, distribution", caption, bars, whose, ""))
    return found


def _percentiles(rows: Sequence[tuple[str, Sequence[int]]], marks: Sequence[str], title: str) -> str | None:
    """How long something took, a row a name with a dot a percentile, each in the colour of its place among `marks`."""
    if not rows:
        return None
    # What two clocks, or one that was set, make of a time may be nothing, which has no place on the axis.
    shown = [(name, [max(time, 1) for time in times]) for name, times in rows]
    size = (6.4, max(1.4, 0.8 + 0.34 * len(shown)))
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x", "figure.figsize": size}):
        figure, axes = plot()
        tips = Tips()
        for row, (name, times) in enumerate(shown):
            axes.plot(times, [row] * len(times), color=LINE, linewidth=5, solid_capstyle="round", zorder=1)
            said = " · ".join(f"{mark} {latency(time)}" for mark, time in zip(marks, rows[row][1], strict=True))
            # The largest first, and larger: where some are one, each is still seen around those before it.
            for at, time in reversed(list(enumerate(times))):
                (dot,) = axes.plot(time, row, "o", color=colour(at), markersize=7 + 2.5 * at)
                tips.add(dot, f"{name}: {said}")
        axes.set_yticks(range(len(shown)), [cut(name) for name, _ in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xscale("log")
        every = [time for _, times in shown for time in times]
        decades = math.log10(max(every) / min(every))
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if decades > 2 else (1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda nanoseconds, _: latency(nanoseconds)))
        axes.margins(x=0.08)
        axes.set_xlabel("latency")
        return svg(figure, title, tips=tips)


def _histogram(rows: Mapping[int, Mapping[int, int]], names: Mapping[int, str], what: str, title: str) -> str | None:
    """How many of `what` took how long, on top of each other in the colour of what they are of."""
    if not rows:
        return None
    classes = {which for row in rows.values() for which in row}
    first, end = min(classes), max(classes) + 1
    # A bar alone is not to fill the plot.
    room = max(1, (DECADE - (end - first)) // 2)
    with mpl.rc_context(STYLE):
        figure, axes = plot()
        tips = Tips()
        bottom = dict.fromkeys(classes, 0)
        for at in in_order(rows):
            for which, number in sorted(rows[at].items()):
                (bar,) = axes.bar(which, number, width=0.9, bottom=bottom[which], align="edge", color=colour_of(at))
                bottom[which] += number
                tips.add(bar, f"{names.get(at, '')}: {number:,} from {_time(which)} to {_time(which + 1)}")
        axes.set_xlim(max(0, first - room), end + room)
        # At 1, 2 and 5 of a unit, or at units where there are many.
        marks = (0,) if end - first > 2 * DECADE else (0, 3, 7)
        ticks = [tick for tick in range(max(0, first - room), end + room + 1) if tick % DECADE in marks]
        axes.set_xticks(ticks, [_time(tick) for tick in ticks])
        axes.set_xlabel("latency")
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        counted(axes.yaxis)
        axes.set_ylabel(what)
        return svg(figure, title, tips=tips)


def _time(which: int) -> str:
    """Where a class begins, to two digits."""
    return latency(float(f"{10 ** (which / DECADE):.2g}"))
