"""The captures that a data source reads, and their segments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from trunkline._locations import Location
from trunkline._native import capture as _native
from trunkline.capture import reading
from trunkline.capture.folders import below, is_capture
from trunkline.capture.passed import Span
from trunkline.capture.reading import Capture, native
from trunkline.capture.stores import exists, is_folder
from trunkline.columns import EVERY
from trunkline.errors import CaptureError
from trunkline.spark.source.options import Settings
from trunkline.spark.source.patterns import is_pattern, matching

__all__ = [
    "CapturePosition",
    "Segment",
    "Span",
    "absent",
    "bytes_of",
    "find",
    "first_of",
    "published",
    "warn_of_others",
]

# With more segments than this, their bytes are estimated from so many, evenly spread.
_ASKED = 64


class Segment(NamedTuple):
    """A published segment, or several that are in one file.

    Attributes:
        first: The number of the first.
        last: The number of the last.
        bytes: The bytes of its file.
        rows: Its rows; None if that is not noted.
        frame_bytes: The bytes of their frames; None if that is not noted.
    """

    first: int
    last: int
    bytes: int
    rows: int | None
    frame_bytes: int | None

    @property
    def span(self) -> Span:
        """The numbers of the first and the last."""
        return self.first, self.last


def published(location: Location, wanted: Sequence[Span] | None = None, *, notes: int = 0) -> list[Segment]:
    """The existing segments of some, or of all, in order.

    Args:
        location: The capture.
        wanted: The numbers of the first and the last of each; all if None.
        notes: How many files of notes may be read for what they say of rows: each says it of up to 1024 segments.

    Raises:
        CaptureError: The capture cannot be read.
    """
    return [Segment(*known) for known in _native.segments(location, wanted, notes=notes)]


@dataclass(frozen=True, slots=True)
class CapturePosition:
    """A capture.

    Attributes:
        path: Its directory, or its URL.
        capture_id: Its id.
        next_segment: The number of the segment after the last published one.
    """

    path: Location
    capture_id: str
    next_segment: int


def find(settings: Settings, known: Collection[Location] = ()) -> dict[str, CapturePosition]:
    """The captures with a segment or a manifest, by id, in the order of their ids.

    Args:
        settings: What is read.
        known: Places in stores that are known to be captures, which are not asked about again.

    Raises:
        CaptureError: A path is missing or no capture, or two directories hold the same capture.
    """
    found: dict[str, CapturePosition] = {}
    for directory in _directories(settings, known):
        capture_id, next_segment = _native.position(directory)
        if capture_id is None:
            # A new capture is empty.
            continue
        twin = found.get(capture_id)
        if twin is not None and twin.path != directory:
            message = f"{twin.path} and {directory} hold the same capture, {capture_id}: name one of them"
            raise CaptureError(message)
        found[capture_id] = CapturePosition(directory, capture_id, next_segment)
    return dict(sorted(found.items()))


def _directories(settings: Settings, known: Collection[Location]) -> Iterator[Location]:
    for location in settings.paths:
        if location in known:
            yield location
        elif is_pattern(location) and not is_folder(location):
            yield from _matching(location, is_recursive=settings.is_recursive)
        elif not is_folder(location):
            message = f"{location}: {_of_file(location) if exists(location) else 'does not exist'}"
            raise CaptureError(message)
        elif is_capture(location):
            yield location
        elif settings.is_recursive:
            yield from below(location)
        else:
            inside = next(below(location), None)
            hint = f", and {inside} is one: set the option recursive to true to read all in it" if inside else ""
            message = f"{location}: is no capture{hint}"
            raise CaptureError(message)


def _matching(pattern: Location, *, is_recursive: bool) -> Iterator[Location]:
    """The captures that match a pattern, or are below what does; other folders are passed over."""
    locations = [*matching(pattern)]
    captures = [location for location in locations if is_capture(location)]
    if is_recursive:
        for location in locations:
            yield from [location] if location in captures else below(location)
    yield from () if is_recursive else captures
    if not locations or not (captures or is_recursive):
        what = f"no capture: {locations[0]} is none" if locations else "no folder: a capture is named by its directory"
        message = f"{pattern}: matches {what}"
        raise CaptureError(message)


def _of_file(location: Location) -> str:
    """The words about a file that is given as a capture."""
    folder = location.parent
    if is_capture(folder):
        return f"is a file of a capture: name its directory, {folder}"
    return "is a file: name the directory of the capture"


def warn_of_others(settings: Settings, captures: Iterable[CapturePosition]) -> None:
    """Warns of the captures if all their rows are of other protocols than the one to read."""
    protocol = settings.protocol
    if protocol in {None, EVERY}:
        return
    locations = [found.path for found in captures]
    only = {"protocol": protocol}

    def batches(most: int | None) -> Iterator[pa.RecordBatch]:
        for location in locations:
            some = Capture(location, segments=_native.published(location)[:most])
            yield from native(some).reader(["seq"], only)

    try:
        # Mostly the first segment of the first capture answers; of a store, the next ones would be opened meanwhile.
        if any(batch.num_rows for most in (1, None) for batch in batches(most)):
            return
    except (CaptureError, OSError, ValueError):
        # What cannot be read is named by the task that reads it.
        return
    for location in locations:
        reading.warn_of_others(Capture(location, segments=_native.published(location)), str(protocol))


def absent(there: Sequence[Span], wanted: Sequence[Span]) -> list[Span]:
    """The wanted segments that are missing; both lists are sorted."""
    gone = []
    at = 0
    for first, last in wanted:
        number = first
        while number <= last:
            while at < len(there) and there[at][1] < number:
                at += 1
            begin, end = there[at] if at < len(there) else (last + 1, last + 1)
            if begin > number:
                gone.append((number, min(begin - 1, last)))
            number = max(number, end + 1) if begin <= last else last + 1
    return gone


def bytes_of(location: Location, numbers: range) -> int:
    """The bytes of segments by number, estimated if there are many, without listing them."""
    each = _native.sizes(location, [*numbers[:: max(1, len(numbers) // _ASKED)]])
    return sum(each) * len(numbers) // max(1, len(each))


def first_of(found: CapturePosition) -> int:
    """The number of a capture's first existing segment."""
    if found.next_segment and _native.existing(found.path, [(0, 0)]):
        # Without listing all.
        return 0
    return next((first for first, _ in _native.published(found.path)), found.next_segment)
