"""The tables of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trunkline._native.analysis import Summary
from trunkline._text import amount, latency, moment
from trunkline.report.colours import COLOURS

__all__ = ["BYTES", "SEEN", "Column", "Table", "about_others", "count", "ranked", "times", "when"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        title: Its title.
        field: The attribute of a row that it shows.
        format: Formats a value.
        is_text: Whether it is text: aligned to the left, perhaps with several lines.
        is_bad: Whether a value is bad.
        none: The text for a missing value.
    """

    title: str
    field: str
    format: Callable[[Any], str] = str
    is_text: bool = False
    is_bad: Callable[[Any], bool] | None = None
    none: str = ""

    def cell(self, row: object) -> str:
        """The cell of a row."""
        value = getattr(row, self.field)
        return self.none if value is None else self.format(value)

    def marks(self, row: object) -> bool:
        """Whether its value is bad."""
        return self.is_bad is not None and self.is_bad(getattr(row, self.field))


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        key: Its fragment identifier in the page.
        title: Its title.
        columns: Its columns; the first one names the rows.
        rows: The objects of the rows.
        notes: Notes on the columns.
        colour: The colour of a row in plots, by its index; None without one.
        counts: Numbers before the table, each with whether it is bad.
        opens: The details that a click on the first cell of a row shows, texts by name.
    """

    key: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Any]
    notes: str
    colour: Callable[[int], int | None] | None = None
    counts: Sequence[tuple[str, bool]] = ()
    opens: Callable[[Any], Mapping[str, str]] | None = None

    @property
    def titles(self) -> list[str]:
        """The titles of its columns."""
        return [column.title for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """The cells, by row."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def text(self) -> str:
        """The table as lines of text."""
        lines = [self.titles, *self.cells]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        # The first two columns are text, as on the page.
        left = [at < 2 or column.is_text for at, column in enumerate(self.columns)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if is_left else cell.rjust(width)
                for cell, width, is_left in zip(line, widths, left, strict=True)
            ).rstrip()
            for line in lines
        )


def count(title: str, field: str, *, is_bad: bool = False) -> Column:
    """A column of counts; `is_bad` has those above zero marked."""
    return Column(title, field, "{:,}".format, is_bad=_any if is_bad else None)


def _any(number: int | None) -> bool:
    return (number or 0) > 0


def when(title: str, field: str, *, is_text: bool = False) -> Column:
    """A column of times, in nanoseconds since 1970."""
    return Column(f"{title} (UTC)", field, moment, is_text)


# Columns that several tables share: sums of bytes, and the times of the first and the last message.
BYTES = Column("bytes", "bytes", amount)
SEEN = (when("first", "first_received_at_ns"), when("last", "last_received_at_ns"))


def times(marks: Sequence[str]) -> tuple[Column, ...]:
    """Columns of percentiles in nanoseconds, by their names, as ``p50``."""
    return tuple(Column(mark, f"{mark}_ns", latency) for mark in marks)


def about_others(beyond: int, what: str) -> str:
    """The note on a table that had more names than are counted separately."""
    return (
        f" There were more than {Summary.NAMES:,} names: {beyond:,} {what} under the others are counted as of one."
        if beyond
        else ""
    )


def ranked(at: int) -> int:
    """The colour of a row, if the first rows have colours of their own."""
    return min(at, COLOURS)
