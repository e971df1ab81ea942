"""Descriptions of a capture: counts of its contents, and its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["CaptureInfo", "Run"]


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """The contents of a capture, counted in rows.

    Attributes:
        capture_id: The capture's id, the same for every run that was recorded into it.
        segments: Published segments.
        messages: Rows, published or not.
        bytes: Bytes of all frames.
        first_received_at_ns: When the first row was received, in nanoseconds since 1970; None without rows.
        last_received_at_ns: When the last one was.
        protocols: Rows by protocol.
        errors: Malformed rows by kind.
        directions: Rows by direction, "in" or "out".
    """

    capture_id: str | None
    segments: int
    messages: int
    bytes: int
    first_received_at_ns: int | None
    last_received_at_ns: int | None
    protocols: Mapping[str, int]
    errors: Mapping[str, int]
    directions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Run:
    """A run: the messages of a sender from one BOR to the next (CDTP-21). Header S has no runs.

    Attributes:
        capture_id: The capture's id.
        sender: The sender's name.
        ordinal: The number of its BOR among the sender's BORs in this capture, from 1; 0 for what was received before the first.
        run_id: The string of that name in the metadata, or else in the configuration.
        condition: The condition in Constellation's terms: ``GOOD``, or any of ``TAINTED``, ``INCOMPLETE``,
            ``INTERRUPTED``, ``ABORTED`` and ``DEGRADED`` with ``|`` between them. What the sender's metadata says is
            kept; numbers that were skipped, fewer than its `data_records`, and data outside BOR and EOR add INCOMPLETE, a
            missing EOR adds ABORTED. ``IN_PROGRESS`` while it may go on: it is the sender's last and has no EOR, the recorder has
            not ended, as far as is known, and the sender was not silent for ten minutes.
        condition_code: The same as a number: 0, or the sum of 1, 2, 4, 8 and 16, in that order; None while it is in progress.
        messages: DAT messages; a CDTP2 message counts once per record.
        bytes: Bytes of all frames, including those of BOR and EOR.
        missed: Sequence numbers that were skipped, `seq - 1 - last`, where `last` is the highest before. One that
            arrives late does not reduce the count.
        duplicates: DAT messages whose number was received before.
        out_of_order: DAT messages with a new number below the highest one before.
        first_received_at_ns: When the first message of it was received, in nanoseconds since 1970.
        last_received_at_ns: When the last one was.
        bor_seq: The `seq` of the row of its BOR; None for ordinal 0.
        eor_seq: The `seq` of the row of its first EOR; None if there is none yet.
        config: The configuration in the BOR; None if it is not a map, or the message is larger than 64 KiB.
        metadata: The metadata in the EOR, likewise.
    """

    capture_id: str
    sender: str
    ordinal: int
    run_id: str | None
    condition: str
    condition_code: int | None
    messages: int
    bytes: int
    missed: int
    duplicates: int
    out_of_order: int
    first_received_at_ns: int
    last_received_at_ns: int
    bor_seq: int | None
    eor_seq: int | None
    config: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None
