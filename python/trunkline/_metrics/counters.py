"""The kinds of counters in `stats`: counts, which only grow, and levels, for monitoring."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from trunkline._native import latency_bounds_ns

__all__ = [
    "COUNTER",
    "GAUGE",
    "NO_FAULTS",
    "NO_LATENCIES",
    "Count",
    "Latencies",
    "Level",
    "RunId",
    "SenderName",
    "TransportName",
    "free_bytes",
    "measured",
]

COUNTER, GAUGE = "counter", "gauge"

# Kinds of dropped messages that are no faults: NATS delivers the events that a role of CDT sends to itself as well.
NO_FAULTS = frozenset({"own_event"})

# A count since the start.
Count: TypeAlias = Annotated[int, COUNTER]

# A current number.
Level: TypeAlias = Annotated[int, GAUGE]

# Names, by their kind.
SenderName: TypeAlias = Annotated[str, "sender"]
RunId: TypeAlias = Annotated[str, "run_id"]
TransportName: TypeAlias = Annotated[str, "transport"]


@dataclass(frozen=True, slots=True)
class Latencies:
    """A histogram of latencies.

    Attributes:
        bounds_ns: The longest time that each bucket counts, in nanoseconds; the last bucket has none.
        counts: How many there are in each bucket: longer than the bound before, and no longer than its own.
        sum_ns: All of them together, in nanoseconds.
    """

    bounds_ns: tuple[int, ...]
    counts: tuple[int, ...]
    sum_ns: int

    def __add__(self, other: Latencies) -> Latencies:
        """The sum of both."""
        counts = tuple(map(sum, zip(self.counts, other.counts, strict=True)))
        return Latencies(self.bounds_ns, counts, self.sum_ns + other.sum_ns)


_BOUNDS_NS = tuple(latency_bounds_ns())

NO_LATENCIES = Latencies(_BOUNDS_NS, (0,) * (len(_BOUNDS_NS) + 1), 0)


def measured(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Counters of an engine, with latencies as `Latencies`."""
    latency = counts["latency"]
    return {**counts, "latency": Latencies(_BOUNDS_NS, tuple(latency["counts"]), latency["sum_ns"])}


def free_bytes(directory: str | os.PathLike[str]) -> int:
    """Bytes that a user may still write to the disk of a directory; 0 once it is gone."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return 0
    return disk.f_bavail * disk.f_frsize
