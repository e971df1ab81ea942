"""Related rows in one task and in recorded order, for folds and summaries."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trunkline._native.analysis import Fold
from trunkline._text import counted
from trunkline.spark._comments import declared
from trunkline.spark._lazy import F
from trunkline.spark._streams import streamed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["folded", "keys", "together"]


def _call() -> list[Column]:
    """The client's address, which only a broker's rows have, and the metadata."""
    asks = (F.col("direction") == "in") & (F.col("type") == "request")
    address = F.when(asks, F.coalesce("client", "peer")).otherwise(F.col("client"))
    return [F.xxhash64("capture_id", F.when(F.col("peer").isNotNull(), address), "metadata")]


# The columns that related messages of each protocol have in common. A dead letter of MTL is a content of another connection.
_KEYS: Mapping[str, Callable[[], list[Column]]] = {
    "cdtp": lambda: [F.col("capture_id"), F.col("sender")],
    "dcp": _call,
    "mc0": lambda: [F.col("topic")],
    "mtl": lambda: [F.col("capture_id")],
    "cdt": lambda: [F.col("app_version_name"), F.col("endpoint_id")],
}


def keys(protocol: str) -> list[Column]:
    """The columns that related messages of a protocol have in common."""
    return _KEYS[protocol]()


def together(decoded: DataFrame, by: Sequence[Column]) -> DataFrame:
    """The rows, with related ones in one task, in the order of each capture."""
    order = [name for name in ("capture_id", "seq", "record") if name in decoded.columns]
    return decoded.repartition(*by).sortWithinPartitions(*order)


def folded(
    decoded: DataFrame,
    name: str,
    more: Mapping[str, Column] | None = None,
    *,
    without: Collection[str] = (),
    window_us: int = 60_000_000,
) -> DataFrame:
    """The table of this name, one of `Fold.NAMES`, of decoded messages.

    Args:
        decoded: The messages, with the columns that the fold reads; a batch or a stream.
        name: The name of the table.
        more: Columns that replace some of these, or are added.
        without: Columns that it must not read.
        window_us: How long the windows of topics are, in microseconds.
    """
    fold = Fold(name)
    more = more or {}
    there = set(decoded.columns).difference(more, without)
    needs = [need for need in fold.needs if need in there]
    rows = decoded.select(*needs, *(column.alias(name) for name, column in more.items()))
    if rows.isStreaming:
        return streamed(rows, name, window_us)
    function = functools.partial(_folded, name, window_us)
    return together(rows, keys(fold.protocol)).mapInArrow(function, declared(fold.ddl(), name))


def _folded(name: str, window_us: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    fold = Fold(name, window_us=window_us)
    for batch in batches:
        yield from fold.record(batch)
    yield from fold.finish()
    if fold.let_go:
        # This log goes to the standard error of the executor.
        text = "%s: %s left out: more were open at a time than are kept"
        logging.getLogger("trunkline.spark").warning(text, name, counted(fold.let_go, "link"))
