"""Copies captures to object stores and other file systems, segment by segment."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline._arguments import need_callable, need_path
from trunkline._locations import location_of
from trunkline._metrics.counters import Count, Level
from trunkline._native import capture as _native
from trunkline.capture.passed import Span
from trunkline.capture.reading import Capture
from trunkline.capture.stores import explained
from trunkline.capture.targets import META, pieces, target
from trunkline.errors import CaptureError, LocalProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Shipment", "ShipmentStats", "Shipped", "ship"]

_MANIFEST = "manifest.parquet"

# The names of segments, of their notes, and of the checksums of those that were published together.
_NUMBERED = re.compile(r"(\d{10,})(?:-(\d{10,})|\.sums)?\.parquet")

# What is beside the manifest if that says which segments are published.
_BATCHES = "batches.parquet"

# The name of an empty file, which ends with the number of the first segment that was not copied.
_SHIPPED = ".shipped-"

# How often to list notes again if a recorder replaced them meanwhile.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Shipped:
    """What `ship` did.

    Attributes:
        segments: Files of segments that were copied.
        bytes: Their bytes.
        already: Files of segments that were there already.
        deleted: Files of segments that were deleted here, once they were proven to be there.
        missed: Segments that were deleted here before they were copied, since what is there was.
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
    valid capture at any time: segments are copied in ascending order, and the manifest last. No link is followed, here or in a
    directory that is copied to.

    Args:
        path: The capture directory.
        url: The folder to copy to, as `pyarrow.fs` takes it: ``s3://bucket/runs/run7``; or a directory.
        delete_shipped: Whether to delete segments here that are there, all but the last one: those that were read back and are the
            same, or whose MD5 the store has computed.
        on_progress: Called with the number of segments looked at so far, and of all, several times a second.

    Raises:
        CaptureError: There is no capture, a segment is not as it was published, one to delete is not the same there, or the store
            cannot be reached.
        LocalProtocolError: The target is the capture itself, holds another one or other files, or pyarrow is not installed.

    ```pycon
    >>> import pathlib, tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs, shipped = pathlib.Path(folder, "runs"), pathlib.Path(folder, "shipped")
    ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
    ...     capture.ship(runs, shipped).segments, capture.ship(runs, shipped).already
    ...     len(capture.open(shipped)) == imported
    (1, 1)
    True

    ```
    """
    need_callable("on_progress", on_progress)
    return Shipment(path, url, delete_shipped=delete_shipped).round(on_progress or (lambda _done, _all: None))


class Shipment:
    """Copies a capture to another location; each `round` copies what was published since.

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
        self._there = target(there.absolute() if isinstance(there, Path) else there)
        self._folder = _native.Folder(self._here)
        if self._there.is_same("", self._here):
            message = f"{self.target}: is the capture itself: choose another folder"
            raise LocalProtocolError(message)
        self._deletes = delete_shipped
        self.total = Shipped()
        self._behind = 0
        # The contents of the target, once listed: segments and notes with their sizes, and which segments are merged ones.
        self._known: dict[str, int] | None = None
        self._notes: dict[str, int] = {}
        self._merged: list[Span] = []
        # The number after the last copied segment, and after the last one of a whole round.
        self._copied = self._next = 0

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
        done = 0, 0

        def at(number: int, of: int) -> None:
            nonlocal done
            done = number, of
            on_progress(number, of)

        self._there.look = lambda: on_progress(*done)
        try:
            return self._round(at)
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
        spans = [span for span in _native.published(self._here) if span[1] < end]
        if self._there.is_replaced():
            self._known, self._behind = None, len(spans)
        if self._known is None:
            self._known = self._there.contents(capture_id)
            self._notes = self._there.sizes(META)
            self._merged = self._merged_there(self._known)
            # Segments are copied in order: those after what is there that are not here any more were missed.
            there = [*self._merged, *(_span(name) for name in self._known if "-" not in name)]
            self._copied = max((last + 1 for _, last in there), default=0)
        absent = {span for span in spans if not self._is_there(span)}
        self._behind = len(absent)
        self._ship_notes(end)
        sums = {(first, last): (size, crc) for first, last, size, crc in _native.sums(self._here)}
        copied = size = already = missed = 0
        expected = self._copied or (spans[0][0] if spans else 0)
        for done, span in enumerate(spans):
            on_progress(done, len(spans))
            missed += max(0, span[0] - expected)
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
        batches = self._read(f"{META}/{_BATCHES}")
        if batches is not None and _BATCHES not in self._notes:
            self._write(f"{META}/{_BATCHES}", batches)
            self._notes[_BATCHES] = len(batches)
        self._write(f"{META}/{_MANIFEST}", manifest)
        self._note_shipped(end)
        self._copied = end
        self.total = self.total.plus(Shipped(already=already, missed=missed))
        deleted = self._delete(spans) if self._deletes else 0
        self._next = end
        return Shipped(copied, size, already, deleted, missed)

    def _note_shipped(self, end: int) -> None:
        """Notes here how far it was copied, for the recorder to say what retention deletes before."""
        name = f"{_SHIPPED}{end:010}"
        try:
            self._folder.write(f"{META}/{name}").finish()
            for other, _ in self._folder.files(META):
                if other.startswith(_SHIPPED) and other != name:
                    self._folder.remove(f"{META}/{other}")
        except CaptureError:
            # Who copies a capture need not be allowed to write to it.
            return

    def _manifest(self) -> bytes | None:
        manifest = self._read(f"{META}/{_MANIFEST}")
        # A new capture has no record of runs yet, and an earlier version has another format.
        if manifest is None and _native.published(self._here):
            message = f"{self._here}: was recorded by an earlier version: run trunkline capture recover first"
            raise CaptureError(message)
        return manifest

    def _read(self, name: str) -> bytes | None:
        """The contents of the manifest or of notes here; links are not followed."""
        return _native.read_file(self._here, name)

    def _write(self, name: str, contents: bytes) -> None:
        self._there.write(name, iter((contents,)), len(contents))

    def _merged_there(self, known: dict[str, int]) -> list[Span]:
        """The merged segments at the target that are as large as they were when they were published."""
        merged = [_span(name) for name in known if "-" in name]
        if not merged:
            return []
        try:
            sums = self._there.ask(lambda: _native.sums(self._there.location))
        except CaptureError:
            return []
        noted = {(first, last): size for first, last, size, _ in sums}
        return [span for span in merged if noted.get(span) == known[_name(span)]]

    def _is_there(self, span: Span) -> bool:
        """Whether the target has the rows of a segment, in a file of the same name or in merged ones."""
        assert self._known is not None
        name = _name(span)
        if name in self._known:
            file = self._folder.read(name)
            return file is None or self._known[name] == file.size
        return all(
            _name((number, number)) in self._known or any(first <= number <= last for first, last in self._merged)
            for number in range(span[0], span[1] + 1)
        )

    def _ship_segment(self, span: Span, noted: tuple[int, int] | None) -> int | None:
        """Copies a segment, and returns its bytes; None if it was deleted."""
        assert self._known is not None
        name = _name(span)
        file = self._folder.read(name)
        if file is None:
            return None
        if noted is not None:
            # Before a byte of it is copied; another size need not be summed.
            for _ in self._as_published(span, file, noted):
                self._there.look()
        self._there.write(name, self._as_published(span, file, noted), file.size)
        self._known[name] = file.size
        if span[0] < span[1]:
            self._merged.append(span)
        return file.size

    def _as_published(self, span: Span, file: _native.FolderFile, noted: tuple[int, int] | None) -> Iterator[bytes]:
        """The pieces of a segment, which has the size and the CRC that are noted.

        Raises:
            CaptureError: It does not.
        """
        crc = 0
        if noted is None or file.size == noted[0]:
            for piece in pieces(file):
                crc = zlib.crc32(piece, crc)
                yield piece
        if noted is not None and (file.size, crc) != noted:
            path = self._here / _name(span)
            message = f"{path}: is not as it was published, and is not copied; trunkline capture verify says more"
            raise CaptureError(message)

    def _ship_notes(self, end: int) -> None:
        """Copies the metadata beside the segments, and removes notes that later ones repeat."""
        there = self._notes
        for _ in range(_TRIES):
            here = {name: size for name, size in self._folder.files(META) if _NUMBERED.fullmatch(name)}
            is_whole = True
            for name in sorted(here):
                # Segments published later are for the next round.
                if _span(name)[0] >= end:
                    continue
                if there.get(name) == here[name]:
                    continue
                contents = self._read(f"{META}/{name}")
                if contents is None:
                    is_whole = False
                    continue
                self._write(f"{META}/{name}", contents)
                there[name] = len(contents)
            if is_whole:
                break
        alone = sorted(name for name in here if "-" not in name)
        for name in there.keys() - here.keys():
            # Recorders remove notes that later ones repeat, and the oldest to make room.
            if "-" not in name and _NUMBERED.fullmatch(name) and alone and alone[0] < name < alone[-1]:
                self._there.remove(f"{META}/{name}")
                del there[name]

    def _delete(self, spans: list[Span]) -> int:
        """Deletes local segments that are proven to be at the target, oldest first; returns how many.

        Raises:
            CaptureError: One is not the same there.
        """
        deleted = 0
        # A recorder takes the next number from the last one.
        for span in spans[:-1]:
            file = self._folder.read(_name(span))
            if file is None:
                continue
            if not self._is_proven(span, file):
                message = (
                    f"{self.target}: does not have {_name(span)} as it is here, where it stays: {self._way_out(span)}"
                )
                raise CaptureError(message)
            if self._folder.remove(_name(span)):
                deleted += 1
                self.total = self.total.plus(Shipped(already=self.total.already, deleted=1))
        return deleted

    def _way_out(self, span: Span) -> str:
        """What to do about a segment that the target has otherwise."""
        assert self._known is not None
        if _name(span) in self._known:
            return "if trunkline capture verify finds nothing wrong here, delete the file there and ship again, which copies it anew"
        # The merged file may have segments that are not here any more.
        return "its rows in a merged file there are others; trunkline capture verify says more, and another folder takes a new copy"

    def _is_proven(self, span: Span, file: _native.FolderFile) -> bool:
        """Whether the target has what is in a segment, by its bytes, or where it is merged with others by its rows."""
        assert self._known is not None
        name = _name(span)
        if name in self._known:
            # A hard link is no second copy.
            return not self._there.is_same(name, self._here / name) and self._there.holds(name, file)
        import pyarrow as pa

        here = Capture(self._here, segments=[span])
        try:
            there = Capture(self._there.location, segments=[span])
            return self._there.ask(lambda: _are_equal(iter(here.reader()), iter(there.reader())))
        except (CaptureError, pa.ArrowInvalid):
            # What a reader of pyarrow raises for a damaged file.
            return False


def _are_equal(one: Iterator[pa.RecordBatch], other: Iterator[pa.RecordBatch]) -> bool:
    """Whether two readers give the same rows, however they are divided into batches."""
    left, right = next(one, None), next(other, None)
    while left is not None and right is not None:
        rows = min(left.num_rows, right.num_rows)
        if not left.slice(0, rows).equals(right.slice(0, rows)):
            return False
        left = left.slice(rows) if left.num_rows > rows else next(one, None)
        right = right.slice(rows) if right.num_rows > rows else next(other, None)
    return left is None and right is None


def _name(span: Span) -> str:
    first, last = span
    return f"{first:010}.parquet" if first == last else f"{first:010}-{last:010}.parquet"


def _span(name: str) -> Span:
    found = _NUMBERED.fullmatch(name)
    assert found is not None
    return int(found[1]), int(found[2] or found[1])
