"""The data source ``trunkline``: captures as Spark reads them, in batches and as streams.

```python
rows = session.read.format("trunkline").load("runs/")
messages = session.readStream.format("trunkline").options(protocol="cdtp", decode=True).load("runs/")
```

Spark finds it by itself where trunkline is installed, by the module `pyspark_trunkline`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from trunkline._native import capture as _native
from trunkline.spark._disconnects import silence_planner
from trunkline.spark.source import reading
from trunkline.spark.source.captures import find
from trunkline.spark.source.offsets import need_start
from trunkline.spark.source.options import Settings
from trunkline.spark.source.planning import parts
from trunkline.spark.source.stream import StreamReader

if TYPE_CHECKING:
    from trunkline.spark.source.writer import CaptureWriter

__all__ = ["TrunklineSource"]

_logger = logging.getLogger("trunkline.spark")

silence_planner()


class TrunklineSource(DataSource):
    """Captures, as rows or decoded; see the guide for its options.

    Raises:
        LocalProtocolError: An option is unknown, or has no such value.
        CaptureError: A path is missing, or no capture.
    """

    @classmethod
    def name(cls) -> str:
        return "trunkline"

    def schema(self) -> StructType:
        """The columns of captures, or those of the messages of a protocol."""
        settings = Settings.of(self.options)
        # Report missing captures now, not at the first action.
        captures = find(settings)
        need_start(settings, captures)
        if settings.is_recursive and not captures:
            _logger.warning("%s: there is no capture in it yet, at any depth", ", ".join(map(str, settings.paths)))
        return reading.schema(settings)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads all published segments."""
        settings = Settings.of(self.options)
        reading.need_schema(settings, schema)
        return BatchReader(settings)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Reads published segments as they come."""
        settings = Settings.of(self.options)
        reading.need_schema(settings, schema)
        return StreamReader(settings)

    def writer(self, schema: StructType, overwrite: bool) -> CaptureWriter:  # noqa: FBT001 - Spark gives it so
        """Writes rows of captures as a capture."""
        # Imported late, with pyarrow's Parquet: each of Spark's processes would import it just to read.
        from trunkline.spark.source.writer import CaptureWriter

        return CaptureWriter(self.options, schema, overwrite=overwrite)


class BatchReader(DataSourceReader):
    """Reads the segments that were published when it is planned."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        """The segments, several per task."""
        return [*parts({found.path: _native.published(found.path) for found in find(self._settings).values()})]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the segments of a task."""
        return reading.read(self._settings, partition) if isinstance(partition, reading.Part) else iter(())
