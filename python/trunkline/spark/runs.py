"""The runs of senders, counted from the rows of a capture."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trunkline._native.columns import Gaps, Runs
from trunkline.columns import Decoder
from trunkline.spark._engine import F, in_order, mapped, spared
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import decode_keeping, need_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["count_runs", "runs", "skipped"]

_NEEDED = ("capture_id", "seq", "received_at_ns", "header", "payload", "n_frames", "n_bytes")

# What a run is counted from.
_KEPT = ("capture_id", "seq", "received_at_ns", "n_bytes")
_SAID = ("record", "sender", "type", "sequence")


@needs_extra
def runs(rows: DataFrame) -> DataFrame:
    """The runs in rows of a capture, one row per run: a sender from one BOR to the next (CDTP-21).

    The columns are those of `trunkline.capture.Run`, with `config` and `metadata` as VARIANTs, and the values are those
    that `Capture.runs` gives. Two differences: only runs whose rows are in `rows` are here, numbered from the first BOR
    among them; and all senders are, however many and however long their names. The order of `rows` does not matter.

    Args:
        rows: A capture, or rows of one or several; a batch, not a stream.

    Raises:
        LocalProtocolError: A column of a capture is missing.
    """
    return count_runs(rows)


def count_runs(rows: DataFrame, *, json: bool = False) -> DataFrame:
    """The runs, with `config` and `metadata` as JSON text where that is asked for."""
    need_columns(rows, _NEEDED, "runs need")
    decoded = decode_keeping(rows, Decoder("cdtp", tags=None), _KEPT, (*_KEPT, *_SAID))
    messages = spared(decoded, "type IS NOT NULL")

    def frames(boundaries: DataFrame) -> DataFrame:
        """What BOR and EOR say. There are few, and finding theirs costs less than to have the frames of all pass by here."""
        found = rows.where(F.col("n_bytes") <= Runs.MAP_BYTES).join(
            F.broadcast(boundaries.select("capture_id", "seq", "sender")), ["capture_id", "seq"]
        )
        payload = F.get("payload", F.lit(0)).alias("payload")
        return found.select("capture_id", "seq", "sender", F.lit(Runs.FRAMES).alias("record"), "header", payload)

    is_boundary = "type IN ('BOR', 'EOR') AND record = 0"
    together, is_sorted = in_order(messages, ("capture_id", "sender"), is_boundary, frames)
    count = functools.partial(_count, json=json, is_sorted=is_sorted)
    return mapped(together, count, lambda: Runs.ddl(json=json))


def skipped(messages: DataFrame, source: Sequence[str], kept: Sequence[str]) -> DataFrame:
    """The columns `kept` of messages, with `missed`: how many numbers were skipped before that of each (CDTP-21).

    `messages` are decoded ones with `seq`, `record`, `type` and `sequence`; the texts `source` tell senders apart. Of those
    that have no number `missed` is null.
    """

    def schema() -> StructType:
        from pyspark.sql.types import LongType, StructType

        return StructType([messages.schema[name] for name in kept]).add("missed", LongType())

    together, is_sorted = in_order(messages, source)

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gaps = Gaps(source, sorted=is_sorted)
        for batch in batches:
            yield batch.select(kept).append_column("missed", gaps.record(batch))

    return mapped(together, find, schema)


def _count(batches: Iterator[pa.RecordBatch], *, json: bool, is_sorted: bool) -> Iterator[pa.RecordBatch]:
    counted = Runs(json=json, sorted=is_sorted)
    for batch in batches:
        yield from counted.record(batch)
    yield counted.finish()
