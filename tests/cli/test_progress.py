"""Progress on a terminal."""

from __future__ import annotations

import io
import sys

import pytest
from rich.text import Text

from trunkline.cli.terminal.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", ["[/x]", "run[/1]", "[red]", "[bold]temp[/bold]", ":smile:", "{task}", "[link=x]y[/]"])
def test_a_name_is_shown_as_it_is(monkeypatch, name):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress(f"asking {name}", 3) as progress:
        progress.at(1)
    shown = Text.from_ansi(terminal.getvalue()).plain
    assert f"asking {name} " in shown
    assert "1/3" in shown
