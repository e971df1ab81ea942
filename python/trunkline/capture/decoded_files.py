"""Decodes the messages of segments into files beside them, once for all readers."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from trunkline._locations import begun_path, whole_or_none
from trunkline._native import capture as _native
from trunkline._native.capture import mark_variants
from trunkline._native.columns import Shredding
from trunkline._processes import runs
from trunkline.capture.decoded import Decoded, Marks, all_options, is_linked, newest, numbered, stamp_of
from trunkline.capture.decoding import Decoding
from trunkline.capture.exporting import is_variant, parquet_writer
from trunkline.capture.reading import DECODED, Capture, native
from trunkline.capture.recovery import Decode, DecodedFiles
from trunkline.capture.selecting import Selected, Selection
from trunkline.errors import CaptureError, LocalProtocolError

__all__ = ["decoding_of", "differences", "update"]

# A row group: few enough rows that statistics rule out many, and enough that columns compress.
_ROWS = 64 << 10
_BYTES = 64 << 20


def decoding_of(protocol: str, options: Mapping[str, Any]) -> Decoding:
    """The decoding whose messages a file has.

    Raises:
        LocalProtocolError: The protocol has no such option, or no such value of it; or it is one of readers.
    """
    of_readers = next((name for name in ("mode", "types") if name in options), None)
    if of_readers is not None:
        message = (
            f"decode: {protocol} has {of_readers}, which is for readers: files of decoded messages have all of them"
        )
        raise LocalProtocolError(message)
    return Decoding(protocol, "PERMISSIVE", None, dict(options))


def update(directory: Path, decode: Decode, goes_on: Callable[[], bool], *, shred: bool = False) -> DecodedFiles:
    """Writes the files that are missing, and removes those that no segment needs, as `decode_files` says.

    Raises:
        CaptureError: A segment cannot be read, or a file cannot be written.
    """
    files = messages = 0
    removed = _remove_needless(directory)
    there = {protocol: newest(directory / DECODED / protocol) for protocol in decode}
    for part, segment in _segments(directory):
        for protocol, options in decode.items():
            if not goes_on():
                return DecodedFiles(files, messages, removed)
            # A segment that is merged or deleted meanwhile is none of this round.
            with suppress(FileNotFoundError):
                rows = _write(part, segment, protocol, options, there[protocol].get(segment.name), shred=shred)
                files, messages = files + (rows is not None), messages + (rows or 0)
    return DecodedFiles(files, messages, removed)


def _remove_needless(directory: Path) -> int:
    """Removes the files whose segments were merged, deleted or decoded anew, and what is left of those that were never finished.

    Raises:
        CaptureError: One cannot be removed.
    """
    removed = 0
    needed = frozenset(native(Capture(directory)).files)
    for folder in _folders(directory):
        files = newest(folder)
        for file in folder.iterdir():
            is_hidden, segment = file.name.startswith("."), numbered(file.name)[0]
            is_needed = segment in needed and file == files.get(segment, file)
            if not _is_being_written(file.name) if is_hidden else not is_needed:
                try:
                    file.unlink()
                except FileNotFoundError:
                    continue
                except OSError as error:
                    message = f"{file}: cannot be removed: {error.strerror or error}; remove it"
                    raise CaptureError(message) from error
                removed += not is_hidden
    return removed


def differences(directory: Path) -> Iterator[tuple[Path, str]]:
    """The files of decoded messages that are not what their segments decode to, each with what is wrong."""
    folders = [(folder, newest(folder)) for folder in _folders(directory)]
    for part, segment in _segments(directory):
        for folder, files in folders:
            file = files.get(segment.name, folder / segment.name)
            try:
                with Decoded(file) as decoded:
                    marks = decoded.marks
                    if marks is None or not decoded.is_of(segment):
                        continue
                    table = pa.Table.from_batches(decoded.batches(decoded.schema.names, []), decoded.schema)
                decoding = decoding_of(folder.name, marks.options)
                again = pa.Table.from_batches(_messages(decoding, part), decoding.schema)
                # Columns of tags come in the order in which the footer has the types.
                if _bits(table.select(again.schema.names).cast(again.schema)) != _bits(again):
                    yield file, "is not what its segment decodes to"
            except FileNotFoundError:
                continue
            except CaptureError as error:
                yield file, str(error).removeprefix(f"{file}: ")
            except (pa.ArrowException, ValueError, KeyError) as error:
                yield file, f"cannot be compared with its segment: {error}"


def _bits(table: pa.Table) -> list[pa.Array]:
    """The columns of a table, floats as integers: no NaN is equal to another."""
    return [_bits_of(pa.concat_arrays(column.chunks)) if column.num_chunks else column for column in table.columns]


def _bits_of(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_floating(kind):
        return column.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width])
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(column.offsets, _bits_of(column.values), mask=column.is_null())
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_bits_of(column.values), kind.list_size, mask=column.is_null())
    if pa.types.is_struct(kind) and kind.num_fields:
        members = [_bits_of(column.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, [field.name for field in kind], mask=column.is_null())
    return column


def _folders(directory: Path) -> list[Path]:
    """The folders of decoded messages, one for each protocol."""
    above = directory / DECODED
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(folder for folder in above.iterdir() if folder.is_dir() and not is_linked(above, folder))
    return []


def _is_being_written(name: str) -> bool:
    """Whether the process that writes a file of this hidden name goes on."""
    pid = name.split(".")[2] if name.count(".") == 3 else ""
    return pid.isdecimal() and int(pid) != os.getpid() and runs(int(pid))


def _segments(directory: Path) -> Iterator[tuple[_native.Capture, Path]]:
    for part in native(Capture(directory)).parts():
        for name in part.files:
            yield part, directory / name


def _messages(decoding: Decoding, segment: _native.Capture) -> Iterator[pa.RecordBatch]:
    selection = Selection(protocol=decoding.protocol)
    return decoding.decode(segment, Selected(selection, {"protocol": decoding.protocol}, None))


def _write(
    part: _native.Capture,
    segment: Path,
    protocol: str,
    options: Mapping[str, Any],
    before: Path | None,
    *,
    shred: bool,
) -> int | None:
    """Writes the file of a segment, in place of the one `before`, and returns its messages; None if it is there."""
    marks = Marks(stamp_of(segment), all_options(protocol, options), shredded=() if shred else None)
    if before is not None and _is_there(before, marks):
        return None
    number = "" if before is None else f".{numbered(before.name)[1] + 1}"
    target = segment.parent / DECODED / protocol / f"{segment.stem}{number}{segment.suffix}"
    scratch = begun_path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_or_none(scratch):
            try:
                messages = _write_rows(scratch, decoding_of(protocol, options), part, marks, shred=shred)
            except _UnshreddableError:
                messages = _write_rows(scratch, decoding_of(protocol, options), part, marks, shred=False)
            # As readable as the segment.
            scratch.chmod(segment.stat().st_mode & 0o777)
            scratch.replace(target)
            if before is not None:
                before.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        hint = "; remove it" if target.is_dir() else ""
        message = f"{target}: cannot be written: {error.strerror or error}{hint}"
        raise CaptureError(message) from error
    return messages


def _is_there(target: Path, marks: Marks) -> bool:
    """Whether there is a file of the same segment, decoded in the same way."""
    try:
        with Decoded(target) as decoded:
            there = decoded.marks
    except (FileNotFoundError, CaptureError):
        return False
    if there is None:
        return False
    # It is as it was asked for, even if nothing could be shredded.
    is_as_asked = (there.shredded is None) == (marks.shredded is None)
    return is_as_asked and (there.segment, there.options) == (marks.segment, marks.options)


class _UnshreddableError(Exception):
    """An object could not be put together again from its fields."""


def _write_rows(scratch: Path, decoding: Decoding, part: _native.Capture, marks: Marks, *, shred: bool) -> int:
    """Writes the messages of a segment, and what they were decoded of; returns how many there are.

    Raises:
        _UnshreddableError: They cannot be shredded.
    """
    rows, errors = 0, 0
    variants = [field.name for field in decoding.schema if is_variant(field)]
    tables = _row_groups(_messages(decoding, part))
    first = next(tables, decoding.schema.empty_table())
    # What the first row group often has are columns in all of them.
    of_first = {name: Shredding.of(first[name]) for name in variants} if shred else {}
    shreddings = {name: shredding for name, shredding in of_first.items() if shredding is not None}
    first = _shredded(first, shreddings)
    with parquet_writer(scratch, first.schema, write_page_index=True, write_page_checksum=True) as writer:
        for table in filter(len, itertools.chain([first], (_shredded(table, shreddings) for table in tables))):
            writer.write_table(table, row_group_size=len(table))
            rows += len(table)
            errors += len(table) - table["error"].null_count
        shredded = None if marks.shredded is None else [*shreddings]
        marks = replace(marks, errors=errors, mismatches=dict(decoding.mismatches), shredded=shredded)
        writer.add_key_value_metadata(marks.metadata())
    if variants:
        mark_variants(scratch, variants)
    # Until the rename is on disk, the file of another name is the one that counts.
    with scratch.open("rb") as file:
        os.fsync(file.fileno())
    return rows


def _shredded(table: pa.Table, shreddings: Mapping[str, Shredding]) -> pa.Table:
    """The table, fields of its VARIANTs as columns."""
    for name, shredding in shreddings.items():
        shredded = shredding.shredded(table[name])
        if shredded is None:
            raise _UnshreddableError
        table = table.set_column(table.schema.get_field_index(name), name, shredded)
    return table


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches as tables of the size of a row group."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        for at in range(0, batch.num_rows, _ROWS):
            held.append(batch.slice(at, _ROWS))
            if sum(one.num_rows for one in held) >= _ROWS or sum(one.nbytes for one in held) >= _BYTES:
                yield pa.Table.from_batches(held)
                held = []
    if held:
        yield pa.Table.from_batches(held)
