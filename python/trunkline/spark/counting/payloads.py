"""The fields of payloads, counted by Spark for a report."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trunkline.columns import Layout
from trunkline.report.payloads import PayloadCounts
from trunkline.report.selecting import is_possible
from trunkline.spark.columns import decode
from trunkline.spark.counting.segments import Tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from trunkline.capture.reading import Capture
    from trunkline.capture.selecting import Selection

__all__ = ["count_segments", "count_table"]

_STATE = "protocol string, state binary"


def count_segments(
    session: SparkSession, capture: Capture, selection: Selection | None, layout: Layout
) -> PayloadCounts:
    """Counts the published messages of a capture where its segments are read."""
    tasks = Tasks.of(capture, selection)
    return _collected(tasks.over(session).mapInArrow(functools.partial(_of_tasks, tasks, str(layout)), _STATE), layout)


def count_table(rows: DataFrame, layout: Layout, protocols: Sequence[str]) -> PayloadCounts:
    """Counts the messages of a table that has the columns of a capture."""
    counts = PayloadCounts(layout)
    for protocol in protocols:
        if is_possible(layout, protocol):
            decoded = decode(rows, protocol, columns=counts.columns(protocol), payload=layout)
            of_rows = functools.partial(_of_rows, protocol, str(layout))
            counts.merge(_collected(decoded.mapInArrow(of_rows, _STATE), layout).states())
    return counts


def _collected(states: DataFrame, layout: Layout) -> PayloadCounts:
    counts = PayloadCounts(layout)
    for row in states.collect():
        counts.merge({row["protocol"]: bytes(row["state"])})
    return counts


def _of_tasks(tasks: Tasks, layout: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts = PayloadCounts(Layout(layout))
    for _, capture in tasks.captures(batches):
        counts.count(capture, tasks.selection)
    yield _states(counts)


def _of_rows(protocol: str, layout: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts = PayloadCounts(Layout(layout))
    for batch in batches:
        counts.record(protocol, batch)
    yield _states(counts)


def _states(counts: PayloadCounts) -> pa.RecordBatch:
    import pyarrow as pa

    found = counts.states()
    return pa.record_batch(
        [pa.array(list(found), pa.string()), pa.array(list(found.values()), pa.binary())], names=["protocol", "state"]
    )
