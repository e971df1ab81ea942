"""What the numbers of `stats` are, as those have to know it who keep them over time: what only grows, and what there is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from trunkline._native import latency_bounds_ns

__all__ = [
    "COUNTER",
    "GAUGE",
    "NO_LATENCIES",
    "Count",
    "Latencies",
    "Level",
    "RunId",
    "SenderName",
    "TransportName",
    "measured",
]

COUNTER, GAUGE = "counter", "gauge"

# How many there have been since the start.
Count: TypeAlias = Annotated[int, COUNTER]

# How many there are now.
Level: TypeAlias = Annotated[int, GAUGE]

# Names, by what they are the names of.
SenderName: TypeAlias = Annotated[str, "sender"]
RunId: TypeAlias = Annotated[str, "run_id"]
TransportName: TypeAlias = Annotated[str, "transport"]


@dataclass(frozen=True, slots=True)
class Latencies:
    """How many times something took how long.

    Attributes:
        bounds_ns: The longest time that each bucket counts, in nanoseconds; the last bucket has none.
        counts: How many there are in each bucket: longer than the bound before, and no longer than its own.
        sum_ns: All of them together, in nanoseconds.
    """

    bounds_ns: tuple[int, ...]
    counts: tuple[int, ...]
    sum_ns: int

    def __add__(self, other: Latencies) -> Latencies:
        """Those of both."""
        counts = tuple(map(sum, zip(self.counts, other.counts, strict=True)))
        return Latencies(self.bounds_ns, counts, self.sum_ns + other.sum_ns)


_BOUNDS_NS = tuple(latency_bounds_ns())

NO_LATENCIES = Latencies(_BOUNDS_NS, (0,) * (len(_BOUNDS_NS) + 1), 0)


def measured(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Counters of an engine as they are shown, which has latencies among them."""
    latency = counts["latency"]
    return {**counts, "latency": Latencies(_BOUNDS_NS, tuple(latency["counts"]), latency["sum_ns"])}
