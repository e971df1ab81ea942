"""By this name Spark finds the data source ``trunkline`` without a registration."""

from trunkline.spark.source import TrunklineSource as DefaultSource

__all__ = ["DefaultSource"]
