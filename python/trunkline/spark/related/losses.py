"""What a table of related messages had to let go, counted by its tasks and warned of once by the driver."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

from trunkline._text import amount, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trunkline._native.analysis import Fold

__all__ = ["Losses", "Lost", "losses", "lost"]

_logger = logging.getLogger("trunkline.spark")

# How many rows, or senders, were evicted, and how many messages are in no row.
Lost = tuple[int, int]

# How the rows of a table say that they were evicted.
_WORDS = {
    "contents": "fate = 'evicted'",
    "requests": "outcome = 'evicted'",
    "runs": "condition = 'EVICTED'",
    "topics": "evicted",
}


def lost(fold: Fold, before: Lost = (0, 0)) -> Lost:
    """What a fold has lost, since it had lost so much."""
    return fold.evicted - before[0], fold.left_out - before[1]


def losses(session: SparkSession, table: str, max_bytes: int | None) -> Losses:
    """The losses of a table, of a DataFrame of this session."""
    # A session of Spark Connect has none, and no accumulators.
    context: Any = getattr(session, "sparkContext", None)
    total = None if context is None else context.accumulator((0, 0), _Sum(table, max_bytes, warns=True))
    return Losses(table, max_bytes, total)


class Losses:
    """Takes what tasks have lost to the driver, or to the log of the executor if there is no way there."""

    def __init__(self, table: str, max_bytes: int | None, total: Any) -> None:
        self._table, self._max_bytes, self._total = table, max_bytes, total

    def add(self, found: Lost) -> None:
        """Adds what a task has lost."""
        if not any(found):
            return
        if self._total is None:
            _logger.warning("%s", _said(self._table, self._max_bytes, found))
        else:
            self._total.add(found)


class _Sum:
    """Adds up what was lost, as Spark wants it of an `AccumulatorParam`; that of the driver warns of the first."""

    def __init__(self, table: str, max_bytes: int | None, *, warns: bool = False) -> None:
        self._table, self._max_bytes, self._warns = table, max_bytes, warns

    def __reduce__(self) -> tuple[type[Self], tuple[str, int | None]]:
        # In a task it only adds.
        return type(self), (self._table, self._max_bytes)

    def zero(self, _value: Lost) -> Lost:
        """Nothing."""
        return 0, 0

    def addInPlace(self, one: Lost, other: Lost) -> Lost:  # noqa: N802 - as Spark calls it
        """The sum of both."""
        if self._warns and any(other):
            self._warns = False
            _logger.warning("%s", _said(self._table, self._max_bytes, other))
        return one[0] + other[0], one[1] + other[1]


def _said(table: str, max_bytes: int | None, found: Lost) -> str:
    evicted, left_out = found
    word = f" ({_WORDS[table]})" if table in _WORDS else ""
    what = [f"{counted(evicted, 'row')} let go unsettled{word}"] if evicted else []
    if left_out:
        what.append(f"{counted(left_out, 'message')} left out that came for what was let go, or after the watermark")
    return (
        f"{table}: {' and '.join(what)}: at most {amount(max_bytes or 256 << 20)} are kept (spark.trunkline.maxBytesPerBucket); "
        "there is no warning of more, and a streaming query counts it in its metrics"
    )
