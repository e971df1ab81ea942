"""Copies captures to object stores and other file systems, segment by segment."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from trunkline._arguments import need_callable, need_path
from trunkline._counters import Count, Level
from trunkline._locations import Url, location_of
from trunkline._native import capture as _native
from trunkline.capture.stores import Store, explained, store
from trunkline.errors import CaptureError, LocalProtocolError

__all__ = ["Shipment", "ShipmentStats", "Shipped", "ship"]

# Consecutive segments: the numbers of the first and the last.
_Span: TypeAlias = tuple[int, int]

_META = "_capture"
_MANIFEST = "manifest.parquet"

# The names of segments and of their notes, with their numbers.
_NUMBERED = re.compile(r"(\d{10,})(?:-(\d{10,}))?\.parquet")

# Stores that show only complete objects; on others a file is renamed when it is complete.
_WHOLE = ("s3", "gcs", "abfs")

# How often to list notes again if a recorder replaced them meanwhile.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Shipped:
    """What `ship` did.

    Attributes:
        segments: Files of segments that were copied.
        bytes: Their bytes.
        already: Files of segments that were there already.
        deleted: Files of segments that were deleted here, once they were there.
        missed: Segments that were deleted here before they were copied.
    """

    segments: int = 0
    bytes: int = 0
    already: int = 0
    deleted: int = 0
    missed: int = 0

    def plus(self, other: Shipped) -> Shipped:
        """The sum of both; `already` is that of the later one."""
        return Shipped(
            self.segments + other.segments,
            self.bytes + other.bytes,
            other.already,
            self.deleted + other.deleted,
            self.missed + other.missed,
        )


@dataclass(frozen=True, slots=True)
class ShipmentStats:
    """Counters of a shipment since its start.

    Attributes:
        segments: Files of segments that were copied.
        bytes: Their bytes.
        deleted: Files of segments that were deleted here, once they were there.
        missed: Segments that were deleted here before they were copied.
        segments_behind: Files of segments that are published here and were not copied yet, when last looked.
    """

    segments: Count
    bytes: Count
    deleted: Count
    missed: Count
    segments_behind: Level


def ship(
    path: str | os.PathLike[str],
    url: str | os.PathLike[str],
    *,
    delete_shipped: bool = False,
    on_progress: Callable[[int, int], object] | None = None,
) -> Shipped:
    """Copies the published segments of a capture, with the metadata beside them, to `url`.

    Existing segments are not copied again, so that an interrupted copy is continued; a recorder may be running. Each segment
    is checked against its size and CRC as published before it is copied, and its size is compared afterwards. The copy is a
    valid capture at any time: segments are copied in ascending order, and the manifest last.

    Args:
        path: The capture directory.
        url: The folder to copy to, as `pyarrow.fs` takes it: ``s3://bucket/runs/run7``; or a directory.
        delete_shipped: Whether to delete segments here that are there, all but the last one.
        on_progress: Called with the number of segments looked at so far, and of all.

    Raises:
        CaptureError: There is no capture, a segment is not as it was published, or the store cannot be reached.
        LocalProtocolError: The target holds another capture or other files, or pyarrow is not installed.
    """
    need_callable("on_progress", on_progress)
    return Shipment(path, url, delete_shipped=delete_shipped).round(on_progress or (lambda _done, _all: None))


class Shipment:
    """Copies a capture to another place; each `round` copies what was published since.

    Args:
        path: As for `ship`.
        url: As for `ship`.
        delete_shipped: As for `ship`.

    Attributes:
        total: The sum of all rounds; `already` is that of the latest one.

    Raises:
        LocalProtocolError: As by `ship`.
        CaptureError: As by `ship`.
    """

    metrics_name = "capture.ship"

    total: Shipped

    def __init__(
        self, path: str | os.PathLike[str], url: str | os.PathLike[str], *, delete_shipped: bool = False
    ) -> None:
        need_path("path", path)
        need_path("url", url, may_be_url=True)
        self._here, there = Path(path), location_of(url)
        self._there = Target(there if isinstance(there, Url) else Url(there.absolute().as_uri()))
        self._deletes = delete_shipped
        self.total = Shipped()
        self._behind = 0
        # The contents of the target, once listed: segments and notes with their sizes, and which segments are merged ones.
        self._known: dict[str, int] | None = None
        self._notes: dict[str, int] = {}
        self._merged: list[_Span] = []
        # The number after the last copied segment.
        self._next = 0

    @property
    def target(self) -> str:
        """The target without credentials."""
        return self._there.name

    @property
    def stats(self) -> ShipmentStats:
        """Its counters; safe in any thread."""
        done = self.total
        return ShipmentStats(done.segments, done.bytes, done.deleted, done.missed, self._behind)

    def round(self, on_progress: Callable[[int, int], object]) -> Shipped:
        """Copies published segments that are missing at the target.

        Raises:
            CaptureError: As by `ship`.
            LocalProtocolError: As by `ship`.
        """
        try:
            return self._round(on_progress)
        except OSError as error:
            message = f"{self._there.name}: {explained(error)}"
            raise CaptureError(message) from error

    def _round(self, on_progress: Callable[[int, int], object]) -> Shipped:
        # Read the position first: segments published later are for the next round.
        manifest = self._manifest()
        capture_id, end = _native.position(self._here)
        if manifest is None or capture_id is None:
            return Shipped()
        if end == self._next:
            return Shipped()
        if self._known is None:
            self._known = self._there.contents(capture_id)
            self._notes = self._there.sizes(_META)
            self._merged = [_span(name) for name in self._known if "-" in name]
        spans = [span for span in _native.published(self._here) if span[1] < end]
        absent = {span for span in spans if not self._is_there(span)}
        self._behind = len(absent)
        self._ship_notes(end)
        sums = {(first, last): (size, crc) for first, last, size, crc in _native.sums(self._here)}
        copied = size = already = missed = 0
        expected = self._next or (spans[0][0] if spans else 0)
        for done, span in enumerate(spans):
            on_progress(done, len(spans))
            missed += max(0, span[0] - max(expected, self._next))
            expected = span[1] + 1
            if span not in absent:
                already += 1
                continue
            sent = self._ship_segment(span, sums.get(span))
            self._behind -= 1
            if sent is None:
                # Deleted by its recorder, or merged by a compaction: a merged one is for the next round.
                missed += 0 if _native.existing(self._here, [span]) else span[1] - span[0] + 1
                continue
            copied, size = copied + 1, size + sent
            self.total = self.total.plus(Shipped(1, sent, already))
        on_progress(len(spans), len(spans))
        self._ship_notes(end)
        self._there.write(f"{_META}/{_MANIFEST}", manifest)
        self._next = end
        deleted = self._delete(spans) if self._deletes else 0
        self.total = self.total.plus(Shipped(already=already, deleted=deleted, missed=missed))
        return Shipped(copied, size, already, deleted, missed)

    def _manifest(self) -> bytes | None:
        manifest = self._read(f"{_META}/{_MANIFEST}")
        # A new capture has no record of runs yet, and an earlier version has another format.
        if manifest is None and _native.published(self._here):
            message = f"{self._here}: was recorded by an earlier version: run trunkline capture recover first"
            raise CaptureError(message)
        return manifest

    def _read(self, name: str) -> bytes | None:
        """The contents of a local file; links are not followed."""
        return _native.read_file(self._here, name)

    def _is_there(self, span: _Span) -> bool:
        """Whether the target has the rows of a segment, in a file of the same name or in merged ones."""
        assert self._known is not None
        name = _name(span)
        if name in self._known:
            with suppress(FileNotFoundError):
                return self._known[name] == (self._here / name).stat().st_size
            return True
        return all(
            _name((number, number)) in self._known or any(first <= number <= last for first, last in self._merged)
            for number in range(span[0], span[1] + 1)
        )

    def _ship_segment(self, span: _Span, noted: tuple[int, int] | None) -> int | None:
        """Copies a segment, and returns its bytes; None if it was deleted."""
        assert self._known is not None
        name = _name(span)
        contents = self._read(name)
        if contents is None:
            return None
        if noted is not None and (len(contents), zlib.crc32(contents)) != noted:
            message = f"{self._here / name}: is not as it was published, and is not copied; trunkline capture verify says more"
            raise CaptureError(message)
        self._there.write(name, contents)
        self._known[name] = len(contents)
        if span[0] < span[1]:
            self._merged.append(span)
        return len(contents)

    def _ship_notes(self, end: int) -> None:
        """Copies the metadata beside the segments, and removes notes that later ones repeat."""
        there = self._notes
        for _ in range(_TRIES):
            here = {name: size for name, size in _sizes(self._here / _META) if _NUMBERED.fullmatch(name)}
            is_whole = True
            for name in sorted(here):
                # Segments published later are for the next round.
                if _span(name)[0] >= end:
                    continue
                if there.get(name) == here[name]:
                    continue
                contents = self._read(f"{_META}/{name}")
                if contents is None:
                    is_whole = False
                    continue
                self._there.write(f"{_META}/{name}", contents)
                there[name] = len(contents)
            if is_whole:
                break
        alone = sorted(name for name in here if "-" not in name)
        for name in there.keys() - here.keys():
            # Recorders remove notes that later ones repeat, and the oldest to make room.
            if "-" not in name and _NUMBERED.fullmatch(name) and alone and alone[0] < name < alone[-1]:
                self._there.remove(f"{_META}/{name}")
                del there[name]

    def _delete(self, spans: list[_Span]) -> int:
        """Deletes local segments that the target has, oldest first; returns how many."""
        deleted = 0
        # A recorder takes the next number from the last one.
        for span in spans[:-1]:
            if not self._is_there(span):
                break
            with suppress(FileNotFoundError):
                (self._here / _name(span)).unlink()
                deleted += 1
        return deleted


class Target:
    """Where a capture is copied to.

    Args:
        url: The folder.

    Attributes:
        name: The folder without credentials.
    """

    name: str

    def __init__(self, url: Url) -> None:
        self._url = url
        self._store: Store = store(url)
        self.name = self._store.name
        self._is_made = False

    def contents(self, capture_id: str) -> dict[str, int]:
        """The files of segments that are there, with their sizes.

        Raises:
            LocalProtocolError: It holds another capture or other files.
            OSError: They cannot be listed.
        """
        files = self.sizes("")
        if not files and not self.sizes(_META):
            return {}
        if not _native.is_capture(self._url):
            message = f"{self.name}: is not a capture: it contains {min(files)}; choose an empty or a new folder"
            raise LocalProtocolError(message)
        # Before the manifest is copied there are only notes and segments.
        other, _ = _native.position(self._url)
        if other not in {None, capture_id}:
            message = f"{self.name}: holds another capture, {other}, not {capture_id}: choose another folder"
            raise LocalProtocolError(message)
        return {name: size for name, size in files.items() if _NUMBERED.fullmatch(name)}

    def sizes(self, folder: str) -> dict[str, int]:
        """The files in a folder, with their sizes."""
        return {info.base_name: info.size for info in self._store.infos(folder) if info.is_file}

    def write(self, name: str, contents: bytes) -> None:
        """Writes a file that becomes visible only when it is complete.

        Raises:
            OSError: It cannot be written, or is not as large as it should be.
        """
        path = self._store.path(name)
        if self._store.files.type_name in _WHOLE:
            self._put(path, contents)
        else:
            if not self._is_made:
                self._store.files.create_dir(self._store.path(_META), recursive=True)
                self._is_made = True
            folder, _, last = path.rpartition("/")
            partial = f"{folder}/.{last}.partial"
            self._put(partial, contents)
            self._store.files.move(partial, path)
        info = self._store.info(name)
        if info is None or info.size != len(contents):
            message = f"{name} has {'no' if info is None else info.size} bytes there, not {len(contents)}"
            raise OSError(message)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        with suppress(FileNotFoundError):
            self._store.files.delete_file(self._store.path(name))

    def _put(self, path: str, contents: bytes) -> None:
        # In one write: an interruption between two would leave a truncated object.
        with self._store.files.open_output_stream(path) as stream:
            stream.write(contents)


def _sizes(directory: Path) -> Iterator[tuple[str, int]]:
    """The files in a directory, with their sizes."""
    for entry in os.scandir(directory):
        with suppress(FileNotFoundError):
            yield entry.name, entry.stat(follow_symlinks=False).st_size


def _name(span: _Span) -> str:
    first, last = span
    return f"{first:010}.parquet" if first == last else f"{first:010}-{last:010}.parquet"


def _span(name: str) -> _Span:
    found = _NUMBERED.fullmatch(name)
    assert found is not None
    return int(found[1]), int(found[2] or found[1])
