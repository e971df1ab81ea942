"""What a role that runs on does, on a terminal, as it does it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trunkline._text import amount, counted, readable, short
from trunkline.cli.display import shown
from trunkline.cli.output import Output, on_terminal
from trunkline.cli.rates import passed

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["is_watched", "watching"]

# How often it is drawn, and for how long rates are kept: a minute, two of them in a column.
_DRAWN_S = 1.0
_KEPT = 60

# How many rows its tables have.
_ROWS = 8

_BARS = "▁▂▃▄▅▆▇█"

# What counters are called where there is room for a word or two, in the order they are shown.
_COUNTERS = {
    "accepted": "accepted",
    "recorded": "recorded",
    "durable": "on disk",
    "segments": "segments",
    "sent": "sent",
    "messages": "messages",
    "contents": "contents",
    "confirmed": "confirmed",
    "requests": "requests",
    "replies": "replies",
    "pulls": "pulls",
    "pushes": "pushes",
    "events": "events",
    "configs": "configurations",
    "queued": "queued",
    "unconfirmed": "unconfirmed",
    "at_risk": "at risk",
    "peers": "peers",
    "clients": "clients",
    "subscriptions": "subscriptions",
    "sessions": "sessions",
    "leases": "leases",
    "memory_bytes": "memory",
    "stored_bytes": "JetStream",
}

# What tells how busy one of several is, whichever it has.
_BUSY = ("messages", "requests", "puts", "in", "sent")

# What nobody wants to see.
_BAD = (
    "missed",
    "lost",
    "capture_lost",
    "refused",
    "turned_away",
    "late",
    "failed",
    "errors",
    "expired",
    "not_found",
    "slow_consumers",
)

Stats: TypeAlias = Callable[[], Any]


@contextmanager
def watching(
    output: Output,
    stats: Stats,
    *,
    doing: str,
    prints: bool = False,
    count: int | None = None,
    counted: str = "received",
    capture: Path | None = None,
) -> Iterator[None]:
    """Shows on a terminal what a role does inside. What is logged meanwhile stands above; standard output is not touched.

    Args:
        output: Where the results go: a terminal that shows them has no panel.
        stats: Gives the counters.
        doing: What the role does.
        prints: Whether there are results but for JSON.
        count: How many there are to be, if anybody knows.
        counted: The counter that tells how far that is.
        capture: What it records into.
    """
    if not is_watched(output, prints=prints):
        yield
        return
    with shown(_Panel(stats, doing, count, counted, capture).drawn, _DRAWN_S):
        yield


def is_watched(output: Output, *, prints: bool = False) -> bool:
    """Whether there is a terminal for a panel, and no results go there."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return is_terminal and not (on_terminal() and (prints or output.json))


class _Panel:
    """The counters of a role, drawn."""

    def __init__(self, stats: Stats, doing: str, count: int | None, counted: str, capture: Path | None) -> None:
        self._stats = stats
        self._doing = doing
        self._count = count
        self._counted = counted
        self._capture = capture
        self._began = self._looked = time.monotonic()
        self._before: Any = None
        self._messages: deque[float] = deque(maxlen=_KEPT)
        self._bytes: deque[float] = deque(maxlen=_KEPT)
        self._shown: RenderableType = ""

    def drawn(self) -> RenderableType:
        """The panel as of now. It is drawn more often than that while its terminal changes its size."""
        now = time.monotonic()
        if self._before is not None and now - self._looked < _DRAWN_S * 0.9:
            return self._shown
        try:
            stats = self._stats()
        except Exception:  # noqa: BLE001 - the role has ended, and the command says why
            return self._shown
        self._shown = self._draw(stats, now - self._looked, now - self._began)
        self._before, self._looked = stats, now
        return self._shown

    def _draw(self, stats: Any, passed_s: float, ran_s: float) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        minutes, seconds = divmod(int(ran_s), 60)
        parts: list[RenderableType] = [
            Text.assemble((self._doing, "bold"), f"  {minutes // 60}:{minutes % 60:02}:{seconds:02}  Ctrl-C stops"),
            self._rates(stats, passed_s),
            Text(" · ".join(self._counters(stats)), overflow="ellipsis", no_wrap=True),
        ]
        bad = list(_bad(stats))
        if bad:
            parts.append(Text("! " + ", ".join(bad), style="red", overflow="ellipsis", no_wrap=True))
        runs = getattr(stats, "runs", None)
        if runs:
            parts.append(Text(f"in a run: {_runs(runs)}", overflow="ellipsis", no_wrap=True))
        parts += _tables(stats, self._before, passed_s)
        if self._count:
            parts.append(_bar(getattr(stats, self._counted, 0), self._count))
        return Group(*parts)

    def _rates(self, stats: Any, passed_s: float) -> RenderableType:
        """How much comes in now, and came in within the last minute; of what only sends, how much goes out."""
        from rich.text import Text

        words, what = "", "message" if _records(stats) is None else "wire message"
        if self._before is not None and passed_s > 0:
            self._messages.append((passed(stats) - passed(self._before)) / passed_s)
            if hasattr(stats, "bytes"):
                self._bytes.append((stats.bytes - self._before.bytes) / passed_s)
            words = f"  {counted(round(self._messages[-1]), what)}/s"
            if self._bytes:
                words += f"  {amount(self._bytes[-1])}/s"
        total = f"  {passed(stats):,} in all" + (f", {amount(stats.bytes)}" if hasattr(stats, "bytes") else "")
        kept = list(self._messages)
        pairs = [sum(kept[at : at + 2]) / len(kept[at : at + 2]) for at in range(0, len(kept), 2)]
        line = Text.assemble((_sparkline(pairs), "cyan"), words, (total, "dim"))
        line.no_wrap, line.overflow = True, "ellipsis"
        return line

    def _counters(self, stats: Any) -> Iterator[str]:
        from trunkline._notices import connections

        if not hasattr(stats, "peers") and not hasattr(stats, "clients"):
            yield counted(connections.open, "connection") if connections.open > 0 else "not connected"
        records = _records(stats)
        if records is not None:
            yield f"records {records:,}"
        for name, words in _COUNTERS.items():
            value = getattr(stats, name, None)
            if isinstance(value, int) and value:
                yield f"{words} {amount(value) if name.endswith('_bytes') else f'{value:,}'}"
        if self._capture is not None:
            try:
                yield f"{amount(shutil.disk_usage(self._capture).free)} free"
            except OSError:
                return


def _bad(stats: Any) -> Iterator[str]:
    dropped = getattr(stats, "dropped", {})
    for kind, number in sorted(dropped.items(), key=lambda item: -item[1]):
        # What a role of CDT tells, it hears itself.
        if kind != "own_event":
            yield f"{number:,} {kind}"
    for name in _BAD:
        value = getattr(stats, name, 0)
        if isinstance(value, int) and value and name not in dropped:
            yield f"{value:,} {name.replace('_', ' ')}"


def _records(stats: Any) -> int | None:
    """How many records the wire messages of CDTP hold; None where each is one."""
    records = sum(sender.messages for sender in getattr(stats, "senders", {}).values())
    return records if records > getattr(stats, "accepted", records) else None


def _runs(runs: Mapping[str, str]) -> str:
    """Runs that are going on, each once, with who is in it."""
    senders: dict[str, list[str]] = {}
    for sender, run in runs.items():
        senders.setdefault(run, []).append(sender)
    return readable("; ".join(f"{run or 'without an id'} ({', '.join(of)})" for run, of in senders.items()))


def _tables(stats: Any, before: Any, passed_s: float) -> Iterator[Table]:
    """A table of each kind of things that are counted one by one: senders, services, topics, resources."""
    for field in dataclasses.fields(stats):
        rows = _rows(getattr(stats, field.name))
        if rows:
            known = {} if before is None else _rows(getattr(before, field.name))
            if field.name == "senders" and _records(stats) is not None:
                rows, known = _counting_records(rows), _counting_records(known)
            yield _table(field.name, rows, known, passed_s)


def _counting_records(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Senders, whose messages are records where not each came in a wire message of its own."""
    return {
        sender: {"records" if name == "messages" else name: value for name, value in counts.items()}
        for sender, counts in rows.items()
    }


def _rows(value: Any) -> dict[str, dict[str, Any]]:
    """What is counted of each, by its name."""
    if isinstance(value, Mapping):
        return {name: _fields(one) for name, one in value.items() if dataclasses.is_dataclass(one)}
    if isinstance(value, Sequence) and value and dataclasses.is_dataclass(value[0]):
        return dict(map(_named, map(_fields, value)))
    return {}


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


def _columns(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The counters there is room for, in their order: those that have counted anything go first."""
    names = [name for name in next(iter(rows.values())) if name != "peers"]
    counting = [name for name in names if any(row[name] for row in rows.values())]
    chosen = [*counting, *(name for name in names if name not in counting)][:6]
    return [name for name in names if name in chosen]


def _table(title: str, rows: dict[str, dict[str, Any]], before: dict[str, dict[str, Any]], passed_s: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    columns = _columns(rows)
    main = next((name for name in _BUSY if name in columns), columns[0])
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(title.removesuffix("s"), no_wrap=True, overflow="ellipsis", max_width=28)
    for name in (*columns, "/s"):
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)

    def rate(name: str) -> float:
        earlier = before.get(name, {}).get(main, 0) or 0
        return ((rows[name][main] or 0) - earlier) / passed_s if before and passed_s > 0 else 0.0

    busiest = sorted(rows, key=lambda name: (-rate(name), -(rows[name][main] or 0), name))
    for name in busiest[:_ROWS]:
        cells = []
        for column in columns:
            value = rows[name][column] or 0
            text = amount(value) if column.endswith("bytes") else f"{value:,}"
            cells.append(Text(text, style="red" if value and column in ("missed", "rejected", "expired") else ""))
        table.add_row(Text(readable(name) or "(empty name)"), *cells, short(rate(name)))
    if len(rows) > _ROWS:
        table.add_row(Text(f"and {len(rows) - _ROWS:,} more", style="dim"))
    return table


def _bar(done: int, total: int) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=total, completed=min(done, total), width=40), f"{done:,} of {total:,}")
    return grid


def _sparkline(values: Sequence[float]) -> str:
    """Numbers as a row of bars, the largest as high as a letter unless all are small: a heartbeat a second is no load.

    >>> _sparkline([0, 5, 10]), _sparkline([0, 1])
    ('▁▅█', '▁▂')
    """
    most = max([*values, len(_BARS) - 1])
    return "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in values)
