"""The records that messages of CDTP2 carry many at a time, over the time in which they came together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.spark._engine import F, Window
from trunkline.spark.report.counting import bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from trunkline.spark.report.model import Clock

__all__ = ["spread"]


def spread(records: DataFrame, clock: Clock) -> DataFrame:
    """What came of each sender in each bucket: `sender`, `bucket`, `messages` and `bytes`, both of them double.

    `records` are decoded ones of header 2. Those of a message that has several count evenly from its sender's previous
    message to this one: a sender that is steady is so at any scale, though it sends but now and then.
    """
    source = ("capture_id", "endpoint", "sender")
    batches = records.groupBy(*source, "seq").agg(
        F.count("*").alias("messages"), F.first("n_bytes").alias("bytes"), F.first("received_at_ns").alias("end")
    )
    before = F.lag("end").over(Window.partitionBy(*source).orderBy("seq"))
    is_spread = (F.col("messages") > 1) & (before < F.col("end"))
    timed = batches.withColumn("begin", F.when(is_spread, before).otherwise(F.col("end")))
    buckets = F.explode(F.sequence(bucket("begin", clock), bucket("end", clock))).alias("bucket")
    each = timed.select("sender", "messages", "bytes", "begin", "end", buckets)
    opens = F.col("bucket").cast("long") * clock.bucket_ns + clock.first_ns
    inside = F.least("end", opens + clock.bucket_ns) - F.greatest("begin", opens)
    share = F.when(F.col("begin") < F.col("end"), inside / (F.col("end") - F.col("begin"))).otherwise(1.0)
    counts = (F.sum(F.col(name) * share).alias(name) for name in ("messages", "bytes"))
    return each.groupBy("sender", "bucket").agg(*counts)
