"""The captures that a data source reads, and their segments."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trunkline._native import capture as _native
from trunkline._text import counted
from trunkline.errors import CaptureError
from trunkline.spark.source.options import Settings

__all__ = ["Found", "existing", "find", "first_of", "missing", "segment_paths", "sizes"]

# Of more segments than this the sizes of so many, evenly spread, stand for all.
_SIZED = 4096

# So many segments that are missing are named.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Found:
    """A capture.

    Attributes:
        path: Its directory.
        capture_id: Its id.
        next_segment: The number of the segment after the last published one.
    """

    path: Path
    capture_id: str
    next_segment: int


def find(settings: Settings) -> dict[str, Found]:
    """The captures that have begun, by id, in the order of their ids.

    Raises:
        CaptureError: A path is missing or no capture, or two directories hold the same capture.
    """
    found: dict[str, Found] = {}
    for directory in _directories(settings):
        capture_id, next_segment = _native.position(directory)
        if capture_id is None:
            # Nothing is in it yet.
            continue
        twin = found.get(capture_id)
        if twin is not None and twin.path != directory:
            message = f"{twin.path} and {directory} hold the same capture, {capture_id}: name one of them"
            raise CaptureError(message)
        found[capture_id] = Found(directory, capture_id, next_segment)
    return dict(sorted(found.items()))


def _directories(settings: Settings) -> Iterator[Path]:
    for path in settings.paths:
        if not path.is_dir():
            what = "is a file: name the directory of the capture" if path.exists() else "does not exist"
            message = f"{path}: {what}"
            raise CaptureError(message)
        if _is_capture(path):
            yield path
        elif settings.is_recursive:
            yield from _below(path)
        else:
            below = next(_below(path), None)
            hint = f", and {below} is one: set the option recursive to true to read all in it" if below else ""
            message = f"{path}: is no capture{hint}"
            raise CaptureError(message)


def _below(directory: Path) -> Iterator[Path]:
    """The captures in a folder, without what is in them."""
    try:
        entries = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    except FileNotFoundError:
        # It has gone since its folder was listed.
        return
    for name in entries:
        # Captures themselves have folders of theirs, which begin so.
        if name.startswith((".", "_")):
            continue
        path = directory / name
        if _is_capture(path):
            yield path
        else:
            yield from _below(path)


def _is_capture(directory: Path) -> bool:
    # Without a list of its segments, of which there may be a million.
    return (directory / "_capture").is_dir() or _native.is_capture(directory)


def existing(directory: Path, numbers: Sequence[int]) -> list[int]:
    """Those of some segments that are there."""
    return [number for number, path in zip(numbers, segment_paths(directory, numbers), strict=True) if path.exists()]


def sizes(directory: Path, numbers: Sequence[int]) -> Mapping[int, int]:
    """The bytes of segments, roughly where there are many."""
    step = max(1, len(numbers) // _SIZED)
    sized = numbers[::step]
    known = dict(zip(sized, map(_size, segment_paths(directory, sized)), strict=True))
    mean = sum(known.values()) // max(1, len(known))
    return {number: known.get(number, mean) for number in numbers}


def first_of(found: Found) -> int:
    """The number of a capture's first segment that is still there."""
    if found.next_segment and existing(found.path, [0]):
        # Without a list of them all.
        return 0
    return next(iter(_native.published(found.path)), found.next_segment)


def segment_paths(directory: Path, numbers: Sequence[int]) -> list[Path]:
    """Where segments are."""
    return _native.Capture(directory, 1, numbers).segments


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def missing(directory: Path, numbers: Sequence[int]) -> str:
    """Says which segments are not there."""
    names = ", ".join(map(str, numbers[:_NAMED]))
    more = f" and {len(numbers) - _NAMED:,} more" if len(numbers) > _NAMED else ""
    return f"{directory}: {counted(len(numbers), 'segment')} deleted before they were read: {names}{more}"
