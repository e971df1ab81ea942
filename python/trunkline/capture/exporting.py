"""Exports decoded messages to files for other programs."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, TypeAlias, cast

from trunkline import columns
from trunkline._arguments import need_callable, need_flag, refuse
from trunkline._formats import FORMATS, TEXT, TREES, Format, format_of, is_compressed
from trunkline._locations import need_local, whole_or_none
from trunkline._native.capture import mark_variants
from trunkline._native.columns import variant_json
from trunkline._text import as_text, finite
from trunkline.capture import folders, reading
from trunkline.capture.selecting import need_selection
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

    from trunkline.capture.selecting import Selection

__all__ = ["export", "is_variant", "parquet_writer", "prunable", "to_json", "write"]

Out: TypeAlias = str | os.PathLike[str] | IO[bytes]

# The prefixes of columns of single tags and properties.
_ONE_OF = {"tags": "tag", "properties": "property"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The calendar repeats after 400 years.
_CYCLE_YEARS = 400
_CYCLE = timedelta(days=146_097)


def export(
    path: folders.Readable,
    out: Out,
    protocol: str = "cdtp",
    *,
    format: Format | None = None,  # noqa: A002 - as everybody calls it
    selection: Selection | None = None,
    escape_formulas: bool = False,
    on_progress: Callable[[int], object] | None = None,
    **options: Any,
) -> int:
    """Writes the messages of a capture as a table, one row each, with the columns of `Capture.decode`.

    Arrow and Parquet keep all types. In JSON lines, columns of JSON and VARIANTs (tags, unless they have other types) are
    objects, not text; in CSV they are text. In CSV and JSON lines, bytes are text if they are printable UTF-8, with lines and tabs,
    that does not begin with ``0x``; else hexadecimal digits after ``0x``. In CSV, lists and structs are JSON. In JSON, a float that is not a number is ``"NaN"``,
    ``"Infinity"`` or ``"-Infinity"``; in a column of CSV, ``nan``, ``inf`` or ``-inf``. In JSON, a timestamp is
    ``2026-01-02T03:04:05+00:00``; in CSV, ``2026-01-02 03:04:05.000000Z``. A year after 9999 has more digits; CSV
    supports years up to 32767. An HDF5 file is not a table: it holds a run of CDTP with its payloads, in the layout of
    Constellation's H5DataWriter, and requires the extra ``hdf5``.

    With a layout as `payload`, CSV refuses arrays, and an HDF5 file is a table: a group named after the protocol with a dataset for each
    column, of arrays ``FIELD`` with all items and ``FIELD_offsets`` with where each row's begin and end. A ROOT file, which requires the
    extra ``root``, is a tree named after the protocol with a branch for each column. In both, fields of payloads have their own names, the members of structs are
    columns ``FIELD_MEMBER``, and a row without a value has 0, NaN, empty text or no items. Bytes are items of 8 bits; VARIANTs, and
    what is nested deeper than a list of structs, are JSON. Text with a NUL, which HDF5 has not, is hexadecimal digits after ``0x`` there.

    Args:
        path: The capture directory or a folder of captures; or either open.
        out: The file to write, which is replaced; CSV and JSON lines are compressed with gzip if the name ends with ``.gz``,
            and may go to a binary file that is open, which stays so.
        protocol: The protocol whose messages to write.
        format: The file format; by default that of the file name's suffix. An open file needs it.
        selection: Which messages to write; all if None.
        escape_formulas: In CSV, put an apostrophe before text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage
            return: a spreadsheet would take it for a formula, and peers choose topics and names. Off by default, so that
            programs read the text as it is.
        on_progress: Called from time to time with the number of rows written so far.
        **options: As for `Capture.decode`.

    Returns:
        The number of rows written. After an error there is no file.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
        LocalProtocolError: `out` is a URL, there is no such format or option, `escape_formulas` is given for another format than CSV, an extra
            is not installed, or a sender has several runs, for HDF5.
        OSError: The file cannot be written.

    ```pycon
    >>> import pathlib, tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs, table = pathlib.Path(folder, "runs"), pathlib.Path(folder, "messages.csv")
    ...     imported = capture.import_(DATA / "cdtp1-release-0.5.1.jsonl.gz", runs)
    ...     capture.export(runs, table, selection=capture.Selection(type="DAT"), columns=["type", "sequence"])
    ...     table.read_text().splitlines()[:2]
    2106
    ['"type","sequence"', '"DAT",1']

    ```
    """
    if isinstance(out, str | os.PathLike):
        need_local(out)
    elif not hasattr(out, "write"):
        refuse("out", "a path or an open binary file", out)
    need_flag("escape_formulas", escape_formulas)
    need_callable("on_progress", on_progress)
    need_selection(selection)
    file_path = Path(out) if isinstance(out, str | os.PathLike) else None
    form = format_of(file_path) if format is None and file_path is not None else format
    if form is None or form not in FORMATS:
        message = f"format must be one of {', '.join(FORMATS)}, not {form!r}"
        raise LocalProtocolError(message)
    if escape_formulas and form != "csv":
        message = f"escape_formulas is for csv, not {form}"
        raise LocalProtocolError(message)
    if file_path is None and form not in TEXT:
        message = f"an open file takes {' or '.join(TEXT)}, not {form}"
        raise LocalProtocolError(message)
    layout = options.get("payload", False)
    opened = folders.opened(path)
    if file_path is not None and form == "hdf5" and isinstance(layout, bool):
        return _run(opened, file_path, protocol, selection, on_progress, options)
    reader = opened.decode(protocol, selection=selection, **options)
    if form == "csv" and not isinstance(layout, bool):
        _need_no_arrays(reader.schema, columns.Layout(layout))
    if file_path is not None and form in TREES:
        return _tree(reader, file_path, form, protocol, on_progress)
    found = _json_columns(protocol, options)
    return write(reader, out, form, json=found, escape_formulas=escape_formulas, on_progress=on_progress)


def write(
    table: pa.RecordBatchReader,
    out: Out,
    form: Format,
    *,
    json: AbstractSet[str] = frozenset(),
    escape_formulas: bool = False,
    on_progress: Callable[[int], object] | None = None,
) -> int:
    """Writes any table, in any format of `TABLES`, and returns the number of its rows; `json` are its columns of JSON as text."""
    rows = 0
    if form in TEXT:
        json = json | {field.name for field in table.schema if is_variant(field)}
        table = _without_variants(table)
    with _opened(out) as file, _WRITERS[form](file, table.schema, json) as writer:
        for batch in table:
            writer.write(_escaped(batch) if escape_formulas else batch)
            rows += batch.num_rows
            if on_progress is not None:
                on_progress(rows)
    variants = [field.name for field in table.schema if is_variant(field)]
    # pyarrow writes Arrow's extension type of VARIANT, but not Parquet's annotation.
    if isinstance(out, str | os.PathLike) and form == "parquet" and variants:
        mark_variants(Path(out), variants)
    return rows


def _without_variants(table: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The table with VARIANTs as JSON text, for readers that have no such type."""
    import pyarrow as pa

    names = [field.name for field in table.schema if is_variant(field)]
    schema = pa.schema([pa.field(field.name, pa.string()) if field.name in names else field for field in table.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in table:
            texts = {name: variant_json(batch.column(name)) for name in names}
            arrays = [texts.get(name, column) for name, column in zip(schema.names, batch.columns, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches()) if names else table


def _need_no_arrays(schema: pa.Schema, layout: columns.Layout) -> None:
    """Refuses fields of payloads that are more than a cell."""
    from pyarrow import types

    for name in (name for name in layout.columns if name in schema.names):
        field = schema.field(name)
        if types.is_nested(field.type) and not is_variant(field):
            message = f"CSV has no arrays, and {name} is one: choose .parquet, .arrow, .jsonl, .h5 or .root"
            raise LocalProtocolError(message)


def _tree(
    reader: pa.RecordBatchReader, out: Path, form: Format, protocol: str, on_progress: Callable[[int], object] | None
) -> int:
    """Writes a table as HDF5 or ROOT, and returns the number of its rows."""
    import pyarrow as pa

    from trunkline.capture.branches import Hdf5Table, RootTable, branches

    rows = 0
    reader = _without_variants(reader)
    kind = Hdf5Table if form == "hdf5" else RootTable
    # Before there is a file: what is wrong with the names is wrong with those of no rows.
    list(branches(pa.RecordBatch.from_pylist([], reader.schema)))
    with whole_or_none(out), kind(out, protocol.replace(columns.EVERY, "all")) as table:
        for batch in reader:
            table.write(batch)
            rows += batch.num_rows
            if on_progress is not None:
                on_progress(rows)
    return rows


@contextmanager
def _opened(out: Out) -> Iterator[IO[bytes]]:
    """Opens a file to write, compressed if its name says so; an open file stays open."""
    if not isinstance(out, str | os.PathLike):
        yield out
        return
    # Opened here: pyarrow and others accept only names that are text.
    with gzip.open(out, "wb") if is_compressed(out) else Path(out).open("wb") as file, whole_or_none(Path(out)):
        yield cast("IO[bytes]", file)


def _escaped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with an apostrophe before each text that a spreadsheet would take for a formula."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def escaped(column: pa.Array) -> pa.Array:
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            if _is_flat(column.type):
                return column
            column = pa.array([_cell(value) for value in column.to_pylist()], pa.string())
        return pc.replace_substring_regex(column, r"\A([=+\-@\t\r])", r"'\1")

    columns = [escaped(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _run(
    capture: reading.Capture | folders.Folder,
    out: str | os.PathLike[str],
    protocol: str,
    selection: Selection | None,
    on_progress: Callable[[int], object] | None,
    options: Mapping[str, Any],
) -> int:
    """Writes a run as HDF5, with all fields of CDTP messages."""
    from trunkline.capture import hdf5

    if isinstance(capture, folders.Folder):
        message = f"{capture.path}: HDF5 holds a run of one capture: name the capture, or choose another format"
        raise LocalProtocolError(message)
    if protocol != "cdtp":
        message = f"HDF5 holds runs of cdtp, not {protocol}: choose another format"
        raise LocalProtocolError(message)
    needless = sorted(options.keys() - {"payload"})
    if needless:
        message = f"HDF5 always holds all tags and payloads: leave out {', '.join(needless)}"
        raise LocalProtocolError(message)
    return hdf5.write(capture, out, selection=selection, on_progress=on_progress)


class _Writer:
    """Writes batches to a file."""

    _writer: Any

    def __init__(self, file: IO[bytes], schema: pa.Schema, json: AbstractSet[str]) -> None:
        self._file = file
        self._schema = schema
        self._json = json
        self._begin()

    def _begin(self) -> None:
        """Writes what comes before the first batch."""

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


class _Parquet(_Writer):
    def _begin(self) -> None:
        self._writer = parquet_writer(self._file, self._schema)


class _Arrow(_Writer):
    def _begin(self) -> None:
        import pyarrow as pa

        self._writer = pa.ipc.new_file(self._file, self._schema)


class _Csv(_Writer):
    def _begin(self) -> None:
        import pyarrow as pa
        from pyarrow import csv

        # Other values than numbers and text are written as text.
        flat = (field if _is_flat(field.type) else pa.field(field.name, pa.string()) for field in self._schema)
        self._schema = pa.schema(flat)
        self._writer = csv.CSVWriter(self._file, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        cells = [
            column if _is_flat(column.type) else pa.array([_cell(value) for value in column.to_pylist()], pa.string())
            for column in batch.columns
        ]
        super().write(pa.RecordBatch.from_arrays(cells, schema=self._schema))


class _JsonLines(_Writer):
    def write(self, batch: pa.RecordBatch) -> None:
        cells = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            # Columns of JSON are written as they are.
            as_json = _or_null if name in self._json else to_json
            key = to_json(name)
            cells.append([f"{key}: {as_json(value)}" for value in _values(column)])
        self._file.writelines(f"{{{', '.join(row)}}}\n".encode() for row in zip(*cells, strict=True))

    def __exit__(self, *_: object) -> None:
        """Nothing to write: each line is complete."""


_WRITERS: dict[Format, type[_Writer]] = {
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
    layout = columns.layout_of(options.get("payload", False))
    return found if layout is None else found.union(layout.json_columns)


def _or_null(text: str | None) -> str:
    return "null" if text is None else text


def is_variant(field: pa.Field) -> bool:
    """Whether a column is a VARIANT."""
    return (field.metadata or {}).get(b"ARROW:extension:name") == b"arrow.parquet.variant"


def parquet_writer(file: Path | IO[bytes], schema: pa.Schema, **options: bool) -> parquet.ParquetWriter:
    """A writer of Parquet for readers of any kind."""
    from pyarrow import parquet

    some = prunable(schema)
    return parquet.ParquetWriter(
        file, schema, compression="zstd", write_statistics=some, use_dictionary=some, **options
    )


def prunable(schema: pa.Schema) -> list[str]:
    """The columns of a Parquet file that get statistics and dictionaries, by their paths: by these, readers skip rows.

    Floating-point ones get none, as readers would skip rows that a condition holds for. Arrow's statistics leave NaN out, which is above
    all numbers to Spark and DuckDB; and to Spark a dictionary with -0.0 has no 0.0.
    """
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    # A column with a dot in its name may have the path of another one.
    floating = {path for path, kind in leaves if _is_floating(kind)}
    return [path for path, _ in leaves if path not in floating]


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The columns of Parquet that a column is stored in."""
    from pyarrow import types

    if types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif types.is_struct(kind):
        for member in kind:
            yield from _leaves(f"{path}.{member.name}", member.type)
    else:
        yield path, kind


def _is_floating(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_floating(kind.value_type if types.is_dictionary(kind) else kind))


def _is_flat(kind: pa.DataType) -> bool:
    from pyarrow import types

    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return not (types.is_nested(kind) or is_bytes)


def _cell(value: Any) -> str | None:
    """A value as the cell of a table of text."""
    if value is None:
        return None
    return as_text(value) if isinstance(value, bytes) else to_json(value)


def _values(column: pa.Array) -> list[Any]:
    """The values of a column; timestamps as text, as Python has none after the year 9999."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if one is None else _moment(one) for one in micros]


def _moment(micros: int) -> str:
    """A timestamp as by `datetime.isoformat`, for any year."""
    cycles, rest = divmod(timedelta(microseconds=micros), _CYCLE)
    moment = _EPOCH + rest
    return f"{moment.year + cycles * _CYCLE_YEARS:04}{moment.isoformat()[4:]}"


def to_json(value: Any) -> str:
    """A value as JSON: bytes as text, and floats that JSON cannot hold by their names."""
    try:
        return json.dumps(value, default=as_text, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=as_text)


def _finite(value: Any) -> Any:
    """The value with names in place of floats that JSON cannot hold."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return value
