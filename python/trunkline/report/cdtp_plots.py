"""The plot of the sizes of what senders of CDTP sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import matplotlib as mpl

from trunkline._text import counted
from trunkline.report.over_time import colour_of, in_order
from trunkline.report.plots import CARD, INK, LINE, STYLE, Tips, cut, plot, svg

if TYPE_CHECKING:
    from trunkline.report.cdtp_counts import Counts

__all__ = ["sizes"]

# How wide the plot is, in inches.
_WIDTH = 6.4


def sizes(counts: Counts, names: Mapping[int, str]) -> str | None:
    """How the payload sizes of each sender are spread, a row of squares a sender."""
    rows = [at for at in in_order(counts.sizes) if at in names]
    if not rows:
        return None
    columns = sorted({digits for at in rows for digits in counts.sizes[at]})
    first, last = columns[0], columns[-1]
    labels = [cut(names[at]) for at in rows]
    # What is left to the bins beside the names, and how much a letter takes, in points.
    bin_width = (_WIDTH * 72 - 6.5 * max(map(len, labels))) / (last - first + 1)
    size = (_WIDTH, max(1.4, 0.8 + 0.34 * len(rows)))
    with mpl.rc_context({**STYLE, "axes.grid": False, "figure.figsize": size}):
        figure, axes = plot()
        tips = Tips()
        for row, at in enumerate(rows):
            total = sum(counts.sizes[at].values())
            axes.barh(row, last - first + 1, left=first, height=0.86, color=LINE, alpha=0.35)
            for digits, number in counts.sizes[at].items():
                share = number / total
                is_most = share > 0.5
                # No shade between is one that ink or paper could be read on.
                shade = 0.9 + 0.1 * share if is_most else 0.2 + 0.5 * share
                (square,) = axes.barh(row, 1, left=digits, height=0.86, color=colour_of(at), alpha=shade)
                label = f"{100 * share:.0f}" if share >= 0.01 else "<1"
                tips.add(square, f"{names[at]}: {number:,} of {_bounds(digits)}, {label}%")
                if 5.8 * len(label) + 1.5 < bin_width:
                    ink = CARD if is_most else INK
                    axes.text(digits + 0.5, row, label, ha="center", va="center", size=9, color=ink)
        axes.set_yticks(range(len(rows)), labels)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.invert_yaxis()
        every = -(-(last - first + 1) // 10)
        ticks = range(first, last + 2, every)
        axes.set_xticks(ticks, [_binary(_least(digits)) for digits in ticks])
        axes.set_xlim(first, last + 1)
        axes.set_xlabel("payload bytes")
        return svg(figure, "Distribution of payload sizes, one row for each sender", tips=tips)


def _least(digits: int) -> int:
    """Where a class of n binary digits begins: at 2^(n-1) bytes; the one of none is for empty payloads."""
    return 1 << digits - 1 if digits else 0


def _bounds(digits: int) -> str:
    least, most = _least(digits), max(0, _least(digits + 1) - 1)
    return counted(least, "byte") if least == most else f"{least:,} to {most:,} bytes"


def _binary(number: int) -> str:
    for unit in ("", "K", "M", "G"):
        if number < 1024:
            return f"{number}{unit}"
        number //= 1024
    return f"{number}T"
