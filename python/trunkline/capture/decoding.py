"""The messages of a capture as record batches of decoded columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from trunkline import columns
from trunkline._native import capture as _native
from trunkline._text import did_you_mean
from trunkline.capture.selecting import Selected
from trunkline.errors import CaptureError, LocalProtocolError

__all__ = ["Decoding", "read_batches"]


class Decoding:
    """How messages of one protocol are decoded.

    Args:
        protocol: The protocol.
        mode: What to do with malformed messages.
        wanted: The columns to give, in this order; all of them if None.
        options: The options of the protocol.

    Attributes:
        schema: The columns it gives.
        mismatches: The values decoded so far that are null because they are of another type than requested, by name.

    Raises:
        LocalProtocolError: There is no such protocol, mode, option or column.
    """

    def __init__(self, protocol: str, mode: str, wanted: Sequence[str] | None, options: dict[str, Any]) -> None:
        self._protocol, self._options = protocol, {"mode": mode, **options}
        self._decoder = columns.Decoder(protocol, **self._options)
        captured, decoded = _native.schema(), self._decoder.row_schema()
        fields = {name: captured.field(name) for name in self._decoder.protocol.kept}
        fields |= {field.name: field for field in decoded}
        fields[columns.RECEIVED_AT] = pa.field(columns.RECEIVED_AT, pa.timestamp("us", "UTC"))
        self._decoded = frozenset(decoded.names)
        names = list(fields) if wanted is None else list(dict.fromkeys(wanted))
        unknown = next((name for name in names if name not in fields), None)
        if unknown is not None or not names:
            hint = did_you_mean(unknown or "", fields) or f": the columns are {', '.join(fields)}"
            message = f"no column {unknown}{hint}" if unknown is not None else "columns: name at least one"
            raise LocalProtocolError(message)
        self.schema = pa.schema([fields[name] for name in names])
        self.mismatches: Counter[str] = Counter()

    def batches(self, capture: _native.Capture, selected: Selected) -> Iterator[pa.RecordBatch]:
        """The selected messages, in recorded order; reads only the columns that are needed."""
        names = self.schema.names
        # The columns of the condition are decoded too.
        deciding = selected.columns(self._protocol)
        used = dict.fromkeys([*names, *deciding])
        only = [name for name in used if name in self._decoded]
        kept = [name for name in used if name not in self._decoded and name != columns.RECEIVED_AT]
        if columns.RECEIVED_AT in names and "received_at_ns" not in kept:
            kept.append("received_at_ns")
        frames = list(columns.needed(self._decoder, set(only)))
        condition = selected.condition(self._protocol, **self._options)
        needed = dict.fromkeys([*kept, *frames, *(condition.needs if condition is not None else ())])
        decode = columns.rows_of(self._decoder, kept, frames, only, self.mismatches)
        rows = read_batches(capture.reader(list(needed), selected.native))
        batches = (decode if condition is None else condition.filtering(decode))(rows)
        return map(self._given, map(selected.filter(self._protocol), batches))

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
