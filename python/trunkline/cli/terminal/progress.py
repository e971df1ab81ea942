"""Progress, on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from trunkline._text import readable
from trunkline.cli.terminal.output import on_terminal
from trunkline.cli.terminal.stderr import note

__all__ = ["Progress"]

# When plain lines begin, and how often they come.
_FIRST_LINE_S = 5.0
_LINE_EVERY_S = 10.0


class Progress:
    """The progress of a command.

    Args:
        doing: What it does.
        total: How much there is to do; None if unknown.
    """

    def __init__(self, doing: str, total: int | None) -> None:
        self._doing = readable(doing)
        self._total = total
        self._bar: Any = None
        self._next_line = time.monotonic() + _FIRST_LINE_S

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            # Names of users are no markup.
            what = TextColumn("{task.description}", markup=False)
            columns = (what, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            # Standard output is printed above the bar if it is a terminal.
            above = on_terminal()
            self._bar = Bar(
                *columns, console=Console(stderr=True, markup=False, emoji=False), transient=True, redirect_stdout=above
            )
            self._task = self._bar.add_task(self._doing, total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, done: int, total: int | None = None) -> None:
        """Shows how much is done, and the total if it is known only now."""
        self._total = total or (self._total and max(self._total, done))
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=self._total)
        elif (
            time.monotonic() >= self._next_line and done != self._total
        ):  # the command's last line says that all is done
            self._next_line = time.monotonic() + _LINE_EVERY_S
            of = "" if self._total is None else f" of {self._total:,}"
            note(f"{self._doing}: {done:,}{of}")
