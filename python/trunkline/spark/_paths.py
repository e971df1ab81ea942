"""Local directories as Spark takes them: as URIs, which it treats as patterns by default."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from trunkline.columns import names_of
from trunkline.errors import CaptureError, LocalProtocolError
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["capture_rows", "capture_schema", "segment_of", "spark_path", "tables", "warn_unless_recorded"]

_logger = logging.getLogger("trunkline.spark")

# Keeps Spark from treating paths as patterns. Escaping does not help: Hadoop then fails on a colon.
_AS_NAMED = {"__globPaths__": "false"}

# The longest name of a protocol that is read: a small segment may hold a huge one.
_PROTOCOL_BYTES = 1024


def spark_path(path: str | os.PathLike[str]) -> str:
    """Names a file or directory of this machine for Spark.

    Raises:
        LocalProtocolError: The name is not text: Java takes no other.

    >>> spark_path("/runs/12:30 [1]")
    'file:///runs/12:30 [1]'
    """
    # Not `as_uri`: Spark does not decode percent signs.
    name = Path(os.path.abspath(path)).as_posix()  # noqa: PTH100 - a link is not followed
    try:
        name.encode()
    except UnicodeEncodeError:
        message = (
            f"{os.fsencode(path)!r} is not UTF-8, and Spark takes no other name: rename it, or a directory above it"
        )
        raise LocalProtocolError(message) from None
    return f"file://{name}" if name.startswith("/") else f"file:///{name}"


def tables(session: SparkSession, **options: str) -> DataFrameReader:
    """A reader that takes a `spark_path` as a name, not as a pattern; without paths of its own."""
    chosen = {name: option for name, option in options.items() if name.lower() not in ("path", "paths")}
    return session.read.options(**{**chosen, **_AS_NAMED})


@needs_extra
def capture_schema() -> StructType:
    """The columns of a capture: with them Spark reads a directory that has no segments yet.

    ```python
    from trunkline import spark

    stream = spark.session().readStream.schema(spark.capture_schema()).parquet("runs/")
    messages = spark.decode(stream, "cdtp")
    ```
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    from trunkline import capture

    # As in Parquet, without comments.
    return from_arrow_schema(capture.schema())


def capture_rows(session: SparkSession, directory: str | os.PathLike[str]) -> DataFrame:
    """The published rows of a capture; with a scheme, of one or several that Spark finds.

    Raises:
        LocalProtocolError: The name is not text: Java takes no other.
    """
    from trunkline.capture import reading

    name = os.fspath(directory)
    reader, path = (session.read, name) if "://" in name else (tables(session), spark_path(name))
    return reader.schema(capture_schema()).option("pathGlobFilter", reading.SEGMENTS).parquet(path)


def segment_of(uri: str) -> Path | None:
    """The segment of a capture on this machine that a URI names."""
    from trunkline.capture import reading

    parts = urlsplit(uri)
    path = Path(unquote(parts.path))
    return path if parts.scheme == "file" and path.match(reading.SEGMENTS) else None


def warn_unless_recorded(files: Iterable[str], protocol: str) -> None:
    """Logs a warning if these are URIs of segments of captures on this machine, and no row is of a protocol."""
    from trunkline.capture import reading
    from trunkline.capture.decoding import read_batches

    segments: set[Path] = set()
    for path in map(segment_of, files):
        if path is None:
            return
        segments.add(path)
    number, names = 0, {*names_of(protocol)}
    try:
        for directory in sorted({path.parent for path in segments}):
            for part in reading.parts(reading.open(directory, max_message_bytes=_PROTOCOL_BYTES)):
                if segments.isdisjoint(directory / name for name in part.files):
                    continue
                for batch in read_batches(part.reader(["protocol"])):
                    if not names.isdisjoint(batch.column(0).unique().to_pylist()):
                        return
                    number += batch.num_rows
    except CaptureError:
        # It is no capture, or Spark reports what is wrong with it.
        return
    if number:
        reading.warn_none_is(_logger, number, protocol)
