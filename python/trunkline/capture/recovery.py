"""Captures that a killed recorder left."""

from __future__ import annotations

import os
from dataclasses import dataclass

from trunkline._native import capture as _native

__all__ = ["Recovery", "recover"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was mended.

    Attributes:
        rows: Rows that are in a segment now, and were in none before.
        cut_bytes: Bytes cut off because a message was not written to its end; it was never reported durable.
        segment: The segment made of the rows; None if there were none.
    """

    rows: int
    cut_bytes: int
    segment: int | None


def recover(path: str | os.PathLike[str]) -> Recovery:
    """Publishes what a killed recorder left in a capture. The next recorder would do the same.

    Args:
        path: The capture directory.

    Raises:
        CaptureError: There is no capture, a recorder is at work on it, or it cannot be written.
    """
    return Recovery(*_native.recover(path))
