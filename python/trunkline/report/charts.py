"""What a plot of a report is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trunkline.report.colours import COLOURS, OTHERS

__all__ = ["Chart", "Plot", "named"]


class Plot(Protocol):
    """What is plotted, and how: `Lines`, `Percentiles`, `Spread`, `Bars`, `Squares`, `Timeline`."""

    def draw(self, label: str) -> str:
        """The plot as an element of a page, by this accessible name."""
        ...


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot with what is said beside it.

    Attributes:
        key: Its place in the page, as an address has it after `#`.
        title: What it is called.
        caption: What it shows.
        plot: What is plotted; None where there is nothing.
        names: What has which colour, by index.
        none: What is said where there is nothing to plot.
    """

    key: str
    title: str
    caption: str
    plot: Plot | None
    names: Mapping[int, str] = field(default_factory=dict)
    none: str = "Nothing was recorded."


def named(titles: Sequence[str], total: int) -> dict[int, str]:
    """What has which colour, by index: the first have their own, and all others of `total` share one."""
    names = dict(enumerate(titles[:COLOURS]))
    return names | {OTHERS: f"{total - len(names):,} more"} if total > len(names) else names
