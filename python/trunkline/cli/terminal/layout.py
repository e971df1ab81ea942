"""Fits tables into a width: times lose their seconds, then names are shortened, then columns are left out. Numbers stay whole."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trunkline._conditions import GOOD, IN_PROGRESS, condition_text
from trunkline.cli.terminal.cells import cut, padded, shortened, wide

__all__ = ["BAD", "Table", "is_bad", "laid_out"]

# More digits are a name.
_NUMBER = re.compile(r"-?\d[\d.,]{0,25}( \w{1,3})?")
# Counts of several things, as of kinds of errors.
_COUNTS = re.compile(r"\d[\d.,]* \w+(, \d[\d.,]* \w+)*")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d):\d\d(?:\.\d+)?(Z?)")
_EMPTY = {"", "-"}

_NOT_BAD = {GOOD, condition_text(IN_PROGRESS, "|")}

# Columns that should be zero.
BAD = {"missed", "missing", "again", "late", "rejected", "expired", "malformed"}

# The least width of a name, before a column is left out.
_LEAST = 12

_GAP = 2


def is_bad(column: str, cell: str) -> bool:
    """Whether a cell shows a failure: a count of failures that is not 0, or a condition that is bad."""
    return (column in BAD and cell not in {*_EMPTY, "0"}) or (column == "condition" and cell not in _NOT_BAD)


@dataclass(frozen=True, slots=True)
class Table:
    """A table that fits its width.

    Attributes:
        columns: The columns that are shown.
        left_out: The columns without room.
        lines: The head and then the rows, each cell as wide as its column; text to the left, numbers to the right.
        room: The cells of a line.
    """

    columns: Sequence[str]
    left_out: Sequence[str]
    lines: Sequence[Sequence[str]]
    room: int

    @property
    def notes(self) -> list[str]:
        """The notes below it."""
        text = f"not shown for lack of room: {', '.join(self.left_out)}"
        return textwrap.wrap(text, max(self.room, 1), break_on_hyphens=False) if self.left_out else []


def laid_out(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int, least: Sequence[str] = ()) -> Table:
    """Fits a table into a width.

    Args:
        columns: The head of each column. The first, which names the rows, is always shown.
        rows: Their cells.
        room: The cells of a line.
        least: The least important columns, in the order in which they are left out; the others follow from the right.
    """
    cells = zip(*rows, strict=True) if rows else [()] * len(columns)
    # The first column, which names the rows, may be anything.
    kept = {
        head: _Column(head, of, (_NUMBER, _COUNTS) if at else (_NUMBER,))
        for at, (head, of) in enumerate(zip(columns, cells, strict=True))
    }
    going = [*(head for head in least if head in kept), *(head for head in columns[:0:-1] if head not in least)]
    left_out = []
    while going and _total(column.least for column in kept.values()) > room:
        left_out.append(going.pop(0))
        del kept[left_out[-1]]
    shown = list(kept.values())
    if _total(column.width for column in shown) > room:
        for column in shown:
            column.lose_seconds()
        widths = _shortened(shown, room)
    else:
        widths = [column.width for column in shown]
    lines = [
        [column.cell(at, width) for column, width in zip(shown, widths, strict=True)] for at in range(-1, len(rows))
    ]
    return Table(list(kept), [head for head in columns if head in left_out], lines, room)


class _Column:
    """A column of numbers, of times, or of names with some cells that stay whole."""

    def __init__(self, head: str, cells: Sequence[str], whole: Sequence[re.Pattern[str]]) -> None:
        self.head = head
        self.cells = cells
        self._whole = whole
        self.is_number = _all(_NUMBER, cells)
        self._is_moment = _all(_MOMENT, cells)
        self.is_name = not self.is_number and not self._is_moment
        self.width = self._width()

    @property
    def least(self) -> int:
        """Its least width: numbers, dates and heads stay whole."""
        if self.is_name:
            numbers = (cell for cell in self.cells if any(known.fullmatch(cell) for known in self._whole))
            return max(min(self.width, _LEAST), *map(wide, (self.head, *numbers)))
        return max(map(wide, (self.head, *map(_without_seconds, self.cells))))

    def lose_seconds(self) -> None:
        """Leaves out the seconds of times."""
        if self._is_moment:
            self.cells = list(map(_without_seconds, self.cells))
            self.width = self._width()

    def cell(self, row: int, width: int) -> str:
        """A cell, padded to the width; row -1 is the head."""
        text = cut(self.head, width) if row < 0 else shortened(self.cells[row], width)
        return padded(text, width, to_right=self.is_number)

    def _width(self) -> int:
        return max(map(wide, (self.head, *self.cells)))


def _shortened(columns: Sequence[_Column], room: int) -> list[int]:
    """Widths that fit: the widest names are shortened down to their least width; a single column as far as needed."""
    widths = [min(column.width, room) if column.is_name else column.width for column in columns]
    least = [1 if len(columns) == 1 else column.least for column in columns]
    while _total(widths) > room:
        yielding = [at for at, column in enumerate(columns) if column.is_name and widths[at] > least[at]]
        if not yielding:
            break
        widths[max(yielding, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: Iterable[int]) -> int:
    """The width of a line of such columns."""
    found = list(widths)
    return sum(found) + _GAP * (len(found) - 1)


def _all(pattern: re.Pattern[str], cells: Sequence[str]) -> bool:
    """Whether there are non-empty cells, and all of them match."""
    filled = [cell for cell in cells if cell not in _EMPTY]
    return bool(filled) and all(map(pattern.fullmatch, filled))


def _without_seconds(cell: str) -> str:
    return _MOMENT.sub(r"\1\2", cell)
