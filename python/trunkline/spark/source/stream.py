"""Captures as a stream: segments as they are published, each once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from trunkline.errors import CaptureError
from trunkline.spark.source import reading
from trunkline.spark.source.captures import Found, existing, find, first_of, missing, segment_paths, sizes
from trunkline.spark.source.options import Settings
from trunkline.spark.source.planning import parts

__all__ = ["StreamReader"]

# The offset before the first batch where a stream begins at what is new: that batch is empty, and fixes the place. Spark asks
# for the initial offset more than once, and what is published in between would be skipped.
_LATEST = {"startingOffsets": "latest"}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads published segments in order, each once.

    An offset is ``{capture_id: number of the next segment}``. A capture that is not in it is read from its first segment on.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Where a stream that reads what is available now ends.
        self._end: dict[str, int] | None = None
        # Where the latest batch ends.
        self._planned: dict[str, int] = {}

    def initialOffset(self) -> dict[str, Any]:
        start = self._settings.start
        if start == "latest":
            return _LATEST
        return {} if start == "earliest" else dict(sorted(start.items()))

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark takes one, and enforces none: `latestOffset` heeds them all.
        settings = self._settings
        if settings.max_segments is not None:
            return ReadMaxFiles(settings.max_segments)
        if settings.max_bytes is not None:
            return ReadMaxBytes(settings.max_bytes)
        return ReadAllAvailable() if settings.max_rows is None else ReadMaxRows(settings.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = _positions(find(self._settings))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002 - all are heeded
        captures = find(self._settings)
        now = _positions(captures) if self._end is None else self._end
        if start == _LATEST:
            self._planned = now
            return now
        before = _offset(start, captures)
        end = dict(before)
        room = _Room(self._settings)
        # One segment of each capture after the other, so that none keeps the others waiting.
        waiting = {
            capture_id: iter(range(_first(captures[capture_id], before), next_segment))
            for capture_id, next_segment in now.items()
            if capture_id in captures
        }
        while waiting and not room.is_full:
            for capture_id in [*waiting]:
                number = next(waiting[capture_id], None)
                if number is None:
                    del waiting[capture_id]
                elif room.take(captures[capture_id], number):
                    end[capture_id] = number + 1
                else:
                    break
        self._planned = dict(sorted(end.items()))
        return self._planned

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far captures have come, and what of that will not be read when the latest batch has been."""
        captures = find(self._settings)
        behind = {found: [*range(_first(found, self._planned), found.next_segment)] for found in captures.values()}
        return {
            **_positions(captures),
            "segmentsBehind": sum(map(len, behind.values())),
            "bytesBehind": sum(sum(sizes(found.path, numbers).values()) for found, numbers in behind.items()),
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        captures = find(self._settings)
        if start == _LATEST:
            return []
        before = _offset(start, captures)
        chosen = {}
        for capture_id, next_segment in _offset(end, captures).items():
            if before.get(capture_id) == next_segment:
                continue
            if capture_id not in captures:
                reading.lost(
                    self._settings, f"capture {capture_id} is gone, and was not read to segment {next_segment}"
                )
                continue
            found = captures[capture_id]
            numbers = [*range(_first(found, before), next_segment)]
            there = existing(found.path, numbers)
            if len(there) < len(numbers):
                reading.lost(self._settings, missing(found.path, sorted({*numbers}.difference(there))))
            chosen[found.path] = there
        return [*parts(chosen)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the segments of a task."""
        assert isinstance(partition, reading.Part)
        return reading.read(self._settings, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: what was read is let go of by the recorder's own limits."""

    def stop(self) -> None:
        """Ends this process where the JVM is gone: pyspark would fail at telling it so, and print that as if it mattered."""
        if isinstance(sys.exception(), EOFError):
            os._exit(0)


class _Room:
    """What a micro-batch may still take: at least one segment, and whole ones."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._segments = self._bytes = self._rows = 0
        self.is_full = False

    def take(self, found: Found, number: int) -> bool:
        """Takes a segment, unless that would be too much."""
        settings = self._settings
        segments, size, rows = self._segments + 1, self._bytes, self._rows
        if settings.max_rows is not None or settings.max_bytes is not None:
            path = segment_paths(found.path, [number])[0]
            if path.exists():
                rows += parquet.read_metadata(path).num_rows
                size += _frame_bytes(path) if settings.max_bytes is not None else 0
        limits = ((segments, settings.max_segments), (size, settings.max_bytes), (rows, settings.max_rows))
        if self._segments and any(limit is not None and taken > limit for taken, limit in limits):
            self.is_full = True
            return False
        self._segments, self._bytes, self._rows = segments, size, rows
        return True


def _frame_bytes(path: Any) -> int:
    total: int = compute.sum(parquet.read_table(path, columns=["n_bytes"])["n_bytes"]).as_py() or 0
    return total


def _positions(captures: Mapping[str, Found]) -> dict[str, int]:
    return {capture_id: found.next_segment for capture_id, found in captures.items()}


def _first(found: Found, before: Mapping[str, int]) -> int:
    """The number of the first segment to read of a capture."""
    number = before.get(found.capture_id)
    return first_of(found) if number is None else number


def _offset(given: Mapping[str, Any], captures: Mapping[str, Found]) -> dict[str, int]:
    """What an offset says.

    Raises:
        CaptureError: It is that of another query.
    """
    if not all(isinstance(number, int) and number >= 0 for number in given.values()):
        message = "the checkpoint is not one of a stream of captures: choose another checkpointLocation"
        raise CaptureError(message)
    if given and captures and captures.keys().isdisjoint(given):
        message = (
            f"the checkpoint is about capture {min(given)}, and {min(captures.values(), key=lambda one: one.path).path} is "
            "another: choose another checkpointLocation"
        )
        raise CaptureError(message)
    return dict(given)
