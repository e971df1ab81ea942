"""What is counted in Spark of every protocol: how much there was when, and how much took how long."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from trunkline._native.columns import column_kinds
from trunkline.spark._engine import F
from trunkline.spark.report.model import BUCKETS, largest_first

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from trunkline.spark.report.model import Clock

__all__ = ["DECADE", "bucket", "errors", "levels", "rates", "spread"]

# What is said of messages that decode: a value is more than its column holds. Of one that is too large itself nothing is there.
_EMPTIED = sorted({*column_kinds()} - {"message_too_large"})

# Classes of times a decade, so that 1, 2 and 5 of a unit are where one begins.
DECADE = 10


def bucket(moment: str, clock: Clock) -> Column:
    """Which part of the time a moment is in, by the name of its column, in nanoseconds since 1970."""
    return F.floor((F.col(moment) - clock.first_ns) / clock.bucket_ns).cast("int")


def errors(decoded: DataFrame) -> dict[str, int]:
    """Messages that do not decode, by kind of error, most first."""
    found = (
        decoded.where(F.col("error").isNotNull() & ~F.col("error").isin(*_EMPTIED)).groupBy("error").count().collect()
    )
    return largest_first({row["error"]: row["count"] for row in found})


def rates(rows: DataFrame, at: Column, clock: Clock, moment: str = "received_at_ns") -> dict[int, dict[int, int]]:
    """How many rows there are by what they are of, and bucket."""
    return _count(rows, at, bucket(moment, clock))


def levels(came: Mapping[int, Mapping[int, int]], gone: Mapping[int, Mapping[int, int]]) -> dict[int, list[int]]:
    """How many there are at the end of each bucket, of what came and went in each."""
    sums = {}
    for at, buckets in came.items():
        left = gone.get(at, {})
        sums[at] = [max(0, level) for level in accumulate(buckets.get(b, 0) - left.get(b, 0) for b in range(BUCKETS))]
    return sums


def spread(rows: DataFrame, at: Column) -> dict[int, dict[int, int]]:
    """How many there are of the times in the column `latency_ns`, by what they are of and by class.

    A class n is from 10^(n/10) nanoseconds to the next one. What is shorter, as two clocks may make it, is in the first.
    """
    which = F.floor(F.log10(F.greatest("latency_ns", F.lit(1))) * DECADE).cast("int")
    return _count(rows.where("latency_ns IS NOT NULL"), at, which)


def _count(rows: DataFrame, at: Column, place: Column) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = {}
    for whose, where, number in rows.groupBy(at.alias("at"), place.alias("place")).count().collect():
        found.setdefault(whose, {})[where] = number
    return found
