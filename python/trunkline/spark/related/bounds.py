"""How many buckets a stream of related messages has, and how much each may keep."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BUCKETS", "MAX_BYTES", "Bounds"]

# Options of a session.
BUCKETS = "spark.trunkline.buckets"
MAX_BYTES = "spark.trunkline.maxBytesPerBucket"

# A bucket that is worked on is in memory up to four times: its state as bytes, before and after, and the fold and its copy. So
# an eighth of the memory may be of buckets.
_SHARE = 8
_LEAST_BYTES = 16 << 20
_MOST_BYTES = 256 << 20

_MIB = 1 << 20
_WORD = 0xFFFF_FFFF
_UNITS = {"b": 1, "k": 1 << 10, "m": _MIB, "g": 1 << 30, "t": 1 << 40}

# What Spark writes into the checkpoint of a stream when it starts for the first time, and the option that it is taken from.
_PARTITIONS = ("spark.sql.streaming.internal.stateStore.partitions", "spark.sql.shuffle.partitions")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a table of related messages.

    Attributes:
        max_bytes: How many bytes a bucket of a stream may keep, and of a batch a task; None for the default of a batch.
        chosen: How many buckets a stream has; None for one for each partition.
        partitions: How many partitions a batch has; None of a stream, which has those of its checkpoint.
    """

    max_bytes: int | None = None
    chosen: int | None = None
    partitions: int | None = None

    @classmethod
    def of(cls, session: SparkSession, *, is_streaming: bool) -> Bounds:
        """The bounds that a session sets.

        Raises:
            LocalProtocolError: An option has no such value.
        """
        text, number = _option(session, MAX_BYTES), _option(session, BUCKETS)
        if number is not None and not re.fullmatch(r"[1-9][0-9]{0,4}", number):
            message = f"{BUCKETS}: expected a whole number from 1 to 99999, not {number!r}"
            raise LocalProtocolError(message)
        max_bytes = None if text is None else _size(text, MAX_BYTES, unit=1)
        if max_bytes is None and is_streaming:
            max_bytes = _share(session)
        partitions = None if is_streaming else int(_option(session, _PARTITIONS[-1]) or 200)
        return cls(max_bytes, None if number is None or partitions else int(number), partitions)

    @property
    def is_spread(self) -> bool:
        """Whether there is a bucket for each partition."""
        return self.chosen is None

    def numbers(self) -> Sequence[int]:
        """The numbers of the buckets; with one for each partition, those that Spark puts there."""
        return range(self.chosen) if self.chosen is not None else spread(self._partitions())

    def first(self) -> set[int]:
        """The first number, whichever way the buckets are numbered."""
        return {0, spread(self._partitions())[0]}

    def _partitions(self) -> int:
        """How many partitions the batch has, or the stream of this task."""
        from pyspark import TaskContext

        if self.partitions is not None:
            return self.partitions
        task = TaskContext.get()
        assert task is not None, "a bucket is worked on by a task"
        return next(int(number) for number in map(task.getLocalProperty, _PARTITIONS) if number)


@functools.cache
def spread(partitions: int) -> tuple[int, ...]:
    """A number for each of so many partitions, that is put into it.

    Spark puts a row into the partition that the hash of its key says. So of two partitions one would have both of the numbers 0 and 1.
    """
    numbers: dict[int, int] = {}
    for number in itertools.count():
        numbers.setdefault(_hashed(number) % partitions, number)
        if len(numbers) == partitions:
            return tuple(numbers[partition] for partition in range(partitions))
    raise AssertionError


def _hashed(number: int) -> int:
    """Spark's hash of an integer: Murmur3 of four bytes, with the seed 42."""
    mixed = _rotated(number * 0xCC9E2D51, 15) * 0x1B873593
    found = _rotated(42 ^ (mixed & _WORD), 13) * 5 + 0xE6546B64 & _WORD ^ 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        found = (found ^ found >> shift) * factor & _WORD
    # Spark's remainder is of the number with a sign.
    return found - (found >> 31 << 32)


def _rotated(word: int, by: int) -> int:
    word &= _WORD
    return (word << by | word >> 32 - by) & _WORD


def _share(session: SparkSession) -> int:
    """An eighth of the memory of an executor, divided by the tasks that it runs at a time."""
    master = _option(session, "spark.master") or ""
    local = re.match(r"local(?:\[(\d+|\*))?", master)
    here = str(os.cpu_count() or 1)
    if local is not None:
        name, threads = "spark.driver.memory", (local[1] or "1").replace("*", here)
    else:
        # Only with these does an executor take one core unless it is said how many.
        usual = "1" if master.startswith(("yarn", "k8s")) else here
        name, threads = "spark.executor.memory", _option(session, "spark.executor.cores") or usual
    memory = _size(_option(session, name) or "1g", name, unit=_MIB)
    return min(_MOST_BYTES, max(_LEAST_BYTES, memory // _SHARE // max(int(threads), 1)))


def _option(session: SparkSession, name: str) -> str | None:
    return session.conf.get(name, None)


def _size(text: str, name: str, *, unit: int) -> int:
    """A number of bytes as Spark writes it: `64m`, `2g`."""
    found = re.fullmatch(r"([1-9][0-9]{0,12})\s*(?:([kmgt])b?|(b))?", text.strip().lower())
    if found is None:
        message = f"{name}: expected a size such as 64m, not {text!r}"
        raise LocalProtocolError(message)
    suffix = found[2] or found[3]
    return int(found[1]) * (_UNITS[suffix] if suffix else unit)
