"""Plots as SVG, with colours and font of the surrounding page."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from trunkline.report.colours import COLOURS, OTHERS
from trunkline.report.scales import Scale

__all__ = ["HEIGHT", "Canvas", "beside", "colour", "cut", "digits", "room"]

# The width of the view box: a plot scales with its card, text included.
WIDTH = 460

# The default height.
HEIGHT = 209

# The font size.
_SIZE = 11

# The width of a character relative to the font size: a little more than the average, as fonts differ.
_CHARACTER = 0.63

# The space between labels and the plot.
_GAP = 8


class Canvas:
    """A plot: axes around a field, and its elements, in drawing order.

    Attributes:
        left: The left edge of the field.
        right: Its right edge.
        top: Its upper edge.
        bottom: Its lower edge.
    """

    def __init__(self, height: float, *, left: float, top: float = 8, bottom: float = 40) -> None:
        self._height = height
        self.left, self.right = left, WIDTH - 14
        self.top, self.bottom = top, height - bottom
        self._parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "middle", tone: str = "soft", size: int = _SIZE
    ) -> None:
        """Text with its middle line at `y`."""
        place = f'x="{digits(x)}" y="{digits(y + 0.35 * size)}"'
        look = f'text-anchor="{anchor}" style="fill: var(--{tone}); font-size: {size}px"'
        self._parts.append(f"<text {place} {look}>{escape(words)}</text>")

    def path(self, path: str, tone: str, width: float = 1.4) -> None:
        """A line."""
        look = (
            f"fill: none; stroke: var(--{tone}); stroke-width: {width}; stroke-linejoin: round; stroke-linecap: round"
        )
        self._parts.append(f'<path d="{path}" style="{look}"/>')

    def bar(
        self, x: float, y: float, width: float, height: float, tone: str, *, opacity: float = 1, tip: str = ""
    ) -> None:
        """A rectangle with a tooltip."""
        place = f'x="{digits(x)}" y="{digits(y)}" width="{digits(width)}" height="{digits(height)}"'
        self._add(
            "rect", place, f"fill: var(--{tone})" + (f"; opacity: {digits(opacity, 2)}" if opacity < 1 else ""), tip
        )

    def dot(self, x: float, y: float, radius: float, tone: str, tip: str) -> None:
        """A dot with a tooltip."""
        self._add("circle", f'cx="{digits(x)}" cy="{digits(y)}" r="{digits(radius)}"', f"fill: var(--{tone})", tip)

    def _add(self, name: str, place: str, look: str, tip: str) -> None:
        inner = f"><title>{escape(tip)}</title></{name}>" if tip else "/>"
        self._parts.append(f'<{name} {place} style="{look}"{inner}')

    def across(
        self, scale: Scale, ticks: Iterable[tuple[float, str]], title: str = "", *, has_grid: bool = False
    ) -> None:
        """The axis below the field."""
        for at, words in ticks:
            x = scale(at)
            if has_grid:
                self.path(f"M{digits(x)} {digits(self.top)}V{digits(self.bottom)}", "line", 0.8)
            # Labels at the ends of the axis stay within the plot.
            half = room(words) / 2
            self.text(min(max(x, half), WIDTH - half), self.bottom + 13, words)
        self.path(f"M{digits(self.left)} {digits(self.bottom)}H{digits(self.right)}", "line", 0.8)
        if title:
            self.text((self.left + self.right) / 2, self.bottom + 29, title)

    def up(self, scale: Scale, ticks: Iterable[tuple[float, str]], title: str) -> None:
        """The axis beside the field, with its title above."""
        for at, words in ticks:
            y = scale(at)
            self.path(f"M{digits(self.left)} {digits(y)}H{digits(self.right)}", "line", 0.8)
            self.text(self.left - _GAP, y, words, anchor="end")
        self.text(0, 7, title, anchor="start")

    def rows(self, names: Sequence[str]) -> list[float]:
        """Names beside the field, one below the other; returns their vertical centres."""
        each = (self.bottom - self.top) / len(names)
        middles = [self.top + (row + 0.5) * each for row in range(len(names))]
        for name, y in zip(names, middles, strict=True):
            self.text(self.left - _GAP, y, name, anchor="end", tone="ink")
        return middles

    def svg(self, label: str, values: Mapping[str, Any] | None = None) -> str:
        """The plot as an element; `label` is its accessible name, and `values` the data for `hover.js`."""
        data = ""
        if values is not None:
            axis = [round(self.left / WIDTH, 4), round(self.right / WIDTH, 4)]
            shown = json.dumps({"axis": axis, **values}, ensure_ascii=False, separators=(",", ":"))
            data = f' data-values="{escape(shown)}"'
        view = f'viewBox="0 0 {WIDTH} {digits(self._height)}" xmlns="http://www.w3.org/2000/svg"'
        # Not a title element, which would be the tooltip of all elements without one.
        return f'<svg role="img" aria-label="{escape(label)}"{data} {view}>{"".join(self._parts)}</svg>'


def digits(number: float, decimals: int = 1) -> str:
    """A number rounded to visible decimals."""
    return f"{round(number, decimals):g}"


def room(words: str) -> float:
    """The approximate width of a text."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in words)
    return (len(words) - wide) * _CHARACTER * _SIZE + wide * _SIZE


def beside(labels: Iterable[str]) -> float:
    """The left edge of a field with these labels beside it."""
    return max(map(room, labels), default=0) + _GAP


def cut(name: str) -> str:
    """A name, cut for plots."""
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"


def colour(at: int) -> str:
    """The name of a colour in the page's style, by index."""
    return f"s{COLOURS if at == OTHERS else at}"
