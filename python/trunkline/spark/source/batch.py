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
from trunkline.capture.pruning import Wanted
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
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        """The segments, several per task."""
        captures = find(self._settings).values()
        return [*parts({found.path: published(found.path, notes=NOTES) for found in captures}, self._settings.division)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the segments of a task."""
        if not isinstance(partition, reading.Part):  # Spark's own, where no segment has been published
            return iter(())
        return reading.read(self._settings, partition, self._wanted)


class PushingReader(BatchReader):
    """The same, of rows whose number, time of receipt and names are as filters want them."""

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:  # noqa: N802 - as Spark calls it
        """Takes filters that compare a number or a time of receipt; gives back those that Spark must apply."""
        for each in filters:
            if isinstance(each, spark.IsNotNull) and each.attribute in _NEVER_NULL:
                continue
            wanted = _compared(each)
            if wanted is None:
                # Names tell what need not be read, and not which rows have them.
                self._wanted &= _named(each)
                yield each
            else:
                self._wanted &= wanted


def _compared(given: spark.Filter) -> Wanted | None:
    """The rows that a filter lets through; None if Spark must look."""
    name, how = _column(given), _HOW.get(type(given))
    ends = _ends(name, getattr(given, "value", None))
    if how is None or ends is None:
        return None
    values = pruning.compared(how, *ends)
    return Wanted(numbers=values) if name == "seq" else Wanted(times_ns=values)


def _named(given: spark.Filter) -> Wanted:
    """The rows that may have the names of a filter."""
    names = given.value if isinstance(given, spark.In) else [getattr(given, "value", None)]
    is_equal = isinstance(given, spark.EqualTo | spark.EqualNullSafe | spark.In)
    texts = [name for name in names if isinstance(name, str)]
    return pruning.named(_column(given), *texts) if is_equal and len(texts) == len(names) else Wanted()


def _column(given: spark.Filter) -> str:
    return ".".join(getattr(given, "attribute", ()))


def _ends(name: str, value: Any) -> tuple[int, int] | None:
    """The first and the last number that are equal to a value: nanoseconds for a time."""
    if name in ("seq", "received_at_ns") and type(value) is int:
        return value, value
    if name == "received_at" and isinstance(value, datetime) and value.tzinfo is not None:
        return pruning.moment_ns(value)
    return None
