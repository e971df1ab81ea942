"""The topics of mc0, with what passed through each, from decoded messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.spark._engine import F, Window
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import need_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["TOPIC_COLUMNS", "count_topics", "passing", "timed", "topics"]

# What topics are counted from, of what `decode` gives.
TOPIC_COLUMNS = (
    "capture_id",
    "seq",
    "received_at_ns",
    "direction",
    "peer",
    "verb",
    "topic",
    "headers",
    "body_frames",
    "body_bytes",
)

# How finely latencies are told apart for percentiles of them.
_ACCURACY = 10_000


@needs_extra
def topics(decoded: DataFrame, window: str = "1 minute") -> DataFrame:
    """The traffic of mc0 topics, one row for each topic in each time window.

    The columns are:

    - `window`: from when until when, a struct of the timestamps `start` and `end`;
    - `seen_by`: who recorded it, ``"middleware"`` or ``"connector"``;
    - `topic`;
    - `puts` and `deliveries`: the PUTs and the MESSAGEs that passed, those that were refused among the PUTs;
    - `bytes`: the bytes of their bodies; a middleware counts each once, as it was put, however many it delivered it to;
    - `publishers` and `subscribers`: how many peers put something and had something delivered, as far as a middleware
      tells its peers apart: null at a connector;
    - `p50_ns`, `p99_ns`: percentiles of the way through a middleware, from the receipt of a PUT to the moment its
      MESSAGE was handed to a subscriber's connection, of the MESSAGEs of the window; null at a connector.

    A MESSAGE does not identify its PUT, so the latency is measured by position: of the PUTs before it that have the
    same topic, headers and sizes, and the same body where `decoded` has the column `body`, it is the latest that
    leaves an earlier one to each earlier MESSAGE of that subscriber and a later one to each later. That is the right one
    but where messages were lost on the way, or the rows end with some that wait: there the figure is too short, never too
    long. The order of the rows does not matter.

    Args:
        decoded: What `decode` gives for ``"mc0"``, with the columns up to `body_bytes`; with `payload`, PUTs that differ
            in nothing but their bodies are told apart. A batch, not a stream.
        window: How long a window is, as Spark writes it: ``"10 seconds"``, ``"1 hour"``.

    Raises:
        LocalProtocolError: A column is missing.
    """
    need_columns(decoded, TOPIC_COLUMNS, "topics need what `decode` makes of")
    moment = F.timestamp_micros(F.expr("received_at_ns div 1000"))
    counted = count_topics(timed(passing(decoded)), F.window(moment, window).alias("window"))
    return counted.drop("first_received_at_ns", "last_received_at_ns", "max_ns")


def passing(decoded: DataFrame) -> DataFrame:
    """The messages that pass through topics, with who saw them."""
    is_put = F.col("verb") == "PUT"
    at_middleware = F.col("peer").isNotNull()
    # A middleware receives PUTs and sends MESSAGEs, a connector does the reverse; all else nobody takes.
    is_expected = is_put == (at_middleware == (F.col("direction") == "in"))
    body = ["body"] if "body" in decoded.columns else []
    alike = F.xxhash64(F.map_entries("headers"), "body_frames", "body_bytes", *body)
    return decoded.where(F.col("verb").isin("PUT", "MESSAGE") & is_expected).select(
        "capture_id",
        "seq",
        "received_at_ns",
        "peer",
        "topic",
        "body_bytes",
        is_put.alias("is_put"),
        F.when(at_middleware, "middleware").otherwise("connector").alias("seen_by"),
        alike.alias("alike"),
    )


def timed(passed: DataFrame) -> DataFrame:
    """The same, and of those a middleware delivered how long that took."""
    # The columns that a MESSAGE has in common with its PUT. This is the only time that messages move.
    common = ("capture_id", "topic", "alike")
    together = passed.repartition(*common)
    so_far = (Window.unboundedPreceding, Window.currentRow)
    puts = F.count_if("is_put").over(Window.partitionBy(*common).orderBy("seq").rowsBetween(*so_far))
    # From the last MESSAGE of a subscriber backwards, each takes the latest PUT that is left.
    backwards = Window.partitionBy(*common, "is_put", "peer").orderBy(F.desc("seq")).rowsBetween(*so_far)
    numbered = together.withColumn("puts", puts).withColumn("later", F.row_number().over(backwards))
    found = F.min(F.col("puts") + F.col("later")).over(backwards) - F.col("later")
    paired = numbered.withColumn("put", F.when(F.col("is_put"), F.col("puts")).otherwise(found))
    put_at = F.max(F.when(F.col("is_put"), F.col("received_at_ns"))).over(Window.partitionBy(*common, "put"))
    took = F.when((F.col("seen_by") == "middleware") & ~F.col("is_put"), F.col("received_at_ns") - put_at)
    return paired.withColumn("latency_ns", took).drop("puts", "later", "put", "alike")


def count_topics(passed: DataFrame, *by: Column) -> DataFrame:
    """Counts what passed by topic, and by more; with when, and with `max_ns`, the longest way through a middleware."""
    is_put, at_middleware = F.col("is_put"), F.col("seen_by") == "middleware"
    is_once = is_put | ~at_middleware
    counted = passed.groupBy(*by, "seen_by", "topic").agg(
        F.count_if(is_put).alias("puts"),
        F.count_if(~is_put).alias("deliveries"),
        F.coalesce(F.sum(F.when(is_once, F.col("body_bytes"))), F.lit(0)).alias("bytes"),
        F.count_distinct(F.when(is_put, F.col("peer"))).alias("publishers"),
        F.count_distinct(F.when(~is_put, F.col("peer"))).alias("subscribers"),
        F.percentile_approx("latency_ns", [0.5, 0.99], _ACCURACY).alias("percentiles"),
        F.max("latency_ns").alias("max_ns"),
        F.min("received_at_ns").alias("first_received_at_ns"),
        F.max("received_at_ns").alias("last_received_at_ns"),
    )
    p50, p99 = (F.get("percentiles", F.lit(at)).alias(name) for at, name in enumerate(("p50_ns", "p99_ns")))
    peers = {name: F.when(at_middleware, F.col(name)) for name in ("publishers", "subscribers")}
    return counted.withColumns(peers).withColumns({"p50_ns": p50, "p99_ns": p99}).drop("percentiles")
