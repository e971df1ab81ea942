"""Configurations of CDT on their way to endpoints, from decoded messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.spark._engine import F
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import need_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["ROLLOUT_COLUMNS", "once", "rollout", "ways"]

# What the way of a configuration is told from, of what `decode` gives.
ROLLOUT_COLUMNS = (
    "received_at_ns",
    "direction",
    "type",
    "correlation_id",
    "app_version_name",
    "endpoint_id",
    "config_id",
    "status_code",
)

# What the two rows have in common that the capture of a role has of an event of its own.
_SAME = ("type", "correlation_id", "app_version_name", "endpoint_id", "config_id")

# The steps of a way, and what the messages of each are called.
_STEPS = {"available": "announcements", "pulled": "pulls", "applied": "reports"}


@needs_extra
def rollout(decoded: DataFrame) -> DataFrame:
    """The progress of each configuration of each endpoint, one row for each.

    The columns are:

    - `app_version_name`, `endpoint_id`, `config_id`;
    - `available_at`: when it was first announced, by a ConfigNewAvailable; null if that is not among the messages;
    - `pulled_at`: when a target first answered with it, with a status of 2xx;
    - `applied_at`: when it was first reported that the endpoint has applied it, by a ConfigUpdated;
    - `time_to_applied_ns`: from the first announcement to that, in nanoseconds; null where either is missing or the announcement came
      later, as of a configuration that is told of again;
    - `announcements`, `pulls` and `reports`: how many of each there were.

    Times are those of receipt, timestamps. The capture of a role has its own announcements and reports as they went out, and as they
    came back to it: they are counted as they went out. What several recorded of others is counted by each. The order of the rows
    does not matter.

    Args:
        decoded: What `decode` gives for ``"cdt"``, with the columns `received_at_ns`, `direction`, `type`, `correlation_id`,
            `app_version_name`, `endpoint_id`, `config_id` and `status_code`. A batch, not a stream.

    Raises:
        LocalProtocolError: A column is missing.
    """
    need_columns(decoded, ROLLOUT_COLUMNS, "a rollout needs what `decode` makes of")
    return ways(once(decoded)).select(
        "app_version_name",
        "endpoint_id",
        "config_id",
        *(_moment(f"{name}_ns").alias(f"{name}_at") for name in _STEPS),
        "time_to_applied_ns",
        *_STEPS.values(),
    )


def once(decoded: DataFrame) -> DataFrame:
    """The messages without the events that came back to the role that told them, where they are there as they went out too."""
    told = decoded.where((F.col("direction") == "out") & F.col("type").isin("ConfigNewAvailable", "ConfigUpdated"))
    came_back = told.select(*_SAME).withColumn("direction", F.lit("in"))
    return decoded.join(came_back, [*_SAME, "direction"], "left_anti")


def ways(decoded: DataFrame) -> DataFrame:
    """The way of each configuration to each endpoint, a row for each: of each step the first and the last time, and how often."""
    received_at = F.col("received_at_ns")
    steps = {
        "available": F.col("type") == "ConfigNewAvailable",
        "pulled": (F.col("type") == "ConfigResponse") & F.col("status_code").between(200, 299),
        "applied": F.col("type") == "ConfigUpdated",
    }
    took = F.col("applied_ns") - F.col("available_ns")
    return (
        decoded.where(steps["available"] | steps["pulled"] | steps["applied"])
        .groupBy("app_version_name", "endpoint_id", "config_id")
        .agg(
            *(F.min(F.when(is_it, received_at)).alias(f"{name}_ns") for name, is_it in steps.items()),
            *(F.max(F.when(is_it, received_at)).alias(f"last_{name}_ns") for name, is_it in steps.items()),
            *(F.count_if(is_it).alias(_STEPS[name]) for name, is_it in steps.items()),
        )
        .withColumn("time_to_applied_ns", F.when(took >= 0, took))
    )


def _moment(column: str) -> Column:
    return F.timestamp_micros(F.expr(f"{column} div 1000"))
