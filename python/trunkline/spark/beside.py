"""Files of decoded messages beside segments, as Spark reads them by itself: no row passes through Python, and conditions,
columns and counts reach the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from trunkline import capture
from trunkline.capture.decoded import newest
from trunkline.capture.reading import DECODED
from trunkline.spark._paths import segment_of, spark_path, tables
from trunkline.spark.columns import Origin, decode_keeping

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from trunkline.spark._plans import Files

__all__ = ["with_files"]

# A file of decoded messages is read as it was written, or is an error, whatever a session does with files of others: a damaged page
# would be another one, a damaged file none, and times before 1582 others.
_AS_WRITTEN = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}


def with_files(decoded: DataFrame, files: Files) -> DataFrame:
    """The same messages; those of segments that are read as Parquet from their files of decoded messages, where these have all
    columns.

    Not of the data source: its tables outlive that segments are merged.

    Args:
        decoded: The messages, as they were decoded.
        files: What their rows are read from.
    """
    from pyspark.errors import AnalysisException

    from trunkline.capture.decoding import Decoding

    origin = Origin.of(decoded)
    assert origin is not None, "it is as it was decoded"
    rows, protocol = origin.rows, origin.decoder.protocol.name
    if {*rows.columns} != {*capture.schema().names}:
        return decoded
    beside = _beside(files.uris, protocol)
    if not beside:
        return decoded
    options = origin.options
    decoding = Decoding(protocol, options.pop("mode"), decoded.columns, options)
    read = {uri: file for uri, (segment, file) in beside.items() if decoding.has_all(segment, file)}
    if not read:
        return decoded
    reader = tables(decoded.sparkSession).options(**_AS_WRITTEN).schema(decoded.schema)
    try:
        messages = reader.parquet(*map(spark_path, read.values()))
    except AnalysisException:
        # One was removed meanwhile.
        return decoded
    if others := [unquote(uri) for uri in files.uris if uri not in read]:
        rest = tables(decoded.sparkSession, **files.options).schema(rows.schema).parquet(*others)
        messages = messages.unionByName(decode_keeping(rest, origin.decoder, origin.kept, decoded.columns))
    return origin.attached(messages)


def _beside(uris: list[str], protocol: str) -> dict[str, tuple[Path, Path]]:
    """Segments by their URIs, each with its file of decoded messages, of those that have one."""
    segments = {uri: segment for uri in uris if (segment := segment_of(uri)) is not None}
    folders = {segment.parent for segment in segments.values()}
    files = {folder: newest(folder / DECODED / protocol) for folder in folders}
    return {
        uri: (segment, files[segment.parent][segment.name])
        for uri, segment in segments.items()
        if segment.name in files[segment.parent]
    }
