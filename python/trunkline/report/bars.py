"""The plot of counts by kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trunkline._text import short
from trunkline.report.scales import Scale, steps
from trunkline.report.svg import Canvas, beside, room

__all__ = ["Bars"]


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar for each kind of problem.

    Attributes:
        counts: The count of each kind.
    """

    counts: Mapping[str, int]

    def draw(self, label: str) -> str:
        """The plot."""
        canvas = Canvas(max(101, 43 + 26 * len(self.counts)), left=beside(self.counts), bottom=26)
        numbers = [f"{number:,}" for number in self.counts.values()]
        most = max(self.counts.values())
        across = Scale(0, most, canvas.left, canvas.right - max(map(room, numbers)) - 5)
        canvas.across(across, [(count, short(count)) for count in steps(0, most, whole=True)], has_grid=True)
        height = 0.62 * (canvas.bottom - canvas.top) / len(self.counts)
        for count, words, y in zip(self.counts.values(), numbers, canvas.rows(list(self.counts)), strict=True):
            canvas.bar(canvas.left, y - height / 2, across(count) - canvas.left, height, "bad")
            canvas.text(across(count) + 5, y, words, anchor="start", tone="ink")
        return canvas.svg(label)
