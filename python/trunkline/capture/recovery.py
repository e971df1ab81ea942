"""Recovers captures after a killed recorder, verifies them, and merges their segments."""

from __future__ import annotations

import os
from dataclasses import dataclass

from trunkline._arguments import need_number, need_path
from trunkline._locations import Location, location_of
from trunkline._native import capture as _native

__all__ = ["TARGET_BYTES", "Compaction", "Problem", "Recovery", "Verification", "compact", "recover", "verify"]

# Large enough that opening a segment costs little beside reading it, and the size of a task of Spark.
TARGET_BYTES = 64 << 20


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
        LocalProtocolError: `path` is a URL.
    """
    need_path("path", path)
    rows, cut_bytes, segment, damaged = _native.recover(path)
    return Recovery(rows, cut_bytes, segment, tuple(damaged))


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a capture.

    Attributes:
        path: The file.
        what: The problem.
    """

    path: Location
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
        path: The capture directory, or its URL.

    Raises:
        CaptureError: There is no capture, or its directory cannot be read.
    """
    segments, messages, unchecked, problems = _native.verify(location_of(path))
    found = tuple(Problem(location_of(file), what) for file, what in problems)
    return Verification(segments, messages, unchecked, found)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of `compact`.

    Attributes:
        replaced: Files of segments that were merged.
        merged: Files that they were merged into.
        bytes_before: The bytes of all segments before.
        bytes_after: The bytes of all segments after.
    """

    replaced: int
    merged: int
    bytes_before: int
    bytes_after: int


def compact(path: str | os.PathLike[str], *, target_bytes: int = TARGET_BYTES) -> Compaction:
    """Merges segments that follow each other into larger ones. Rows stay as they are, with their `segment` and `seq`.

    Readers of this package and streams may run meanwhile, and read each row once; who reads the files as plain Parquet must
    not, for a moment both are there. If it is killed, no row is lost, and the next one goes on. A segment that is merged is as old as
    its file is: a recorder with ``keep_days`` keeps it from then on.

    Args:
        path: The capture directory.
        target_bytes: The most bytes that segments have together which are merged.

    Raises:
        CaptureError: There is no capture, it is being recorded to, cannot be written, or a segment is not as it was published.
        LocalProtocolError: `path` is a URL.
        ValueError: `target_bytes` is not positive.
    """
    need_path("path", path)
    need_number("target_bytes", target_bytes, least=1)
    return Compaction(*_native.compact(path, target_bytes))
