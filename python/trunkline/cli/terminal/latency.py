"""Latencies of answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Latency", "a_second"]

# For fewer, or in less time, a rate is meaningless.
_LEAST = 10
_LEAST_S = 1.0


def a_second(number: int, rate: float) -> str:
    """A rate, to follow a number; empty where it is meaningless.

    >>> a_second(5_000, 1_234.5), a_second(1, 154.0), a_second(500, 900.0)
    (', 1,234 a second', '', '')
    """
    return f", {rate:,.0f} a second" if number >= _LEAST and number >= rate * _LEAST_S else ""


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in milliseconds; None without answers."""

    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, latencies_ms: Iterable[float]) -> Latency:
        """The percentiles of these.

        >>> Latency.of([3, 1, 2])
        Latency(p50=2, p90=3, p99=3, max=3)
        """
        ordered = sorted(latencies_ms)

        def at(share: float) -> float | None:
            return round(ordered[max(-int(-share * len(ordered) // 1) - 1, 0)], 3) if ordered else None

        return cls(at(0.5), at(0.9), at(0.99), at(1))

    def __str__(self) -> str:
        if self.max is None:
            return "no answers"
        if self.p50 == self.max:
            return f"latency {self.max} ms"
        return f"latency p50 {self.p50} ms, p90 {self.p90}, p99 {self.p99}, max {self.max}"
