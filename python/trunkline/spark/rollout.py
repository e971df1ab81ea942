"""The rollout of configurations of CDT, from decoded messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._native.analysis import Fold
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import need_columns
from trunkline.spark.related.batch import folded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["rollout"]

# The decoded columns that it needs.
_NEEDED = tuple(name for name in Fold("rollout").needs if name != "capture_id")


@needs_extra
def rollout(decoded: DataFrame) -> DataFrame:
    """The progress of each configuration of each endpoint, one row for each.

    The columns are:

    - `app_version_name`, `endpoint_id`, `config_id`;
    - `available_at`: when it was first announced, by a ConfigNewAvailable; null if that is not among the messages;
    - `pulled_at`: when a target first answered with it, with a status of 2xx;
    - `applied_at`: when it was first reported that the endpoint has applied it, by a ConfigUpdated;
    - `time_to_applied_ns`: from the first announcement to that, in nanoseconds; null where either is missing or the announcement came
      later, as of a configuration that is announced again;
    - `announcements`, `pulls` and `reports`: how many of each there were.

    Times are those of receipt, timestamps. The capture of a role has its own announcements and reports as they went out, and as they
    came back to it: they are counted as they went out. What several recorded of others is counted by each. The order of the rows
    does not matter. A task follows a million, and 256 MiB of their names: of more those that come later are left out, and counted.

    Of a stream a configuration is given again with each change, by `app_version_name`, `endpoint_id` and `config_id`: the last row is
    that of the batch. It is kept until nothing was seen of it since the watermark; without one it always is, as long as a bucket has
    room: of more those that come later are left out. What comes late, of one that is not kept, is left out too, and both are counted in the metrics.

    Args:
        decoded: What `decode` gives for ``"cdt"``, with the columns `received_at_ns`, `direction`, `type`, `correlation_id`,
            `app_version_name`, `endpoint_id`, `config_id` and `status_code`. A batch or a stream.

    Raises:
        LocalProtocolError: A column is missing, or a stream has no RocksDB to keep its state in.

    ```python
    from trunkline import spark

    messages = spark.decode(spark.session().read.parquet("fleet/"), "cdt")
    spark.rollout(messages).where("applied_at is null").select("endpoint_id", "config_id", "available_at").show()
    ```
    """
    need_columns(decoded, _NEEDED, "a rollout needs what `decode` makes of")
    # Without row numbers, times give the order.
    places = {"capture_id": F.lit(""), "seq": F.col("received_at_ns")}
    missing = {name: column for name, column in places.items() if name not in decoded.columns}
    return folded(decoded, "rollout", missing)
