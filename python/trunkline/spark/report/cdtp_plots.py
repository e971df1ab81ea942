"""The plot of the sizes of what senders of CDTP sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import matplotlib as mpl

from trunkline.spark.report.over_time import colour_of, in_order
from trunkline.spark.report.plots import INK, LINE, STYLE, cut, plot, svg

if TYPE_CHECKING:
    from trunkline.spark.report.cdtp_counts import Counts

__all__ = ["sizes"]


def sizes(counts: Counts, names: Mapping[int, str]) -> str | None:
    """How the payload sizes of each sender are spread, a row of squares a sender."""
    rows = [at for at in in_order(counts.sizes) if at in names]
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
                axes.barh(row, 1, left=digits, height=0.86, color=colour_of(at), alpha=0.25 + 0.75 * share)
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


def _binary(number: int) -> str:
    for unit in ("", "K", "M", "G"):
        if number < 1024:
            return f"{number}{unit}"
        number //= 1024
    return f"{number}T"
