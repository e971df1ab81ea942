"""Captures that Spark writes: all rows, or none."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from trunkline import capture as _capture
from trunkline._locations import location_of
from trunkline._native import capture as _native
from trunkline._text import did_you_mean
from trunkline.errors import CaptureError, LocalProtocolError
from trunkline.spark.source.options import options_of_reading, path_of
from trunkline.spark.source.staging import begin, clear, end

if TYPE_CHECKING:
    from trunkline._native.capture import _Staged

__all__ = ["CaptureSink", "CaptureWriter"]

# The options, in lower case as Spark hands them over. Those of a stream have Spark's and Delta's names.
_PATH = "path"
_CHECKPOINT = "checkpointlocation"
_QUERY = "txnappid"


@dataclass
class _Written(WriterCommitMessage):
    """The result of a task: files of its rows, below a directory."""

    staging: Path
    files: list[_Staged]


class CaptureWriter(DataSourceArrowWriter):
    """Writes rows of captures as a capture.

    Tasks write files beside the target, which all of them must reach. The last step makes a capture of them there, and renames
    it. The files of a killed job are removed by the next job with the same target.

    Args:
        options: The options of the data source.
        schema: The columns of the rows.
        overwrite: Whether to replace a capture that is there.

    Raises:
        LocalProtocolError: An option is unknown, or the columns are not those of a capture.
        CaptureError: The target exists, or is being recorded to.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._target = _target(options, [_PATH])
        _need_columns(schema)
        self._overwrites = overwrite
        clear(self._target)
        if self._target.exists():
            _need_room(self._target, overwrites=overwrite)
        self._job = uuid.uuid4().hex
        self._staging = begin(self._target, self._job)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task, sorted."""
        return _staged(self._staging, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Makes a capture of the files of the tasks, and moves it to the target."""
        made = self._staging / "capture"
        made.mkdir()
        _native.publish(made, self._staging, _files(messages))
        if self._target.exists():
            _need_room(self._target, overwrites=self._overwrites)
        _native.replace(made, self._target)
        end(self._target, self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - all files are in one directory
        """Removes the files of the tasks."""
        end(self._target, self._job)


class CaptureSink(DataSourceStreamArrowWriter):
    """Adds the micro-batches of a stream of rows of captures to a capture, each once.

    Tasks write files beside the capture, as those of a `CaptureWriter` do. A batch is published at once, with its number: a batch
    that is done again after a kill is dropped if it was published.

    Args:
        options: The options of the data source.
        schema: The columns of the rows.
        overwrite: Whether the query replaces what it wrote before, which is refused.

    Raises:
        LocalProtocolError: An option is unknown or missing, the columns are not those of a capture, or the rows are those of
            the capture that they would be added to.
        CaptureError: The checkpoint of the query cannot be read.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            message = "rows of a capture are not replaced: leave the query's outputMode at append"
            raise LocalProtocolError(message)
        self._target = _target(options, [_PATH, _CHECKPOINT, _QUERY])
        _need_columns(schema)
        self._query = _query(options)
        clear(self._target)
        self._staging = begin(self._target, self._query)
        self._own = _native.position(self._target)[0] if _native.is_capture(self._target) else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task, sorted."""
        return _staged(self._staging, map(self._need_others, iterator))

    def _need_others(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Refuses rows of the capture itself, which would grow without end."""
        if pa.compute.any(pa.compute.equal(rows["capture_id"], self._own)).as_py():
            message = f"{self._target}: the query reads this capture: write to another one"
            raise LocalProtocolError(message)
        return rows

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark names it so
        """Publishes the files of the tasks as segments, unless they were."""
        written = [message for message in messages if isinstance(message, _Written)]
        # Another process planned the batch, and named its directory.
        staging = written[0].staging if written else self._staging
        _native.publish(self._target, staging, _files(messages), batch=(self._query, batchId))
        end(self._target, self._query)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Removes the files of the tasks."""
        end(self._target, self._query)


def _staged(staging: Path, batches: Iterator[pa.RecordBatch]) -> _Written:
    """Writes the rows of a task."""
    names = _capture.schema().names
    stager = None
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = batch.select(names)
        _need_values(rows)
        stager = stager or _native.Stager(staging)
        stager.append(rows)
    return _Written(staging, stager.finish() if stager else [])


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[_Staged]:
    return [file for message in messages if isinstance(message, _Written) for file in message.files]


def _query(options: Mapping[str, str]) -> str:
    """The name under which the batches of a query are numbered: by default the id in its checkpoint.

    Raises:
        LocalProtocolError: There is none.
        CaptureError: The checkpoint cannot be read.
    """
    given = {name.lower(): text for name, text in options.items()}
    if _QUERY in given:
        return given[_QUERY]
    if _CHECKPOINT not in given:
        message = "name the query's checkpoint, by which each of its batches is written once: .option('checkpointLocation', …)"
        raise LocalProtocolError(message)
    location = location_of(given[_CHECKPOINT])
    found = _native.read_file(location, "metadata")
    if found is None:
        message = (
            f"{location}: the checkpoint has no file metadata: name the query yourself, .option('txnAppId', 'lab-rows')"
        )
        raise CaptureError(message)
    return str(json.loads(found)["id"])


def _target(options: Mapping[str, str], known: Sequence[str]) -> Path:
    given = {name.lower(): text for name, text in options.items()}
    path = given.get(_PATH)
    if path is None:
        message = "name the capture: .save('capture/')"
        raise LocalProtocolError(message)
    unknown = given.keys() - set(known)
    if unknown:
        name = min(unknown)
        if name in options_of_reading():
            message = (
                f"option {name} is for reading: nothing is inserted into a view of a capture; rows of captures are written as "
                "a new one, with .write.format('trunkline').save('capture/')"
            )
            raise LocalProtocolError(message)
        message = f"there is no option {name!r} for writing{did_you_mean(name, known)}"
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


def _need_values(rows: pa.RecordBatch) -> None:
    for field in _capture.schema():
        column = rows.column(field.name)
        frames = column.flatten().null_count if pa.types.is_list(field.type) else 0
        if frames or (not field.nullable and column.null_count):
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
