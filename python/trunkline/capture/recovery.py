"""Recovers captures after a killed recorder, and verifies them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trunkline._native import capture as _native

__all__ = ["Problem", "Recovery", "Verification", "recover", "verify"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of `recover`.

    Attributes:
        rows: Rows that were moved into a segment.
        cut_bytes: Bytes of an incomplete message that were cut off; it was never reported durable.
        segment: The segment made of the rows; None if there were none.
        damaged: The numbers of segments that do not match their checksum, which cannot be repaired.
    """

    rows: int
    cut_bytes: int
    segment: int | None
    damaged: tuple[int, ...] = ()


def recover(path: str | os.PathLike[str]) -> Recovery:
    """Publishes the rows that a killed recorder left unpublished, as the next recorder would, and verifies all checksums.

    Args:
        path: The capture directory.

    Raises:
        CaptureError: There is no capture, it is being recorded to, or it cannot be written.
    """
    rows, cut_bytes, segment, damaged = _native.recover(path)
    return Recovery(rows, cut_bytes, segment, tuple(damaged))


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a capture.

    Attributes:
        path: The file.
        what: The problem.
    """

    path: Path
    what: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify`.

    Attributes:
        segments: Published segments.
        messages: Rows that can be read, published or not.
        unchecked: Segments without a checksum, as written by earlier versions.
        problems: The problems; empty if there are none.
    """

    segments: int
    messages: int
    unchecked: int
    problems: tuple[Problem, ...]


def verify(path: str | os.PathLike[str]) -> Verification:
    """Reads a whole capture and checks its consistency. It changes nothing, and a recorder may be running.

    It checks that each segment matches its CRC and can be read, that rows and segments are numbered without gaps or
    duplicates apart from what retention has deleted, and that the metadata can be read.

    Args:
        path: The capture directory.

    Raises:
        CaptureError: There is no capture, or its directory cannot be read.
    """
    segments, messages, unchecked, problems = _native.verify(path)
    return Verification(segments, messages, unchecked, tuple(Problem(*problem) for problem in problems))
