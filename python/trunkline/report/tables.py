"""What a table of a report is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trunkline._native.analysis import Summary
from trunkline._text import amount, latency, moment
from trunkline.report.colours import COLOURS

__all__ = ["BYTES", "SEEN", "Column", "Table", "about_others", "count", "not_listed", "ranked", "times", "when"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        title: What it is called.
        field: The attribute of a row that it shows.
        format: How a value is written.
        is_text: Whether it is read, rather than compared: it is at the left, and may have several lines.
        is_bad: Whether a value is not what one wants.
        none: What it shows where there is no value.
    """

    title: str
    field: str
    format: Callable[[Any], str] = str
    is_text: bool = False
    is_bad: Callable[[Any], bool] | None = None
    none: str = ""

    def cell(self, row: object) -> str:
        """What it shows of a row."""
        value = getattr(row, self.field)
        return self.none if value is None else self.format(value)

    def marks(self, row: object) -> bool:
        """Whether its value is not what one wants."""
        return self.is_bad is not None and self.is_bad(getattr(row, self.field))


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        key: Its place in the page, as an address has it after `#`.
        title: What it is called.
        columns: Its columns; the first one says what a row is of.
        rows: What the rows are of.
        notes: What there is to know of the columns.
        colour: Which colour a row has in plots, by its index: None for one that has none.
        counts: Numbers before the table, each with whether it is bad.
        opens: What a click on the first cell of a row shows, texts by their names.
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
        """What it shows, by row."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def text(self) -> str:
        """The table as lines of text."""
        lines = [self.titles, *self.cells]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        # The first two are read, as on the page.
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
    """A column of moments, in nanoseconds since 1970."""
    return Column(f"{title} (UTC)", field, moment, is_text)


# Columns that several tables have: sums of bytes, and when something was seen first and last.
BYTES = Column("bytes", "bytes", amount)
SEEN = (when("first", "first_received_at_ns"), when("last", "last_received_at_ns"))


def times(marks: Sequence[str]) -> tuple[Column, ...]:
    """Columns of percentiles in nanoseconds, by their names, as ``p50``."""
    return tuple(Column(mark, f"{mark}_ns", latency) for mark in marks)


def not_listed(number: int, what: str) -> str:
    """How many there are beside those in a table, as a sentence."""
    return f" {number:,} {what} are not listed." if number else ""


def about_others(beyond: int, what: str) -> str:
    """The note on a table that had more names than are counted separately."""
    return (
        f" There were more than {Summary.NAMES:,} names: {beyond:,} {what} under the others are counted as of one."
        if beyond
        else ""
    )


def ranked(at: int) -> int:
    """The colour of a row, where those that come first have one of their own."""
    return min(at, COLOURS)
