"""The messages of a capture as record batches of decoded columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trunkline import columns
from trunkline._arguments import need_names, need_sequence
from trunkline._native import capture as _native
from trunkline._text import did_you_mean
from trunkline.capture.decoded import Decoded, beside, is_linked, numbered, rows_within
from trunkline.capture.reading import Capture, within
from trunkline.capture.selecting import Selected
from trunkline.errors import CaptureError, LocalProtocolError

if TYPE_CHECKING:
    from trunkline.capture.where import Condition

__all__ = ["Decoding", "read_batches"]


class Decoding:
    """How messages of one protocol are decoded.

    Args:
        protocol: The protocol.
        mode: What to do with malformed messages.
        wanted: The columns to give, in this order; all of them if None.
        options: The options of the protocol.

    Attributes:
        protocol: The protocol.
        schema: The columns it gives.
        mismatches: The values decoded so far that are null because they are of another type than requested, by name.

    Raises:
        LocalProtocolError: There is no such protocol, mode, option or column.
    """

    def __init__(self, protocol: str, mode: str, wanted: Sequence[str] | None, options: dict[str, Any]) -> None:
        self.protocol, self._options = protocol, {"mode": mode, **options}
        self._decoder = columns.Decoder(protocol, **self._options)
        captured, decoded = _native.schema(), self._decoder.row_schema()
        fields = {name: captured.field(name) for name in self._decoder.protocol.kept}
        fields |= {field.name: field for field in decoded}
        fields[columns.RECEIVED_AT] = pa.field(columns.RECEIVED_AT, pa.timestamp("us", "UTC"))
        self._decoded = frozenset(decoded.names)
        if wanted is not None:
            need_sequence("columns", wanted)
            need_names("columns", wanted)
        names = list(fields) if wanted is None else list(dict.fromkeys(wanted))
        unknown = next((name for name in names if name not in fields), None)
        if unknown is not None or not names:
            hint = did_you_mean(unknown or "", fields) or f": the columns are {', '.join(fields)}"
            message = f"no column {unknown}{hint}" if unknown is not None else "columns: name at least one"
            raise LocalProtocolError(message)
        self._fields = fields
        self.schema = pa.schema([fields[name] for name in names])
        self.mismatches: Counter[str] = Counter()

    def batches(self, capture: Capture, selected: Selected) -> Iterator[pa.RecordBatch]:
        """The selected messages, in recorded order; reads only the columns that are needed.

        A segment's file of decoded messages is read instead of it, where that has these columns.

        Raises:
            LocalProtocolError: The condition has a field of payloads that the layout has not.
        """
        return self._batches(capture, selected, selected.condition(self.protocol, **self._options))

    def _batches(self, capture: Capture, selected: Selected, condition: Condition | None) -> Iterator[pa.RecordBatch]:
        numbers = within(capture)
        for part, file in beside(capture, self.protocol):
            decoded = None if file is None else self._opened(capture, file, selected, condition)
            if decoded is None:
                yield from self.decode(part, selected, condition)
                continue
            conditions = [
                rows_within(selected.native),
                None if numbers is None else rows_within({"numbers": [numbers]}),
            ]
            names = self._names(selected)
            with decoded:
                if condition is None:
                    batches = decoded.batches(names, conditions)
                elif condition.is_for_rows:
                    names = [*dict.fromkeys([*names, *condition.decoded, *condition.of_rows])]
                    batches = map(condition.filter, decoded.batches(names, conditions))
                else:
                    batches = decoded.batches(names, [*conditions, condition.expression()])
                for batch in map(selected.filter(self.protocol), batches):
                    yield batch.select(self.schema.names).cast(self.schema)

    def has_all(self, segment: Path, file: Path) -> bool:
        """Whether a file of decoded messages has these columns, and is of this segment."""
        if is_linked(file.parent.parent, file.parent, file):
            return False
        try:
            with Decoded(file) as decoded:
                return decoded.has([*self.schema], self.protocol, self._options) and decoded.is_of(segment)
        except FileNotFoundError:
            return False

    def _opened(self, capture: Capture, file: Path, selected: Selected, condition: Condition | None) -> Decoded | None:
        """A file of decoded messages; None if it is not of this segment, or has not all that is needed."""
        if not selected.is_decided_by_decoded or (condition is not None and len(condition.decoders) > 1):
            return None
        try:
            decoded = Decoded(file)
            is_of_segment = decoded.is_of(Path(capture.path) / numbered(file.name)[0])
        except FileNotFoundError:
            return None
        wanted, options = [self._fields[name] for name in self._names(selected)], self._options
        has_all = decoded.has(wanted, self.protocol, options)
        if condition is None:
            has_all = has_all and not decoded.is_shredded(wanted)
        elif has_all:
            [layer] = condition.layers
            rows = [self._fields[name] for name in condition.of_rows & self._fields.keys()]
            has_all = len(rows) == len(condition.of_rows) and decoded.has(
                [*rows, *condition.fields], self.protocol, options | layer
            )
        if has_all and is_of_segment:
            return decoded
        decoded.close()
        return None

    def _names(self, selected: Selected) -> list[str]:
        """The columns to give, and those by which messages are selected."""
        return list(dict.fromkeys([*self.schema.names, *selected.columns(self.protocol)]))

    def decode(
        self, capture: _native.Capture, selected: Selected, condition: Condition | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The same, of the frames that were recorded."""
        used = self._names(selected)
        only = [name for name in used if name in self._decoded]
        kept = [name for name in used if name not in self._decoded and name != columns.RECEIVED_AT]
        if columns.RECEIVED_AT in used and "received_at_ns" not in kept:
            kept.append("received_at_ns")
        frames = list(columns.needed(self._decoder, set(only)))
        needed = dict.fromkeys([*kept, *frames, *(condition.needs if condition is not None else ())])
        decode = columns.rows_of(self._decoder, kept, frames, only, self.mismatches)
        rows = read_batches(capture.reader(list(needed), selected.native))
        batches = (decode if condition is None else condition.filtering(decode))(rows)
        return map(self._given, map(selected.filter(self.protocol), batches))

    def _given(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            columns.moments(batch["received_at_ns"]) if name == columns.RECEIVED_AT else batch[name]
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def read_batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a reader, whose exceptions Arrow wraps: they become `CaptureError` again."""
    try:
        yield from reader
    except (OSError, pa.ArrowException) as error:
        raise CaptureError(str(error).removeprefix("External error: ")) from error
