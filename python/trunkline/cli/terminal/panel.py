"""A live panel of a running role, on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trunkline._metrics.counters import NO_FAULTS
from trunkline._text import amount, counted, readable
from trunkline.cli.terminal.cells import cut, wide
from trunkline.cli.terminal.display import shown
from trunkline.cli.terminal.output import Output, on_terminal
from trunkline.cli.terminal.panel_tables import tables
from trunkline.cli.terminal.rates import messages, passed, records_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

__all__ = ["is_watched", "watching"]

# How often it is drawn, and how many rates are kept: a minute, two in a column.
_DRAWN_S = 1.0
_KEPT = 60

_BARS = "▁▂▃▄▅▆▇█"

# Short names of counters, in the order in which they are shown.
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
    "services": "services",
    "sessions": "sessions",
    "leases": "leases",
    "memory_bytes": "memory",
    "stored_bytes": "JetStream",
}

# Counters of roles that count their peers themselves, or have no connections, as CHIRP over UDP.
_WITHOUT_CONNECTIONS = ("peers", "clients", "ignored")

# Counters that are shown in red.
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
    """Shows the counters of a role on a terminal, below the log; standard output is not touched.

    Args:
        output: Where the results go: a terminal that shows them has no panel.
        stats: Gives the counters.
        doing: What the role does.
        prints: Whether there are results without JSON too.
        count: How many messages are expected, if known.
        counted: The counter that is compared with `count`.
        capture: The capture that it records into.
    """
    if not is_watched(output, prints=prints):
        yield
        return
    with shown(_Panel(stats, doing, count, counted, capture).drawn, _DRAWN_S):
        yield


def is_watched(output: Output, *, prints: bool = False) -> bool:
    """Whether there is a terminal for a panel, without results on it."""
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
        """The current panel, computed at most once per interval: Rich draws more often while the terminal is resized."""
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
            _Line(list(self._counters(stats)), " · "),
        ]
        bad = list(_bad(stats))
        if bad:
            parts.append(_Line([f"! {bad[0]}", *bad[1:]], ", ", style="red"))
        runs = getattr(stats, "runs", None)
        if runs:
            parts.append(_Line([f"in a run: {_runs(runs)}"]))
        parts += tables(stats, self._before, passed_s)
        if self._count:
            parts.append(_bar(getattr(stats, self._counted, 0), self._count))
        return Group(*parts)

    def _rates(self, stats: Any, passed_s: float) -> RenderableType:
        """The rate of messages, with a sparkline of the last minute: received ones, or sent ones of a role that only sends."""
        parts, records = [], records_of(stats)
        if self._before is not None and passed_s > 0:
            self._messages.append((passed(stats) - passed(self._before)) / passed_s)
            if hasattr(stats, "bytes"):
                self._bytes.append((stats.bytes - self._before.bytes) / passed_s)
            if records is not None:
                rate = (messages(stats) - messages(self._before)) / passed_s
                parts.append(f"{counted(round(rate), 'record')}/s")
            what = "message" if records is None else "wire message"
            parts.append(f"{counted(round(self._messages[-1]), what)}/s")
            if self._bytes:
                parts.append(f"{amount(self._bytes[-1])}/s")
        total = f"{passed(stats):,} in all" + (f", {amount(stats.bytes)}" if hasattr(stats, "bytes") else "")
        kept = list(self._messages)
        pairs = [sum(kept[at : at + 2]) / len(kept[at : at + 2]) for at in range(0, len(kept), 2)]
        return _Line([*parts, total], "  ", bars=_sparkline(pairs))

    def _counters(self, stats: Any) -> Iterator[str]:
        from trunkline._roles.notices import connections

        if not any(hasattr(stats, name) for name in _WITHOUT_CONNECTIONS):
            yield counted(connections.open, "connection") if connections.open > 0 else "not connected"
        records = records_of(stats)
        if records is not None:
            yield f"records {records:,}"
        if self._capture is not None:
            with suppress(OSError):
                yield f"{amount(shutil.disk_usage(self._capture).free)} free"
        for name, words in _COUNTERS.items():
            value = getattr(stats, name, None)
            # `recorded` equals `accepted` unless something was malformed.
            is_redundant = name == "accepted" and value == getattr(stats, "recorded", None)
            if isinstance(value, int) and value and not is_redundant:
                yield f"{words} {amount(value) if name.endswith('_bytes') else f'{value:,}'}"


def _bad(stats: Any) -> Iterator[str]:
    dropped = getattr(stats, "dropped", {})
    for kind, number in sorted(dropped.items(), key=lambda item: -item[1]):
        if kind not in NO_FAULTS:
            yield f"{number:,} {kind}"
    for name in _BAD:
        value = getattr(stats, name, 0)
        if isinstance(value, int) and value and name not in dropped:
            yield f"{value:,} {name.replace('_', ' ')}"


def _runs(runs: Mapping[str, str]) -> str:
    """The runs in progress, each once, with its senders."""
    senders: dict[str, list[str]] = {}
    for sender, run in runs.items():
        senders.setdefault(run, []).append(sender)
    return readable("; ".join(f"{run or 'without an id'} ({', '.join(of)})" for run, of in senders.items()))


@dataclass(frozen=True, slots=True)
class _Line:
    """Parts in a line, as many as fit; only the first may be cut.

    Attributes:
        parts: The parts, the most important first.
        between: The separator.
        style: How Rich is to show them.
        bars: A plot to their left, cut to the room that they leave.
    """

    parts: Sequence[str]
    between: str = ""
    style: str = ""
    bars: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        room = options.max_width
        shown, *more = self.parts
        for at, part in enumerate(more, 2):
            longer = shown + self.between + part
            if wide(longer) + (len(" …") if at < len(self.parts) else 0) > room:
                shown += " …"
                break
            shown = longer
        shown = cut(shown, room)
        left = room - wide(shown) - 2
        bars = self.bars[-left:] if left > 0 else ""
        yield Text.assemble((bars, "cyan"), "  " if bars else "", (shown, self.style))


def _bar(done: int, total: int) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(max_width=40)
    grid.add_column(no_wrap=True)
    grid.add_row(ProgressBar(total=total, completed=min(done, total)), f"{done:,} of {total:,}")
    return grid


def _sparkline(values: Sequence[float]) -> str:
    """Numbers as a row of bars, the largest of full height unless all are small: a heartbeat a second is no load.

    >>> _sparkline([0, 5, 10]), _sparkline([0, 1])
    ('▁▅█', '▁▂')
    """
    most = max([*values, len(_BARS) - 1])
    return "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in values)
