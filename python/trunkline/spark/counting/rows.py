"""A table that has the columns of a capture, counted for a report."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from trunkline.columns import Decoder
from trunkline.report.counting import summary
from trunkline.report.model import Counted, Scope, Total
from trunkline.report.sections import SECTIONS
from trunkline.spark._lazy import F
from trunkline.spark.columns import decode_keeping, need_columns
from trunkline.spark.counting.merging import STATE, Counting
from trunkline.spark.related.batch import keys, together
from trunkline.spark.runs import rows_of_runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["count_rows"]

_NEEDED = ("capture_id", "seq", "received_at_ns", "endpoint", "n_frames", "n_bytes", "header")


def count_rows(rows: DataFrame, scope: Scope) -> tuple[Total, dict[str, Counted]]:
    """Counts rows in any order: the total, and the counts of each protocol."""
    need_columns(rows, _NEEDED, "a report needs", of_streams=False)
    total, protocols = _total(rows)
    counting = Counting(scope, total.clock, time.time_ns())
    found = [_messages(rows, protocol, counting) for protocol in protocols]
    if "cdtp" in protocols:
        recorded = functools.partial(counting.recorded, "cdtp", of_runs=True)
        found.append(rows_of_runs(rows).mapInArrow(recorded, STATE))
    counted = counting.collected(functools.reduce(lambda one, other: one.union(other), found)) if found else {}
    return total, counted


def _total(rows: DataFrame) -> tuple[Total, list[str]]:
    """The total with its time range, and the protocols that can be counted."""
    has_protocols = "protocol" in {column.lower() for column in rows.columns}
    protocol = F.col("protocol") if has_protocols else F.lit("cdtp")
    sums = (F.count("*"), F.sum("n_bytes"), F.min("received_at_ns"), F.max("received_at_ns"))
    found = rows.groupBy(protocol.alias("protocol")).agg(*sums).collect()
    total = Total.of(Total(rows, size or 0, first, last) for _, rows, size, first, last in found)
    return total, [name for name in SECTIONS if any(row[0] == name for row in found)]


def _messages(rows: DataFrame, protocol: str, counting: Counting) -> DataFrame:
    """The counts of the messages of a protocol, with related ones in one task."""
    needs = summary(protocol, counting.scope, counting.clock).needs
    decoder = Decoder(protocol, **SECTIONS[protocol].options)
    kept = [name for name in needs if name not in decoder.row_schema().names]
    decoded = decode_keeping(rows, decoder, kept, needs)
    return together(decoded, keys(protocol)).mapInArrow(functools.partial(counting.recorded, protocol), STATE)
