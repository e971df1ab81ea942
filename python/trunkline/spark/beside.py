"""Files of decoded messages beside segments, as Spark reads them by itself: no row passes through Python, and conditions,
columns and counts reach the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from trunkline import capture
from trunkline.capture.reading import DECODED
from trunkline.spark._paths import segment_of, spark_path, tables
from trunkline.spark._plans import is_of_files
from trunkline.spark.columns import Origin, decode_keeping

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

__all__ = ["with_files"]

# Else a reader of Parquet takes a damaged page for another one.
_CHECKED = {"parquet.page.verify-checksum.enabled": "true"}


def with_files(decoded: DataFrame, uris: Sequence[str]) -> DataFrame:
    """The same messages; those of segments that are read as Parquet from their files of decoded messages, where these have all
    columns.

    Not of the data source: its tables outlive that segments are merged.

    Args:
        decoded: The messages, as they were decoded.
        uris: The files that their rows are read from.
    """
    from trunkline.capture.decoding import Decoding

    origin = Origin.of(decoded)
    assert origin is not None, "it is as it was decoded"
    rows, protocol = origin.rows, origin.decoder.protocol.name
    beside = {uri: pair for uri in uris if (pair := _beside(uri, protocol)) is not None}
    if not beside or {*rows.columns} != {*capture.schema().names} or not is_of_files(rows):
        return decoded
    options = origin.options
    decoding = Decoding(protocol, options.pop("mode"), decoded.columns, options)
    read = {uri: file for uri, (segment, file) in beside.items() if decoding.has_all(segment, file)}
    if not read:
        return decoded
    reader = tables(decoded.sparkSession).options(**_CHECKED).schema(decoded.schema)
    messages = reader.parquet(*map(spark_path, read.values()))
    if others := [unquote(uri) for uri in uris if uri not in read]:
        rest = tables(decoded.sparkSession).schema(rows.schema).parquet(*others)
        messages = messages.unionByName(decode_keeping(rest, origin.decoder, origin.kept, decoded.columns))
    return origin.attached(messages)


def _beside(uri: str, protocol: str) -> tuple[Path, Path] | None:
    """A segment, and its file of decoded messages, if there is one."""
    segment = segment_of(uri)
    file = None if segment is None else segment.parent / DECODED / protocol / segment.name
    return None if segment is None or file is None or not file.exists() else (segment, file)
