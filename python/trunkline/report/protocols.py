"""Counts the messages of one protocol as its rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trunkline._native.analysis import Fold
from trunkline.capture.decoding import read_batches
from trunkline.capture.reading import Capture
from trunkline.capture.selecting import Selection
from trunkline.columns import Decoder, Layout, reading
from trunkline.report.cdtp_runs import Tally
from trunkline.report.counting import counted_of, summary
from trunkline.report.model import BUCKETS, Clock, Counted, Scope
from trunkline.report.sections import SECTIONS
from trunkline.report.selecting import selected

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline._native.capture import Capture as Part

__all__ = ["Counter", "read", "within"]


class Counter:
    """Decodes the messages of a protocol, and counts them.

    Args:
        name: The protocol.
        capture: The capture; None to count rows that are decoded already.
        selection: Which messages; all if None.
        scope: The scope of the selection.
        clock: The time buckets.
        now_ns: Now, if runs without an EOR may go on, in nanoseconds since 1970.
        layout: The layout of payloads, if a selection may be about their fields.
    """

    def __init__(
        self,
        name: str,
        capture: Capture | None,
        selection: Selection | None,
        scope: Scope,
        clock: Clock,
        now_ns: int | None = None,
        layout: Layout | None = None,
    ) -> None:
        self._summary = summary(name, scope, clock)
        self._scope = scope
        # The columns to read from the capture.
        self.columns, self._decode = reading(Decoder(name, **SECTIONS[name].options), self._summary.needs)
        self._selected = None
        if capture is not None and selection is not None:
            self._selected = selected(capture, selection, name, layout)
        # Two summaries: of selected messages only, and with possible answers to them.
        self._is_around = SECTIONS[name].has_answers
        has_runs = name == "cdtp" and scope.has_runs
        self._runs = Fold("runs", json=True) if has_runs else None
        self._now_ns = now_ns
        self._tally = Tally()

    def count(self, part: Part, batch: pa.RecordBatch) -> None:
        """Counts rows of a part of the capture."""
        for rows, of_runs in self.decoded(part, batch):
            self.record(rows)
            self.record_runs(of_runs)

    def decoded(self, part: Part, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]:
        """The messages in rows of a part of the capture, and the rows from which runs are counted."""
        for decoded in self._decode(iter([batch])):
            rows = decoded
            if self._selected is not None:
                mask = self._selected.mask(decoded)
                rows = decoded.append_column("chosen", mask) if self._is_around else decoded.filter(mask)
            yield rows, None if self._runs is None else _with_frames(part, rows)

    def record(self, rows: pa.RecordBatch) -> None:
        """Counts messages."""
        self._summary.record(rows)

    def record_runs(self, rows: pa.RecordBatch | None) -> None:
        """Counts runs, if they are wanted."""
        if self._runs is not None and rows is not None:
            for over in self._runs.record(rows):
                self._tally.add(over)

    def finish(self) -> None:
        """Counts things that are still open."""
        self._summary.finish()
        if self._runs is not None:
            if self._now_ns is not None:
                self._runs.at(self._now_ns)
            for over in self._runs.finish():
                self._tally.add(over)

    def counted(self) -> Counted:
        """The counts."""
        found = counted_of(self._summary)
        if self._runs is not None:
            found["runs"] = self._tally.counts(self._scope.ordinals)
        return found

    def state(self) -> tuple[bytes, bytes]:
        """The state so far, as bytes: of messages, and of completed runs."""
        return self._summary.state(), self._tally.state()

    def merge(self, state: tuple[bytes, bytes]) -> None:
        """Adds the state of another counter."""
        of_messages, of_runs = state
        self._summary.merge(of_messages)
        self._tally.merge(of_runs)

    def widen(self, last_ns: int) -> None:
        """Widens the time buckets as needed to cover this time."""
        self._summary.widen(last_ns, BUCKETS)

    def copy_to(self, other: Counter) -> None:
        """Copies the counts to another counter, without the runs."""
        other._summary.restore(self._summary.state())


def within(selection: Selection | None, names: Sequence[str], capture: Capture) -> dict[str, Any] | None:
    """The time and the protocol of a selection, which hold for answers too; None for all."""
    if selection is None:
        return None
    only = names[0] if len(names) == 1 else None
    return Selection(protocol=only, since_ns=selection.since_ns, until_ns=selection.until_ns).of(capture).native


def read(
    part: Part, counters: Mapping[str, Counter], within: dict[str, Any] | None = None
) -> Iterator[tuple[int, dict[str, pa.RecordBatch]]]:
    """The rows of a part of a capture in batches: their number, and those of each counted protocol."""
    columns = dict.fromkeys(name for counter in counters.values() for name in counter.columns)
    for batch in read_batches(part.reader(["protocol", *columns], within)):
        yield batch.num_rows, {name: rows for name, rows in _split(batch).items() if name in counters}


def _split(batch: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
    """The rows of each protocol."""
    from pyarrow import compute

    names = compute.unique(batch["protocol"]).to_pylist()
    if len(names) == 1:
        return {names[0]: batch}
    return {name: batch.filter(compute.equal(batch["protocol"], name)) for name in names}


def _with_frames(part: Part, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Messages of CDTP, with the frames of BOR and EOR before each, which are read only for these."""
    import pyarrow as pa
    from pyarrow import compute

    names = ["capture_id", "sender", "seq", "record", "received_at_ns", "n_bytes", "type", "sequence"]
    messages = pa.Table.from_batches([rows.select(names)])
    is_one = compute.and_(
        compute.and_(compute.is_in(rows["type"], pa.array(["BOR", "EOR"])), compute.equal(rows["record"], 0)),
        compute.less_equal(rows["n_bytes"], Fold.MAP_BYTES),
    )
    ends = pa.Table.from_batches([rows.select(["capture_id", "sender", "seq"]).filter(is_one)])
    if ends.num_rows:
        numbers = [(seq, seq) for seq in ends["seq"].to_pylist()]
        read = part.reader(["seq", "header", "payload"], {"numbers": numbers})
        frames = pa.Table.from_batches(read_batches(read), read.schema)
        at = compute.index_in(ends["seq"], value_set=frames["seq"].combine_chunks())
        frames = frames.take(at)
        firsts = [payload[0] if payload else None for payload in frames["payload"].to_pylist()]
        payload = pa.array(firsts, pa.binary())
        ends = ends.append_column("record", pa.repeat(pa.scalar(Fold.FRAMES, pa.int32()), ends.num_rows))
        ends = ends.append_column("header", frames["header"]).append_column("payload", payload)
        messages = pa.concat_tables([ends, messages], promote_options="default")
        messages = messages.sort_by([("seq", "ascending"), ("record", "ascending")])
    return messages.combine_chunks().to_batches()[0] if messages.num_rows else rows.select(names)
