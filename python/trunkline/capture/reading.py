"""Reads captures."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

from trunkline import _native as _codec
from trunkline._arguments import need_path
from trunkline._extras import how_to_install
from trunkline._native import capture as _native
from trunkline._native import cdt, cdtp, dcp, mc0, mtl
from trunkline._text import amount, counted
from trunkline.capture.selecting import Selection
from trunkline.errors import CaptureError, DecodeError, LocalProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline.columns import CdtOptions, CdtpOptions, DcpOptions, Mc0Options, Mode, MtlOptions

__all__ = ["SEGMENTS", "AnyMessage", "Capture", "CaptureInfo", "Run", "open", "schema"]

# What the names of segments match, and those of other files that somebody puts beside them do not.
SEGMENTS = "[0-9]*.parquet"

# What iterating a capture gives: the messages of every protocol known here.
AnyMessage: TypeAlias = (
    cdtp.Message
    | dcp.Message
    | mc0.Message
    | mtl.Command
    | mtl.Reply
    | mtl.Message
    | cdt.ConfigRequest
    | cdt.ConfigResponse
    | cdt.ConfigPush
    | cdt.ConfigPushResponse
    | cdt.ConfigNewAvailable
    | cdt.ConfigUpdated
)


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """The contents of a capture, counted in rows.

    Attributes:
        capture_id: The capture's id, the same for every run that was recorded into it.
        segments: Published segments.
        messages: Rows, published or not.
        bytes: Bytes of all frames.
        first_received_at_ns: When the first row was received, in nanoseconds since 1970; None without rows.
        last_received_at_ns: When the last one was.
        protocols: Rows by protocol.
        errors: Malformed rows by kind.
        directions: Rows by direction, "in" or "out".
    """

    capture_id: str | None
    segments: int
    messages: int
    bytes: int
    first_received_at_ns: int | None
    last_received_at_ns: int | None
    protocols: Mapping[str, int]
    errors: Mapping[str, int]
    directions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Run:
    """A run: the messages of a sender from one BOR to the next (CDTP-21). Header S has no runs.

    Attributes:
        capture_id: The capture's id.
        sender: The sender's name.
        ordinal: The number of its BOR among the sender's BORs in this capture, from 1; 0 for what was received before the first.
        run_id: The string of that name in the metadata, or else in the configuration.
        condition: The condition in Constellation's terms: ``GOOD``, or any of ``TAINTED``, ``INCOMPLETE``,
            ``INTERRUPTED``, ``ABORTED`` and ``DEGRADED`` with ``|`` between them. What the sender's metadata says is
            kept; numbers that were skipped, fewer than its `data_records`, and data outside BOR and EOR add INCOMPLETE, a
            missing EOR adds ABORTED.
        condition_code: The same as a number: 0, or the sum of 1, 2, 4, 8 and 16, in that order.
        messages: DAT messages; a CDTP2 message counts once per record.
        bytes: Bytes of all frames, including those of BOR and EOR.
        missed: Sequence numbers that were skipped, `seq - 1 - last`, where `last` is the highest before. One that
            arrives late does not reduce the count.
        duplicates: DAT messages whose number was received before.
        out_of_order: DAT messages with a new number below the highest one before.
        first_received_at_ns: When the first message of it was received, in nanoseconds since 1970.
        last_received_at_ns: When the last one was.
        bor_seq: The `seq` of the row of its BOR; None for ordinal 0.
        eor_seq: The `seq` of the row of its first EOR; None if there is none yet.
        config: The configuration in the BOR; None if it is not a map, or the message is larger than 64 KiB.
        metadata: The metadata in the EOR, likewise.
    """

    capture_id: str
    sender: str
    ordinal: int
    run_id: str | None
    condition: str
    condition_code: int
    messages: int
    bytes: int
    missed: int
    duplicates: int
    out_of_order: int
    first_received_at_ns: int
    last_received_at_ns: int
    bor_seq: int | None
    eor_seq: int | None
    config: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None


class Capture:
    """A snapshot of a capture at the time it was opened; it may still be recorded to.

    Iterating over it gives the messages in recorded order, a CDTP2 message record by record.

    Attributes:
        path: The capture directory.
        skipped: Rows that the latest iteration skipped: malformed ones, and those of unknown protocols.
        let_go: How often a sender had to make way for others in the result of the latest `runs`: its run ends there,
            and what it sent later counts as the first run of a new sender.
        unfollowed: Messages of senders with names of more than 1024 bytes, which are in no run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        need_path("path", path)
        self.path = Path(path)
        self.skipped = 0
        self.let_go = 0
        self.unfollowed = 0
        self._native = _native.Capture(self.path)
        self._info: CaptureInfo | None = None

    @property
    def segments(self) -> list[Path]:
        """The published segments, oldest first."""
        return self._native.segments

    def __repr__(self) -> str:
        # What takes no reading of rows, of which there may be a month's.
        parts = [
            counted(len(self.segments), "segment"),
            f"{amount(sum(map(_size, self.path.iterdir() if self.path.is_dir() else ())))} on disk",
        ]
        if self._info is not None:
            parts.insert(0, counted(self._info.messages, "row"))
        return f"<Capture {os.fspath(self.path)!r}: {', '.join(parts)}>"

    def __len__(self) -> int:
        """The number of rows, one for each wire message: of one of CDTP2, iteration gives all records."""
        return self.info().messages

    def __bool__(self) -> bool:
        """True, for an empty capture too."""
        return True

    def __iter__(self) -> Iterator[AnyMessage]:
        """The messages, each a `Message` of its protocol's room, oldest first; `skipped` counts from 0 again."""
        self.skipped = 0
        for protocol, error, frames, topic in self._native.messages():
            try:
                messages = None if error is not None else _codec.decode(protocol, frames, topic)
            except DecodeError:
                messages = None
            if messages is None:
                self.skipped += 1
            else:
                yield from messages

    def rows(self, selection: Selection | None = None, *, first_seq: int = 0) -> Iterator[dict[str, Any]]:
        """The rows, oldest first, each a dict of its columns; needs no pyarrow.

        Args:
            selection: Which rows: those with any selected message; all if None.
            first_seq: The number of the first row to return.

        Raises:
            LocalProtocolError: There is no such run.
        """
        selected = (selection or Selection()).of(self, first_seq)
        return selected.rows(self._native.rows(selected.native))

    def chosen(
        self, selection: Selection | None = None, *, first_seq: int = 0
    ) -> Iterator[tuple[dict[str, Any], frozenset[int] | None]]:
        """The rows that `rows` returns, each with the positions of its selected messages.

        A CDTP2 message is one row and may hold several messages, of which a condition may select some.

        Args:
            selection: Which rows; all if None.
            first_seq: The number of the first row to return.

        Returns:
            Rows with positions from 0 on; None for all messages of a row.

        Raises:
            LocalProtocolError: There is no such run.
        """
        selected = (selection or Selection()).of(self, first_seq)
        return selected.messages(self._native.rows(selected.native))

    def info(self) -> CaptureInfo:
        """Counts what the capture holds."""
        if self._info is None:
            self._info = CaptureInfo(**self._native.info())
        return self._info

    def runs(self) -> list[Run]:
        """The runs of all senders, in the order they began; the last ones may still be in progress.

        The capture keeps this beside its segments, so it includes runs whose rows are deleted. 1000 senders are
        followed at a time, with names of up to 1024 bytes: `let_go` and `unfollowed` say whether that was too few.

        Raises:
            CaptureError: The record of runs cannot be read.
        """
        found, self.let_go, self.unfollowed = self._native.runs()
        return [Run(**run) for run in found]

    def reader(self, *, first_seq: int = 0) -> pa.RecordBatchReader:
        """All rows as a stream of record batches, which pandas, Polars and DuckDB accept too.

        Args:
            first_seq: The number of the first row to return.

        Raises:
            LocalProtocolError: pyarrow is not installed.
        """
        _need_pyarrow()
        return self._native.reader(None, Selection().of(self, first_seq).native)

    @overload
    def decode(
        self,
        protocol: Literal["cdtp"] = "cdtp",
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        **options: Unpack[CdtpOptions],
    ) -> pa.RecordBatchReader: ...

    @overload
    def decode(
        self,
        protocol: Literal["dcp"],
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        **options: Unpack[DcpOptions],
    ) -> pa.RecordBatchReader: ...

    @overload
    def decode(
        self,
        protocol: Literal["mc0"],
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        **options: Unpack[Mc0Options],
    ) -> pa.RecordBatchReader: ...

    @overload
    def decode(
        self,
        protocol: Literal["mtl"],
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        **options: Unpack[MtlOptions],
    ) -> pa.RecordBatchReader: ...

    @overload
    def decode(
        self,
        protocol: Literal["cdt"],
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        **options: Unpack[CdtOptions],
    ) -> pa.RecordBatchReader: ...

    @overload
    def decode(
        self, protocol: str, *, mode: Mode = ..., selection: Selection | None = ..., **options: Any
    ) -> pa.RecordBatchReader: ...

    def decode(
        self,
        protocol: str = "cdtp",
        *,
        mode: Mode = "PERMISSIVE",
        selection: Selection | None = None,
        **options: Any,
    ) -> pa.RecordBatchReader:
        """The messages as a stream of record batches, one row a message, as `trunkline.spark.decode` makes them, the last
        column of which is `received_at`, a timestamp in UTC for a time axis.

        Args:
            protocol: The protocol whose messages to decode, one of `trunkline.columns.protocols()`.
            mode: What to do with malformed messages: PERMISSIVE keeps them, with `error` and their bytes; FAILFAST raises, also
                for tags of another type than requested; DROPMALFORMED drops them.
            selection: Which messages; all of that protocol if None.
            options: The options of the protocol: see `trunkline.columns.CdtpOptions` and those of the others. By
                default, tags, properties and JSON are a column of JSON text each. Payloads are not read from disk
                unless `payload` asks for them.

        Raises:
            LocalProtocolError: pyarrow is not installed, there is no such protocol, mode or type, the protocol has no
                such option, or the selection is for another protocol.
        """
        pyarrow = _need_pyarrow()
        from trunkline import columns

        defaults = next((known.options for known in columns.protocols() if known.name == protocol), {})
        # Who has no Spark has mostly no VARIANT either.
        options = {name: "json" for name, default in defaults.items() if default == "variant"} | options
        decoder = columns.Decoder(protocol, mode=mode, **options)
        decoded = decoder.row_schema()
        frames = list(columns.needed(decoder, set(decoded.names)))
        selected = dataclasses.replace(selection or Selection(), protocol=protocol).of(self)
        condition = selected.condition(protocol, mode=mode, **options)
        needed = dict.fromkeys([*decoder.protocol.kept, *frames, *(condition.needs if condition is not None else ())])
        reader = self._native.reader(list(needed), selected.native)
        kept = pyarrow.schema([reader.schema.field(name) for name in decoder.protocol.kept])
        schema = pyarrow.schema([*kept, *decoded])
        timed = schema.append(pyarrow.field(columns.RECEIVED_AT, pyarrow.timestamp("us", "UTC")))
        decode = columns.rows_of(decoder, kept.names, frames, None)
        batches = (decode if condition is None else condition.filtering(decode))(_batches(reader))
        typed = (
            pyarrow.RecordBatch.from_arrays([*batch.columns, columns.moments(batch["received_at_ns"])], schema=timed)
            for batch in batches
        )
        return pyarrow.RecordBatchReader.from_batches(timed, map(selected.filter(protocol), typed))

    def read_all(self) -> pa.Table:
        """All rows as one table.

        Raises:
            CaptureError: A segment cannot be read.
            LocalProtocolError: pyarrow is not installed.
        """
        pyarrow = _need_pyarrow()
        reader = self._native.reader()
        return pyarrow.Table.from_batches(_batches(reader), reader.schema)


def _size(path: Path) -> int:
    """What a file holds; one that is gone since it was listed, nothing."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """What a reader gives, whose faults are Arrow's while it passes through Arrow's hands."""
    import pyarrow as pa

    try:
        yield from reader
    except (OSError, pa.ArrowException) as error:
        raise CaptureError(str(error).removeprefix("External error: ")) from error


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
    except ImportError as error:
        message = f"this requires pyarrow: {how_to_install('capture')}"
        raise LocalProtocolError(message) from error
    return pa
