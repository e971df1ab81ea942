"""The runs of senders, counted from the rows of a capture."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trunkline._native.columns import Gaps, Runs
from trunkline.columns import Decoder
from trunkline.spark._engine import F, in_order, mapped
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

# The rows of messages that know runs, one for each of their numbers: those of a CDTP2 BOR or EOR number its two records.
_NUMBERED = "type = 'DAT' OR type IS NOT NULL AND record = 0"


@needs_extra
def runs(rows: DataFrame) -> DataFrame:
    """The runs in rows of a capture, one row a run: a sender from one BOR to the next (CDTP-21).

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
    need_columns(rows, _NEEDED, "runs take")
    messages = decode_keeping(rows, Decoder("cdtp", tags=None), _KEPT, (*_KEPT, *_SAID)).where(_NUMBERED)
    # What BOR and EOR say comes from their frames. There are few of them, and finding them costs less than to have the
    # frames of all messages pass by here.
    boundaries = messages.where("type IN ('BOR', 'EOR')").select("capture_id", "seq", "sender")
    frames = (
        rows.where(F.col("n_bytes") <= Runs.MAP_BYTES)
        .join(F.broadcast(boundaries), ["capture_id", "seq"])
        .select(
            "capture_id",
            "seq",
            "sender",
            F.lit(Runs.FRAMES).alias("record"),
            "header",
            F.get("payload", F.lit(0)).alias("payload"),
        )
    )
    together, is_sorted = in_order(messages.unionByName(frames, allowMissingColumns=True), ("capture_id", "sender"))
    count = functools.partial(_count, json=json, is_sorted=is_sorted)
    return mapped(together, count, lambda: Runs.ddl(json=json))


def skipped(messages: DataFrame, source: Sequence[str], kept: Sequence[str]) -> DataFrame:
    """The columns `kept` of messages that have a number, with `missed`: how many were skipped before it (CDTP-21).

    `messages` are decoded ones with `seq`, `record`, `type` and `sequence`; the texts `source` tell senders apart.
    """

    def schema() -> StructType:
        from pyspark.sql.types import LongType, StructType

        return StructType([messages.schema[name] for name in kept]).add("missed", LongType())

    numbered = messages.where(f"({_NUMBERED}) AND sequence IS NOT NULL")
    together, is_sorted = in_order(numbered, source)

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
