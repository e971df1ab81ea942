"""Captures that a killed recorder left, or that somebody has doubts about."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trunkline._native import capture as _native

__all__ = ["Problem", "Recovery", "Verification", "recover", "verify"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was mended.

    Attributes:
        rows: Rows that are in a segment now, and were in none before.
        cut_bytes: Bytes cut off because a message was not written to its end; it was never reported durable.
        segment: The segment made of the rows; None if there were none.
        damaged: The numbers of segments whose bytes are not those that were published, which cannot be mended.
    """

    rows: int
    cut_bytes: int
    segment: int | None
    damaged: tuple[int, ...] = ()


def recover(path: str | os.PathLike[str]) -> Recovery:
    """Publishes what a killed recorder left in a capture, as the next recorder would, and checks the sums of all segments.

    Args:
        path: The capture directory.

    Raises:
        CaptureError: There is no capture, a recorder is at work on it, or it cannot be written.
    """
    rows, cut_bytes, segment, damaged = _native.recover(path)
    return Recovery(rows, cut_bytes, segment, tuple(damaged))


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a capture.

    Attributes:
        path: The file.
        what: What is wrong with it.
    """

    path: Path
    what: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found.

    Attributes:
        segments: Published segments.
        messages: Rows that can be read, published or not.
        unchecked: Segments without a sum to hold them to: earlier versions wrote none down.
        problems: What is wrong; empty when all is well.
    """

    segments: int
    messages: int
    unchecked: int
    problems: tuple[Problem, ...]


def verify(path: str | os.PathLike[str]) -> Verification:
    """Reads all of a capture and holds it against what it says of itself; changes nothing, and a recorder may go on.

    Each segment has the bytes that were published, by their CRC, and can be read; rows and segments are numbered without
    gap or double, but for what retention has deleted, the oldest; and what is known beside them can be read.

    Args:
        path: The capture directory.

    Raises:
        CaptureError: There is no capture, or its directory cannot be read.
    """
    segments, messages, unchecked, problems = _native.verify(path)
    return Verification(segments, messages, unchecked, tuple(Problem(*problem) for problem in problems))
