"""Counts of senders of CDTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trunkline._text import readable
from trunkline.report.model import Clock, Counted, largest_first

__all__ = ["Counts", "SenderReport"]


@dataclass(frozen=True, slots=True)
class SenderReport:
    """What was recorded of one sender.

    Attributes:
        sender: Its name, cut at 200 characters; None for malformed messages whose sender is unknown, and for all senders
            that have no row of their own.
        others: How many senders this row stands for, beside the first 200; 0 for a row of one sender.
        variants: The headers it used.
        messages: Its messages, a CDTP2 one once a record.
        bytes: Bytes of all their frames.
        rate: Messages a second from the first to the last; None if that is no time.
        first_received_at_ns: When the first was received, in nanoseconds since 1970; None without one.
        last_received_at_ns: When the last was.
        missing: Sequence numbers that were skipped; None for a sender without sequence numbers (header S).
        malformed: What did not decode, by kind of error. A message that does not decode does not say who sent it: it
            counts for the one sender whose messages came by the same endpoint, if it was one.
    """

    sender: str | None
    variants: tuple[str, ...] = ()
    messages: int = 0
    bytes: int = 0
    rate: float | None = None
    first_received_at_ns: int | None = None
    last_received_at_ns: int | None = None
    missing: int | None = None
    malformed: Mapping[str, int] = field(default_factory=dict)
    others: int = 0

    @property
    def title(self) -> str:
        """The sender's name, or a placeholder, as text."""
        if self.others:
            return f"{self.others:,} more senders"
        return "(unknown sender)" if self.sender is None else readable(self.sender)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of all senders.

    Attributes:
        senders: A row a sender, the one with most messages first.
        errors: What does not decode, by kind.
        clock: What time is divided into.
        rates: Messages by sender and bucket. A sender is its index in `senders`; those without a colour are `OTHERS`.
            The records of a CDTP2 message with several count evenly over the time since its sender's previous one.
        volumes: Bytes of all their frames, likewise.
        sizes: Messages by sender and the number of binary digits of their payload's bytes.
        gaps: Sequence numbers that were skipped, by sender and bucket.
        beyond: Messages of senders beyond the first 100,000, counted together.
    """

    senders: tuple[SenderReport, ...]
    errors: Mapping[str, int]
    clock: Clock
    rates: Mapping[int, Mapping[int, float]]
    volumes: Mapping[int, Mapping[int, float]]
    sizes: Mapping[int, Mapping[int, int]]
    gaps: Mapping[int, Mapping[int, int]]
    beyond: int = 0

    @property
    def bucket_ns(self) -> int:
        """How long a bucket is, in nanoseconds."""
        return self.clock.bucket_ns

    @classmethod
    def of(cls, counted: Counted, clock: Clock) -> Counts:
        """The counts from a summary."""
        found = counted["section"]
        plots = {name: found[name] for name in ("rates", "volumes", "sizes", "gaps", "beyond")}
        senders = tuple(map(_sender, found["senders"]))
        return cls(senders, largest_first(counted["errors"]), Clock(clock.first_ns, counted["bucket_ns"]), **plots)


def _sender(row: dict[str, Any]) -> SenderReport:
    first, last, messages = row["first_received_at_ns"], row["last_received_at_ns"], row["messages"]
    rate = messages / (last - first) * 1e9 if messages and last > first else None
    known = {"variants": tuple(row["variants"]), "malformed": largest_first(row["malformed"])}
    return SenderReport(rate=rate, **row | known)
