"""What tasks count of the messages of a capture, merged on the executors by groups and at last on the driver."""

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

__all__ = ["STATE", "Counting"]

# What a task gives of each protocol: the state of what it counted of messages, and of runs that are over.
STATE = "protocol string, messages binary, runs binary"

# How many tasks merge what the others have counted.
_MERGERS = 4


@dataclass(frozen=True, slots=True)
class Counting:
    """How messages are counted.

    Attributes:
        scope: What the selection bears on.
        clock: What time is divided into.
    """

    scope: Scope
    clock: Clock

    def counter(self, name: str, capture: Capture | None = None, selection: Selection | None = None) -> Counter:
        """Counts the messages of a protocol; of a capture, those that are selected."""
        return Counter(name, capture, selection, self.scope, self.clock)

    def recorded(
        self, name: str, batches: Iterable[pa.RecordBatch], *, of_runs: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """What decoded messages of a protocol come to, or the runs that are counted from them."""
        counter = self.counter(name)
        record = counter.record_runs if of_runs else counter.record
        for batch in batches:
            record(batch)
        yield states({name: counter})

    def merged(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What several tasks counted, together."""
        yield _as_batch(self._together(row for batch in batches for row in batch.to_pylist()))

    def collected(self, counted: DataFrame) -> dict[str, Counted]:
        """What all tasks counted, by protocol."""
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
    """What was counted of each protocol, all of it: what is still open is counted too."""
    for counter in counters.values():
        counter.finish()
    return _as_batch(counters)


def _as_batch(counters: dict[str, Counter]) -> pa.RecordBatch:
    import pyarrow as pa

    found = [counter.state() for counter in counters.values()]
    of_messages, of_runs = [state[0] for state in found], [state[1] for state in found]
    columns = [pa.array([*counters], pa.string()), pa.array(of_messages, pa.binary()), pa.array(of_runs, pa.binary())]
    return pa.record_batch(columns, names=["protocol", "messages", "runs"])
