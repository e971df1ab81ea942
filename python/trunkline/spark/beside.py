"""Files of decoded messages beside segments, as Spark reads them by itself: no row passes through Python, and conditions,
columns and counts reach the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from trunkline import capture
from trunkline.capture import reading
from trunkline.spark._paths import spark_path, tables
from trunkline.spark._plans import files_of
from trunkline.spark.columns import Origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["with_files"]

# Else a reader of Parquet takes a damaged page for another one.
_CHECKED = {"parquet.page.verify-checksum.enabled": "true"}


def with_files(decoded: DataFrame, columns: Sequence[str] | None) -> DataFrame:
    """The same messages; those of segments that are read as Parquet from their files of decoded messages, where these have all
    columns.

    Not of the data source: its tables outlive that segments are merged.
    """
    origin = Origin.of(decoded)
    if origin is None or origin.rows.isStreaming or {*origin.rows.columns} != {*capture.schema().names}:
        return decoded
    segments = {uri: _beside(uri, origin.decoder.protocol.name) for uri in files_of(origin.rows) or []}
    if not any(file.exists() for _, file in segments.values()):
        return decoded
    files, others = _divided(segments, origin, decoded.columns)
    if not files:
        return decoded
    messages = tables(decoded.sparkSession).options(**_CHECKED).schema(decoded.schema).parquet(*files)
    if others:
        rest = tables(decoded.sparkSession).schema(origin.rows.schema).parquet(*others)
        messages = messages.unionByName(origin.decoded(rest, columns))
    return origin.attached(messages)


def _beside(uri: str, protocol: str) -> tuple[Path, Path]:
    """The path of a file of this machine, and of the one with its decoded messages if it is a segment."""
    segment = Path(unquote(urlsplit(uri).path))
    return segment, segment.parent / reading.DECODED / protocol / segment.name


def _divided(
    segments: Mapping[str, tuple[Path, Path]], origin: Origin, names: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The files of decoded messages of some segments, and the other segments."""
    from trunkline.capture.decoding import Decoding

    options = {"types": "spark", **origin.options}
    decoding = Decoding(origin.decoder.protocol.name, options.pop("mode"), [*names], options)
    files, others = [], []
    for uri, (segment, file) in segments.items():
        is_here = uri.startswith("file:") and segment.match(reading.SEGMENTS)
        if is_here and decoding.has_all(segment, file):
            files.append(spark_path(file))
        else:
            others.append(unquote(uri))
    return files, others
