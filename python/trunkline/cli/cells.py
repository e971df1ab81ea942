"""How wide text is on a terminal, where a letter of Japanese takes two cells and an accent none."""

from __future__ import annotations

__all__ = ["cut", "padded", "wide"]


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
    """As much of a text as so many cells hold.

    >>> cut("Detector", 5), cut("検出器", 5), cut("Det", 5)
    ('Dete…', '検出…', 'Det')
    """
    if wide(text) <= room:
        return text
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, room - 1)}…" if room > 0 else ""


def padded(text: str, room: int, *, to_right: bool = False) -> str:
    """Text with as many spaces after it as it takes, or before it.

    >>> padded("検出", 6), padded("7", 3, to_right=True)
    ('検出  ', '  7')
    """
    spaces = " " * (room - wide(text))
    return spaces + text if to_right else text + spaces
