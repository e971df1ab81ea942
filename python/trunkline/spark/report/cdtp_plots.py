"""The plots of what senders of CDTP sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter, MaxNLocator

from trunkline.spark.report.cdtp_counts import OTHERS
from trunkline.spark.report.model import BUCKETS, COLOURS
from trunkline.spark.report.plots import INK, LINE, STYLE, colour, counted, cut, plot, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from trunkline.spark.report.cdtp_counts import Counts

__all__ = ["gaps", "rates", "sizes"]

# From so many times the smallest to the largest, small ones cannot be seen on a linear axis.
_STEEP = 50


def rates(counts: Counts) -> str | None:
    """Messages a second over time, a line a sender."""
    if not counts.rates:
        return None
    with mpl.rc_context(STYLE):
        figure, axes = plot()
        seconds = counts.bucket_ns / 1e9
        lines = {
            at: [buckets.get(bucket, 0) / seconds for bucket in range(BUCKETS)] for at, buckets in counts.rates.items()
        }
        for at in _in_order(lines):
            axes.plot(_times(counts), [*lines[at], lines[at][-1]], drawstyle="steps-post", color=_colour(at))
        peaks = [max(line) for line in lines.values()]
        if max(peaks) > _STEEP * min(peaks):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_ylabel("messages/s")
        counted(axes.yaxis)
        _time_axis(axes, counts)
        return svg(figure, "Messages a second over time, a line for each sender")


def sizes(counts: Counts, names: Mapping[int, str]) -> str | None:
    """How the payload sizes of each sender are spread, a row of squares a sender."""
    rows = [at for at in _in_order(counts.sizes) if at in names]
    if not rows:
        return None
    columns = sorted({digits for at in rows for digits in counts.sizes[at]})
    first, last = columns[0], columns[-1]
    with mpl.rc_context({**STYLE, "axes.grid": False, "figure.figsize": (6.4, max(1.4, 0.8 + 0.34 * len(rows)))}):
        figure, axes = plot()
        for row, at in enumerate(rows):
            total = sum(counts.sizes[at].values())
            axes.barh(row, last - first + 1, left=first, height=0.86, color=LINE, alpha=0.35)
            for digits, number in counts.sizes[at].items():
                share = number / total
                axes.barh(row, 1, left=digits, height=0.86, color=_colour(at), alpha=0.25 + 0.75 * share)
                if last - first < 14:
                    label = f"{share:.0%}" if share >= 0.01 else "<1%"
                    axes.text(digits + 0.5, row, label, ha="center", va="center", size=9.5, color=INK)
        axes.set_yticks(range(len(rows)), [cut(names[at]) for at in rows])
        axes.invert_yaxis()
        # A class of n binary digits begins at 2^(n-1) bytes; the one of none is for empty payloads.
        every = -(-(last - first + 1) // 10)
        ticks = range(first, last + 2, every)
        axes.set_xticks(ticks, ["0" if digits == 0 else _binary(1 << digits - 1) for digits in ticks])
        axes.set_xlim(first, last + 1)
        axes.set_xlabel("bytes of payload")
        return svg(figure, "Spread of payload sizes, a row for each sender")


def gaps(counts: Counts) -> str | None:
    """Sequence numbers that were skipped over time, on top of each other by sender."""
    rows = {at: buckets for at, buckets in counts.gaps.items() if any(buckets.values())}
    if not rows:
        return None
    with mpl.rc_context(STYLE):
        figure, axes = plot()
        _stack(axes, counts, {_colour(at): rows[at] for at in _in_order(rows)})
        axes.set_ylabel("missing")
        _time_axis(axes, counts)
        return svg(figure, "Sequence numbers that were skipped, over time")


def _stack(axes: Axes, counts: Counts, rows: Mapping[str, Mapping[int, int]]) -> None:
    times = _times(counts)
    width = times[1] - times[0]
    bottom = [0] * BUCKETS
    for paint, buckets in rows.items():
        heights = [buckets.get(bucket, 0) for bucket in range(BUCKETS)]
        axes.bar(times[:-1], heights, width=width, bottom=bottom, align="edge", color=paint)
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    counted(axes.yaxis)


def _times(counts: Counts) -> list[float]:
    """Where the buckets begin, and where the last one ends, in seconds since the first message."""
    return [bucket * counts.bucket_ns / 1e9 for bucket in range(BUCKETS + 1)]


def _time_axis(axes: Axes, counts: Counts) -> None:
    length = BUCKETS * counts.bucket_ns / 1e9
    unit, name = next(
        (unit, name)
        for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"), (0, "seconds"))
        if length >= 3 * unit
    )
    axes.set_xlim(0, length)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 1.5, 2, 3, 5, 6, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds / (unit or 1):.4g}"))
    axes.set_xlabel(f"{name} since the first message")


def _in_order(rows: Iterable[int]) -> list[int]:
    """The senders, those that have no colour of their own last."""
    return sorted(rows, key=lambda at: (at == OTHERS, at))


def _colour(at: int) -> str:
    return colour(COLOURS if at == OTHERS else at)


def _binary(number: int) -> str:
    for unit in ("", "K", "M", "G"):
        if number < 1024:
            return f"{number}{unit}"
        number //= 1024
    return f"{number}T"
