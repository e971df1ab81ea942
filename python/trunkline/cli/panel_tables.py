"""The tables of a panel: what is counted one by one, senders, services, topics or resources, as far as its terminal has room."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trunkline._text import OWN, amount, readable, short
from trunkline.cli.rates import records_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

__all__ = ["tables"]

# How many rows and counters a table has at most.
_ROWS = 8
_COLUMNS = 6

# How wide a column of names is at most, and how much of them is to be seen before another counter is.
_NAMES = 28
_LEAST_OF_NAMES = 12

_GAP = 2

# What tells how busy one of several is, whichever it has.
_BUSY = ("messages", "requests", "puts", "in", "sent")

# What nobody wants to see.
_BAD = ("missed", "rejected", "expired")


def tables(stats: Any, before: Any, passed_s: float) -> Iterator[_Counted]:
    """A table of each kind of things that are counted one by one."""
    for field in dataclasses.fields(stats):
        rows = _rows(getattr(stats, field.name))
        if rows:
            known = {} if before is None else _rows(getattr(before, field.name))
            if field.name == "senders" and records_of(stats) is not None:
                rows, known = _counting_records(rows), _counting_records(known)
            yield _Counted(field.name.removesuffix("s"), rows, known, passed_s)


def _counting_records(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Senders, whose messages are records where not each came in a wire message of its own."""
    return {
        sender: {"records" if name == "messages" else name: value for name, value in counts.items()}
        for sender, counts in rows.items()
    }


def _rows(value: Any) -> dict[str, dict[str, Any]]:
    """What is counted of each, by its name."""
    rows = {}
    if isinstance(value, Mapping):
        rows = {name: _fields(one) for name, one in value.items() if dataclasses.is_dataclass(one)}
    elif isinstance(value, Sequence) and value and dataclasses.is_dataclass(value[0]):
        rows = dict(map(_named, map(_fields, value)))
    return {name: counts for name, counts in rows.items() if not name.startswith(OWN)}


def _fields(one: Any) -> dict[str, Any]:
    return {field.name.rstrip("_"): getattr(one, field.name) for field in dataclasses.fields(one)}


def _named(fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What is counted of one, whose name is all of it that is text."""
    names = filter(None, map(_name, fields.values()))
    return " ".join(names), {name: value for name, value in fields.items() if _name(value) is None}


def _name(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class _Counted:
    """A table that leaves out counters where its terminal has no room for them, and never a part of one."""

    title: str
    rows: dict[str, dict[str, Any]]
    before: dict[str, dict[str, Any]]
    passed_s: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        names = {name: readable(name) or "(empty name)" for name in self._busiest()}
        more = f"and {len(self.rows) - _ROWS:,} more" if len(self.rows) > _ROWS else ""
        cells = {column: [_cell(column, self.rows[name][column]) for name in names] for column in self._important()}
        rates = [short(self._rate(name)) for name in names]
        widths = {column: max(len(_head(column)), *map(len, texts)) for column, texts in cells.items()}
        wide = min(max(map(cell_len, (self.title, more, *names.values()))), _NAMES)
        room = options.max_width - max(map(len, ("/s", *rates))) - _GAP
        shown: list[str] = []
        for column, width in widths.items():
            if room - width - _GAP < min(wide, _LEAST_OF_NAMES):
                break
            shown.append(column)
            room -= width + _GAP
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
        table.add_column(self.title, no_wrap=True, overflow="ellipsis", width=max(min(wide, room), 1))
        ordered = [column for column in next(iter(self.rows.values())) if column in shown]
        for column in (*ordered, "/s"):
            table.add_column(_head(column), justify="right", no_wrap=True)
        for at, (name, text) in enumerate(names.items()):
            counts = [
                Text(cells[column][at], style="red" if column in _BAD and self.rows[name][column] else "")
                for column in ordered
            ]
            table.add_row(Text(text), *counts, rates[at])
        if more:
            table.add_row(Text(more, style="dim"))
        yield table

    @property
    def _main(self) -> str:
        """The counter that says how busy one is."""
        columns = next(iter(self.rows.values()))
        return next((name for name in _BUSY if name in columns), next(iter(columns)))

    def _important(self) -> list[str]:
        """Its counters, the most important first: how busy, what is bad, what has counted anything, and the others."""
        names = [name for name in next(iter(self.rows.values())) if name != "peers"]
        counting = {name for name in names if any(row[name] for row in self.rows.values())}

        def rank(name: str) -> int:
            return 0 if name == self._main else 3 if name not in counting else 1 if name in _BAD else 2

        return sorted(names, key=rank)[:_COLUMNS]

    def _busiest(self) -> list[str]:
        def order(name: str) -> tuple[float, int, str]:
            return -self._rate(name), -(self.rows[name][self._main] or 0), name

        return sorted(self.rows, key=order)[:_ROWS]

    def _rate(self, name: str) -> float:
        earlier = self.before.get(name, {}).get(self._main, 0) or 0
        passes = bool(self.before) and self.passed_s > 0
        return ((self.rows[name][self._main] or 0) - earlier) / self.passed_s if passes else 0.0


def _head(column: str) -> str:
    return column.replace("_", " ")


def _cell(column: str, value: int | None) -> str:
    return amount(value or 0) if column.endswith("bytes") else f"{value or 0:,}"
