"""The traffic of mc0 topics, from decoded messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._native.analysis import Fold
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import need_columns
from trunkline.spark.related.batch import folded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["topics"]

# The decoded columns that topics are counted from.
_NEEDED = (*Fold("topics").needs, "seq")


@needs_extra
def topics(decoded: DataFrame, window: str = "1 minute") -> DataFrame:
    """The traffic of mc0 topics, one row for each topic in each time window.

    The columns are:

    - `window`: from when until when, a struct of the timestamps `start` and `end`;
    - `seen_by`: who recorded it, ``"middleware"`` or ``"connector"``;
    - `topic`;
    - `puts` and `deliveries`: the PUTs and the MESSAGEs that passed, those that were refused among the PUTs;
    - `bytes`: the bytes of their bodies; a middleware counts each once, as it was put, however many it delivered it to;
    - `publishers` and `subscribers`: how many peers put something and had something delivered, at a middleware; null at a
      connector, which has one peer;
    - `p50_ns`, `p99_ns`: percentiles of the way through a middleware, from the receipt of a PUT to the moment its
      MESSAGE was handed to a subscriber's connection, of the MESSAGEs of the window; null at a connector;
    - `evicted`: whether the window made way for others, or some of its peers did: then it counts too few.

    A MESSAGE does not identify its PUT, so the latency is measured by position: of the PUTs before it that have the
    same topic, headers and sizes, and the same body where `decoded` has the column `body`, it is the latest that
    leaves an earlier one to each earlier MESSAGE of that subscriber and a later one to each later. That is the right one
    but where messages were lost on the way, or the rows end with some that wait: there the figure is too short, never too
    long. The order of the rows does not matter. Of the PUTs and MESSAGEs that wait for each other a task keeps a million, and
    256 MiB: of more the oldest are let go, and counted without a latency.

    Of a stream a window is given again with each change, by `window`, `seen_by` and `topic`: the last row is that of the batch. It is
    kept until it ends before the watermark, or until there are more than a bucket keeps: the oldest are evicted. A row that comes
    late, of a window that is not kept any more, is left out, and counted in the metrics.

    Args:
        decoded: What `decode` gives for ``"mc0"``, with the columns up to `body_bytes`; with `payload`, PUTs that differ
            only in their bodies are distinguished. A batch or a stream.
        window: How long a window is, as Spark writes it: ``"10 seconds"``, ``"1 hour"``.

    Raises:
        LocalProtocolError: A column is missing, or a stream has no RocksDB to keep its state in.

    ```python
    from trunkline import spark

    messages = spark.decode(spark.session().read.parquet("bus/"), "mc0")
    spark.topics(messages, "10 seconds").select("window.start", "topic", "puts", "deliveries", "p99_ns").show()
    ```
    """
    need_columns(decoded, _NEEDED, "topics need what `decode` makes of")
    return folded(decoded, "topics", window_us=_microseconds(decoded, window), body="body")


def _microseconds(decoded: DataFrame, window: str) -> int:
    """The length of a window, as Spark parses it."""
    one = F.window(F.timestamp_micros(F.lit(0)), window)
    ends = (F.unix_micros(one[part]).alias(part) for part in ("start", "end"))
    start, end = decoded.sparkSession.range(1).select(*ends).collect()[0]
    length: int = end - start
    return length
