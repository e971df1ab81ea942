"""Tables that combine several rows of a capture, such as requests with their replies."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trunkline._native.analysis import Fold
from trunkline._text import counted
from trunkline.capture.selecting import Selection, Source, of_records, wanted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Selected", "folded"]

_logger = logging.getLogger("trunkline.capture")


def folded(
    capture: Source,
    read: Callable[..., Iterator[pa.RecordBatch]],
    name: str,
    selection: Selection | None,
    *,
    window_us: int = 60_000_000,
    **options: Any,
) -> pa.RecordBatchReader:
    """The table of this name, one of `Fold.NAMES`.

    Args:
        capture: The capture.
        read: Reads columns of all its messages of a protocol.
        name: The name of the table.
        selection: Which things: those that begin with a selected row; all if None.
        window_us: How long the windows of topics are, in microseconds.
        **options: As for `Capture.decode`.
    """
    import pyarrow as pa

    fold = Fold(name, window_us=window_us)
    selected = None
    if selection is not None:
        selected = Selected(capture, dataclasses.replace(selection, protocol=fold.protocol), options)
    needs = fold.needs if selected is None else dict.fromkeys([*fold.needs, *selected.columns])
    batches = read(fold.protocol, list(needs), **options)
    return pa.RecordBatchReader.from_batches(fold.schema(), _things(fold, batches, selected))


def _things(fold: Fold, batches: Iterator[pa.RecordBatch], selected: Selected | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        # A thing is selected if its first row is.
        yield from fold.record(batch if selected is None else batch.append_column("chosen", selected.mask(batch)))
    yield from fold.finish()
    if fold.evicted or fold.left_out:
        text = (
            "%s let go unsettled, and %s left out that came for what was let go: more was open at a time than is kept"
        )
        _logger.warning(text, counted(fold.evicted, "row"), counted(fold.left_out, "message"))


class Selected:
    """The rows that are selected, looked up batch by batch as they were recorded.

    Args:
        capture: The capture.
        selection: Which messages, of one protocol.
        options: How its messages are decoded to be selected.
        columns: The columns that identify a row; None for those that identify a message.
    """

    def __init__(
        self,
        capture: Source,
        selection: Selection,
        options: Mapping[str, Any],
        columns: Sequence[str] | None = None,
    ) -> None:
        # A row of CDTP may have several messages, and a condition may select some of them.
        of_messages = ("seq",) if of_records(selection) is None else ("seq", "record")
        self.columns = columns or of_messages
        _, batches = wanted(capture, selection, self.columns, **options)
        # Batches may have no selected rows.
        self._batches = (batch for batch in batches if batch.num_rows)
        self._next: pa.RecordBatch | None = next(self._batches, None)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows of a batch are selected."""
        import pyarrow as pa
        from pyarrow import compute

        if not batch.num_rows:
            return pa.array([], pa.bool_())
        base, last = batch["seq"][0].as_py(), batch["seq"][-1].as_py()
        found = []
        while self._next is not None and self._next["seq"][0].as_py() <= last:
            found.append(self._keys(self._next, base))
            if self._next["seq"][-1].as_py() > last:
                break
            self._next = next(self._batches, None)
        keys = self._keys(batch, base)
        return compute.is_in(keys, value_set=pa.chunked_array(found, pa.int64()).combine_chunks())

    def _keys(self, batch: pa.RecordBatch, base: int) -> pa.Int64Array:
        """The keys of rows: their distance from the first one, and their record."""
        from pyarrow import compute

        keys = compute.subtract(batch["seq"], base)
        if "record" not in self.columns:
            return keys
        # Rows far away are in no batch: limit the distance so that the key does not overflow.
        near = compute.if_else(compute.less(compute.abs(keys), 1 << 31), keys, -1 << 31)
        return compute.add(compute.multiply(near, 1 << 31), compute.cast(batch["record"], "int64"))
