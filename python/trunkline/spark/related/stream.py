"""Streams of related messages: folds with a state that Spark keeps from one micro-batch to the next.

Messages pass between tasks in bundles, one per bucket, and so do the results of folds: one Python call per bucket of a
micro-batch, and no rows through pandas.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trunkline._arrow import from_bytes, to_bytes
from trunkline._native.analysis import Fold
from trunkline.errors import LocalProtocolError
from trunkline.spark._comments import declared
from trunkline.spark._lazy import F
from trunkline.spark.related.bounds import BUCKETS, Bounds
from trunkline.spark.related.losses import Losses, Lost, losses, lost
from trunkline.spark.session import NEEDED

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # its types are a package of their own
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["streamed"]

_STORE = "spark.sql.streaming.stateStore.providerClass"

# The place at which a bundle begins: the order in which the bundles of a bucket are folded.
_BEGINS = {"capture_id": "string", "seq": "bigint", "record": "int"}
_BUNDLE = ", ".join(
    [
        "bucket int",
        *(f"{name} {kind}" for name, kind in _BEGINS.items()),
        "rows binary, evicted bigint, left_out bigint",
    ]
)

# The number of a bucket, where its rows begin, these, and what was lost before.
_Bundle = tuple[int, str, int, int, bytes, int, int]

# With another number of buckets messages may go to one that has no state yet: the first one, which has, sees it, as a task gives
# it a bundle in any case.
_NONE: _Bundle = (0, "", 0, 0, b"", 0, 0)

# How many bytes of bundles a bucket holds in memory.
_HELD_BYTES = 32 << 20

# What the fold of a bucket gives: rows, and what it has lost.
_FOLDED = "rows binary, evicted bigint, left_out bigint"


@dataclass(frozen=True, slots=True)
class Step:
    """A fold of a stream: of a table, or of a step of one.

    Attributes:
        name: The name of the fold.
        window_us: How long the windows of topics are, in microseconds.
        bounds: How many buckets it has, and how much each may keep.
    """

    name: str
    window_us: int
    bounds: Bounds

    def fold(self) -> Fold:
        """The fold of a bucket, with nothing in it."""
        bounds = self.bounds
        return Fold(self.name, window_us=self.window_us, buckets=bounds.buckets(), max_bytes=bounds.max_bytes)


def streamed(rows: DataFrame, name: str, window_us: int) -> DataFrame:
    """The table of this name from a stream of decoded messages, in any order within a micro-batch."""
    _need_state_store(rows)
    session = rows.sparkSession
    bounds = Bounds.of(session, is_streaming=True)
    table, found = Fold(name), losses(session, name, bounds.max_bytes)
    steps = [Step(step, window_us, bounds) for step in table.steps]
    mode = "update" if table.key else "append"
    bundles = rows.mapInArrow(functools.partial(_bundled, steps[0]), _BUNDLE)
    for step, following in itertools.pairwise(steps):
        bundles = _stepped(bundles, step, None, mode).mapInArrow(functools.partial(_between, following), _BUNDLE)
    given = _stepped(bundles, steps[-1], found, mode)
    totals = (F.coalesce(F.sum(count), F.lit(0)).alias(count) for count in ("evicted", "left_out"))
    watched = given.observe(f"trunkline.{name}", *totals)
    return watched.mapInArrow(_unpacked, declared(table.ddl(), name))


def _stepped(bundles: DataFrame, step: Step, losses: Losses | None, mode: str) -> DataFrame:
    # It has the methods that Spark calls, without the base class. Spark passes a watermark only in event time.
    bucket: Any = Bucket(step, losses)
    return bundles.groupBy("bucket").transformWithStateInPandas(bucket, _FOLDED, mode, "EventTime")


def _need_state_store(rows: DataFrame) -> None:
    """Raises `LocalProtocolError` if the session does not keep the state of streams in RocksDB."""
    if str(rows.sparkSession.conf.get(_STORE)).endswith(".HDFSBackedStateStoreProvider"):
        message = (
            "streams of what belongs together keep their state in RocksDB, and this session does not: take one of spark.session(), or of a "
            f"builder that spark.configure(builder) was given, or set {_STORE} to {NEEDED[_STORE]}"
        )
        raise LocalProtocolError(message)


@dataclass(slots=True)
class Bucket:
    """A `StatefulProcessor` for the messages of each bucket, without importing Spark for its base class.

    What a step has lost is passed on with its rows; the last one counts it.
    """

    step: Step
    losses: Losses | None
    states: Any = field(default=None, repr=False)

    def init(self, handle: Any) -> None:
        """Names the state: the bytes of a fold."""
        self.states = handle.getValueState("fold", "state binary")

    def handleInputRows(  # noqa: N802 - as Spark calls it
        self,
        key: tuple[int],  # noqa: ARG002 - all buckets are alike
        rows: Iterator[pd.DataFrame],
        timer_values: Any,
    ) -> Iterator[pd.DataFrame]:
        """Folds the messages of a bucket of a micro-batch, and returns changed rows."""
        fold, state = self.step.fold(), self.states.get()
        if state is not None:
            self._restore(fold, bytes(state[0]))
        before, watermark_ms = lost(fold), timer_values.getCurrentWatermarkInMs()
        if watermark_ms > 0:
            fold.forget(watermark_ms * 10**6)
        passed = Passed(rows)
        for batch in _in_order(passed):
            yield from _packed(fold.record(batch))
        fold.at(time.time_ns())
        yield from _packed(fold.emit_open())
        self.states.update((fold.state(),))
        found = passed.with_more(lost(fold, before))
        if self.losses is not None:
            self.losses.add(found)
        if any(found):
            yield from _packed([None], found)

    def _restore(self, fold: Fold, state: bytes) -> None:
        try:
            fold.restore(state)
        except ValueError as error:
            message = (
                f"the checkpoint is of another query than {self.step.name}, of another version of trunkline, or of another number of "
                f"buckets: {error}; choose another checkpointLocation, or set {BUCKETS} to the number that it has"
            )
            raise LocalProtocolError(message) from None

    def close(self) -> None:
        """Nothing to close."""


class Passed:
    """The bundles of a bucket; adds up what the step before has lost."""

    def __init__(self, frames: Iterator[pd.DataFrame]) -> None:
        self._frames = frames
        self._lost: Lost = (0, 0)

    def __iter__(self) -> Iterator[pd.DataFrame]:
        for frame in self._frames:
            self._lost = self.with_more((int(frame["evicted"].sum()), int(frame["left_out"].sum())))
            yield frame

    def with_more(self, found: Lost) -> Lost:
        """The sum with what this step has lost."""
        return self._lost[0] + found[0], self._lost[1] + found[1]


def _packed(batches: Iterable[pa.RecordBatch | None], found: Lost = (0, 0)) -> Iterator[pd.DataFrame]:
    """Results for Spark, one at a time."""
    import pandas as pd

    for batch in batches:
        rows = None if batch is None else to_bytes(batch)
        yield pd.DataFrame({"rows": [rows], "evicted": [found[0]], "left_out": [found[1]]})


def _bundled(step: Step, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Messages in bundles, by bucket, each in recorded order."""
    yield _as_bundles([_NONE])
    fold, buckets = Fold(step.name), step.bounds.buckets()
    for batch in batches:
        if batch.num_rows:
            yield _as_bundles(_divided(fold, buckets, [batch]))


def _between(step: Step, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of one step as bundles of the next one."""
    yield _as_bundles([_NONE])
    fold, buckets = Fold(step.name), step.bounds.buckets()
    for batch in batches:
        for rows, *found in zip(*(batch[name] for name in ("rows", "evicted", "left_out")), strict=True):
            if rows.is_valid:
                yield _as_bundles(_divided(fold, buckets, from_bytes(rows.as_buffer())))
            else:
                yield _as_bundles([(*_NONE[:-2], *(count.as_py() for count in found))])


def _divided(fold: Fold, buckets: int, rows: list[pa.RecordBatch]) -> list[_Bundle]:
    divided = fold.divide(_sorted(rows), buckets)
    return [(bucket, *_place(some, 0), to_bytes(some), 0, 0) for bucket, some in divided]


def _as_bundles(bundles: list[_Bundle]) -> pa.RecordBatch:
    import pyarrow as pa

    types = [pa.int32(), pa.string(), pa.int64(), pa.int32(), pa.binary(), pa.int64(), pa.int64()]
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*bundles, strict=True), types, strict=True)]
    return pa.record_batch(arrays, names=["bucket", *_BEGINS, "rows", "evicted", "left_out"])


def _in_order(frames: Iterable[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
    """The messages of bundles in recorded order.

    After a shuffle the bundles of a bucket come in any order, and Spark sorts no stream. So they are held, on disk if they are many,
    and read one after the other. Where one begins before another has ended, as of files that Spark reads as it likes, these are
    sorted together.
    """
    places = []
    with tempfile.SpooledTemporaryFile(_HELD_BYTES) as held:
        for frame in frames:
            for *begins, rows in zip(*(frame[name] for name in (*_BEGINS, "rows")), strict=True):
                if rows:
                    places.append((begins, held.tell(), len(rows)))
                    held.write(rows)
        together: list[pa.RecordBatch] = []
        ended = ("", -1, -1)
        for begins, at, size in sorted(places):
            if together and tuple(begins) > ended:
                yield _sorted(together)
                together = []
            held.seek(at)
            together += from_bytes(held.read(size))
            ended = max(ended, _place(together[-1], -1))
        if together:
            yield _sorted(together)


def _place(batch: pa.RecordBatch, at: int) -> tuple[str, int, int]:
    """The place of a message: its capture, its row there and its record."""
    capture_id, seq, record = (batch[name][at].as_py() if name in batch.schema.names else None for name in _BEGINS)
    return capture_id or "", seq or 0, record or 0


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Messages in recorded order."""
    import pyarrow as pa

    if len(batches) == 1 and _is_in_order(batches[0]):
        return batches[0]
    table = pa.Table.from_batches(batches)
    order = [(name, "ascending") for name in _BEGINS if name in table.column_names]
    (found,) = table.sort_by(order).combine_chunks().to_batches()
    return found


def _is_in_order(batch: pa.RecordBatch) -> bool:
    """Whether messages are of one capture, of one record each, and in its order."""
    from pyarrow import compute

    seq, names = batch["seq"], batch.schema.names
    if "capture_id" in names and len(batch["capture_id"].unique()) > 1:
        return False
    ordered = compute.all(compute.less(seq[:-1], seq[1:]))
    return seq.null_count == 0 and ordered.as_py() is not False


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of folds."""
    for batch in batches:
        for rows in batch["rows"].drop_null():
            yield from from_bytes(rows.as_buffer())
