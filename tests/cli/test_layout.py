"""Tables in any width: what is shortened, what is left out, and that no number is cut."""

from __future__ import annotations

import io
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from trunkline.cli.terminal import output as output_module
from trunkline.cli.terminal.cells import cut, shortened
from trunkline.cli.terminal.layout import laid_out
from trunkline.cli.terminal.output import Output

RUNS = ("sender", "run", "condition", "messages", "first (UTC)", "took")
ROWS = [
    ("Satellite.with.a.rather.long.name", "1", "GOOD", "1,234,567", "2026-11-21 08:52:05", "1.5 min"),
    ("D", "12", "INCOMPLETE|ABORTED", "3", "", "850 ns"),
]


def text(width, least=()):
    return ["  ".join(line) for line in laid_out(RUNS, ROWS, width, least).lines]


def test_what_fits_is_whole():
    head, first, second = text(120)
    assert head.split() == ["sender", "run", "condition", "messages", "first", "(UTC)", "took"]
    assert all(cell in first for cell in ROWS[0])
    assert all(cell in second for cell in ROWS[1])
    assert "not" not in "".join(laid_out(RUNS, ROWS, 120).notes)


def test_times_lose_seconds_first():
    natural = max(map(len, text(200)))
    (first,) = [line for line in text(natural - 1) if "Satellite" in line]
    assert "2026-11-21 08:52  " in first
    assert "Satellite.with.a.rather.long.name" in first


def test_then_names_are_shortened():
    (first,) = [line for line in text(80) if "Satel" in line]
    assert re.match(r"Satel\S*…\S*name  ", first)
    assert "2026-11-21 08:52  " in first
    assert laid_out(RUNS, ROWS, 80).left_out == []


def test_then_the_least_important_columns_go():
    assert laid_out(RUNS, ROWS, 50).left_out == ["first (UTC)", "took"]
    assert laid_out(RUNS, ROWS, 50, ("messages", "run")).left_out == ["run", "messages", "took"]
    assert laid_out(RUNS, ROWS, 42).notes == ["not shown for lack of room: first (UTC),", "took"]


def test_counts_of_kinds_are_whole_or_not_there():
    rows = [("Detector.one", "12,345", "8 bad_header, 25 truncated_header")]
    assert [line[2].strip() for line in laid_out(("sender", "messages", "malformed"), rows, 60).lines][1] == rows[0][2]
    assert laid_out(("sender", "messages", "malformed"), rows, 40).left_out == ["malformed"]


names = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=40)
numbers = st.one_of(
    st.integers(0, 10**15).map("{:,}".format),
    st.floats(0, 1000).map("{:.1f} MB".format),
    st.just("1.5 ms"),
    st.just(""),
)
moments = st.datetimes().map(lambda moment: moment.isoformat(" ", "seconds"))


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from([names, numbers, moments]), max_size=11))
    rows = draw(st.lists(st.tuples(names, *kinds), max_size=5))
    return [f"column {at}" for at in range(len(kinds) + 1)], rows, [kind is numbers for kind in (names, *kinds)]


@given(tables(), st.integers(30, 200))
def test_no_number_is_cut_at_any_width(table, width):
    columns, rows, are_numbers = table
    laid = laid_out(columns, rows, width)
    assert {*laid.columns, *laid.left_out} == set(columns)
    for line, row in zip(laid.lines[1:], rows, strict=True):
        shown = dict(zip(laid.columns, line, strict=True))
        for column, cell, is_number in zip(columns, row, are_numbers, strict=True):
            if is_number and column in shown:
                assert shown[column].strip() == cell
    for line in laid.lines:
        assert cell_len("  ".join(line)) <= max(width, len("column 0"))
    assert all(len(note) <= width for note in laid.notes)


@given(st.lists(st.one_of(names, st.integers(0, 10**12).map("{:,}".format)), min_size=1), st.integers(1, 100))
def test_a_line_that_is_cut_has_whole_numbers(words, room):
    line = " ".join(words)
    shown = cut(line, room)
    assert cell_len(shown) <= room
    if shown != line:
        kept = shown.removesuffix("…")
        assert line.startswith(kept)
        number, rest = re.search(r"(?<!\S)\d[\d,]*$", kept), re.match(r"[\d,]*\d", line[len(kept) :])
        # More than 26 digits are a name.
        assert number is None or rest is None or len(number[0] + rest[0]) > 26


@given(names, st.integers(1, 40))
def test_a_name_that_is_shortened_keeps_its_ends(name, room):
    shown = shortened(name, room)
    assert cell_len(shown) <= room
    if shown != name:
        start, _, end = shown.partition("…")
        assert name.startswith(start)
        assert name.endswith(end)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("width", "has_colours"), [(40, True), (80, False), (120, True)])
def test_a_table_is_as_wide_as_the_terminal(monkeypatch, width, has_colours):
    terminal = Terminal()
    monkeypatch.setattr(output_module, "on_terminal", lambda: True)
    monkeypatch.setattr(output_module, "reconfigure", lambda **_: None)
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm" if has_colours else "dumb")
    monkeypatch.delenv("NO_COLOR", raising=False)
    Output(json=False).table(RUNS, ROWS, ("run",))
    lines = re.sub(r"\x1b\[\d*m", "", terminal.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert ("\x1b[31mINCO" in terminal.getvalue()) == has_colours
    assert any("not shown for lack of room: run" in line for line in lines) == (width == 40)


def test_a_table_in_a_file_is_whole(capsys, monkeypatch):
    monkeypatch.setitem(os.environ, "COLUMNS", "30")
    Output(json=False).table(RUNS, ROWS)
    assert "2026-11-21 08:52:05" in capsys.readouterr().out
