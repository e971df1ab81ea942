"""What is counted of every protocol, as the sections of a report take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, cast

from trunkline._native.analysis import Summary
from trunkline.report.model import BUCKETS, Clock, Counted, Scope

__all__ = ["AROUND", "DECADE", "OPTIONS", "counted_of", "levels", "summary"]

# How messages are decoded to be counted.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "cdtp": {"tags": None},
    "dcp": {},
    "mc0": {},
    "mtl": {"properties": {"redelivered": "boolean", "*": "json"}, "json": None},
    "cdt": {},
}

# The protocols of which messages that are not selected may be the answers to those that are.
AROUND = ("dcp", "mc0", "mtl")

# Classes of times a decade, so that 1, 2 and 5 of a unit are where one begins.
DECADE = Summary.DECADE


def summary(protocol: str, scope: Scope, clock: Clock) -> Summary:
    """An empty summary of a protocol."""
    return Summary(
        protocol,
        first_ns=clock.first_ns,
        bucket_ns=clock.bucket_ns,
        has_own=scope.has_own,
        is_cut=bool(scope.cuts),
        has_records=scope.has_records,
        has_sequences=scope.has_sequences,
    )


def counted_of(summary: Summary) -> Counted:
    """What a summary comes to."""
    return cast("Counted", summary.evaluate(BUCKETS))


def levels(came: Mapping[int, Mapping[int, int]], gone: Mapping[int, Mapping[int, int]]) -> dict[int, Sequence[int]]:
    """How many there are at the end of each bucket, of what came and went in each."""
    sums: dict[int, Sequence[int]] = {}
    for at, buckets in came.items():
        left = gone.get(at, {})
        sums[at] = [max(0, level) for level in accumulate(buckets.get(b, 0) - left.get(b, 0) for b in range(BUCKETS))]
    return sums
