"""The counts of all protocols, for the sections of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import cast

from trunkline._native.analysis import Summary
from trunkline.report.model import BUCKETS, Clock, Counted, Scope

__all__ = ["DECADE", "counted_of", "levels", "summary"]

# Classes of times per decade, so that 1, 2 and 5 of a unit begin a class.
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
    """The counts of a summary."""
    return cast("Counted", summary.evaluate(BUCKETS))


def levels(came: Mapping[int, Mapping[int, int]], gone: Mapping[int, Mapping[int, int]]) -> dict[int, Sequence[int]]:
    """The levels at the end of each bucket, from arrivals and departures in each."""
    sums: dict[int, Sequence[int]] = {}
    for at, buckets in came.items():
        left = gone.get(at, {})
        sums[at] = [max(0, level) for level in accumulate(buckets.get(b, 0) - left.get(b, 0) for b in range(BUCKETS))]
    return sums
