"""Streams of related messages: folds with a state that Spark keeps from one micro-batch to the next.

Messages pass between tasks in bundles, one per bucket, and so do the results of folds: one Python call per bucket of a
micro-batch, and no rows through pandas.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trunkline._arrow import from_bytes, to_bytes
from trunkline._native.analysis import Fold, divide
from trunkline._text import counted
from trunkline.errors import LocalProtocolError
from trunkline.spark._comments import declared
from trunkline.spark.session import NEEDED

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # its types are a package of their own
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["BUCKETS", "streamed"]

# Each bucket has a state, so the number is fixed: with another one, states of a checkpoint would have other messages. More
# buckets would make bundles small, and each has an overhead for its columns.
BUCKETS = 16

_STORE = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is folded from a stream.

    Attributes:
        name: The name of the table, one of `Fold.NAMES`.
        window_us: How long the windows of topics are, in microseconds.
    """

    name: str
    window_us: int

    def fold(self) -> Fold:
        """The fold of a bucket, with nothing in it."""
        return Fold(self.name, window_us=self.window_us, buckets=BUCKETS)


def streamed(rows: DataFrame, name: str, window_us: int) -> DataFrame:
    """The table of this name from a stream of decoded messages, in any order within a micro-batch."""
    _need_state_store(rows)
    table = Table(name, window_us)
    fold = table.fold()
    bundles = rows.mapInArrow(functools.partial(_bundled, fold.protocol), "bucket int, rows binary")
    # It has the methods that Spark calls, without the base class. Spark passes a watermark only in event time.
    bucket: Any = Bucket(table)
    mode = "update" if fold.key else "append"
    given = bundles.groupBy("bucket").transformWithStateInPandas(bucket, "rows binary", mode, "EventTime")
    return given.mapInArrow(_unpacked, declared(fold.ddl(), name))


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
    """A `StatefulProcessor` for the messages of each bucket, without importing Spark for its base class."""

    table: Table
    states: Any = field(default=None, repr=False)

    def init(self, handle: Any) -> None:
        """Names the state: the bytes of a fold."""
        self.states = handle.getValueState("fold", "state binary")

    def handleInputRows(  # noqa: N802 - as Spark calls it
        self, key: tuple[int], rows: Iterator[pd.DataFrame], timer_values: Any
    ) -> Iterator[pd.DataFrame]:
        """Folds the messages of a bucket of a micro-batch, and returns changed rows."""
        import pandas as pd

        fold, before = self.table.fold(), self.states.get()
        if before is not None:
            self._restore(fold, bytes(before[0]))
        let_go, watermark_ms = fold.let_go, timer_values.getCurrentWatermarkInMs()
        if watermark_ms > 0:
            fold.forget(watermark_ms * 10**6)
        given = []
        for batch in _in_order(bundle for frame in rows for bundle in frame["rows"]):
            given += fold.record(batch)
        given += fold.standing()
        self.states.update((fold.state(),))
        if fold.let_go > let_go:
            # This log goes to the standard error of the executor.
            text = "%s, bucket %d: %s left out: late, or more were open at a time than are kept"
            number = counted(fold.let_go - let_go, "link")
            logging.getLogger("trunkline.spark").warning(text, self.table.name, key[0], number)
        if given:
            yield pd.DataFrame({"rows": [to_bytes(batch) for batch in given]})

    def _restore(self, fold: Fold, state: bytes) -> None:
        try:
            fold.restore(state)
        except ValueError as error:
            message = (
                f"the checkpoint is of another query than {self.table.name}, or of another version of trunkline: {error}; "
                "choose another checkpointLocation"
            )
            raise LocalProtocolError(message) from None

    def close(self) -> None:
        """Nothing to close."""


def _bundled(protocol: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Messages in bundles, by bucket."""
    import pyarrow as pa

    for batch in batches:
        bundles = [(bucket, to_bytes(rows)) for bucket, rows in divide(protocol, batch, BUCKETS)]
        buckets, rows = zip(*bundles, strict=True) if bundles else ((), ())
        yield pa.record_batch([pa.array(buckets, pa.int32()), pa.array(rows, pa.binary())], names=["bucket", "rows"])


def _in_order(bundles: Iterable[bytes]) -> list[pa.RecordBatch]:
    """The messages of bundles in recorded order."""
    import pyarrow as pa

    table = pa.Table.from_batches([batch for bundle in bundles for batch in from_bytes(bundle)])
    order = [(name, "ascending") for name in ("capture_id", "seq", "record") if name in table.column_names]
    batches: list[pa.RecordBatch] = table.sort_by(order).combine_chunks().to_batches()
    return batches


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of folds."""
    for batch in batches:
        for rows in batch["rows"]:
            yield from from_bytes(rows.as_buffer())
