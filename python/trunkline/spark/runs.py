"""The runs of senders, and the gaps in their numbers, from the rows of a capture."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trunkline._native.analysis import Fold
from trunkline.columns import Decoder
from trunkline.spark._comments import declared
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark.cdtp import from_cdtp
from trunkline.spark.columns import decode_keeping, need_columns
from trunkline.spark.related.batch import folded

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["gaps", "rows_of_runs", "runs"]

_NEEDED = ("capture_id", "seq", "received_at_ns", "header", "payload", "n_frames", "n_bytes")

# The columns that runs are counted from.
_KEPT = ("capture_id", "seq", "received_at_ns", "n_bytes")
_SAID = ("record", "sender", "type", "sequence")

# The column with the frames of BOR and EOR, in streams.
_FRAMES = {"header": "boundary_header", "payload": "boundary_payload"}


@needs_extra
def runs(rows: DataFrame) -> DataFrame:
    """The runs in rows of a capture, one row per run: a sender from one BOR to the next (CDTP-21).

    The columns are those of `trunkline.capture.Run`, with `config` and `metadata` as VARIANTs, and the values are those
    that `Capture.runs` gives. Three differences: only runs whose rows are in `rows` are here, numbered from the first BOR
    among them; all senders are, however many and however long their names; and as rows do not say whether their recorder has ended, a
    run without an EOR is ``IN_PROGRESS`` until its sender was silent for ten minutes. The order of `rows` does not matter.

    Of a stream a run is given again with each change, by `capture_id`, `sender` and `ordinal`: the last row is that of the batch. It is
    kept until the next BOR of its sender, of as many senders as a bucket keeps: beyond that the oldest makes way, its run is ``EVICTED``, and
    if it comes again its runs are numbered anew. A watermark ends nothing, and rows that come late are taken as they come.

    Args:
        rows: A capture, or rows of one or several; a batch or a stream.

    Raises:
        LocalProtocolError: A column of a capture is missing, or a stream has no RocksDB to keep its state in.

    ```python
    from trunkline import spark

    runs = spark.runs(spark.session().read.parquet("runs/"))
    runs.where("condition <> 'GOOD'").select("sender", "run_id", "condition", "missed").show()
    ```
    """
    need_columns(rows, _NEEDED, "runs need")
    if rows.isStreaming:
        return folded(_with_boundaries(rows), "runs", {name: F.col(column) for name, column in _FRAMES.items()})
    return rows_of_runs(rows).mapInArrow(_counted, declared(Fold("runs").ddl(), "runs"))


def _with_boundaries(rows: DataFrame) -> DataFrame:
    """The messages of runs, BOR and EOR with their frames, in one pass: a stream cannot be joined with itself."""
    if "protocol" in rows.columns:
        rows = rows.where(F.col("protocol") == "cdtp")
    is_boundary = from_cdtp("header", tags=None)["type"].isin("BOR", "EOR") & (F.col("n_bytes") <= Fold.MAP_BYTES)
    frames = {"header": F.col("header"), "payload": F.get("payload", F.lit(0))}
    # The other payloads stay in the JVM.
    marked = rows.withColumns({column: F.when(is_boundary, frames[name]) for name, column in _FRAMES.items()})
    kept = (*_KEPT, *_FRAMES.values())
    return decode_keeping(marked, Decoder("cdtp", tags=None), kept, (*kept, *_SAID))


def rows_of_runs(rows: DataFrame) -> DataFrame:
    """The messages of runs, sorted by sender, as a sender that makes way for others is complete."""
    need_columns(rows, _NEEDED, "runs need")
    decoded = decode_keeping(rows, Decoder("cdtp", tags=None), _KEPT, (*_KEPT, *_SAID))
    messages = decoded.where("type IS NOT NULL")
    # The frames of BOR and EOR by a join: they are few, and this costs less than moving all frames.
    ends = messages.where("type IN ('BOR', 'EOR') AND record = 0").select("capture_id", "seq", "sender")
    frames = rows.where(F.col("n_bytes") <= Fold.MAP_BYTES).join(F.broadcast(ends), ["capture_id", "seq"])
    payload = F.get("payload", F.lit(0)).alias("payload")
    said = frames.select("capture_id", "seq", "sender", F.lit(Fold.FRAMES).alias("record"), "header", payload)
    every = messages.unionByName(said, allowMissingColumns=True)
    source = ("capture_id", "sender")
    return every.repartition(*source).sortWithinPartitions(*source, "seq", "record")


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    fold = Fold("runs")
    for batch in batches:
        yield from fold.record(batch)
    fold.at(time.time_ns())
    yield from fold.finish()


@needs_extra
def gaps(rows: DataFrame) -> DataFrame:
    """The messages of CDTP before which sequence numbers were skipped (CDTP-21), one row each.

    The columns are `capture_id`, `endpoint`, `sender`, `seq` and `received_at_ns` of the message, and `missed`: how many
    numbers were skipped, counted from the highest before; a BOR begins anew. They are those of `Capture.gaps`. The order of
    `rows` does not matter.

    Of a stream a row is given once, and is final. What is known of a sender is the highest number so far, of as many senders as
    a bucket keeps: beyond that the oldest makes way, which the metrics count. A watermark ends nothing; a message that comes late fills no gap.

    Args:
        rows: A capture, or rows of one or several; a batch or a stream.

    Raises:
        LocalProtocolError: A column of a capture is missing, or a stream has no RocksDB to keep its state in.

    ```python
    from trunkline import spark

    gaps = spark.gaps(spark.session().read.parquet("runs/"))
    gaps.groupBy("sender").sum("missed").show()
    ```
    """
    need_columns(rows, (*_NEEDED, "endpoint"), "gaps need")
    kept = ("capture_id", "seq", "received_at_ns", "endpoint")
    return folded(decode_keeping(rows, Decoder("cdtp", tags=None), kept, Fold("gaps").needs), "gaps")
