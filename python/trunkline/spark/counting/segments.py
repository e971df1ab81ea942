"""A capture on a disk that all executors reach, counted where its segments are read.

A task reads some of the segments, decodes them, and returns the messages in bundles of related ones, each with a partition number:
Spark shuffles and sorts bundles instead of messages.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline._arrow import from_bytes, to_bytes
from trunkline._native.analysis import divide
from trunkline.capture.passed import missing
from trunkline.capture.reading import Capture, native, parts
from trunkline.capture.selecting import Selection
from trunkline.columns import Layout
from trunkline.errors import CaptureError
from trunkline.report.local import now_of, total_of
from trunkline.report.model import Counted, Scope, Total
from trunkline.report.protocols import Counter, read, within
from trunkline.report.selecting import spoken
from trunkline.spark.counting.merging import STATE, Counting, states
from trunkline.spark.source.captures import published
from trunkline.spark.source.planning import NOTES
from trunkline.spark.source.planning import parts as planned
from trunkline.spark.source.reading import Piece

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from trunkline._native.capture import Capture as Part

__all__ = ["Tasks", "count"]

_BUNDLE = "partition int, task int, number int, protocol string, of_runs boolean, rows binary"
_TOTAL = "rows bigint, bytes bigint, first_ns bigint, last_ns bigint, protocols array<string>"


@dataclass(frozen=True, slots=True)
class Tasks:
    """The segments of each task.

    Attributes:
        pieces: The segments, by task.
        selection: Which messages; all if None.
    """

    pieces: tuple[Piece, ...]
    selection: Selection | None

    @classmethod
    def of(cls, capture: Capture, selection: Selection | None) -> Tasks:
        """Divides the published segments of a capture."""
        location = capture.path.absolute()
        groups = planned({location: published(location, notes=NOTES)})
        return cls(tuple(piece for part in groups for piece in part.pieces), selection)

    def over(self, session: SparkSession) -> DataFrame:
        """A table with a row per task: its number."""
        return session.range(0, len(self.pieces), 1, max(1, len(self.pieces)))

    def captures(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Capture]]:
        """The captures that tasks read, with the numbers of the tasks."""
        for batch in batches:
            for task in batch["id"].to_pylist():
                piece = self.pieces[task]
                opened = piece.opened()
                yield task, opened
                if gone := native(opened).gone:
                    raise CaptureError(missing(piece.location, sorted(set(gone))))


@dataclass(frozen=True, slots=True)
class _Bundling:
    """The partitioning and counting of messages.

    Attributes:
        tasks: The tasks that read them.
        names: Their protocols.
        partitions: The number of partitions.
        counting: The settings of counting.
    """

    tasks: Tasks
    names: tuple[str, ...]
    partitions: int
    counting: Counting

    def bundled(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Messages of segments, by partition."""
        for task, capture in self.tasks.captures(batches):
            counters = {name: self.counting.counter(name, capture, self.tasks.selection) for name in self.names}
            number = 0
            for part in parts(capture):
                for _, found in read(part, counters, within(self.tasks.selection, self.names, capture)):
                    bundles = list(self._bundles(part, counters, found))
                    if bundles:
                        yield _rows(task, number, bundles)
                        number += len(bundles)

    def _bundles(
        self, part: Part, counters: dict[str, Counter], found: dict[str, pa.RecordBatch]
    ) -> Iterator[tuple[int, str, bool, bytes]]:
        """Bundles: the partition, the protocol, whether runs are counted from them, and the messages."""
        for name, rows in found.items():
            for messages, of_runs in counters[name].decoded(part, rows):
                for is_of_runs, some in ((False, messages), (True, of_runs)):
                    if some is not None and some.num_rows:
                        for partition, each in divide(name, some, self.partitions):
                            yield partition, name, is_of_runs, to_bytes(each)

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The counts of bundles, those of a partition in recorded order."""
        counters: dict[str, Counter] = {}
        for batch in batches:
            for name, of_runs, rows in zip(
                batch["protocol"].to_pylist(), batch["of_runs"].to_pylist(), batch["rows"], strict=True
            ):
                if name not in counters:
                    counters[name] = self.counting.counter(name)
                record = counters[name].record_runs if of_runs else counters[name].record
                for some in from_bytes(rows.as_buffer()):
                    record(some)
        yield states(counters)


def _rows(task: int, number: int, bundles: list[tuple[int, str, bool, bytes]]) -> pa.RecordBatch:
    """Bundles of a task, numbered from `number` on."""
    import pyarrow as pa

    partitions, names, are_of_runs, rows = map(list, zip(*bundles, strict=True))
    return pa.record_batch(
        [
            pa.array(partitions, pa.int32()),
            pa.array([task] * len(bundles), pa.int32()),
            pa.array(range(number, number + len(bundles)), pa.int32()),
            pa.array(names, pa.string()),
            pa.array(are_of_runs, pa.bool_()),
            pa.array(rows, pa.binary()),
        ],
        names=["partition", "task", "number", "protocol", "of_runs", "rows"],
    )


def _totals(tasks: Tasks, layout: Layout | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The totals of the segments of each task."""
    import pyarrow as pa

    for _, capture in tasks.captures(batches):
        found, names = total_of(capture, tasks.selection, layout), [*capture.info().protocols]
        columns = [
            pa.array([number], pa.int64()) for number in (found.rows, found.bytes, found.first_ns, found.last_ns)
        ]
        yield pa.record_batch(
            [*columns, pa.array([names], pa.list_(pa.string()))],
            names=["rows", "bytes", "first_ns", "last_ns", "protocols"],
        )


def count(
    session: SparkSession, capture: Capture, selection: Selection | None, scope: Scope, layout: Layout | None
) -> tuple[Total, dict[str, Counted]]:
    """Counts the published messages of a capture: the total, and the counts of each protocol."""
    tasks = Tasks.of(capture, selection)
    found = tasks.over(session).mapInArrow(functools.partial(_totals, tasks, layout), _TOTAL).collect()
    total = Total.of([Total(row["rows"], row["bytes"], row["first_ns"], row["last_ns"]) for row in found])
    there = {name for row in found for name in row["protocols"]}
    names = tuple(name for name in spoken(capture, selection, layout) if name in there)
    # As many partitions as Spark shuffles into.
    partitions = int(session.conf.get("spark.sql.shuffle.partitions") or 16)
    bundling = _Bundling(tasks, names, partitions, Counting(scope, total.clock, now_of(capture), layout))
    bundles = tasks.over(session).mapInArrow(bundling.bundled, _BUNDLE)
    in_order = bundles.repartitionById(partitions, "partition").sortWithinPartitions("task", "number")
    counted = bundling.counting.collected(in_order.mapInArrow(bundling.counted, STATE))
    return total, {name: counted[name] for name in names if name in counted and counted[name]["rows"]}
