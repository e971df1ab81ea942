"""The plots of numbers in payloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trunkline._text import short
from trunkline.report.scales import Scale, steps
from trunkline.report.svg import HEIGHT, Canvas, beside, digits

__all__ = ["Histogram", "Profile"]

# The most points of a line: more are narrower than what a screen shows.
_POINTS = 512


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often values came.

    Attributes:
        edges: Where bins begin and end.
        counts: How many values each has.
    """

    edges: Sequence[float]
    counts: Sequence[int]

    def draw(self, label: str) -> str:
        """The plot."""
        most = max(self.counts)
        marks = [(mark, short(mark)) for mark in steps(0, most, whole=True)]
        canvas = Canvas(HEIGHT, left=beside([words for _, words in marks]), top=20)
        across = Scale(self.edges[0], self.edges[-1], canvas.left, canvas.right)
        up = Scale(0, most, canvas.bottom, canvas.top)
        canvas.up(up, marks, "values")
        canvas.across(across, [(mark, _tick(mark)) for mark in steps(self.edges[0], self.edges[-1])])
        for low, high, number in zip(self.edges, self.edges[1:], self.counts, strict=False):
            if number:
                tip = f"{_tick(low)} to {_tick(high)}: {number:,}"
                height = canvas.bottom - up(number)
                canvas.bar(across(low), up(number), across(high) - across(low), height, "s0", tip=tip)
        return canvas.svg(label)


@dataclass(frozen=True, slots=True)
class Profile:
    """The mean of each place of arrays, and its standard deviation.

    Attributes:
        mean: The means.
        std: The standard deviations.
    """

    mean: Sequence[float | None]
    std: Sequence[float | None]

    def draw(self, label: str) -> str:
        """The plot."""
        places = range(0, len(self.mean), -(-len(self.mean) // _POINTS))
        points = [(place, mean, self.std[place] or 0) for place in places if (mean := self.mean[place]) is not None]
        low = min((mean - std for _, mean, std in points), default=0)
        high = max((mean + std for _, mean, std in points), default=1)
        marks = [(mark, _tick(mark)) for mark in steps(low, high)]
        canvas = Canvas(HEIGHT, left=beside([words for _, words in marks]), top=20)
        across = Scale(0, max(1, len(self.mean) - 1), canvas.left, canvas.right)
        up = Scale(low, high if high > low else low + 1, canvas.bottom, canvas.top)
        canvas.up(up, marks, "mean ± σ")  # noqa: RUF001 - the sign of a standard deviation
        canvas.across(across, [(mark, _tick(mark)) for mark in steps(0, len(self.mean) - 1, whole=True)], "place")
        for sign, width in ((-1, 0.7), (1, 0.7), (0, 1.6)):
            line = "L".join(f"{digits(across(place))} {digits(up(mean + sign * std))}" for place, mean, std in points)
            if line:
                canvas.path(f"M{line}", "s0", width)
        return canvas.svg(label)


def _tick(value: float) -> str:
    return f"{value:.6g}"
