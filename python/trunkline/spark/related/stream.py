"""Streams of related messages: folds with a state that Spark keeps from one micro-batch to the next.

There is one Python call per bucket of a micro-batch, and no rows pass through pandas.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trunkline._arrow import to_bytes
from trunkline._native.analysis import Fold
from trunkline.errors import LocalProtocolError
from trunkline.spark._comments import declared
from trunkline.spark._lazy import F
from trunkline.spark.related.bounds import BUCKETS
from trunkline.spark.related.bundles import BUNDLE, Step, in_order, rebundled, unpacked
from trunkline.spark.related.losses import Losses, Lost, losses, lost
from trunkline.spark.session import NEEDED

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # its types are a package of their own
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["streamed"]

_STORE = "spark.sql.streaming.stateStore.providerClass"

# What the fold of a bucket gives: rows, and what it has lost.
_FOLDED = "rows binary, evicted bigint, left_out bigint"


def streamed(bundles: DataFrame, name: str, steps: list[Step]) -> DataFrame:
    """The table of this name from a stream of bundles for its first step, in any order within a micro-batch."""
    _need_state_store(bundles)
    table, found = Fold(name), losses(bundles.sparkSession, name, steps[0].bounds.max_bytes)
    mode = "update" if table.key else "append"
    messages = F.coalesce(F.sum("messages"), F.lit(0)).alias("messages")
    bundles = bundles.observe(f"trunkline.{name}.input", messages)
    for step, following in itertools.pairwise(steps):
        bundles = _stepped(bundles, step, None, mode).mapInArrow(functools.partial(rebundled, following), BUNDLE)
    given = _stepped(bundles, steps[-1], found, mode)
    totals = (F.coalesce(F.sum(count), F.lit(0)).alias(count) for count in ("evicted", "left_out"))
    watched = given.observe(f"trunkline.{name}", *totals)
    return watched.mapInArrow(unpacked, declared(table.ddl(), name))


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
        for batch in in_order(passed):
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
                f"buckets: {error}; choose another checkpointLocation, or set {BUCKETS} to the number that it has, or not at all if there "
                "is one for each partition"
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
