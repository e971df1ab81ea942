"""How long answers took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Latency"]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds that so many of the answers did not exceed; None where there was none."""

    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, latencies_ms: Iterable[float]) -> Latency:
        """What these come to.

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
        return f"latency {self.p50} ms (50 %), {self.p90} (90 %), {self.p99} (99 %), {self.max} (max)"
