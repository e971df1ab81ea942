"""Standard input, line by line."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator

from trunkline.cli.options import Pace

__all__ = ["lines"]

# A signal that comes just before a wait of Python's own does not end it.
_SLICE_S = 0.2


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
