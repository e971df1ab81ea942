"""Counts of tasks, merged in groups on the executors and finally on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trunkline.report.model import Clock, Counted, Scope
from trunkline.report.protocols import Counter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from trunkline.capture.reading import Capture
    from trunkline.capture.selecting import Selection
    from trunkline.columns import Layout

__all__ = ["STATE", "Counting"]

# The result of a task for each protocol: the state of its counts of messages, and of completed runs.
STATE = "protocol string, messages binary, runs binary"

# How many tasks merge the counts of the others.
_MERGERS = 4


@dataclass(frozen=True, slots=True)
class Counting:
    """The settings of counting.

    Attributes:
        scope: The scope of the selection.
        clock: The time buckets.
        now_ns: Now, if runs without an EOR may go on, in nanoseconds since 1970.
        layout: The layout of payloads, if a selection may be about their fields.
    """

    scope: Scope
    clock: Clock
    now_ns: int | None
    layout: Layout | None = None

    def counter(self, name: str, capture: Capture | None = None, selection: Selection | None = None) -> Counter:
        """A counter of the messages of a protocol; with a capture, of the selected ones."""
        return Counter(name, capture, selection, self.scope, self.clock, self.now_ns, self.layout)

    def recorded(
        self, name: str, batches: Iterable[pa.RecordBatch], *, of_runs: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The counts of decoded messages of a protocol, or of the runs in them."""
        counter = self.counter(name)
        record = counter.record_runs if of_runs else counter.record
        for batch in batches:
            record(batch)
        yield states({name: counter})

    def merged(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The sum of the counts of several tasks."""
        yield _as_batch(self._together(row for batch in batches for row in batch.to_pylist()))

    def collected(self, counted: DataFrame) -> dict[str, Counted]:
        """The sum of the counts of all tasks, by protocol."""
        merged = counted.repartition(_MERGERS).mapInArrow(self.merged, STATE)
        return {name: counter.counted() for name, counter in self._together(merged.collect()).items()}

    def _together(self, rows: Iterable[Any]) -> dict[str, Counter]:
        counters: dict[str, Counter] = {}
        for row in rows:
            name = row["protocol"]
            if name not in counters:
                counters[name] = self.counter(name)
            counters[name].merge((bytes(row["messages"]), bytes(row["runs"])))
        return counters


def states(counters: dict[str, Counter]) -> pa.RecordBatch:
    """The final counts of each protocol, including things that are still open."""
    for counter in counters.values():
        counter.finish()
    return _as_batch(counters)


def _as_batch(counters: dict[str, Counter]) -> pa.RecordBatch:
    import pyarrow as pa

    found = [counter.state() for counter in counters.values()]
    of_messages, of_runs = [state[0] for state in found], [state[1] for state in found]
    columns = [pa.array([*counters], pa.string()), pa.array(of_messages, pa.binary()), pa.array(of_runs, pa.binary())]
    return pa.record_batch(columns, names=["protocol", "messages", "runs"])
