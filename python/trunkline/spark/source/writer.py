"""Captures that Spark writes: all rows, or none."""

from __future__ import annotations

import heapq
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from trunkline import capture as _capture
from trunkline._frames import of_row
from trunkline._native import capture as _native
from trunkline._text import did_you_mean
from trunkline.errors import CaptureError, LocalProtocolError
from trunkline.spark.source.options import path_of
from trunkline.spark.source.staging import clear, staging_of

__all__ = ["CaptureWriter"]

# The order of rows: by capture, then as in the capture.
_ORDER = ("capture_id", "seq")

# The rows of each file in memory during a merge.
_ROWS = 1024

# The columns that are kept beside the time and the frames; rows are numbered again.
_KEPT = ("protocol", "direction", "endpoint", "peer", "topic", "reply_to", "error")

# The only option.
_PATH = "path"


@dataclass
class _Written(WriterCommitMessage):
    """The result of a task: a file of its sorted rows; None without rows."""

    file: Path | None


class CaptureWriter(DataSourceArrowWriter):
    """Writes rows of captures as a capture.

    Tasks write files beside the target, which all of them must reach. The last step merges them into a capture there, and
    renames it. The files of a killed job are removed by the next job with the same target.

    Args:
        options: The options of the data source.
        schema: The columns of the rows.
        overwrite: Whether to replace a capture that is there.

    Raises:
        LocalProtocolError: An option is unknown, or the columns are not those of a capture.
        CaptureError: The target exists, or is being recorded to.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._target = _target(options)
        _need_columns(schema)
        self._overwrites = overwrite
        clear(self._target)
        if self._target.exists():
            _need_room(self._target, overwrites=overwrite)
        self._staging = staging_of(self._target)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task, sorted."""
        batches = [batch for batch in iterator if batch.num_rows]
        if not batches:
            return _Written(None)
        table = pa.Table.from_batches(batches).select(_capture.schema().names)
        _need_values(table)
        table = table.sort_by([(name, "ascending") for name in _ORDER])
        self._staging.mkdir(parents=True, exist_ok=True)
        file = self._staging / f"{uuid.uuid4().hex}.parquet"
        parquet.write_table(table, file, row_group_size=_ROWS * 16, compression="lz4")
        return _Written(file)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Merges the files of the tasks, and moves the result to the target."""
        files = [message.file for message in messages if isinstance(message, _Written) and message.file is not None]
        self._staging.mkdir(parents=True, exist_ok=True)
        made = self._staging / "capture"
        importing = _native.Import(made)
        try:
            for row in heapq.merge(*map(_rows, files), key=itemgetter(*_ORDER)):
                importing.append(row["received_at_ns"], of_row(row), **{name: row[name] for name in _KEPT})
            importing.commit()
        finally:
            importing.abort()
        if self._target.exists():
            _need_room(self._target, overwrites=self._overwrites)
        _native.replace(made, self._target)
        shutil.rmtree(self._staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - all files are in one directory
        """Removes the files of the tasks."""
        shutil.rmtree(self._staging, ignore_errors=True)


def _target(options: Mapping[str, str]) -> Path:
    given = {name.lower(): text for name, text in options.items()}
    path = given.pop(_PATH, None)
    if path is None:
        message = "name the capture: .save('capture/')"
        raise LocalProtocolError(message)
    if given:
        name = min(given)
        message = f"there is no option {name!r} for writing{did_you_mean(name, [_PATH])}"
        raise LocalProtocolError(message)
    return path_of(path)


def _need_columns(schema: StructType) -> None:
    given = {field.name: field.dataType.simpleString() for field in schema}
    for field in from_arrow_schema(_capture.schema()):
        kind = field.dataType.simpleString()
        if field.name not in given:
            message = (
                f"the rows have no column {field.name}: a capture is written of rows of captures, not of decoded ones"
            )
            raise LocalProtocolError(message)
        if given[field.name] != kind:
            message = f"the column {field.name} is {given[field.name]}, and must be {kind}"
            raise LocalProtocolError(message)
    others = [name for name in given if name not in _capture.schema().names]
    if others:
        message = f"a capture has no column {others[0]}: leave it out with .drop({', '.join(map(repr, others))})"
        raise LocalProtocolError(message)


def _need_values(table: pa.Table) -> None:
    for field in _capture.schema():
        if not field.nullable and table.column(field.name).null_count:
            message = f"the column {field.name} is null in some rows, and must not be"
            raise LocalProtocolError(message)


def _need_room(target: Path, *, overwrites: bool) -> None:
    names = [*target.iterdir()] if target.is_dir() else [target]
    if not names:
        return
    if overwrites and _native.is_capture(target):
        _native.need_unlocked(target)
        return
    if overwrites:
        message = f"{target}: is no capture, and is not overwritten: remove it, or choose another name"
    else:
        message = f"{target}: is there already: choose another name, or mode('overwrite')"
    raise CaptureError(message)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for batch in parquet.ParquetFile(file).iter_batches(batch_size=_ROWS):
        yield from batch.to_pylist()
