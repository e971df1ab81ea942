"""Captures as a stream: segments as they are published, each once."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from trunkline._locations import Location, Url
from trunkline.capture.passed import missing
from trunkline.capture.reading import Capture
from trunkline.spark.source import reading
from trunkline.spark.source.captures import CapturePosition, Segment, absent, bytes_of, find, first_of, published
from trunkline.spark.source.offsets import LATEST, first_offset, need_start, need_these, offset_of, positions_in
from trunkline.spark.source.options import Settings
from trunkline.spark.source.planning import NOTES, parts

__all__ = ["StreamReader"]

_logger = logging.getLogger("trunkline.spark")

# How many segments are looked up at a time, before it is known how many fit into a batch. A store is listed as a whole each time.
_LOOKED_FOR = 64
_LOOKED_FOR_IN_STORES = 1 << 15


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads published segments in order, each once.

    An offset is ``{capture_id: number of the next segment}``, and what the query reads. A capture that is not in it is read from
    its first segment on. A number in it never falls: of a copy that is behind the checkpoint nothing is read until it has come as far.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # The end of a stream with the trigger AvailableNow.
        self._end: dict[str, int] | None = None
        # The end of the latest batch, and the captures found when it was planned: a folder is searched once per batch.
        self._planned: dict[str, int] = {}
        self._captures: dict[str, CapturePosition] = {}
        # The captures in stores: it takes several requests to see that a folder is one.
        self._known: set[Location] = set()
        self._looked = _Looked()
        # The captures that were reported as behind the checkpoint.
        self._warned: set[str] = set()

    def initialOffset(self) -> dict[str, Any]:
        need_start(self._settings, self._find())
        return first_offset(self._settings)

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark takes one limit, and enforces none: `latestOffset` applies all.
        settings = self._settings
        if settings.max_segments is not None:
            return ReadMaxFiles(settings.max_segments)
        if settings.max_bytes is not None:
            return ReadMaxBytes(settings.max_bytes)
        return ReadAllAvailable() if settings.max_rows is None else ReadMaxRows(settings.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = _positions(self._find())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002 - all limits are applied
        captures = self._captures = self._find()
        now = _positions(captures) if self._end is None else self._end
        before = positions_in(start, self._settings)
        if before == LATEST:
            self._planned = now
            return offset_of(self._settings, now)
        need_these(before, captures, self._settings)
        self._warn_of_copies_behind(before)
        there = {capture_id: next_segment for capture_id, next_segment in now.items() if capture_id in captures}
        room = _Room(self._settings)
        end = there if room.is_boundless else self._up_to(room, before, there)
        self._planned = before | {
            capture_id: max(number, before.get(capture_id, 0)) for capture_id, number in end.items()
        }
        return offset_of(self._settings, self._planned)

    def _find(self) -> dict[str, CapturePosition]:
        captures = find(self._settings, self._known)
        self._known = {found.path for found in captures.values() if isinstance(found.path, Url)}
        return captures

    def _warn_of_copies_behind(self, before: Mapping[str, int]) -> None:
        """Warns, once, of each capture that ends before the position of the checkpoint."""
        for capture_id, found in self._captures.items():
            if before.get(capture_id, 0) <= found.next_segment or capture_id in self._warned:
                continue
            self._warned.add(capture_id)
            _logger.warning(
                "%s: ends before segment %d, and was read to segment %d: nothing of it is read until it has come as "
                "far; if it was restored from an older copy and recorded to since, choose another checkpointLocation",
                found.path,
                found.next_segment,
                before[capture_id],
            )

    def _up_to(self, room: _Room, before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
        """The end of a batch, as far as it has room, between two offsets."""
        end: dict[str, int] = {}
        # Segments of the captures in turn, so that none delays the others.
        waiting = {
            capture_id: self._looked.of(
                self._captures[capture_id], _first(self._captures[capture_id], before), next_segment, counts=room.counts
            )
            for capture_id, next_segment in now.items()
        }
        while waiting and not room.is_full:
            for capture_id in [*waiting]:
                segment = next(waiting[capture_id], None)
                if segment is None:
                    end[capture_id] = now[capture_id]
                    del waiting[capture_id]
                elif room.take(self._captures[capture_id], segment):
                    end[capture_id] = segment.last + 1
                else:
                    break
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What is left after the latest batch; the captures may be thousands."""
        captures = self._captures or self._find()
        behind = {found: range(_first(found, self._planned), found.next_segment) for found in captures.values()}
        return {
            "segmentsBehind": sum(map(len, behind.values())),
            "bytesBehind": sum(self._looked.bytes_in(found, numbers) for found, numbers in behind.items()),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        before, after = positions_in(start, self._settings), positions_in(end, self._settings)
        if before == LATEST:
            return []
        # A batch that is repeated was not planned here.
        captures = self._captures if self._captures.keys() >= after.keys() else self._find()
        need_these(after, captures, self._settings)
        chosen = {}
        for capture_id, next_segment in after.items():
            if before.get(capture_id) == next_segment:
                continue
            if capture_id not in captures:
                reading.lost(
                    self._settings, f"capture {capture_id} is gone, and was not read to segment {next_segment}"
                )
                continue
            found = captures[capture_id]
            if found.next_segment < next_segment:
                # The batch was planned with more segments: reading a copy that is behind would lose them.
                reading.lost(
                    self._settings,
                    f"{found.path}: ends before segment {found.next_segment}, and a batch that is done again reads to segment "
                    f"{next_segment}: start again once it has come as far",
                )
            first = _first(found, before)
            wanted = [(number, number) for number in range(first, next_segment)]
            if isinstance(found.path, Url):
                there = [*self._looked.of(found, first, next_segment, counts=True)]
            else:
                # What was looked up may have been deleted or merged since.
                there = published(found.path, wanted, notes=NOTES)
            gone = absent([segment.span for segment in there], wanted)
            if gone:
                reading.lost(self._settings, missing(found.path, gone))
            chosen[found.path] = there
        return [*parts(chosen, self._settings.division)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the segments of a task."""
        assert isinstance(partition, reading.Part)
        return reading.read(self._settings, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the recorder's retention deletes segments."""

    def stop(self) -> None:
        """Ends this process if the JVM is gone: pyspark would try to answer it, and print a needless error."""
        if isinstance(sys.exception(), EOFError):
            os._exit(0)


class _Looked:
    """The segments of captures that were looked up.

    Those in stores are kept: their files do not change, and which of them are gone meanwhile shows when they are read.
    """

    def __init__(self) -> None:
        # By capture: the numbers that were looked up, and what there is of them.
        self._known: dict[Location, tuple[range, list[Segment]]] = {}

    def of(self, found: CapturePosition, first: int, end: int, *, counts: bool) -> Iterator[Segment]:
        """The segments of a capture in a range, looked up lazily; `counts` says whether with what is noted of their rows."""
        is_kept = isinstance(found.path, Url)
        numbers, known = self._known.get(found.path, (range(first, first), []))
        if not is_kept or not numbers.start <= first <= numbers.stop:
            numbers, known = range(first, first), []
        known = [segment for segment in known if segment.first >= first]
        yield from (segment for segment in known if segment.first < end)
        step = _LOOKED_FOR_IN_STORES if is_kept else _LOOKED_FOR
        for begin in range(numbers.stop, end, step):
            stop = min(begin + step, end)
            notes = stop - begin if counts else 0
            more = published(found.path, [(number, number) for number in range(begin, stop)], notes=notes)
            known += more
            if is_kept:
                self._known[found.path] = range(first, stop), known
            yield from more

    def bytes_in(self, found: CapturePosition, numbers: range) -> int:
        """The bytes of segments, estimated if there are many."""
        looked, known = self._known.get(found.path, (range(0), []))
        if numbers and numbers[0] in looked and numbers[-1] in looked:
            return sum(segment.bytes for segment in known if segment.first in numbers)
        return bytes_of(found.path, numbers)


class _Room:
    """The room of a micro-batch: whole segments, at least one."""

    def __init__(self, settings: Settings) -> None:
        self._limits = (settings.max_segments, settings.max_bytes, settings.max_rows)
        self._taken = (0, 0, 0)
        self.is_full = False

    @property
    def is_boundless(self) -> bool:
        """Whether there are no limits."""
        return all(limit is None for limit in self._limits)

    @property
    def counts(self) -> bool:
        """Whether it depends on the rows of segments."""
        return self._limits[1:] != (None, None)

    def take(self, found: CapturePosition, segment: Segment) -> bool:
        """Adds the segments of a file, if there is room."""
        segments, frame_bytes, rows = self._taken
        if self.counts:
            counts = segment.frame_bytes, segment.rows
            if None in counts:
                info = Capture(found.path, segments=[segment.span]).info()
                counts = info.bytes, info.messages
            frame_bytes, rows = frame_bytes + (counts[0] or 0), rows + (counts[1] or 0)
        taken = (segments + 1, frame_bytes, rows)
        over = (limit is not None and some > limit for some, limit in zip(taken, self._limits, strict=True))
        if self._taken[0] and any(over):
            self.is_full = True
            return False
        self._taken = taken
        return True


def _positions(captures: Mapping[str, CapturePosition]) -> dict[str, int]:
    return {capture_id: found.next_segment for capture_id, found in captures.items()}


def _first(found: CapturePosition, before: Mapping[str, int]) -> int:
    """The number of the first segment to read of a capture."""
    number = before.get(found.capture_id)
    return first_of(found) if number is None else number
