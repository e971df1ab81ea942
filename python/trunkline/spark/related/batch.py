"""Related rows in one task and in recorded order, for folds and summaries."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trunkline._native.analysis import Fold, key
from trunkline.spark._comments import declared
from trunkline.spark._lazy import F
from trunkline.spark.related.bounds import Bounds
from trunkline.spark.related.bundles import BEGINS, BUNDLE, Step, bundled, merged
from trunkline.spark.related.bundling import Bundling, in_bundles
from trunkline.spark.related.losses import Losses, losses, lost
from trunkline.spark.related.stream import streamed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["folded", "keys", "together"]

# The types of bodies: bytes, or frames.
_BODIES = {"binary", "array<binary>"}


def keys(protocol: str) -> list[Column]:
    """The values that related messages of a protocol have in common."""
    return [_value(part) for part in key(protocol)]


def _value(part: Sequence[tuple[str, Sequence[tuple[str, str | None]]]]) -> Column:
    """The value of the first column that has one, where others are as they must be."""
    choices = []
    for name, others in part:
        column = F.col(name)
        for other, value in others:
            column = F.when(F.col(other).isNotNull() if value is None else F.col(other) == value, column)
        choices.append(column)
    return F.coalesce(*choices)


def together(decoded: DataFrame, by: Sequence[Column]) -> DataFrame:
    """The rows, with related ones in one task, in the order of each capture."""
    order = [name for name in ("capture_id", "seq", "record") if name in decoded.columns]
    return decoded.repartition(*by).sortWithinPartitions(*order)


def folded(
    decoded: DataFrame,
    name: str,
    more: Mapping[str, Column] | None = None,
    *,
    window_us: int = 60_000_000,
    body: str | None = None,
) -> DataFrame:
    """The table of this name, one of `Fold.NAMES`, of decoded messages.

    Args:
        decoded: The messages, with the columns that the fold reads; a batch or a stream.
        name: The name of the table.
        more: Columns that replace some of these, or are added.
        window_us: How long the windows of topics are, in microseconds.
        body: A column of bodies that are compared where it is there; only their hash is shuffled.
    """
    fold, session = Fold(name), decoded.sparkSession
    types, more = dict(decoded.dtypes), dict(more or {})
    hashed = {} if body is None or body not in types else {body: F.xxhash64(body)}
    needs = [need for need in dict.fromkeys([*fold.needs, *BEGINS, *hashed]) if need in types and need not in more]
    bounds = Bounds.of(session, is_streaming=decoded.isStreaming)
    steps = [Step(step, window_us, bounds) for step in fold.steps]
    bundling = Bundling(steps[0], tuple(needs), fold.protocol)
    # A column of the user's own may have the name of bodies.
    is_plain = not more and all(types[name] in _BODIES for name in hashed)
    parts = in_bundles(decoded, bundling) if is_plain else None
    if parts is None:
        columns = {name: F.col(name) for name in needs} | hashed | more
        rows = decoded.select(*(column.alias(name) for name, column in columns.items()))
        parts = rows.mapInArrow(bundling.bundles, BUNDLE)
    if decoded.isStreaming:
        return streamed(parts, name, steps)
    found = losses(session, name, bounds.max_bytes)
    for step, following in itertools.pairwise(steps):
        parts = _together(parts).mapInArrow(functools.partial(_between, step, following, found), BUNDLE)
    function = functools.partial(_folded, steps[-1], found)
    return _together(parts).mapInArrow(function, declared(fold.ddl(), name))


def _together(parts: DataFrame) -> DataFrame:
    """Bundles, with those of a bucket in one task, in recorded order."""
    return parts.repartition("bucket").sortWithinPartitions("bucket", *BEGINS)


def _between(
    step: Step, following: Step, losses: Losses, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return bundled(following, _folded(step, losses, batches))


def _folded(step: Step, losses: Losses, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    fold = step.fold()
    for batch in merged(batches):
        yield from fold.record(batch)
    yield from fold.finish()
    losses.add(lost(fold))
