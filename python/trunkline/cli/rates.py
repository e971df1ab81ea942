"""How much passes a second."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["Rates", "passed"]


def passed(stats: Any) -> int:
    """How many messages a role has taken in; one that takes none, how many it has sent."""
    number: int = stats.received if hasattr(stats, "received") else stats.sent
    return number


class Rates:
    """How much has passed a second since the last look."""

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._messages = self._bytes = 0

    def look(self, stats: Any) -> dict[str, float]:
        """The rates of what there are counters of: messages, and mostly their bytes."""
        now = time.monotonic()
        passed_s = max(now - self._looked, 1e-9)
        messages, size = passed(stats), getattr(stats, "bytes", None)
        rates = {"messages_per_s": round((messages - self._messages) / passed_s, 1)}
        if size is not None:
            rates["bytes_per_s"] = round((size - self._bytes) / passed_s, 1)
        self._looked, self._messages, self._bytes = now, messages, size or 0
        return rates
