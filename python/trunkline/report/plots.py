"""Plots as SVG that takes its colours and letters from the page around it."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from trunkline._text import short
from trunkline.report.model import COLOURS, Clock

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

__all__ = [
    "BAD",
    "CARD",
    "GOOD",
    "INK",
    "LINE",
    "STYLE",
    "Tips",
    "Values",
    "colour",
    "counted",
    "cut",
    "errors",
    "plot",
    "svg",
]

# What matplotlib is told, and what the page calls it: its variables know of light and dark.
_COLOURS = {f"#fd00f{number}": f"var(--s{number})" for number in range(COLOURS + 1)} | {
    "#fd0100": "var(--ink)",
    "#fd0101": "var(--soft)",
    "#fd0102": "var(--line)",
    "#fd0103": "var(--bad)",
    "#fd0104": "var(--good)",
    "#fd0105": "var(--card)",
}
INK, _SOFT, LINE, BAD, GOOD, CARD = list(_COLOURS)[-6:]

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
    # A mark at the very left is not to meet the lowest one of the other axis.
    "xtick.major.pad": 8,
    "ytick.color": _SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


class Values(NamedTuple):
    """What the page shows of a plot over time where one points at it: a line each has its name, colour and values."""

    clock: Clock
    unit: str
    rows: Sequence[tuple[str, int, Sequence[float]]]


class Tips:
    """What a browser shows of the parts of a plot where one points at them."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, artist: Artist, text: str) -> None:
        """Has this part tell this."""
        artist.set_gid(f"tip{len(self._texts)}")
        self._texts.append(text)

    def put(self, text: str) -> str:
        """The plot with all that was added."""
        return re.sub(
            r'<g id="tip(\d+)">', lambda found: f"<g><title>{escape(self._texts[int(found[1])])}</title>", text
        )


def errors(kinds: Mapping[str, int]) -> str | None:
    """Messages that do not decode, a bar a kind."""
    if not kinds:
        return None
    totals = list(kinds.items())
    size = (6.4, max(1.4, 0.6 + 0.36 * len(totals)))
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x", "figure.figsize": size}):
        figure, axes = plot()
        bars = axes.barh([kind for kind, _ in totals], [number for _, number in totals], height=0.62, color=BAD)
        axes.bar_label(bars, [f"{number:,}" for _, number in totals], padding=5, color=INK)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        counted(axes.xaxis)
        axes.tick_params(axis="y", labelcolor=INK)
        return svg(figure, "Messages that cannot be decoded, by kind of error")


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


def _lay_out(figure: Figure) -> None:
    """Finds the place of all parts once: saving would draw the whole to find it, and draw it again."""
    FigureCanvasSVG(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    with mpl.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)


def svg(figure: Figure, title: str, *, tips: Tips | None = None, values: Values | None = None) -> str:
    """The plot as an element of a page; the title is its accessible name."""
    file = io.StringIO()
    with warnings.catch_warnings():
        # Letters that matplotlib's own font lacks are the browser's to show.
        warnings.simplefilter("ignore", UserWarning)
        mpl.rcParams["svg.hashsalt"] = title
        _lay_out(figure)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    for told, called in _COLOURS.items():
        text = text.replace(told, called)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text)
    # More digits than anybody sees are half of the page.
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), text)
    text = tips.put(text) if tips else text
    # Several plots share the page, and only some names are referred to.
    used = set(re.findall(r"#([\w.-]+)", text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    view = re.search(r'viewBox="[^"]*"', text)
    assert view is not None
    data = "" if values is None else f' data-values="{escape(_told(figure, values))}"'
    opening = f'<svg role="img" aria-label="{title}"{data} xmlns:xlink="http://www.w3.org/1999/xlink" {view[0]} xmlns="http://www.w3.org/2000/svg">'
    # A title of the whole would be shown over each part that has none.
    return re.sub(r"<svg[^>]*>", lambda _: opening, text, count=1)


def _told(figure: Figure, values: Values) -> str:
    """What `hover.js` is told of a drawn plot: where its axis begins and ends, as shares of the width, and its lines."""
    across = figure.axes[0].get_position()
    told = {
        "axis": [round(across.x0, 4), round(across.x1, 4)],
        "first_ms": values.clock.first_ns / 1e6,
        "bucket_ms": values.clock.bucket_ns / 1e6,
        "unit": values.unit,
        "rows": [
            {"name": name, "colour": colour, "values": [float(f"{value:.4g}") for value in line]}
            for name, colour, line in values.rows
        ],
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))
