"""Decoded messages beside the segments of a capture: Parquet files that any engine reads, and that decoding reads too.

A segment ``0000000000-0000000133.parquet`` has its messages of CDTP in ``_decoded/cdtp/0000000000-0000000133.parquet``, one row a
message, with the columns of `Capture.decode`; VARIANTs may be shredded, so that a reader takes one of their fields alone. The
footer says how they were decoded, and of which bytes. Decoded anew in another way they are in ``0000000000-0000000133.2.parquet``, so
that who has planned to read the first never reads other columns by its name.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from trunkline import columns
from trunkline._native import capture as _native
from trunkline._native.columns import Layout, unshredded
from trunkline.capture.reading import DECODED, Capture, is_limited, native
from trunkline.errors import CaptureError

if TYPE_CHECKING:
    from pyarrow import dataset

__all__ = ["Decoded", "Marks", "all_options", "beside", "is_linked", "newest", "numbered", "rows_within", "stamp_of"]

# Raised when the same frames are decoded into other columns or values. By files of version 1 readers skip rows with NaN.
_VERSION = 2

# Where the footer has the marks.
_KEY = b"trunkline"

# A column of VARIANTs.
_VARIANT = pa.struct(
    [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]
)

# The most rows of a batch.
_ROWS = 8 << 10

# The end of a segment that its stamp covers: the footer, with the sizes and statistics of all else.
_STAMPED = 64 << 10


@dataclass(frozen=True, slots=True)
class Marks:
    """What the footer of a file says of its messages.

    Attributes:
        segment: The stamp of the segment that was decoded.
        options: How it was decoded, defaults included.
        errors: How many messages are malformed.
        mismatches: How many values are null because they are of another type than requested, by name.
        shredded: The columns of VARIANTs the fields of which are columns; None if that was not asked for.
        version: That of the decoder.
    """

    segment: str
    options: Mapping[str, Any]
    errors: int = 0
    mismatches: Mapping[str, int] = field(default_factory=dict)
    shredded: Sequence[str] | None = None
    version: int = _VERSION

    def metadata(self) -> dict[bytes, bytes]:
        """The marks, as the footer of a file has them."""
        return {_KEY: json.dumps(asdict(self), sort_keys=True).encode()}

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes] | None) -> Marks | None:
        """The marks of a footer; None where it has none, or those of another version."""
        try:
            found = cls(**json.loads((metadata or {})[_KEY]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        kinds = ((found.options, dict), (found.mismatches, dict), (found.shredded, list | None))
        is_known = found.version == _VERSION and all(isinstance(value, kind) for value, kind in kinds)
        return found if is_known else None


def stamp_of(segment: Path) -> str:
    """What tells a segment from any other: its size, and the CRC of its end.

    Raises:
        OSError: It cannot be read.
    """
    with segment.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _STAMPED))
        return f"{size}-{zlib.crc32(file.read()):08x}"


def all_options(protocol: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with defaults, as a footer has them: those that decide what the columns are, and not `mode` and `types`."""
    chosen = {**columns.options_of(protocol), **options}
    chosen = {name: option for name, option in chosen.items() if name not in ("mode", "types")}
    if not isinstance(chosen["payload"], bool):
        chosen["payload"] = str(Layout(chosen["payload"]))
    maps = columns.maps_of(protocol)
    found: dict[str, Any] = json.loads(json.dumps(chosen, default=_plain))
    return {name: _in_lower_case(option) if name in maps else option for name, option in found.items()}


def _plain(option: Any) -> Any:
    """An option as JSON has it: a map, a type of Spark, or a flag of NumPy."""
    if isinstance(option, Mapping):
        return dict(option)
    return option.simpleString() if hasattr(option, "simpleString") else option.item()


def _in_lower_case(types: Any) -> Any:
    if isinstance(types, dict):
        return {name: kind.lower() for name, kind in types.items()}
    return types.lower() if isinstance(types, str) else types


def beside(capture: Capture, protocol: str) -> Iterator[tuple[_native.Capture, Path | None]]:
    """The parts of a capture, oldest first, each with the file of decoded messages that may stand for it.

    A store has none: to look for them would be a request a segment.
    """
    folder = capture.path / DECODED / protocol
    files = newest(folder) if isinstance(folder, Path) and not is_limited(capture) else {}
    if not files:
        yield native(capture), None
        return
    for part in native(capture).parts():
        [name] = part.files or [""]
        yield part, files.get(name)


def newest(folder: Path) -> dict[str, Path]:
    """The files of decoded messages in a folder by the name of their segment: of each the one that was decoded last."""
    found: dict[str, tuple[int, Path]] = {}
    if not is_linked(folder.parent, folder):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                # As of segments: links are not followed, and what is no file is not opened.
                if entry.is_file(follow_symlinks=False):
                    segment, number = numbered(entry.name)
                    found[segment] = max(found.get(segment, (0, folder)), (number, Path(entry)))
    return {segment: file for segment, (_, file) in found.items()}


def numbered(name: str) -> tuple[str, int]:
    """The name of the segment that a file of decoded messages is of, and how often that was decoded."""
    stem, _, number = name.removesuffix(".parquet").partition(".")
    return (f"{stem}.parquet", int(number)) if number.isdecimal() else (name, 1)


def is_linked(*paths: Path) -> bool:
    """Whether one of these is a link, which no reader of a capture follows."""
    return any(path.is_symlink() for path in paths)


class Decoded:
    """A file of decoded messages, open until it is closed, even if it is deleted meanwhile.

    Attributes:
        path: The file.
        schema: Its columns.
        marks: What its footer says; None if the file is of another version, or was made by something else.

    Raises:
        FileNotFoundError: There is none.
        CaptureError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        # Imported late: Spark's workers import this room for each query.
        from pyarrow import dataset

        self.path = path
        try:
            is_file = stat.S_ISREG(path.lstat().st_mode)
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from None
        if not is_file:
            message = f"{path}: is no file; delete it, and its segment is decoded instead"
            raise CaptureError(message)
        try:
            self._file = pa.OSFile(os.fspath(path))
        except PermissionError as error:
            raise self._unreadable(error) from None
        try:
            # What is damaged must not be read as if it were not.
            checked = dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
            self._fragment = dataset.ParquetFileFormat(default_fragment_scan_options=checked).make_fragment(self._file)
            schema: pa.Schema = self._fragment.physical_schema
            self.marks = Marks.of(self._fragment.metadata.metadata)
            marked = (self.marks.shredded if self.marks else None) or ()
            self._shredded = frozenset(
                field.name for field in schema if field.name in marked and _is_shredded(field.type)
            )
            self.schema = pa.schema(
                [field.with_type(_VARIANT) if field.name in self._shredded else field for field in schema]
            )
        # Of names that are no text, too.
        except (OSError, pa.ArrowException, ValueError) as error:
            self._file.close()
            raise self._unreadable(error) from None

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_of(self, segment: Path) -> bool:
        """Whether a segment, as it is now, was decoded for it.

        Raises:
            OSError: The segment cannot be read.
        """
        return self.marks is not None and self.marks.segment == stamp_of(segment)

    def has(self, wanted: Sequence[pa.Field], protocol: str, options: Mapping[str, Any]) -> bool:
        """Whether it has these columns, as they are decoded with these options."""
        if self.marks is None:
            return False
        maps, ours, asked = columns.maps_of(protocol), self.marks.options, all_options(protocol, options)
        # A column of one tag is the same whatever others are; that of all others is not.
        others = {name for name in maps if asked[name] != ours.get(name)}
        # Which of two of one name is meant no reader says, and to Spark upper and lower case are one.
        names = [name.lower() for name in self.schema.names]
        # A layout decides which messages have an error.
        has_layout = isinstance(asked["payload"], str) or isinstance(ours.get("payload"), str)
        is_same = all(
            _are_part(asked[name], ours.get(name)) if name in maps else asked[name] == ours.get(name)
            for name in asked
            if name != "payload" or has_layout
        )
        return (
            is_same
            and not self.marks.mismatches
            and (not self.marks.errors or options.get("mode", "PERMISSIVE") == "PERMISSIVE")
            and len(names) == len({*names})
            and all(one.name in self.schema.names and one.name not in others for one in wanted)
            and all(self.schema.field(one.name).type == one.type for one in wanted)
        )

    def is_shredded(self, wanted: Sequence[pa.Field]) -> bool:
        """Whether one of these columns is of VARIANTs that have to be put together: reading them costs more than decoding frames."""
        return not self._shredded.isdisjoint(one.name for one in wanted)

    def batches(
        self, names: Sequence[str], conditions: Sequence[dataset.Expression | None]
    ) -> Iterator[pa.RecordBatch]:
        """The messages for which all conditions hold, in recorded order; row groups that have none are not read.

        Raises:
            CaptureError: It cannot be read.
        """
        some = [condition for condition in conditions if condition is not None]
        try:
            for batch in self._fragment.to_batches(
                columns=[*names],
                filter=functools.reduce(operator.and_, some) if some else None,
                batch_readahead=1,
                fragment_readahead=1,
                use_threads=False,
                # A value that a dictionary has once may be in each row.
                batch_size=_ROWS,
            ):
                yield self._joined(batch)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise self._unreadable(error) from error

    def _joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch, VARIANTs that were shredded put together again."""
        if self._shredded.isdisjoint(batch.schema.names):
            return batch
        columns = [
            # Arrow's import of a slice of nested structs fails, so it is copied.
            unshredded(pa.concat_arrays([column])) if name in self._shredded else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.record_batch(columns, schema=pa.schema([self.schema.field(name) for name in batch.schema.names]))

    def _unreadable(self, error: Exception) -> CaptureError:
        return CaptureError(f"{self.path}: cannot be read: {error}; delete it, and its segment is decoded instead")


def _is_shredded(kind: pa.DataType) -> bool:
    """Whether a column is of VARIANTs the fields of which are columns.

    Raises:
        ValueError: A name is no text.
    """
    if not pa.types.is_struct(kind) or [field.name for field in kind] != ["metadata", "value", "typed_value"]:
        return False
    if _has_views(kind):
        # Only other programs write them, and Arrow has no filter for them.
        return False
    typed = kind.field("typed_value").type
    return pa.types.is_struct(typed) and all(isinstance(field.name, str) for field in typed)


def _has_views(kind: pa.DataType) -> bool:
    is_view = pa.types.is_binary_view(kind) or pa.types.is_string_view(kind)
    return is_view or any(_has_views(kind.field(at).type) for at in range(kind.num_fields))


def _are_part(asked: Any, ours: Any) -> bool:
    """Whether the columns of single values that an option makes are among those of another."""
    if not isinstance(asked, dict):
        return True
    return isinstance(ours, dict) and all(ours.get(name) == kind for name, kind in asked.items() if name != "*")


def rows_within(native: Mapping[str, Any]) -> dataset.Expression | None:
    """The condition that rows have the numbers and times of receipt of a selection; None if all have."""
    from pyarrow import dataset

    seq, received_at_ns = dataset.field("seq"), dataset.field("received_at_ns")
    parts = []
    if (numbers := native.get("numbers")) is not None:
        spans = [(seq >= first) & (seq <= last) for first, last in numbers]
        parts.append(functools.reduce(operator.or_, spans) if spans else dataset.scalar(value=False))
    if (since_ns := native.get("since_ns")) is not None:
        parts.append(received_at_ns >= since_ns)
    if (until_ns := native.get("until_ns")) is not None:
        parts.append(received_at_ns < until_ns)
    return functools.reduce(operator.and_, parts) if parts else None
