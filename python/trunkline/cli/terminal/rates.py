"""Rates of messages and bytes."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["Rates", "messages", "passed", "records_of"]


def passed(stats: Any) -> int:
    """The received messages of a role, without its own; the sent ones if it receives none."""
    number: int = stats.received - getattr(stats, "ignored", 0) if hasattr(stats, "received") else stats.sent
    return number


def messages(stats: Any) -> int:
    """The same in messages for the user, if the role counts them: with CDTP2 a wire message has many records."""
    if hasattr(stats, "messages"):
        number: int = stats.messages
    elif hasattr(stats, "senders"):
        # Records are counted for up to 1000 senders.
        number = records_of(stats) or stats.accepted
    else:
        number = passed(stats)
    return number


def records_of(stats: Any) -> int | None:
    """The records in wire messages of CDTP; None if each message is one record."""
    records = sum(sender.messages for sender in getattr(stats, "senders", {}).values())
    return records if records > getattr(stats, "accepted", records) else None


class Rates:
    """Rates since the last look."""

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._messages = self._received = self._bytes = 0

    def look(self, stats: Any) -> dict[str, float]:
        """The rates of messages, and of wire messages and bytes if they are counted."""
        now = time.monotonic()
        passed_s = max(now - self._looked, 1e-9)
        number, received, size = messages(stats), getattr(stats, "received", None), getattr(stats, "bytes", None)
        rates = {"messages_per_s": round((number - self._messages) / passed_s, 1)}
        if received is not None:
            rates["received_per_s"] = round((received - self._received) / passed_s, 1)
        if size is not None:
            rates["bytes_per_s"] = round((size - self._bytes) / passed_s, 1)
        self._looked, self._messages, self._received, self._bytes = now, number, received or 0, size or 0
        return rates
