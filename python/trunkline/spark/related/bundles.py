"""Bundles: messages of one bucket, as bytes.

Messages pass between tasks in bundles, and so do the results of folds: Spark sees few rows, and none of theirs.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trunkline._arrow import from_bytes, to_bytes
from trunkline._native.analysis import Fold
from trunkline.spark.related.bounds import Bounds

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # its types are a package of their own
    import pyarrow as pa

__all__ = ["BEGINS", "BUNDLE", "Step", "bundle_schema", "bundled", "in_order", "merged", "rebundled", "unpacked"]

# The position at which a bundle begins: the order in which the bundles of a bucket are folded.
BEGINS = {"capture_id": "string", "seq": "bigint", "record": "int"}
_COLUMNS = {
    "bucket": "int",
    **BEGINS,
    "messages": "bigint",
    "rows": "binary",
    "evicted": "bigint",
    "left_out": "bigint",
}
BUNDLE = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())

# The number of a bucket, where its rows begin, how many there are, these, and what was lost before.
_Bundle = tuple[int, str, int, int, int, bytes, int, int]
_Position = tuple[str, int, int]

# How many bytes of bundles a bucket holds in memory.
_HELD_BYTES = 8 << 20

# How many messages are divided at a time, for each bucket, and at most how many bytes of them. The schema that a bundle has takes as
# much as some tens of messages.
_ROWS = 256
_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """A fold of a batch or a stream: of a table, or of a step of one.

    Attributes:
        name: The name of the fold.
        window_us: How long the windows of topics are, in microseconds.
        bounds: How many buckets it has, and how much each may keep.
    """

    name: str
    window_us: int
    bounds: Bounds

    def fold(self) -> Fold:
        """The fold of a bucket, of a batch of all that a task has, with nothing in it."""
        bounds = self.bounds
        buckets = None if bounds.partitions else len(bounds.numbers())
        return Fold(
            self.name,
            window_us=self.window_us,
            buckets=buckets,
            is_spread=buckets is not None and bounds.is_spread,
            max_bytes=bounds.max_bytes,
        )


def bundle_schema() -> pa.Schema:
    """The columns of bundles."""
    import pyarrow as pa

    kinds = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    return pa.schema([(name, kinds[kind]) for name, kind in _COLUMNS.items()])


def bundled(step: Step, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Messages in bundles, by bucket, each in recorded order."""
    yield from _first(step)
    yield from _bundles(step, batches)


def rebundled(step: Step, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of the buckets of one step as bundles of the next one."""
    yield from _first(step)
    for batch in batches:
        for rows, *found in zip(*(batch[name] for name in ("rows", "evicted", "left_out")), strict=True):
            if rows.is_valid:
                yield from _bundles(step, from_bytes(rows.as_buffer()))
            else:
                yield _as_bundles([(0, "", 0, 0, 0, b"", *(count.as_py() for count in found))])


def _first(step: Step) -> Iterator[pa.RecordBatch]:
    """A bundle of nothing for the first bucket of a stream, which has a state in any case.

    With another number of buckets messages may go to one that has no state yet: this one sees it.
    """
    if not step.bounds.partitions:
        yield _as_bundles([(number, "", 0, 0, 0, b"", 0, 0) for number in step.bounds.first()])


def _bundles(step: Step, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Messages in bundles, by bucket."""
    fold, numbers = Fold(step.name), step.bounds.numbers()
    for rows in _gathered(batches, _ROWS * len(numbers)):
        divided = fold.divide(_sorted(rows), len(numbers))
        yield _as_bundles(
            [(numbers[at], *_position(some, 0), some.num_rows, to_bytes(some), 0, 0) for at, some in divided]
        )


def _gathered(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """At least so many rows at a time, if there are, unless they are large."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            count, size = count + batch.num_rows, size + batch.nbytes
        if count >= rows or size >= _BYTES:
            yield held
            held, count, size = [], 0, 0
    if held:
        yield held


def _as_bundles(bundles: list[_Bundle]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = bundle_schema()
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*bundles, strict=True), schema.types, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def in_order(frames: Iterable[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
    """The messages of bundles of one bucket, in recorded order.

    After a shuffle the bundles of a bucket come in any order, and Spark sorts no stream. So they are held, on disk if they are many,
    and read one after the other.
    """
    held_at = []
    with tempfile.SpooledTemporaryFile(_HELD_BYTES) as held:
        for frame in frames:
            for *begins, rows in zip(*(frame[name] for name in (*BEGINS, "rows")), strict=True):
                if rows:
                    held_at.append((tuple(begins), held.tell(), len(rows)))
                    held.write(rows)

        def read(at: int, size: int) -> bytes:
            held.seek(at)
            return held.read(size)

        yield from _merged((begins, read(at, size)) for begins, at, size in sorted(held_at))


def merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The messages of bundles that are sorted by bucket and position: those of each bucket in recorded order."""
    rows = (
        row for batch in batches for row in zip(*(batch[name] for name in ("bucket", *BEGINS, "rows")), strict=True)
    )
    for _, some in itertools.groupby(rows, lambda row: row[0].as_py()):
        yield from _merged((tuple(part.as_py() for part in begins), rows.as_buffer()) for _, *begins, rows in some)


def _merged(bundles: Iterable[tuple[Any, bytes | pa.Buffer]]) -> Iterator[pa.RecordBatch]:
    """Where a bundle begins before another has ended, as of files that Spark reads as it likes, they are sorted together."""
    together: list[pa.RecordBatch] = []
    ended: _Position = ("", -1, -1)
    for begins, rows in bundles:
        if together and begins > ended:
            yield _sorted(together)
            together = []
        together += from_bytes(rows)
        ended = max(ended, _position(together[-1], -1))
    if together:
        yield _sorted(together)


def _position(batch: pa.RecordBatch, at: int) -> _Position:
    """The position of a message: its capture, its row there and its record."""
    capture_id, seq, record = (batch[name][at].as_py() if name in batch.schema.names else None for name in BEGINS)
    return capture_id or "", seq or 0, record or 0


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Messages in recorded order."""
    import pyarrow as pa

    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    if _is_in_order(batch):
        return batch
    return batch.sort_by([(name, "ascending") for name in BEGINS if name in batch.schema.names])


def _is_in_order(batch: pa.RecordBatch) -> bool:
    """Whether messages are of one capture, of one record each, and in its order."""
    from pyarrow import compute

    seq, names = batch["seq"], batch.schema.names
    if "capture_id" in names and len(batch["capture_id"].unique()) > 1:
        return False
    ordered = compute.all(compute.less(seq[:-1], seq[1:]))
    return seq.null_count == 0 and ordered.as_py() is not False


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The results of folds."""
    for batch in batches:
        for rows in batch["rows"].drop_null():
            yield from from_bytes(rows.as_buffer())
