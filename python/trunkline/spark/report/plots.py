"""Plots as SVG that takes its colours and letters from the page around it."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from trunkline._text import latency, short
from trunkline.spark.report.model import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

__all__ = ["INK", "LINE", "STYLE", "colour", "counted", "cut", "errors", "latencies", "plot", "svg"]

# What matplotlib is told, and what the page calls it: its variables know of light and dark.
_COLOURS = {f"#fd00f{number}": f"var(--s{number})" for number in range(COLOURS + 1)} | {
    "#fd0100": "var(--ink)",
    "#fd0101": "var(--soft)",
    "#fd0102": "var(--line)",
    "#fd0103": "var(--bad)",
}
INK, _SOFT, LINE, _BAD = list(_COLOURS)[-4:]

STYLE: dict[Any, Any] = {
    "axes.edgecolor": LINE,
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
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.4,
    "lines.solid_joinstyle": "round",
    "svg.fonttype": "none",
    "text.color": INK,
    # A name from the network is not a formula.
    "text.parse_math": False,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


def errors(kinds: Mapping[str, int]) -> str | None:
    """Messages that do not decode, a bar a kind."""
    if not kinds:
        return None
    totals = list(kinds.items())
    size = (6.4, max(1.4, 0.6 + 0.36 * len(totals)))
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x", "figure.figsize": size}):
        figure, axes = plot()
        bars = axes.barh([kind for kind, _ in totals], [number for _, number in totals], height=0.62, color=_BAD)
        axes.bar_label(bars, [f"{number:,}" for _, number in totals], padding=5, color=INK)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        counted(axes.xaxis)
        axes.tick_params(axis="y", labelcolor=INK)
        return svg(figure, "Messages that do not decode, by kind of error")


def latencies(rows: Sequence[tuple[str, Sequence[int]]], title: str) -> str | None:
    """How long something took, a row a name with a dot a percentile, each in the colour of its place."""
    if not rows:
        return None
    # What two clocks, or one that was set, make of a time may be nothing, which has no place on the axis.
    shown = [(name, [max(time, 1) for time in times]) for name, times in rows]
    size = (6.4, max(1.4, 0.8 + 0.34 * len(shown)))
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x", "figure.figsize": size}):
        figure, axes = plot()
        for row, (_, times) in enumerate(shown):
            axes.plot(times, [row] * len(times), color=LINE, linewidth=5, solid_capstyle="round", zorder=1)
            # The largest first, so that where they are one the median is seen.
            for at, time in reversed(list(enumerate(times))):
                axes.plot(time, row, "o", color=colour(at), markersize=8)
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
        return svg(figure, title)


def plot() -> tuple[Figure, Axes]:
    """A plot without anything in it."""
    figure = Figure()
    figure.patch.set_visible(False)
    axes = figure.add_subplot()
    axes.patch.set_visible(False)
    return figure, axes


def counted(axis: Axis) -> None:
    """Has an axis show counts."""
    axis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))


def colour(at: int) -> str:
    """The colour of what has this place."""
    return f"#fd00f{at}"


def cut(name: str) -> str:
    """A name where there is little room."""
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"


def svg(figure: Figure, title: str) -> str:
    """The plot as an element of a page; the title is its accessible name."""
    file = io.StringIO()
    with warnings.catch_warnings():
        # Letters that matplotlib's own font lacks are the browser's to show.
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcParams["svg.hashsalt"] = title
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    for told, called in _COLOURS.items():
        text = text.replace(told, called)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text)
    # Several plots share the page, and only some names are referred to.
    used = set(re.findall(r"#([\w.-]+)", text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None
    opening = f'<svg role="img" aria-label="{title}" xmlns:xlink="http://www.w3.org/1999/xlink" {view[0]} xmlns="http://www.w3.org/2000/svg">'
    return re.sub(r"<svg[^>]*>", opening + f"<title>{title}</title>", text, count=1)
