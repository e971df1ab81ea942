"""Which engine counts what: Spark, or DuckDB in this process.

What reports count is written once, in the words of pyspark. `F` and `Window` are those of pyspark's that a plain import
would give, and within `here` those of `trunkline.spark._duckdb`, whose tables have the methods of a `DataFrame`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
    from pyspark.sql.types import StructType

    from trunkline.spark._duckdb.session import Session

__all__ = ["F", "Window", "here", "in_order", "made_once", "mapped", "spared"]

_is_here: ContextVar[bool] = ContextVar("_is_here", default=False)


class _Names:
    """What is called the same in both engines."""

    def __init__(self, spark: str, duckdb: str) -> None:
        self._spark = spark
        self._duckdb = duckdb

    def __getattr__(self, name: str) -> Any:
        return getattr(pkgutil.resolve_name(self._duckdb if _is_here.get() else self._spark), name)


if not TYPE_CHECKING:
    F = _Names("pyspark.sql.functions", "trunkline.spark._duckdb.functions")
    Window = _Names("pyspark.sql:Window", "trunkline.spark._duckdb.column:Window")


def mapped(
    rows: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: Callable[[], StructType | str],
) -> DataFrame:
    """What a function makes of rows: `mapInArrow`, for which Spark wants to know the types, and DuckDB does not."""
    return rows.mapInArrow(function, "" if _is_here.get() else schema())


def made_once(messages: DataFrame) -> DataFrame:
    """What is wanted several times: DuckDB makes it once. To Spark that costs more than to make it again."""
    return messages.persist() if _is_here.get() else messages


def spared(messages: DataFrame, condition: str) -> DataFrame:
    """Only messages for which something holds: to Spark all others are work. Here they cost less than to leave them out."""
    return messages if _is_here.get() else messages.where(condition)


def in_order(
    messages: DataFrame,
    source: Sequence[str],
    which: str = "false",
    more: Callable[[DataFrame], DataFrame] | None = None,
) -> tuple[DataFrame, bool]:
    """The messages of each source as they were recorded, and whether a source's stand together: where all is in one
    place they need not. Before those for which something holds comes what a function makes `more` of them: rows of lesser
    records.
    """
    if _is_here.get():
        return cast("Any", messages).as_recorded(which, more), False
    if more is not None:
        messages = messages.unionByName(more(messages.where(which)), allowMissingColumns=True)
    return messages.repartition(*source).sortWithinPartitions(*source, "seq", "record"), True


@contextmanager
def here(memory: str, on_rows: Callable[[int], object]) -> Iterator[Session]:
    """Has DuckDB count; see `Session`."""
    from trunkline.spark._duckdb.session import Session

    token = _is_here.set(True)
    try:
        with Session(memory, on_rows) as session:
            yield session
    finally:
        _is_here.reset(token)
