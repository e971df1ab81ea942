"""Reads and decodes segments on executors."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from trunkline import capture as _capture
from trunkline._locations import Location
from trunkline._text import did_you_mean
from trunkline.capture.decoding import Decoding, read_batches
from trunkline.capture.passed import Span, missing
from trunkline.capture.pruning import Wanted
from trunkline.capture.reading import Capture, native, of_known
from trunkline.capture.selecting import Selection, of_rows, wanted
from trunkline.columns import EVERY
from trunkline.errors import CaptureError, LocalProtocolError
from trunkline.spark._comments import ROWS, commented
from trunkline.spark.source.options import Settings

__all__ = ["Part", "Piece", "lost", "need_schema", "read", "schema"]

_logger = logging.getLogger("trunkline.spark")

# What reads a capture.
_Rows: TypeAlias = Callable[[Capture], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Segments of one capture, in order.

    Attributes:
        location: The capture.
        segments: The numbers of the first and the last of each.
        sizes: The bytes of each.
        within: The numbers of the first and the last row, if it has not all of them.
    """

    location: Location
    segments: tuple[Span, ...]
    sizes: tuple[int, ...]
    within: Span | None = None

    def opened(self) -> Capture:
        """Its rows, without those of segments that are gone."""
        return of_known(self.location, self.segments, self.sizes, self.within)


@dataclass
class Part(InputPartition):
    """What one task reads: pieces of captures, those of a capture in order."""

    pieces: tuple[Piece, ...]

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


def schema(settings: Settings) -> StructType:
    """The columns of the source.

    Raises:
        LocalProtocolError: There is no such column.
    """
    if settings.bundling is not None:
        return from_arrow_schema(settings.bundling.schema())
    found: StructType = from_arrow_schema(_arrow_schema(settings))
    return commented(found, settings.protocol if settings.is_decoded and settings.protocol else ROWS)


def need_schema(settings: Settings, given: StructType) -> None:
    """Refuses a schema that differs from that of the options.

    Raises:
        LocalProtocolError: It differs.
    """
    ours = [(field.name, field.dataType.simpleString()) for field in schema(settings)]
    theirs = [(field.name, field.dataType.simpleString()) for field in given]
    for one, other in itertools.zip_longest(ours, theirs):
        if one != other:
            has, asked = (" ".join(column) if column else "no column" for column in (one, other))
            message = (
                f"the schema has {asked} where the source has {has}: leave the schema out, and choose with the options "
                "columns and tags"
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
    return Decoding(settings.protocol or "", settings.mode, settings.columns, {"types": "spark", **settings.decoding})


def lost(settings: Settings, what: str) -> None:
    """Reports segments that were deleted before they were read.

    Raises:
        CaptureError: By default; the options may turn it into a warning.
    """
    if settings.fails_on_loss:
        message = f"{what}; set the option failOnDataLoss to false to read on without them"
        raise CaptureError(message)
    _logger.warning("%s", what)


def read(settings: Settings, part: Part, wanted: Wanted | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a task, but for some that are not wanted.

    Raises:
        CaptureError: A segment cannot be read, or was deleted before it was.
        DecodeError: A message is malformed, and the mode is FAILFAST.
    """
    batches = _read(settings, part, wanted)
    return batches if settings.bundling is None else settings.bundling.bundles(batches)


def _read(settings: Settings, part: Part, wanted: Wanted | None) -> Iterator[pa.RecordBatch]:
    rows = _decoded(settings, wanted) if settings.is_decoded else _rows(settings, wanted)
    for piece in part.pieces:
        capture = piece.opened()
        yield from (batch for batch in rows(capture) if batch.num_rows)
        if gone := native(capture).gone:
            lost(settings, missing(piece.location, sorted(set(gone))))


def _decoded(settings: Settings, rows: Wanted | None) -> _Rows:
    decoding = _decoding(settings)
    selection = of_rows(settings.selection or Selection(), settings.protocol or EVERY)
    return lambda capture: decoding.batches(capture, selection.of(capture, rows))


def _rows(settings: Settings, of: Wanted | None) -> _Rows:
    """Recorded rows that have any selected message."""
    given = _arrow_schema(settings)
    selection = settings.selection or Selection()

    def rows(capture: Capture) -> Iterator[pa.RecordBatch]:
        selected = selection.of(capture, of)
        if selected.is_decided_by_rows and selection.where is None:
            return read_batches(native(capture).reader(given.names, selected.native))
        from pyarrow import compute

        # First find the selected rows, from a fraction of the columns.
        _, found = wanted(capture, selection)
        seqs = pa.concat_arrays([pa.array([], pa.int64()), *(batch.column(0) for batch in found)])
        batches = read_batches(native(capture).reader([*given.names, "seq"], selected.native))
        return (batch.filter(compute.is_in(batch["seq"], seqs)) for batch in batches)

    def ordered(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch[name] for name in given.names], schema=given)

    return lambda capture: map(ordered, rows(capture))
