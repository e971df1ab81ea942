"""Captures read back."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trunkline import cdtp, dcp
from trunkline._native import capture as _native
from trunkline.errors import CaptureError, DecodeError, LocalProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline._decoding import Mode, Tags

__all__ = ["Capture", "CaptureInfo", "open", "schema"]

# What a decoded row keeps of the row it comes from.
_KEPT = ("capture_id", "segment", "seq", "received_at_ns", "endpoint")

# As lenient as any recorder may have been.
_DECODERS: Mapping[str, Callable[[Sequence[bytes]], cdtp.Message | cdtp.Batch | dcp.Message]] = {
    "cdtp": functools.partial(cdtp.decode, strict=False),
    "dcp": functools.partial(dcp.decode, compat_dagbox=True),
}


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """What a capture holds, counted in rows.

    Attributes:
        capture_id: The capture's id, the same for every run that was recorded into it.
        segments: Published segments.
        messages: Rows, published or not.
        bytes: Bytes of all frames.
        first_received_at_ns: The earliest receipt, in nanoseconds since 1970; None without a row.
        last_received_at_ns: The latest one.
        protocols: Rows by protocol.
        errors: Rows that do not decode, by kind of error.
    """

    capture_id: str | None
    segments: int
    messages: int
    bytes: int
    first_received_at_ns: int | None
    last_received_at_ns: int | None
    protocols: Mapping[str, int]
    errors: Mapping[str, int]


class Capture:
    """A capture as it was when it was opened; a recorder may go on meanwhile.

    Iterating it gives the messages in the order they were recorded, a CDTP2 message one record at a time.

    Attributes:
        path: The capture directory.
        skipped: Rows that the latest iteration left out: what does not decode, and protocols not known here.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.skipped = 0
        self._native = _native.Capture(self.path)

    @property
    def segments(self) -> list[Path]:
        """The published segments, oldest first."""
        return self._native.segments

    def __iter__(self) -> Iterator[cdtp.Message | dcp.Message]:
        """The messages, oldest first; `skipped` counts from 0 again."""
        self.skipped = 0
        for protocol, error, frames in self._native.messages():
            if error is not None or protocol not in _DECODERS:
                self.skipped += 1
                continue
            try:
                message = _DECODERS[protocol](frames)
            except DecodeError:
                self.skipped += 1
                continue
            if isinstance(message, cdtp.Batch):
                yield from message
            else:
                yield message

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, oldest first, each a dict of its columns; needs no pyarrow."""
        return self._native.rows()

    def info(self) -> CaptureInfo:
        """Counts what the capture holds."""
        return CaptureInfo(**self._native.info())

    def reader(self) -> pa.RecordBatchReader:
        """All rows as a stream of record batches, which pandas, Polars and DuckDB take as well.

        Raises:
            LocalProtocolError: pyarrow is not installed.
        """
        _need_pyarrow()
        return self._native.reader()

    def decode(
        self,
        protocol: str = "cdtp",
        *,
        tags: Tags = "variant",
        mode: Mode = "PERMISSIVE",
        accept: Sequence[str] = ("S", "A", "B", "2"),
        strict: bool = True,
        payload: bool = False,
    ) -> pa.RecordBatchReader:
        """The messages as a stream of record batches, one row a message, as `trunkline.spark.decode` makes them.

        Args:
            protocol: ``"cdtp"``.
            tags: Which columns the tags become: one of ``"variant"``, None, or ``{name: type}`` for columns
                ``tag_<name>``, with ``"*": "variant"`` for the rest.
            mode: What becomes of a header that is none: PERMISSIVE keeps it, with `error` and its bytes; FAILFAST
                raises, for a tag of another type than asked for too; DROPMALFORMED leaves it out.
            accept: The headers that are messages.
            strict: Whether bytes after a header are an error.
            payload: Whether to add the payload frames; without, they are not read from disk.

        Raises:
            LocalProtocolError: pyarrow is not installed, or there is no such protocol, mode or type.
        """
        pyarrow = _need_pyarrow()
        from trunkline._decoding import Decoding, rows_of

        if protocol != "cdtp":
            message = f"protocol={protocol!r}: the protocols that can be decoded are 'cdtp'"
            raise LocalProtocolError(message)
        decoding = Decoding.of(tags=tags, mode=mode, accept=accept, strict=strict, payload=payload)
        frames = ["header", "n_frames", "n_bytes", *(["payload"] if payload else [])]
        reader = self._native.reader([*_KEPT, "protocol", *frames])
        kept = pyarrow.schema([reader.schema.field(name) for name in _KEPT])
        schema = pyarrow.schema([*kept, *decoding.native().row_schema()])
        spoken = (batch.filter(pyarrow.compute.equal(batch["protocol"], protocol)) for batch in reader)
        decoded = rows_of(decoding, kept.names, frames, None)(spoken)
        typed = (pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in decoded)
        return pyarrow.RecordBatchReader.from_batches(schema, typed)

    def read_all(self) -> pa.Table:
        """All rows as one table.

        Raises:
            CaptureError: A segment cannot be read.
            LocalProtocolError: pyarrow is not installed.
        """
        pyarrow = _need_pyarrow()
        reader = self._native.reader()
        try:
            return reader.read_all()
        except (OSError, pyarrow.ArrowException) as error:
            raise CaptureError(str(error)) from error


def open(path: str | os.PathLike[str]) -> Capture:  # noqa: A001 - as `gzip.open`, used with its room
    """Opens a capture for reading, while it is recorded or after.

    Args:
        path: The capture directory.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
    """
    return Capture(path)


def schema() -> pa.Schema:
    """The columns of a capture.

    Raises:
        LocalProtocolError: pyarrow is not installed.
    """
    _need_pyarrow()
    return _native.schema()


def _need_pyarrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.compute
    except ImportError as error:
        message = "this takes pyarrow: pip install 'trunkline[capture]'"
        raise LocalProtocolError(message) from error
    return pa
