"""Exports decoded messages to files for other programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

from trunkline import columns
from trunkline._native.capture import mark_variants
from trunkline._text import finite, text_or_digits
from trunkline.capture import reading
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline.capture.selecting import Selection

__all__ = ["Format", "export", "format_of"]

Format: TypeAlias = Literal["parquet", "arrow", "csv", "jsonl", "hdf5"]

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
}

# What the column of one tag is called after, and that of one property.
_ONE_OF = {"tags": "tag", "properties": "property"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# After 400 years the calendar is the same again.
_CYCLE_YEARS = 400
_CYCLE = timedelta(days=146_097)


def format_of(path: str | os.PathLike[str]) -> Format:
    """The format for a file of this name.

    Raises:
        LocalProtocolError: The format is unknown.
    """
    suffix = Path(path).suffix.lower()
    found = _SUFFIXES.get(suffix)
    if found is None:
        message = f"unknown format of {os.fspath(path)!r}: end the name with {', '.join(_SUFFIXES)}, or give the format"
        raise LocalProtocolError(message)
    return found


def export(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    protocol: str = "cdtp",
    *,
    format: Format | None = None,  # noqa: A002 - as everybody calls it
    selection: Selection | None = None,
    on_progress: Callable[[int], object] | None = None,
    **options: Any,
) -> int:
    """Writes the messages of a capture as a table, one row each, with the columns of `Capture.decode`.

    Arrow and Parquet keep all types. In JSON lines, columns of JSON (tags, unless they have other types) are objects, not
    text; in CSV they are text. In CSV and JSON lines, bytes are text if they are printable UTF-8, with lines and tabs,
    that does not begin with ``0x``; else hexadecimal digits after ``0x``. In CSV, lists and structs are JSON. In JSON, a float that is not a number is ``"NaN"``,
    ``"Infinity"`` or ``"-Infinity"``; in a column of CSV, ``nan``, ``inf`` or ``-inf``. In JSON, a timestamp is
    ``2026-01-02T03:04:05+00:00``; in CSV, ``2026-01-02 03:04:05.000000Z``. A year after 9999 has more digits; CSV
    supports years up to 32767. An HDF5 file is not a table: it holds a run of CDTP with its payloads, in the layout of
    Constellation's H5DataWriter, and requires the extra ``hdf5``.

    Args:
        path: The capture directory.
        out: The file to write, which is replaced.
        protocol: The protocol whose messages to write.
        format: The file format; by default that of the file name's suffix.
        selection: Which messages to write; all if None.
        on_progress: Called from time to time with the number of rows written so far.
        **options: As for `Capture.decode`.

    Returns:
        The number of rows written.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
        LocalProtocolError: There is no such format or option, an extra is not installed, or a sender has
            several runs, for HDF5.
        OSError: The file cannot be written.
    """
    form = format_of(out) if format is None else format
    if form not in get_args(Format):
        message = f"format must be one of {', '.join(get_args(Format))}, not {form!r}"
        raise LocalProtocolError(message)
    if form == "hdf5":
        return _run(path, out, protocol, selection, on_progress, options)
    reader = reading.open(path).decode(protocol, selection=selection, **options)
    rows = 0
    with _WRITERS[form](Path(out), reader.schema, _json_columns(protocol, options)) as writer:
        for batch in reader:
            writer.write(batch)
            rows += batch.num_rows
            if on_progress is not None:
                on_progress(rows)
    return rows


def _run(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    protocol: str,
    selection: Selection | None,
    on_progress: Callable[[int], object] | None,
    options: Mapping[str, Any],
) -> int:
    """Writes a run as HDF5, which holds all that messages of CDTP say."""
    from trunkline.capture import hdf5

    if protocol != "cdtp":
        message = f"HDF5 holds runs of cdtp, not {protocol}: choose another format"
        raise LocalProtocolError(message)
    needless = sorted(options.keys() - {"payload"})
    if needless:
        message = f"HDF5 always holds all tags and payloads: leave out {', '.join(needless)}"
        raise LocalProtocolError(message)
    return hdf5.write(path, out, selection=selection, on_progress=on_progress)


class _Writer:
    """Batches on their way into a file."""

    _writer: Any

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


class _Parquet(_Writer):
    def __init__(self, out: Path, schema: pa.Schema, _json: AbstractSet[str]) -> None:
        from pyarrow import parquet

        self._out = out
        self._variants = [field.name for field in schema if _is_variant(field)]
        self._writer = parquet.ParquetWriter(out, schema, compression="zstd")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        # pyarrow writes what marks them in Arrow, and not what does in Parquet.
        if self._variants:
            mark_variants(self._out, self._variants)


class _Arrow(_Writer):
    def __init__(self, out: Path, schema: pa.Schema, _json: AbstractSet[str]) -> None:
        import pyarrow as pa

        self._writer = pa.ipc.new_file(out, schema)


class _Csv(_Writer):
    def __init__(self, out: Path, schema: pa.Schema, _json: AbstractSet[str]) -> None:
        import pyarrow as pa
        from pyarrow import csv

        # What is no number and no text is written as text.
        flat = (field if _is_flat(field.type) else pa.field(field.name, pa.string()) for field in schema)
        self._schema = pa.schema(flat)
        self._writer = csv.CSVWriter(out, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        cells = [
            column if _is_flat(column.type) else pa.array([_cell(value) for value in column.to_pylist()], pa.string())
            for column in batch.columns
        ]
        super().write(pa.RecordBatch.from_arrays(cells, schema=self._schema))


class _JsonLines(_Writer):
    def __init__(self, out: Path, _schema: pa.Schema, json: AbstractSet[str]) -> None:
        self._writer = out.open("w", encoding="utf-8")
        self._json = json

    def write(self, batch: pa.RecordBatch) -> None:
        cells = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            # What is JSON already is written as it is.
            as_json = _or_null if name in self._json else _json
            key = _json(name)
            cells.append([f"{key}: {as_json(value)}" for value in _values(column)])
        self._writer.writelines(f"{{{', '.join(row)}}}\n" for row in zip(*cells, strict=True))


_WRITERS: dict[Format, Callable[[Path, pa.Schema, AbstractSet[str]], _Writer]] = {
    "parquet": _Parquet,
    "arrow": _Arrow,
    "csv": _Csv,
    "jsonl": _JsonLines,
}


def _json_columns(protocol: str, options: Mapping[str, Any]) -> AbstractSet[str]:
    """The columns that hold JSON as text."""
    defaults = next((known.options for known in columns.protocols() if known.name == protocol), {})
    found = set()
    for name, default in defaults.items():
        if default != "variant":
            continue
        kinds = options.get(name, "json")
        for key, kind in kinds.items() if isinstance(kinds, Mapping) else [("*", kinds)]:
            if str(kind).lower() == "json":
                found.add(name if key == "*" else f"{_ONE_OF.get(name, name)}_{key}")
    return found


def _or_null(text: str | None) -> str:
    return "null" if text is None else text


def _is_variant(field: pa.Field) -> bool:
    return (field.metadata or {}).get(b"ARROW:extension:name") == b"arrow.parquet.variant"


def _is_flat(kind: pa.DataType) -> bool:
    from pyarrow import types

    return not (types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def _cell(value: Any) -> str | None:
    """A value as the cell of a table of text."""
    if value is None:
        return None
    return said(value) if isinstance(value, bytes) else _json(value)


def _values(column: pa.Array) -> list[Any]:
    """What is in a column; timestamps as text, for Python has none after the year 9999."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if one is None else _moment(one) for one in micros]


def _moment(micros: int) -> str:
    """As `datetime.isoformat` has it, of any year."""
    cycles, rest = divmod(timedelta(microseconds=micros), _CYCLE)
    moment = _EPOCH + rest
    return f"{moment.year + cycles * _CYCLE_YEARS:04}{moment.isoformat()[4:]}"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, default=said, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=said)


def _finite(value: Any) -> Any:
    """With names for the floats that JSON has no numbers for."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return value


def said(value: Any) -> str:
    """What JSON has no word for: bytes as text with lines, or as digits."""
    return text_or_digits(value, has_lines=True) if isinstance(value, bytes) else str(value)
