"""The plot of payload sizes of senders of CDTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trunkline._text import counted
from trunkline.report.over_time import in_order
from trunkline.report.scales import Scale
from trunkline.report.svg import Canvas, beside, colour, cut, room

__all__ = ["Squares"]


@dataclass(frozen=True, slots=True)
class Squares:
    """The distribution of payload sizes, a row of squares per sender.

    Attributes:
        rows: Messages by index and the number of binary digits of their payload's bytes.
        names: The senders, by index.
    """

    rows: Mapping[int, Mapping[int, int]]
    names: Mapping[int, str]

    def draw(self, label: str) -> str:
        """The plot."""
        rows = in_order(self.rows)
        columns = {size for at in rows for size in self.rows[at]}
        first, end = min(columns), max(columns) + 1
        names = [cut(self.names[at]) for at in rows]
        canvas = Canvas(max(101, 58 + 24.5 * len(rows)), left=beside(names))
        across = Scale(first, end, canvas.left, canvas.right)
        ticks = range(first, end + 1, -(-(end - first) // 10))
        canvas.across(across, [(size, _binary(_least(size))) for size in ticks], "payload bytes")
        each, width = (canvas.bottom - canvas.top) / len(rows), across(first + 1) - across(first)
        height = 0.86 * each
        for at, y in zip(rows, canvas.rows(names), strict=True):
            total = sum(self.rows[at].values())
            canvas.bar(canvas.left, y - height / 2, canvas.right - canvas.left, height, "line", opacity=0.35)
            for size, number in sorted(self.rows[at].items()):
                share = number / total
                is_most = share > 0.5
                # On medium shades neither dark nor light text is readable.
                shade = 0.9 + 0.1 * share if is_most else 0.2 + 0.5 * share
                words = f"{100 * share:.0f}" if share >= 0.01 else "<1"
                tip = f"{self.names[at]}: {number:,} of {_bounds(size)}, {words}%"
                canvas.bar(across(size), y - height / 2, width, height, colour(at), opacity=shade, tip=tip)
                if room(words) < width:
                    canvas.text(across(size + 0.5), y, words, tone="card" if is_most else "ink", size=9)
        return canvas.svg(label)


def _least(size: int) -> int:
    """The lower bound of a class of n binary digits: 2^(n-1) bytes; class 0 is for empty payloads."""
    return 1 << size - 1 if size else 0


def _bounds(size: int) -> str:
    least, most = _least(size), max(0, _least(size + 1) - 1)
    return counted(least, "byte") if least == most else f"{least:,} to {most:,} bytes"


def _binary(number: int) -> str:
    for unit in ("", "K", "M", "G"):
        if number < 1024:
            return f"{number}{unit}"
        number //= 1024
    return f"{number}T"
