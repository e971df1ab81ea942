"""The data source ``trunkline``: captures as Spark reads them, in batches and as streams.

```python
rows = session.read.format("trunkline").load("runs/")
messages = session.readStream.format("trunkline").options(protocol="cdtp", decode=True).load("runs/")
```

Spark finds it by itself where trunkline is installed, by the module `pyspark_trunkline`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from trunkline.spark._disconnects import silence_planner
from trunkline.spark._plans import SOURCE
from trunkline.spark.source import reading
from trunkline.spark.source.batch import reader_of
from trunkline.spark.source.captures import find, warn_of_others
from trunkline.spark.source.offsets import need_start
from trunkline.spark.source.options import Settings
from trunkline.spark.source.stream import StreamReader

if TYPE_CHECKING:
    from trunkline.spark.source.writer import CaptureSink, CaptureWriter

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
        return SOURCE

    def schema(self) -> StructType:
        """The columns of captures, or those of the messages of a protocol."""
        settings = Settings.of(self.options)
        # Report missing captures now, not at the first action.
        captures = find(settings)
        need_start(settings, captures)
        if settings.is_recursive and not captures:
            _logger.warning("%s: there is no capture in it yet, at any depth", ", ".join(map(str, settings.paths)))
        if settings.bundling is None:
            # Else it was done for the table that the bundles are read for.
            warn_of_others(settings, captures.values())
        return reading.schema(settings)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads all published segments."""
        settings = Settings.of(self.options)
        reading.need_schema(settings, schema)
        return reader_of(settings)

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

    def streamWriter(self, schema: StructType, overwrite: bool) -> CaptureSink:  # noqa: FBT001 - Spark gives it so
        """Adds the micro-batches of a stream of rows of captures to a capture."""
        from trunkline.spark.source.writer import CaptureSink

        return CaptureSink(self.options, schema, overwrite=overwrite)
