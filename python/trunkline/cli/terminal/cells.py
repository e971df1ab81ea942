"""The width of text on a terminal, where a Japanese character takes two cells and an accent none."""

from __future__ import annotations

import re

__all__ = ["cut", "padded", "shortened", "wide"]

# A number with its unit that is not part of a name; more digits are a name.
_NUMBER = re.compile(r"(?<![\w.,])-?\d[\d.,]{0,25}(?!\d)(?: [kMGT]?B\b| [mµn]?s\b| min\b)?")


def wide(text: str) -> int:
    """How many cells text takes.

    >>> wide("Det"), wide("検出器")
    (3, 6)
    """
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, room: int) -> str:
    """Cuts a text to so many cells. A number is never cut, as its part would be another number.

    >>> cut("Detector", 5), cut("検出器", 5), cut("Det", 5), cut("sent 1,500", 9)
    ('Dete…', '検出…', 'Det', 'sent …')
    """
    if wide(text) <= room:
        return text
    return f"{text[: _held(text, room - 1)]}…" if room > 0 else ""


def shortened(name: str, room: int) -> str:
    """Shortens a name to so many cells, and keeps both ends, as names often differ at the end.

    >>> shortened("Digitizer.ch1", 9), shortened("Digitizer", 9)
    ('Digi….ch1', 'Digitizer')
    """
    if wide(name) <= room or room < 3:
        return cut(name, room)
    backwards = name[::-1]
    at = len(name) - _held(backwards, (room - 1) // 2, whole=False)
    at = next((found.end() for found in _NUMBER.finditer(name) if found.start() < at < found.end()), at)
    end = name[at:]
    return f"{name[: _held(name, room - 1 - wide(end))]}…{end}"


def _held(text: str, room: int, *, whole: bool = True) -> int:
    """How many characters fit into so many cells; if `whole`, without a part of a number."""
    from rich.cells import set_cell_size

    kept = set_cell_size(text, room)
    # Half a wide character is a space.
    end = len(kept) if text.startswith(kept) else len(kept) - 1
    numbers = (found.start() for found in _NUMBER.finditer(text) if found.start() < end < found.end())
    return next(numbers, end) if whole else end


def padded(text: str, room: int, *, to_right: bool = False) -> str:
    """Pads a text with spaces after it, or before it.

    >>> padded("検出", 6), padded("7", 3, to_right=True)
    ('検出  ', '  7')
    """
    spaces = " " * (room - wide(text))
    return spaces + text if to_right else text + spaces
