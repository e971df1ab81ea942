"""The captures that a data source reads, and their segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from trunkline._locations import Location
from trunkline._native import capture as _native
from trunkline._text import counted
from trunkline.capture.stores import exists, folders, is_folder
from trunkline.errors import CaptureError
from trunkline.spark.source.options import Settings

__all__ = ["Found", "Span", "absent", "bytes_of", "count", "find", "first_of", "missing", "sizes"]

# Consecutive segments: the numbers of the first and the last.
Span: TypeAlias = tuple[int, int]

# With more segments than this, sizes are estimated from so many, evenly spread: in a directory; and in a store, where each is a
# request, or for reports with every micro-batch.
_SIZED = 4096
_ASKED = 64

# How many missing segments are named.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Found:
    """A capture.

    Attributes:
        path: Its directory, or its URL.
        capture_id: Its id.
        next_segment: The number of the segment after the last published one.
    """

    path: Location
    capture_id: str
    next_segment: int


def find(settings: Settings) -> dict[str, Found]:
    """The captures with a segment or a manifest, by id, in the order of their ids.

    Raises:
        CaptureError: A path is missing or no capture, or two directories hold the same capture.
    """
    found: dict[str, Found] = {}
    for directory in _directories(settings):
        capture_id, next_segment = _native.position(directory)
        if capture_id is None:
            # A new capture is empty.
            continue
        twin = found.get(capture_id)
        if twin is not None and twin.path != directory:
            message = f"{twin.path} and {directory} hold the same capture, {capture_id}: name one of them"
            raise CaptureError(message)
        found[capture_id] = Found(directory, capture_id, next_segment)
    return dict(sorted(found.items()))


def _directories(settings: Settings) -> Iterator[Location]:
    for place in settings.paths:
        if not is_folder(place):
            what = "is a file: name the directory of the capture" if exists(place) else "does not exist"
            message = f"{place}: {what}"
            raise CaptureError(message)
        if _is_capture(place):
            yield place
        elif settings.is_recursive:
            yield from _below(place)
        else:
            below = next(_below(place), None)
            hint = f", and {below} is one: set the option recursive to true to read all in it" if below else ""
            message = f"{place}: is no capture{hint}"
            raise CaptureError(message)


def _below(folder: Location) -> Iterator[Location]:
    """The captures below a folder; does not look inside captures."""
    for name in folders(folder):
        # The internal folders of captures begin so.
        if name.startswith((".", "_")):
            continue
        place = folder / name
        if _is_capture(place):
            yield place
        else:
            yield from _below(place)


def _is_capture(place: Location) -> bool:
    # Without listing its segments, as there may be a million.
    return is_folder(place / "_capture") or _native.is_capture(place)


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


def sizes(place: Location, spans: Sequence[Span]) -> list[int]:
    """The bytes of segments, estimated if there are many."""
    step = max(1, len(spans) // (_SIZED if isinstance(place, Path) else _ASKED))
    sized = spans[::step]
    each = _native.sizes(place, [first for first, _ in sized])
    known = {span: size * count([span]) for span, size in zip(sized, each, strict=True)}
    mean = sum(known.values()) // max(1, len(known))
    return [known.get(span, mean) for span in spans]


def bytes_of(place: Location, numbers: range) -> int:
    """The bytes of segments by number, estimated if there are many, without listing them."""
    each = _native.sizes(place, [*numbers[:: max(1, len(numbers) // _ASKED)]])
    return sum(each) * len(numbers) // max(1, len(each))


def count(spans: Iterable[Span]) -> int:
    """The number of segments."""
    return sum(last - first + 1 for first, last in spans)


def first_of(found: Found) -> int:
    """The number of a capture's first existing segment."""
    if found.next_segment and _native.existing(found.path, [(0, 0)]):
        # Without listing all.
        return 0
    return next((first for first, _ in _native.published(found.path)), found.next_segment)


def missing(place: Location, spans: Sequence[Span]) -> str:
    """The error about missing segments."""
    number = count(spans)
    named = [str(number) for first, last in spans[:_NAMED] for number in range(first, min(last + 1, first + _NAMED))]
    more = f" and {number - _NAMED:,} more" if number > _NAMED else ""
    names = ", ".join(named[:_NAMED])
    return f"{place}: {counted(number, 'segment')} deleted before they were read: {names}{more}"
