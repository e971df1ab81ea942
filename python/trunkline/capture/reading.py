"""Reads captures."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

from trunkline import _native as _codec
from trunkline import columns as _columns
from trunkline._arguments import need_choice, need_number, need_path, need_seconds, need_text
from trunkline._extras import how_to_install
from trunkline._locations import Location, location_of
from trunkline._native import capture as _native
from trunkline._text import amount, counted, facts_table, moment, readable
from trunkline.capture import pruning
from trunkline.capture.described import CaptureInfo, Run
from trunkline.capture.selecting import Selected, Selection, need_selection, of_rows
from trunkline.errors import CaptureError, DecodeError, LocalProtocolError
from trunkline.options import DEFAULTS

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline.columns import Mode, Payload

__all__ = ["DECODED", "SEGMENTS", "AnyMessage", "Capture", "CaptureInfo", "Run", "open", "schema"]

# The messages of every protocol, as iterating over a capture gives them.
# Of all protocols, written by tools/lists.py.
from trunkline._native import cdt, cdtp, dcp, mc0, mtl

if TYPE_CHECKING:
    from trunkline.columns import CdtOptions, CdtpOptions, DcpOptions, Mc0Options, MtlOptions

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
# End of what tools/lists.py writes.

# Matches the names of segments, and of no other files beside them.
SEGMENTS = "[0-9]*.parquet"

# The folder of decoded messages, by protocol.
DECODED = "_decoded"

# How many protocols or tags a warning names.
_NAMED = 5

_logger = logging.getLogger("trunkline.capture")

# A capture as functions take it: its directory, or an open one.
Readable: TypeAlias = "str | os.PathLike[str] | Capture"


# 10 000 days.
_LONGEST_WINDOW_S = 864_000_000


class Capture:
    """A snapshot of a capture at the time it was opened; it may still be recorded to.

    Iterating over it gives the messages in recorded order, a CDTP2 message record by record; `messages` gives those of
    one protocol, with their types.

    Args:
        path: The capture directory, or its URL.
        max_message_bytes: As for `open`.
        segments: The numbers of the published segments to read, or of the first and last of several; all rows if None, those
            of the journal too.

    Attributes:
        path: The capture directory, or its URL.
        skipped: Rows that the latest iteration, or that of `messages`, skipped: malformed ones, and those of unknown protocols.
        let_go: How often a sender had to make way for others in the result of the latest `runs`: its run ends there,
            and what it sent later counts as the first run of a new sender.
        unfollowed: Messages of senders with names of more than 1024 bytes, which are in no run.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
    ...     recorded = capture.open(runs)
    ...     recorded.info().messages, recorded.reader(first_seq=8).read_all().num_rows
    ...     recorded.decode("cdtp", tags=None, columns=["sender", "sequence"]).read_all().num_rows
    ...     next(recorded.messages("cdtp")).type, next(recorded.rows(capture.Selection(run="run_2")))["seq"]
    ...     [(run.run_id, run.condition) for run in recorded.runs()]
    (12, 4)
    1216
    ('BOR', 3)
    [('run_1', 'GOOD'), ('run_2', 'GOOD'), ('run_1', 'GOOD'), ('run_2', 'GOOD')]

    ```
    """

    path: Location
    skipped: int
    let_go: int
    unfollowed: int

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_message_bytes: int = DEFAULTS["max_message_bytes"],
        segments: Sequence[int | tuple[int, int]] | None = None,
    ) -> None:
        need_path("path", path, may_be_url=True)
        need_number("max_message_bytes", max_message_bytes, least=1)
        self.path = location_of(path)
        self.skipped = 0
        self.let_go = 0
        self.unfollowed = 0
        self._within: tuple[int, int] | None = None
        self._is_limited = max_message_bytes < DEFAULTS["max_message_bytes"]
        spans = None
        if segments is not None:
            spans = [(some, some) if isinstance(some, int) else some for some in segments]
        try:
            self._native = _native.Capture(self.path, max_message_bytes, spans)
        except CaptureError:
            from trunkline.capture.folders import has_captures

            if not has_captures(self.path):
                raise
            message = f"{self.path}: is a folder of captures: name one of them; capture.open_folder() reads all"
            raise CaptureError(message) from None
        self._info: CaptureInfo | None = None

    @property
    def segments(self) -> list[Location]:
        """The files of the published segments, oldest first."""
        return [self.path / name for name in self._native.files]

    def __repr__(self) -> str:
        # Without reading rows, as there may be many.
        parts = [
            counted(len(self.segments), "segment"),
        ]
        if isinstance(self.path, Path):
            files = self.path.iterdir() if self.path.is_dir() else ()
            parts.append(f"{amount(sum(map(_size, files)))} on disk")
        if self._info is not None:
            parts.insert(0, counted(self._info.messages, "row"))
        return f"<Capture {str(self.path)!r}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """For notebooks: a table of `info`."""
        found = self.info()
        first, last = found.first_received_at_ns, found.last_received_at_ns
        facts = {
            "path": str(self.path),
            "segments": f"{found.segments:,}",
            "messages": f"{found.messages:,}",
            "bytes": amount(found.bytes),
            "received (UTC)": "" if first is None or last is None else f"{moment(first)} to {moment(last)}",
            **{f"of {name}": f"{number:,}" for name, number in found.protocols.items()},
            **{f"error {kind}": f"{number:,}" for kind, number in found.errors.items()},
        }
        return facts_table(facts)

    def __len__(self) -> int:
        """The number of rows, one for each wire message: of one of CDTP2, iteration gives all records."""
        return self.info().messages

    def __bool__(self) -> bool:
        """True, for an empty capture too."""
        return True

    def __iter__(self) -> Iterator[AnyMessage]:
        """The messages, each of the class of its protocol, oldest first; `skipped` counts from 0 again."""
        return self._decoded(None)

    # Of all protocols, written by tools/lists.py.
    @overload
    def messages(self, protocol: Literal["cdtp"]) -> Iterator[cdtp.Message]: ...

    @overload
    def messages(self, protocol: Literal["dcp"]) -> Iterator[dcp.Message]: ...

    @overload
    def messages(self, protocol: Literal["mc0"]) -> Iterator[mc0.Message]: ...

    @overload
    def messages(self, protocol: Literal["mtl"]) -> Iterator[mtl.Command | mtl.Reply | mtl.Message]: ...

    @overload
    def messages(
        self, protocol: Literal["cdt"]
    ) -> Iterator[
        cdt.ConfigRequest
        | cdt.ConfigResponse
        | cdt.ConfigPush
        | cdt.ConfigPushResponse
        | cdt.ConfigNewAvailable
        | cdt.ConfigUpdated
    ]: ...

    # End of what tools/lists.py writes.

    def messages(self, protocol: str) -> Iterator[Any]:
        """The messages of one protocol, oldest first, as iteration gives them; `skipped` counts malformed rows of that
        protocol, from 0 again.

        Args:
            protocol: One of ``"cdtp"``, ``"dcp"``, ``"mc0"``, ``"mtl"`` and ``"cdt"``.

        Raises:
            ValueError: There is no such protocol.
        """
        need_choice("protocol", protocol, [known.name for known in _codec.protocols()])
        return self._decoded(protocol)

    def _decoded(self, only: str | None) -> Iterator[Any]:
        """The messages of one protocol, or of all for None."""
        self.skipped = 0
        for protocol, error, frames, topic in self._native.messages():
            if only is not None and protocol != only:
                continue
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
        selected = self._selected(selection, first_seq)
        return selected.rows(self._native.rows(selected.native))

    def chosen(
        self, selection: Selection | None = None, *, first_seq: int = 0, payload: Payload = False
    ) -> Iterator[tuple[dict[str, Any], frozenset[int] | None]]:
        """The rows that `rows` returns, each with the positions of its selected messages.

        A CDTP2 message is one row and may hold several messages, of which a condition may select some.

        Args:
            selection: Which rows; all if None.
            first_seq: The number of the first row to return.
            payload: The layout of payloads, whose fields a condition may be about.

        Returns:
            Rows with positions from 0 on; None for all messages of a row.

        Raises:
            LocalProtocolError: There is no such run.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture
        >>> from trunkline.demo import DATA
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
        ...     few = capture.Selection(where="type = 'DAT' and sequence <= 2")
        ...     for row, positions in capture.open(runs).chosen(few):
        ...         print(row["seq"], sorted(positions))
        1 [0, 1]
        4 [0, 1]
        7 [0, 1]
        10 [0, 1]

        ```
        """
        selected = self._selected(selection, first_seq)
        return selected.messages(self._native.rows(selected.native), payload=payload)

    def _selected(self, selection: Selection | None, first_seq: int) -> Selected:
        """A selection of the rows from this number on."""
        need_selection(selection)
        need_number("first_seq", first_seq, least=-(2**63))
        return (selection or Selection()).of(self, pruning.Wanted(pruning.at_least(first_seq)))

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
        return self._native.reader(None, self._selected(None, first_seq).native)

    # Of all protocols, written by tools/lists.py.
    @overload
    def decode(
        self,
        protocol: Literal["cdtp"] = "cdtp",
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        columns: Sequence[str] | None = ...,
        **options: Unpack[CdtpOptions],
    ) -> pa.RecordBatchReader: ...

    @overload
    def decode(
        self,
        protocol: Literal["dcp"],
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        columns: Sequence[str] | None = ...,
        **options: Unpack[DcpOptions],
    ) -> pa.RecordBatchReader: ...

    @overload
    def decode(
        self,
        protocol: Literal["mc0"],
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        columns: Sequence[str] | None = ...,
        **options: Unpack[Mc0Options],
    ) -> pa.RecordBatchReader: ...

    @overload
    def decode(
        self,
        protocol: Literal["mtl"],
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        columns: Sequence[str] | None = ...,
        **options: Unpack[MtlOptions],
    ) -> pa.RecordBatchReader: ...

    @overload
    def decode(
        self,
        protocol: Literal["cdt"],
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        columns: Sequence[str] | None = ...,
        **options: Unpack[CdtOptions],
    ) -> pa.RecordBatchReader: ...

    # End of what tools/lists.py writes.

    @overload
    def decode(
        self,
        protocol: str,
        *,
        mode: Mode = ...,
        selection: Selection | None = ...,
        columns: Sequence[str] | None = ...,
        **options: Any,
    ) -> pa.RecordBatchReader: ...

    def decode(
        self,
        protocol: str = "cdtp",
        *,
        mode: Mode = "PERMISSIVE",
        selection: Selection | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> pa.RecordBatchReader:
        """The messages as a stream of record batches, one row a message, as `trunkline.spark.decode` makes them, the last
        column of which is `received_at`, a timestamp in UTC for a time axis.

        Args:
            protocol: The protocol whose messages to decode, one of `trunkline.columns.protocols()`; ``"*"`` for all
                together, as `trunkline.spark.decode` has them.
            mode: What to do with malformed messages: PERMISSIVE keeps them, with `error` and their bytes; FAILFAST raises, also
                for tags of another type than requested; DROPMALFORMED drops them. Otherwise such tags are null, and a warning
                at the end of the stream counts them.
            selection: Which messages; all of that protocol if None.
            columns: The columns to give, in this order; all of them if None. What they do not need is not read from disk.
            options: The options of the protocol: see `trunkline.columns.CdtpOptions` and those of the others. By
                default, tags, properties and JSON are a column of JSON text each. Payloads are not read from disk
                unless `payload` asks for them.

        Raises:
            LocalProtocolError: pyarrow is not installed, there is no such protocol, mode, type or column, the protocol has no
                such option, or the selection is for another protocol.
        """
        need_text("protocol", protocol)
        need_selection(selection)
        pyarrow = _need_pyarrow()
        from trunkline.capture.decoding import Decoding

        defaults = next((known.options for known in _codec.protocols() if known.name == protocol), {})
        # Without Spark, readers mostly have no VARIANT either.
        options = {name: "json" for name, default in defaults.items() if default == "variant"} | options
        decoding = Decoding(protocol, mode, columns, options)
        selected = of_rows(selection or Selection(), protocol).of(self)
        chosen = decoding.batches(self, selected)
        # No warning if the selection has criteria but no protocol.
        if selection is None or selection.protocol is not None:
            chosen = self._warning_of_others(chosen, protocol)
        chosen = _warning_of_mismatches(chosen, decoding.mismatches)
        return pyarrow.RecordBatchReader.from_batches(decoding.schema, chosen)

    def _warning_of_others(self, batches: Iterable[pa.RecordBatch], protocol: str) -> Iterator[pa.RecordBatch]:
        """The batches, and at the end a warning if all rows are of other protocols."""
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            yield batch
        if not rows:
            warn_of_others(self, protocol)

    def gaps(self, selection: Selection | None = None) -> pa.RecordBatchReader:
        """The messages of CDTP before which sequence numbers were skipped (CDTP-21), one row each.

        The columns are `capture_id`, `endpoint`, `sender`, `seq` and `received_at_ns` of the message, and `missed`: how many
        numbers were skipped, counted from the highest before; a BOR begins anew.

        Args:
            selection: Which messages; all if None.

        Raises:
            LocalProtocolError: pyarrow is not installed, or the selection is for another protocol.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture, cdtp
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     with cdtp.Recorder(runs, bind="tcp://127.0.0.1:*") as recorder:
        ...         with cdtp.Sender("Detector.one", connect=recorder.endpoints[0]) as sender:
        ...             for number in (1, 2, 5):
        ...                 message = cdtp.Message("Detector.one", [b"event"], variant="B", type="DAT", sequence=number)
        ...                 sender.send_frames(cdtp.encode(message))
        ...         reason = recorder.wait(count=3, timeout_s=10)
        ...     capture.open(runs).gaps().read_all().select(["sender", "missed"]).to_pylist()
        [{'sender': 'Detector.one', 'missed': 2}]

        ```
        """
        return self._folded("gaps", selection, tags=None)

    def requests(self, selection: Selection | None = None, *, compat_dagbox: bool = False) -> pa.RecordBatchReader:
        """The requests of DCP, each with its worker, latency and outcome.

        The columns are those of `trunkline.spark.pair_requests`, ordered by `request_seq`. At most a million requests and
        256 MiB of them are open at a time: the oldest of more is ``"evicted"``.

        Args:
            selection: Which requests, by the row that begins each; its reply may be outside. All if None.
            compat_dagbox: Whether to accept types of four bytes too (DCP-11).

        Raises:
            LocalProtocolError: pyarrow is not installed, or the selection is for another protocol.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture, dcp
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     with dcp.Broker(bind="tcp://127.0.0.1:*", capture=runs) as broker:
        ...         with dcp.Client(connect=broker.endpoints) as client:
        ...             reply = client.request(b"trunkline.status", b"", timeout_s=10)
        ...     capture.open(runs).requests().read_all().select(["service", "outcome"]).to_pylist()
        [{'service': b'trunkline.status', 'outcome': 'reply'}]

        ```
        """
        return self._folded("requests", selection, compat_dagbox=compat_dagbox)

    def topics(self, window_s: float = 60.0, selection: Selection | None = None) -> pa.RecordBatchReader:
        """The traffic of mc0 topics, one row for each topic in each time window.

        The columns are those of `trunkline.spark.topics`, ordered by window, `seen_by` and `topic`. Percentiles of more than
        1024 different latencies are off by less than 0.05 % of their value.

        Args:
            window_s: How long a window is, in seconds.
            selection: Which messages to count; all if None.

        Raises:
            ValueError: The window is not a positive number of seconds, or longer than 10 000 days.
            LocalProtocolError: pyarrow is not installed, or the selection is for another protocol.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture, mc0
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     with mc0.Middleware(bind="tcp://127.0.0.1:*", capture=runs) as bus:
        ...         with mc0.Connector(connect=bus.endpoints) as connector:
        ...             connector.put("runs.1", b"run 1 begins", confirm=True, timeout_s=10)
        ...     capture.open(runs).topics(window_s=3600).read_all().select(["topic", "puts", "bytes"]).to_pylist()
        [{'topic': 'runs.1', 'puts': 1, 'bytes': 12}]

        ```
        """
        need_seconds("window_s", window_s, least=1e-6, most=_LONGEST_WINDOW_S)
        return self._folded("topics", selection, window_us=round(window_s * 1_000_000))

    def contents(self, selection: Selection | None = None) -> pa.RecordBatchReader:
        """The MTL contents that a server or a client recorded, each with the other side's response to it.

        The columns are those of `trunkline.spark.contents`, ordered by `seq`. Contents are alike that have the same
        properties and size.

        Args:
            selection: Which contents; all if None.

        Raises:
            LocalProtocolError: pyarrow is not installed, or the selection is for another protocol.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture, mtl
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     with mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"], capture=runs) as server:
        ...         with mtl.Client(connect=server.endpoints) as client, client.writer("jobs") as writer:
        ...             writer.send(b"build 7")
        ...     capture.open(runs).contents().read_all().select(["resource", "body_bytes", "fate"]).to_pylist()
        [{'resource': 'jobs', 'body_bytes': 7, 'fate': 'confirmed'}]

        ```
        """
        properties = {"redelivered": "boolean", "*": "variant"}
        return self._folded("contents", selection, properties=properties, json=None)

    def rollout(
        self, selection: Selection | None = None, *, codec: Literal["json", "avro"] = "json"
    ) -> pa.RecordBatchReader:
        """The progress of each configuration of CDT to each endpoint, one row for each.

        The columns are those of `trunkline.spark.rollout`, ordered by `app_version_name`, `endpoint_id` and `config_id`.

        Args:
            selection: Which messages to count; all if None.
            codec: How bodies are encoded.

        Raises:
            LocalProtocolError: pyarrow is not installed, or the selection is for another protocol.
            ValueError: There is no such codec.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture, cdt
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     with cdt.Target("cdp", servers="memory://capture", capture=runs) as target:
        ...         config_id = target.put("app-1", "endpoint-7", b"{}")
        ...     capture.open(runs).rollout().read_all().select(["endpoint_id", "announcements", "pulls"]).to_pylist()
        [{'endpoint_id': 'endpoint-7', 'announcements': 1, 'pulls': 0}]

        ```
        """
        return self._folded("rollout", selection, codec=codec)

    def _folded(self, name: str, selection: Selection | None, **options: Any) -> pa.RecordBatchReader:
        need_selection(selection)
        _need_pyarrow()
        from trunkline.capture.folding import folded

        return folded(self, self._columns, name, selection, **options)

    def _columns(self, protocol: str, wanted: Sequence[str], **options: Any) -> Iterator[pa.RecordBatch]:
        """Columns of all messages of a protocol, in recorded order."""
        from trunkline.capture.decoding import Decoding

        return Decoding(protocol, "PERMISSIVE", wanted, options).batches(self, Selection(protocol=protocol).of(self))

    def read_all(self) -> pa.Table:
        """All rows as one table.

        Raises:
            CaptureError: A segment cannot be read.
            LocalProtocolError: pyarrow is not installed.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture
        >>> from trunkline.demo import DATA
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
        ...     capture.open(runs).read_all().num_rows
        12

        ```
        """
        pyarrow = _need_pyarrow()
        from trunkline.capture.decoding import read_batches

        reader = self._native.reader()
        return pyarrow.Table.from_batches(read_batches(reader), reader.schema)


def warn_of_others(capture: Capture, protocol: str) -> None:
    """Logs a warning if all rows are of other protocols."""
    others = capture.info().protocols
    if others and others.keys().isdisjoint(_columns.names_of(protocol)):
        # The names come from a file.
        warn_none_is(_logger, sum(others.values()), protocol, readable(" or ".join(list(others)[:_NAMED])))


def warn_none_is(logger: logging.Logger, rows: int, protocol: str, *recorded: str) -> None:
    """Logs a warning that no row is of a protocol, with the protocols that were recorded, if known."""
    advice = ", ".join(("name the protocol that was recorded", *recorded))
    logger.warning("none of %s is %s: %s", counted(rows, "row"), protocol, advice)


def _warning_of_mismatches(batches: Iterable[pa.RecordBatch], mismatches: Counter[str]) -> Iterator[pa.RecordBatch]:
    """The batches, and at the end a warning of values that are null because they have another type than requested."""
    yield from batches
    if mismatches:
        names = ", ".join(f"{readable(name)} ({count:,})" for name, count in mismatches.most_common(_NAMED))
        number = counted(mismatches.total(), "value")
        _logger.warning("%s of another type than requested in the rows read, decoded as null: %s", number, names)


def _size(path: Path) -> int:
    """The bytes of a file; 0 if it was deleted since it was listed."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def native(capture: Capture) -> _native.Capture:
    """The native reader of a capture."""
    return capture._native  # noqa: SLF001 - of this room


def within(capture: Capture) -> tuple[int, int] | None:
    """The numbers of the first and the last row of a capture that has not all of its segments'."""
    return capture._within  # noqa: SLF001 - of this room


def is_limited(capture: Capture) -> bool:
    """Whether values may have fewer bytes than those of any capture."""
    return capture._is_limited  # noqa: SLF001 - of this room


def of_known(
    path: Location, segments: Sequence[tuple[int, int]], sizes: Sequence[int], within: tuple[int, int] | None = None
) -> Capture:
    """Some segments of a capture, of which those that are gone are passed over, and named by `gone` of its native reader.

    Args:
        path: The capture.
        segments: The numbers of the first and the last of each.
        sizes: The bytes of each, which a store is not asked for then.
        within: The numbers of the first and the last row to read; all if None.

    Raises:
        CaptureError: There is no such directory.
    """
    capture = Capture(path, segments=())
    capture._within = within  # noqa: SLF001 - of this room
    capture._native = _native.Capture(path, DEFAULTS["max_message_bytes"], segments, sizes, within)  # noqa: SLF001
    return capture


def parts(capture: Capture) -> list[_native.Capture]:
    """The parts of a capture, oldest first: each segment, and the rows that are only in the journal."""
    return native(capture).parts()


def open(  # noqa: A001 - as `gzip.open`, used with its room
    path: str | os.PathLike[str], *, max_message_bytes: int = DEFAULTS["max_message_bytes"]
) -> Capture:
    """Opens a capture for reading, while it is recorded or after.

    Args:
        path: The capture directory, or its URL as `pyarrow.fs` takes it, such as ``s3://bucket/runs/run7``.
        max_message_bytes: The most bytes that a frame or another value of a row may have. Reading ends with `CaptureError` at a
            larger one, of whose segment no more than 256 MiB beyond it are in memory by then. A few hundred bytes of a segment may
            stand for a large value, so that captures from strangers are best read with a low limit.

    Raises:
        CaptureError: There is no capture, or it cannot be read.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture, cdtp
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     with cdtp.Receiver(bind="tcp://127.0.0.1:*", capture=runs) as receiver:
    ...         with cdtp.Sender("Detector.one", connect=receiver.endpoints[0]) as sender:
    ...             sender.send(b"event", tags={"run": 7})
    ...         message = receiver.receive(timeout_s=10)
    ...     [(message.sender, message.tags) for message in capture.open(runs).messages("cdtp")]
    [('Detector.one', {'run': 7})]

    ```
    """
    return Capture(path, max_message_bytes=max_message_bytes)


def opened(capture: Readable) -> Capture:
    """A capture, which may be open already."""
    return capture if isinstance(capture, Capture) else open(capture)


def schema() -> pa.Schema:
    """The columns of a capture.

    Raises:
        LocalProtocolError: pyarrow is not installed.

    ```pycon
    >>> from trunkline import capture
    >>> capture.schema().field("header")
    pyarrow.Field<header: binary>

    ```
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
