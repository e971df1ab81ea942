"""The tables of a panel: counters of senders, services, topics or resources, as far as the terminal has room."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trunkline._text import OWN, amount, readable, short
from trunkline.cli.terminal.cells import shortened
from trunkline.cli.terminal.layout import BAD, is_bad, laid_out
from trunkline.cli.terminal.rates import records_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

__all__ = ["tables"]

# The most rows and counters of a table.
_ROWS = 8
_COLUMNS = 6

# The largest width of a column of names.
_NAMES = 28

# Counters that measure activity; the first one that a row has counts.
_BUSY = ("messages", "requests", "puts", "in", "sent")


def tables(stats: Any, before: Any, passed_s: float) -> Iterator[_Counted]:
    """A table for each group of counters with rows."""
    for field in dataclasses.fields(stats):
        rows = _rows(getattr(stats, field.name))
        if rows:
            known = {} if before is None else _rows(getattr(before, field.name))
            if field.name == "senders" and records_of(stats) is not None:
                rows, known = _counting_records(rows), _counting_records(known)
            yield _Counted(field.name.removesuffix("s"), rows, known, passed_s)


def _counting_records(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Senders, with "records" in place of "messages" if a wire message may carry several."""
    return {
        sender: {"records" if name == "messages" else name: value for name, value in counts.items()}
        for sender, counts in rows.items()
    }


def _rows(value: Any) -> dict[str, dict[str, Any]]:
    """The counters of each row, by its name."""
    rows = {}
    if isinstance(value, Mapping):
        rows = {name: _fields(one) for name, one in value.items() if dataclasses.is_dataclass(one)}
    elif isinstance(value, Sequence) and value and dataclasses.is_dataclass(value[0]):
        rows = dict(map(_named, map(_fields, value)))
    return {name: counts for name, counts in rows.items() if not name.startswith(OWN)}


def _fields(one: Any) -> dict[str, Any]:
    return {field.name.rstrip("_"): getattr(one, field.name) for field in dataclasses.fields(one)}


def _named(fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a row, which is all its text, and its counters."""
    names = filter(None, map(_name, fields.values()))
    return " ".join(names), {name: value for name, value in fields.items() if _name(value) is None}


def _name(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class _Counted:
    """A table that leaves out counters that do not fit the terminal."""

    title: str
    rows: dict[str, dict[str, Any]]
    before: dict[str, dict[str, Any]]
    passed_s: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        names = self._busiest()
        important = self._important()
        ordered = [column for column in next(iter(self.rows.values())) if column in important]
        rows = [
            [
                shortened(readable(name) or "(empty name)", _NAMES),
                *(_cell(column, self.rows[name][column]) for column in ordered),
                short(self._rate(name)),
            ]
            for name in names
        ]
        table = laid_out(
            (self.title, *map(_head, ordered), "/s"), rows, options.max_width, [_head(name) for name in important[::-1]]
        )
        head, *lines = table.lines
        yield Text("  ".join(head), style="dim")
        for line in lines:
            styles = [
                "red" if is_bad(column, cell.strip()) else "" for column, cell in zip(table.columns, line, strict=True)
            ]
            yield Text("  ").join(map(Text, line, styles))
        more = [f"and {len(self.rows) - _ROWS:,} more"] if len(self.rows) > _ROWS else []
        for note in (*more, *table.notes):
            yield Text(note, style="dim")

    @property
    def _main(self) -> str:
        """The counter of activity."""
        columns = next(iter(self.rows.values()))
        return next((name for name in _BUSY if name in columns), next(iter(columns)))

    def _important(self) -> list[str]:
        """Its counters, the most important first: activity, failures, others that are not 0, and the rest."""
        names = [name for name in next(iter(self.rows.values())) if name != "peers"]
        counting = {name for name in names if any(row[name] for row in self.rows.values())}

        def rank(name: str) -> int:
            return 0 if name == self._main else 3 if name not in counting else 1 if name in BAD else 2

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
