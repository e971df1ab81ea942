"""Data to send: from arguments, from files, and from standard input."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trunkline.cli.process.waiting import LOOK_S

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["STDIN", "given", "lines", "parts", "stands_for_stdin", "stdin"]

# Stands for standard input among files or data.
STDIN = "-"


def given(data: Sequence[str]) -> list[bytes]:
    """The data of arguments: literal, or the contents of a file for @FILE; @@ stands for one @.

    Raises:
        OSError: A file cannot be read.
    """
    return [
        Path(part[1:]).read_bytes()
        if part.startswith("@") and not part.startswith("@@")
        else os.fsencode(part[1:] if part.startswith("@@") else part)
        for part in data
    ]


def parts(data: Sequence[str]) -> list[bytes]:
    """As `given`; - is all of standard input.

    Raises:
        OSError: A file cannot be read.
    """
    if data.count(STDIN) > 1:
        message = f"{STDIN} is standard input: give it only once."
        raise typer.BadParameter(message, param_hint="DATA")
    # Checked before files are read: a file may hold just a hyphen.
    return [stdin().read() if part == STDIN else given([part])[0] for part in data]


def stands_for_stdin(data: Sequence[bytes], count: int | None, one: str) -> bool:
    """Whether to send the lines of standard input; refuses that together with other data."""
    is_stdin = list(data) == [b"-"]
    if b"-" in data and not is_stdin:
        message = f"- must be the only DATA: it is standard input, one {one} per line."
        raise typer.BadParameter(message, param_hint="DATA")
    if is_stdin and count is not None:
        message = f"--count cannot be combined with -: each line of standard input is one {one}."
        raise typer.BadParameter(message)
    return is_stdin


def lines(goes_on: Callable[[], bool] = lambda: True) -> Iterator[bytes]:
    """The lines of standard input, until its end.

    Args:
        goes_on: Called many times a second; false ends the iteration, and an incomplete line is dropped.
    """
    if sys.stdin is None:
        return
    fd = sys.stdin.fileno()
    rest = bytearray()
    while goes_on():
        ready, _, _ = select.select([fd], [], [], LOOK_S)
        if not ready:
            continue
        data = os.read(fd, 1 << 16)
        if not data:
            if rest:
                yield bytes(rest)
            return
        # Search only the new data: a line may be very long.
        end, *more = data.split(b"\n")
        rest += end
        for line in more:
            yield bytes(rest.removesuffix(b"\r"))
            rest = bytearray(line)


def stdin(look_up: Callable[[], object] = lambda: None) -> io.BufferedReader:
    """Standard input as a file.

    Args:
        look_up: Called many times a second during a wait; its exception ends the wait.
    """
    return io.BufferedReader(_Stdin(look_up))


class _Stdin(io.RawIOBase):
    name = "standard input"

    def __init__(self, look_up: Callable[[], object]) -> None:
        self._look_up = look_up

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if sys.stdin is None:
            return 0
        fd = sys.stdin.fileno()
        while not select.select([fd], [], [], LOOK_S)[0]:
            self._look_up()
        return os.readv(fd, [buffer])
