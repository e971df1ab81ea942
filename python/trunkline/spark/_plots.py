"""The plots of the report, as SVG that takes its colours and letters from the page around it."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from trunkline._text import latency, short
from trunkline.spark._counting import BUCKETS, COLOURS, OTHERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from trunkline.spark._counting import Counts
    from trunkline.spark.report import ServiceReport

__all__ = ["LATENCIES", "errors", "gaps", "latencies", "rates", "sizes"]

# What matplotlib is told, and what the page calls it: its variables know of light and dark.
_COLOURS = {f"#fd00f{number}": f"var(--s{number})" for number in range(COLOURS + 1)} | {
    "#fd0100": "var(--ink)",
    "#fd0101": "var(--soft)",
    "#fd0102": "var(--line)",
    "#fd0103": "var(--bad)",
}
_INK, _SOFT, _LINE, _BAD = list(_COLOURS)[-4:]

_STYLE: dict[Any, Any] = {
    "axes.edgecolor": _LINE,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": _SOFT,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.figsize": (6.4, 2.9),
    "figure.constrained_layout.use": True,
    "font.size": 11,
    "grid.color": _LINE,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.4,
    "lines.solid_joinstyle": "round",
    "svg.fonttype": "none",
    "text.color": _INK,
    # A name from the network is not a formula.
    "text.parse_math": False,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}

# What is plotted of latencies, each in the colour of its place.
LATENCIES = ("p50", "p90", "p99", "max")

# From so many times the smallest to the largest, small ones cannot be seen on a linear axis.
_STEEP = 50


def rates(counts: Counts) -> str | None:
    """Messages a second over time, a line a sender."""
    if not counts.rates:
        return None
    with mpl.rc_context(_STYLE):
        figure, axes = _axes()
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
        _counted(axes.yaxis)
        _time_axis(axes, counts)
        return _svg(figure, "Messages a second over time, a line for each sender")


def sizes(counts: Counts, names: Mapping[int, str]) -> str | None:
    """How the payload sizes of each sender are spread, a row of squares a sender."""
    rows = [at for at in _in_order(counts.sizes) if at in names]
    if not rows:
        return None
    columns = sorted({digits for at in rows for digits in counts.sizes[at]})
    first, last = columns[0], columns[-1]
    with mpl.rc_context({**_STYLE, "axes.grid": False, "figure.figsize": (6.4, max(1.4, 0.8 + 0.34 * len(rows)))}):
        figure, axes = _axes()
        for row, at in enumerate(rows):
            total = sum(counts.sizes[at].values())
            axes.barh(row, last - first + 1, left=first, height=0.86, color=_LINE, alpha=0.35)
            for digits, number in counts.sizes[at].items():
                share = number / total
                axes.barh(row, 1, left=digits, height=0.86, color=_colour(at), alpha=0.25 + 0.75 * share)
                if last - first < 14:
                    label = f"{share:.0%}" if share >= 0.01 else "<1%"
                    axes.text(digits + 0.5, row, label, ha="center", va="center", size=9.5, color=_INK)
        axes.set_yticks(range(len(rows)), [_cut(names[at]) for at in rows])
        axes.invert_yaxis()
        # A class of n binary digits begins at 2^(n-1) bytes; the one of none is for empty payloads.
        every = -(-(last - first + 1) // 10)
        ticks = range(first, last + 2, every)
        axes.set_xticks(ticks, ["0" if digits == 0 else _binary(1 << digits - 1) for digits in ticks])
        axes.set_xlim(first, last + 1)
        axes.set_xlabel("bytes of payload")
        return _svg(figure, "Spread of payload sizes, a row for each sender")


def gaps(counts: Counts) -> str | None:
    """Sequence numbers that were skipped over time, on top of each other by sender."""
    rows = {at: buckets for at, buckets in counts.gaps.items() if any(buckets.values())}
    if not rows:
        return None
    with mpl.rc_context(_STYLE):
        figure, axes = _axes()
        _stack(axes, counts, {_colour(at): rows[at] for at in _in_order(rows)})
        axes.set_ylabel("missing")
        _time_axis(axes, counts)
        return _svg(figure, "Sequence numbers that were skipped, over time")


def errors(kinds: Mapping[str, int]) -> str | None:
    """Messages that do not decode, a bar a kind."""
    if not kinds:
        return None
    totals = list(kinds.items())
    size = (6.4, max(1.4, 0.6 + 0.36 * len(totals)))
    with mpl.rc_context({**_STYLE, "axes.grid.axis": "x", "figure.figsize": size}):
        figure, axes = _axes()
        bars = axes.barh([kind for kind, _ in totals], [number for _, number in totals], height=0.62, color=_BAD)
        axes.bar_label(bars, [f"{number:,}" for _, number in totals], padding=5, color=_INK)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        _counted(axes.xaxis)
        axes.tick_params(axis="y", labelcolor=_INK)
        return _svg(figure, "Messages that do not decode, by kind of error")


def latencies(services: Sequence[ServiceReport]) -> str | None:
    """How long replies took, a row a service with a dot a percentile."""
    rows = [service for service in services if service.max_ns is not None]
    if not rows:
        return None
    size = (6.4, max(1.4, 0.8 + 0.34 * len(rows)))
    with mpl.rc_context({**_STYLE, "axes.grid.axis": "x", "figure.figsize": size}):
        figure, axes = _axes()
        for row, service in enumerate(rows):
            # What two clocks, or one that was set, make of a reply may be nothing, which has no place on the axis.
            times = [max(getattr(service, f"{name}_ns"), 1) for name in LATENCIES]
            axes.plot(times, [row] * len(times), color=_LINE, linewidth=5, solid_capstyle="round", zorder=1)
            # The largest first, so that where they are one the median is seen.
            for at, time in reversed(list(enumerate(times))):
                axes.plot(time, row, "o", color=_colour(at), markersize=8)
        axes.set_yticks(range(len(rows)), [_cut(service.title) for service in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", labelcolor=_INK)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if _decades(rows) > 2 else (1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda nanoseconds, _: latency(nanoseconds)))
        axes.margins(x=0.08)
        axes.set_xlabel("latency")
        return _svg(figure, "Latency of replies, a row for each service with its percentiles")


def _decades(services: Sequence[ServiceReport]) -> float:
    """How many powers of ten the latencies span."""
    times = [max(time, 1) for service in services for time in (service.p50_ns, service.max_ns) if time is not None]
    return math.log10(max(times) / min(times))


def _axes() -> tuple[Figure, Axes]:
    figure = Figure()
    figure.patch.set_visible(False)
    axes = figure.add_subplot()
    axes.patch.set_visible(False)
    return figure, axes


def _counted(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))


def _stack(axes: Axes, counts: Counts, rows: Mapping[str, Mapping[int, int]]) -> None:
    times = _times(counts)
    width = times[1] - times[0]
    bottom = [0] * BUCKETS
    for colour, buckets in rows.items():
        heights = [buckets.get(bucket, 0) for bucket in range(BUCKETS)]
        axes.bar(times[:-1], heights, width=width, bottom=bottom, align="edge", color=colour)
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _counted(axes.yaxis)


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
    return f"#fd00f{COLOURS if at == OTHERS else at}"


def _cut(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"


def _binary(number: int) -> str:
    for unit in ("", "K", "M", "G"):
        if number < 1024:
            return f"{number}{unit}"
        number //= 1024
    return f"{number}T"


def _svg(figure: Figure, title: str) -> str:
    file = io.StringIO()
    with warnings.catch_warnings():
        # Letters that matplotlib's own font lacks are the browser's to show.
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcParams["svg.hashsalt"] = title
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    for told, called in _COLOURS.items():
        svg = svg.replace(told, called)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    # Several plots share the page, and only some names are referred to.
    used = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", svg)
    view = re.search(r'viewBox="[^"]*"', svg)
    assert view is not None
    opening = f'<svg role="img" aria-label="{title}" xmlns:xlink="http://www.w3.org/1999/xlink" {view[0]} xmlns="http://www.w3.org/2000/svg">'
    return re.sub(r"<svg[^>]*>", opening + f"<title>{title}</title>", svg, count=1)
