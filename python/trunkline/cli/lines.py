"""Standard input, line by line."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from trunkline.cli.options import Pace

__all__ = ["given", "lines", "stands_for_stdin"]

# A signal that comes just before a wait of Python's own does not end it.
_SLICE_S = 0.2


def given(data: Sequence[str]) -> list[bytes]:
    """What is to be sent: each as it stands; of @FILE what is in that file, and @@ stands for one @.

    Raises:
        OSError: A file cannot be read.
    """
    return [
        Path(part[1:]).read_bytes()
        if part.startswith("@") and not part.startswith("@@")
        else os.fsencode(part[1:] if part.startswith("@@") else part)
        for part in data
    ]


def stands_for_stdin(data: Sequence[bytes], count: int | None, one: str) -> bool:
    """Whether what is to be sent is what comes in, one a line; refuses what would mean both."""
    is_stdin = list(data) == [b"-"]
    if b"-" in data and not is_stdin:
        message = f"- stands alone: it is standard input, one {one} a line."
        raise typer.BadParameter(message, param_hint="DATA")
    if is_stdin and count is not None:
        message = f"--count is for a {one} that is given: standard input says how many there are."
        raise typer.BadParameter(message)
    return is_stdin


def lines(pace: Pace) -> Iterator[bytes]:
    """The lines that come in, while the counters go on being told."""
    if sys.stdin is None:
        return
    fd = sys.stdin.fileno()
    rest = bytearray()
    while True:
        ready, _, _ = select.select([fd], [], [], pace.wait_s(_SLICE_S))
        pace.look_up()
        if not ready:
            continue
        data = os.read(fd, 1 << 16)
        if not data:
            break
        # Only what is new is searched: a line may be as long as it likes.
        end, *more = data.split(b"\n")
        rest += end
        for line in more:
            yield bytes(rest.removesuffix(b"\r"))
            rest = bytearray(line)
    if rest:
        yield bytes(rest)
