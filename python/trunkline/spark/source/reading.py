"""Reads and decodes segments on executors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from trunkline import capture as _capture
from trunkline._locations import Location
from trunkline._native.capture import existing
from trunkline._text import did_you_mean
from trunkline.capture.decoding import Decoding, read_batches
from trunkline.capture.reading import Capture, native
from trunkline.capture.selecting import Selection, of_rows, wanted
from trunkline.columns import EVERY
from trunkline.errors import CaptureError, LocalProtocolError
from trunkline.spark._comments import ROWS, commented
from trunkline.spark.source.captures import Span, absent, missing
from trunkline.spark.source.options import Settings

__all__ = ["Part", "lost", "need_schema", "read", "schema"]

_logger = logging.getLogger("trunkline.spark")


@dataclass
class Part(InputPartition):
    """The segments of one capture for one task, in order."""

    place: Location
    segments: tuple[Span, ...]

    def __init__(self, place: Location, segments: tuple[Span, ...]) -> None:
        super().__init__(None)
        self.place, self.segments = place, segments


def schema(settings: Settings) -> StructType:
    """The columns of the source.

    Raises:
        LocalProtocolError: There is no such column.
    """
    found: StructType = from_arrow_schema(_arrow_schema(settings))
    return commented(found, settings.protocol if settings.is_decoded and settings.protocol else ROWS)


def need_schema(settings: Settings, given: StructType) -> None:
    """Refuses a schema that differs from that of the options.

    Raises:
        LocalProtocolError: It differs.
    """
    ours = schema(settings)
    if given.simpleString() != ours.simpleString():
        message = (
            f"the source gives {ours.simpleString()}, not {given.simpleString()}: leave the schema out, and choose with the "
            "options columns and tags"
        )
        raise LocalProtocolError(message)


def _arrow_schema(settings: Settings) -> pa.Schema:
    if settings.is_decoded:
        return _decoding(settings).schema
    everything = _capture.schema()
    if settings.columns is None:
        return everything
    unknown = next((name for name in settings.columns if name not in everything.names), None)
    if unknown is not None:
        hint = did_you_mean(unknown, everything.names) or f": the columns are {', '.join(everything.names)}"
        message = f"option columns: no column {unknown}{hint}"
        raise LocalProtocolError(message)
    return pa.schema([everything.field(name) for name in settings.columns])


def _decoding(settings: Settings) -> Decoding:
    return Decoding(settings.protocol or "", settings.mode, settings.columns, dict(settings.decoding))


def lost(settings: Settings, what: str) -> None:
    """Reports segments that were deleted before they were read.

    Raises:
        CaptureError: By default; the options may turn it into a warning.
    """
    if settings.fails_on_loss:
        message = f"{what}; set the option failOnDataLoss to false to read on without them"
        raise CaptureError(message)
    _logger.warning("%s", what)


def read(settings: Settings, part: Part) -> Iterator[pa.RecordBatch]:
    """The rows of segments.

    Raises:
        CaptureError: A segment cannot be read, or was deleted before it was.
        DecodeError: A message is malformed, and the mode is FAILFAST.
    """
    there = existing(part.place, part.segments)
    gone = absent(there, part.segments)
    if gone:
        lost(settings, missing(part.place, gone))
    if not there:
        return iter(())
    capture = Capture(part.place, segments=there)
    return _decoded(settings, capture) if settings.is_decoded else _rows(settings, capture)


def _decoded(settings: Settings, capture: Capture) -> Iterator[pa.RecordBatch]:
    selection = of_rows(settings.selection or Selection(), settings.protocol or EVERY)
    batches = _decoding(settings).batches(native(capture), selection.of(capture))
    return (batch for batch in batches if batch.num_rows)


def _rows(settings: Settings, capture: Capture) -> Iterator[pa.RecordBatch]:
    """Recorded rows that have any selected message."""
    given = _arrow_schema(settings)
    selection = settings.selection
    if selection is None:
        return _of_columns(given, read_batches(native(capture).reader(given.names)))
    selected = selection.of(capture)
    if selected.is_decided_by_rows and selection.where is None:
        return _of_columns(given, read_batches(native(capture).reader(given.names, selected.native)))
    from pyarrow import compute

    # First find the selected rows, from a fraction of the columns.
    _, numbers = wanted(capture, selection)
    seqs = pa.concat_arrays([pa.array([], pa.int64()), *(batch.column(0) for batch in numbers)])
    batches = read_batches(native(capture).reader([*given.names, "seq"], selected.native))
    chosen = (batch.filter(compute.is_in(batch["seq"], seqs)) for batch in batches)
    return _of_columns(given, chosen)


def _of_columns(given: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays([batch[name] for name in given.names], schema=given)
