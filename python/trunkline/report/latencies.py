"""The plots of how long something took: percentiles, and how all times are spread."""

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

# How many have their percentiles plotted.
_PLOTTED = 12


class _Timed(Protocol):
    """A row with a percentile for each mark, as ``p50_ns``."""

    @property
    def title(self) -> str: ...
    @property
    def max_ns(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Percentiles:
    """How long something took, a row a name with a dot a percentile, each in the colour of its index among `marks`.

    Attributes:
        rows: The names, each with its times in nanoseconds.
        marks: What the times are called.
    """

    rows: Sequence[tuple[str, Sequence[int]]]
    marks: Sequence[str]

    def draw(self, label: str) -> str:
        """The plot."""
        # What two clocks, or one that was set, make of a time may be nothing, which is nowhere on the axis.
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
            # The largest first, and larger: where some are one, each is still seen around those before it.
            for at, time in reversed(list(enumerate(times))):
                canvas.dot(across(time), y, 3.5 + 1.25 * at, colour(at), f"{name}: {said}")
        return canvas.svg(label)


@dataclass(frozen=True, slots=True)
class Spread:
    """How many of something took how long, on top of each other in the colour of what they are of.

    Attributes:
        rows: Numbers by index and class of time: n is from 10^(n/10) ns on.
        names: What they are of, by index.
        unit: What is counted.
    """

    rows: Mapping[int, Mapping[int, int]]
    names: Mapping[int, str]
    unit: str

    def draw(self, label: str) -> str:
        """The plot."""
        classes = {which for row in self.rows.values() for which in row}
        first, end = min(classes), max(classes) + 1
        # A bar alone is not to fill the plot.
        spare = max(1, (DECADE - (end - first)) // 2)
        low, high = max(0, first - spare), end + spare
        heights = {which: sum(row.get(which, 0) for row in self.rows.values()) for which in classes}
        most = max(heights.values()) * 1.05
        marks = [(count, short(count)) for count in steps(0, most, whole=True)]
        canvas = Canvas(HEIGHT, left=beside(words for _, words in marks), top=20)
        up = Scale(0, most, canvas.bottom, canvas.top)
        across = Scale(low, high, canvas.left, canvas.right)
        canvas.up(up, marks, self.unit)
        # At 1, 2 and 5 of a unit, or at units where there are many.
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
    """The plots of `what`, a time: the percentiles `marks` of each, and the number of `unit` in each class of `spread`.

    `which` says what the first of all are, where not all have a row; `none` is said where nothing took a time.
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
    """Where a class begins, to two digits."""
    return latency(float(f"{10 ** (which / DECADE):.2g}"))
