"""Captures as a batch, less the rows that filters of the DataFrame rule out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from trunkline.capture import pruning
from trunkline.capture.pruning import Spans
from trunkline.spark.source import reading
from trunkline.spark.source.captures import find, published
from trunkline.spark.source.options import Settings
from trunkline.spark.source.planning import NOTES, parts

__all__ = ["BatchReader", "PushingReader", "reader_of"]

# The worker in which Spark plans a query whose filters it hands over.
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"

# Columns that have a value in every row.
_NEVER_NULL = {("seq",), ("received_at_ns",), ("received_at",)}

# The comparison of a filter.
_HOW = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
}


def reader_of(settings: Settings) -> DataSourceReader:
    """The reader of a batch. Where filters are not handed over, Spark refuses one that takes them."""
    return PushingReader(settings) if _PUSHING in sys.modules else BatchReader(settings)


class BatchReader(DataSourceReader):
    """Reads the segments that were published when it is planned."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._numbers, self._times_ns = pruning.ROWS, pruning.EVERY

    def partitions(self) -> list[InputPartition]:
        """The segments, several per task."""
        captures = find(self._settings).values()
        return [*parts({found.path: published(found.path, notes=NOTES) for found in captures}, self._settings.division)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the segments of a task."""
        if not isinstance(partition, reading.Part):  # Spark's own, where no segment has been published
            return iter(())
        return reading.read(self._settings, partition, self._numbers, self._times_ns)


class PushingReader(BatchReader):
    """The same, of rows whose number and time of receipt are as filters want them."""

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:  # noqa: N802 - as Spark calls it
        """Takes filters that compare a number or a time of receipt; gives back those that Spark must apply."""
        for each in filters:
            if isinstance(each, spark.IsNotNull) and each.attribute in _NEVER_NULL:
                continue
            name, wanted = _wanted(each)
            if wanted is None:
                yield each
            elif name == "seq":
                self._numbers = pruning.both(self._numbers, wanted)
            else:
                self._times_ns = pruning.both(self._times_ns, wanted)


def _wanted(given: spark.Filter) -> tuple[str, Spans | None]:
    """The column that a filter compares, and the values that it lets through; None if Spark must look."""
    name, how = ".".join(getattr(given, "attribute", ())), _HOW.get(type(given))
    ends = _ends(name, getattr(given, "value", None))
    return name, None if how is None or ends is None else pruning.compared(how, *ends)


def _ends(name: str, value: Any) -> tuple[int, int] | None:
    """The first and the last number that are equal to a value: nanoseconds for a time."""
    if name in ("seq", "received_at_ns") and type(value) is int:
        return value, value
    if name == "received_at" and isinstance(value, datetime) and value.tzinfo is not None:
        return pruning.moment_ns(value)
    return None
