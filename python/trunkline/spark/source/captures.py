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


def published(place: Location, wanted: Sequence[Span] | None = None, *, notes: int = 0) -> list[Segment]:
    """The existing segments of some, or of all, in order.

    Args:
        place: The capture.
        wanted: The numbers of the first and the last of each; all if None.
        notes: How many files of notes may be read for what they say of rows: each says it of up to 1024 segments.

    Raises:
        CaptureError: The capture cannot be read.
    """
    return [Segment(*known) for known in _native.segments(place, wanted, notes=notes)]


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
    for place in settings.paths:
        if place in known:
            yield place
        elif is_pattern(place) and not is_folder(place):
            yield from _matching(place, is_recursive=settings.is_recursive)
        elif not is_folder(place):
            message = f"{place}: {_of_file(place) if exists(place) else 'does not exist'}"
            raise CaptureError(message)
        elif is_capture(place):
            yield place
        elif settings.is_recursive:
            yield from below(place)
        else:
            inside = next(below(place), None)
            hint = f", and {inside} is one: set the option recursive to true to read all in it" if inside else ""
            message = f"{place}: is no capture{hint}"
            raise CaptureError(message)


def _matching(pattern: Location, *, is_recursive: bool) -> Iterator[Location]:
    """The captures that match a pattern, or are below what does; other folders are passed over."""
    places = [*matching(pattern)]
    captures = [place for place in places if is_capture(place)]
    if is_recursive:
        for place in places:
            yield from [place] if place in captures else below(place)
    yield from () if is_recursive else captures
    if not places or not (captures or is_recursive):
        what = f"no capture: {places[0]} is none" if places else "no folder: a capture is named by its directory"
        message = f"{pattern}: matches {what}"
        raise CaptureError(message)


def _of_file(place: Location) -> str:
    """The words about a file that is given as a capture."""
    folder = place.parent
    if is_capture(folder):
        return f"is a file of a capture: name its directory, {folder}"
    return "is a file: name the directory of the capture"


def warn_of_others(settings: Settings, captures: Iterable[CapturePosition]) -> None:
    """Warns of the captures if all their rows are of other protocols than the one to read."""
    protocol = settings.protocol
    if protocol in {None, EVERY}:
        return
    places = [found.path for found in captures]
    only = {"protocol": protocol}

    def batches(most: int | None) -> Iterator[pa.RecordBatch]:
        for place in places:
            some = Capture(place, segments=_native.published(place)[:most])
            yield from native(some).reader(["seq"], only)

    try:
        # Mostly the first segment of the first capture answers; of a store, the next ones would be opened meanwhile.
        if any(batch.num_rows for most in (1, None) for batch in batches(most)):
            return
    except (CaptureError, OSError, ValueError):
        # What cannot be read is named by the task that reads it.
        return
    for place in places:
        reading.warn_of_others(Capture(place, segments=_native.published(place)), str(protocol))


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


def bytes_of(place: Location, numbers: range) -> int:
    """The bytes of segments by number, estimated if there are many, without listing them."""
    each = _native.sizes(place, [*numbers[:: max(1, len(numbers) // _ASKED)]])
    return sum(each) * len(numbers) // max(1, len(each))


def first_of(found: CapturePosition) -> int:
    """The number of a capture's first existing segment."""
    if found.next_segment and _native.existing(found.path, [(0, 0)]):
        # Without listing all.
        return 0
    return next((first for first, _ in _native.published(found.path)), found.next_segment)
