"""The plots of latencies: percentiles, and distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trunkline._text import latency, short
from trunkline.report.charts import Chart
from trunkline.report.counting import DECADE
from trunkline.report.over_time import in_order
from trunkline.report.scales import Scale, decades, steps
from trunkline.report.svg import HEIGHT, Canvas, beside, colour, cut

__all__ = ["Percentiles", "Spread", "charts"]

# The most rows in a plot of percentiles.
_PLOTTED = 12


class _Timed(Protocol):
    """A row with a percentile for each mark, as ``p50_ns``."""

    @property
    def title(self) -> str: ...
    @property
    def max_ns(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles: a row for each name with a dot for each percentile, in the colour of its index in `marks`.

    Attributes:
        rows: The names, each with its times in nanoseconds.
        marks: The names of the percentiles.
    """

    rows: Sequence[tuple[str, Sequence[int]]]
    marks: Sequence[str]

    def draw(self, label: str) -> str:
        """The plot."""
        # A difference of two clocks, or of one that was set, may be 0, which has no place on a logarithmic axis.
        shown = [(name, [max(time, 1) for time in times]) for name, times in self.rows]
        names = [cut(name) for name, _ in shown]
        canvas = Canvas(max(101, 58 + 24.5 * len(shown)), left=beside(names))
        every = [time for _, times in shown for time in times]
        margin = max((max(every) / min(every)) ** 0.08, 1.1)
        low, high = min(every) / margin, max(every) * margin
        across = Scale(low, high, canvas.left, canvas.right, math.log10)
        canvas.across(across, [(time, latency(time)) for time in decades(low, high)], "latency", has_grid=True)
        for (name, times), (_, exact), y in zip(shown, self.rows, canvas.rows(names), strict=True):
            begin, end = across(min(times)), across(max(times))
            canvas.bar(begin, y - 2.5, end - begin, 5, "line")
            said = " · ".join(f"{mark} {latency(time)}" for mark, time in zip(self.marks, exact, strict=True))
            # The largest first, with larger dots, so that equal ones stay visible around each other.
            for at, time in reversed(list(enumerate(times))):
                canvas.dot(across(time), y, 3.5 + 1.25 * at, colour(at), f"{name}: {said}")
        return canvas.svg(label)


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of times, as stacked bars in the colours of the names.

    Attributes:
        rows: Numbers by index and class of time: n is from 10^(n/10) ns on.
        names: The names, by index.
        unit: The unit of the counts.
    """

    rows: Mapping[int, Mapping[int, int]]
    names: Mapping[int, str]
    unit: str

    def draw(self, label: str) -> str:
        """The plot."""
        classes = {which for row in self.rows.values() for which in row}
        first, end = min(classes), max(classes) + 1
        # A single bar must not fill the plot.
        spare = max(1, (DECADE - (end - first)) // 2)
        low, high = max(0, first - spare), end + spare
        heights = {which: sum(row.get(which, 0) for row in self.rows.values()) for which in classes}
        most = max(heights.values()) * 1.05
        marks = [(count, short(count)) for count in steps(0, most, whole=True)]
        canvas = Canvas(HEIGHT, left=beside(words for _, words in marks), top=20)
        up = Scale(0, most, canvas.bottom, canvas.top)
        across = Scale(low, high, canvas.left, canvas.right)
        canvas.up(up, marks, self.unit)
        # At 1, 2 and 5 of each decade, or only at decades if there are many.
        leading = (0,) if end - first > 2 * DECADE else (0, 3, 7)
        ticks = [tick for tick in range(low, high + 1) if tick % DECADE in leading]
        canvas.across(across, [(tick, _time(tick)) for tick in ticks], "latency")
        bottom = dict.fromkeys(classes, 0)
        width = 0.9 * (across(1) - across(0))
        for at in in_order(self.rows):
            for which, number in sorted(self.rows[at].items()):
                y, foot = up(bottom[which] + number), up(bottom[which])
                tip = f"{self.names.get(at, '')}: {number:,} from {_time(which)} to {_time(which + 1)}"
                canvas.bar(across(which), y, width, foot - y, colour(at), tip=tip)
                bottom[which] += number
        return canvas.svg(label)


def charts(
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
) -> list[Chart]:
    """The plots of a latency `what`: its percentiles `marks`, and its distribution `spread` in `unit`.

    `which` describes the first rows if not all are shown; `none` is the text without data.
    """
    timed = [each for each in of[:_PLOTTED] if each.max_ns is not None]
    rows = [(each.title, [getattr(each, f"{mark}_ns") for mark in marks]) for each in timed]
    chosen = f", of the {_PLOTTED} {which}" if len(of) > _PLOTTED else ""
    dots = Percentiles(rows, marks) if rows else None
    found = [Chart(key, title, f"Percentiles of {what}{chosen}", dots, dict(enumerate(marks)), none)]
    if spread:
        legend = {at: names[at] for at in in_order(spread)} if len(names) > 1 else {}
        bars = Spread(spread, names, unit)
        found.append(Chart(f"{key}-spread", f"{title}, distribution", f"Number of {unit} by {what}", bars, legend))
    return found


def _time(which: int) -> str:
    """The lower bound of a class, to two digits."""
    return latency(float(f"{10 ** (which / DECADE):.2g}"))
