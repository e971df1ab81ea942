"""The plots of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trunkline.report.colours import COLOURS, OTHERS

__all__ = ["Chart", "Plot", "named"]


class Plot(Protocol):
    """A plot: `Lines`, `Percentiles`, `Spread`, `Bars`, `Squares` or `Timeline`."""

    def draw(self, label: str) -> str:
        """The plot as an element of a page, by this accessible name."""
        ...


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot with its title and caption.

    Attributes:
        key: Its fragment identifier in the page.
        title: Its title.
        caption: What it shows.
        plot: The plot; None without data.
        names: The legend: names of colours, by index.
        none: The text without data.
    """

    key: str
    title: str
    caption: str
    plot: Plot | None
    names: Mapping[int, str] = field(default_factory=dict)
    none: str = "Nothing was recorded."


def named(titles: Sequence[str], total: int) -> dict[int, str]:
    """The legend: the first titles have colours of their own, and all others of `total` share one."""
    names = dict(enumerate(titles[:COLOURS]))
    return names | {OTHERS: f"{total - len(names):,} more"} if total > len(names) else names
