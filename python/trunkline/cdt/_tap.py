"""What a role of CDT adds to its capture."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from trunkline._arguments import need_flag, need_number, need_seconds
from trunkline._native.capture import Writer
from trunkline._notices import Notices
from trunkline.options import DEFAULTS

__all__ = ["Tap", "need_capture_options"]

_KNOWN = frozenset(
    {
        "segment_bytes",
        "segment_s",
        "keep_bytes",
        "keep_days",
        "capture_private",
        "warn_free_bytes",
        "critical_free_bytes",
    }
)
_DAY_S = 24 * 60 * 60


def need_capture_options(given: dict[str, Any]) -> dict[str, Any]:
    """What says how a capture is written, as the writer takes it; refuses what says nothing of that."""
    unknown = set(given) - _KNOWN
    if unknown:
        message = f"capture_options has no {unknown.pop()!r}: it takes {', '.join(sorted(_KNOWN))}"
        raise TypeError(message)
    defaults: dict[str, Any] = {name: DEFAULTS[name] for name in _KNOWN}  # type: ignore[literal-required]
    chosen = {**defaults, **{name: value for name, value in given.items() if value is not None}}
    need_number("segment_bytes", chosen["segment_bytes"], least=1)
    need_seconds("segment_s", chosen["segment_s"])
    need_number("keep_bytes", chosen["keep_bytes"], may_be_none=True)
    need_seconds("keep_days", chosen["keep_days"], may_be_none=True, unit="days")
    need_flag("capture_private", chosen["capture_private"])
    keep_days = chosen.pop("keep_days")
    return {**chosen, "keep_s": None if keep_days is None else keep_days * _DAY_S}


class Tap:
    """A capture, and what a role tells of it. Its methods are called in the loop of the role.

    Raises:
        CaptureError: It is locked, or the directory is something else.
    """

    def __init__(self, directory: str | os.PathLike[str], options: dict[str, Any], notices: Notices) -> None:
        self._writer = Writer(directory, "cdt", options)
        self._directory = os.fspath(directory)
        self._notices = notices
        self._is_low = False
        self._timer: asyncio.TimerHandle | None = None
        self.lost = 0

    def record(
        self,
        direction: str,
        endpoint: str | None,
        subject: bytes,
        frames: tuple[bytes, ...],
        error: str | None,
    ) -> None:
        """Adds a message: reply subject, header block and body."""
        reply_to, block, body = frames
        topic = subject.decode(errors="replace")
        message = (block, body) if block else (body,)
        is_kept = self._writer.append(
            direction, endpoint, topic, reply_to.decode(errors="replace") or None, message, error
        )
        if not is_kept:
            if self.lost == 0:
                self._notices.log(logging.WARNING, "losing", f"rows of {self._directory} are lost: the disk is slow")
            self.lost += 1
        if self._timer is None:
            self._look()

    def _look(self) -> None:
        """Has the writer do what is due, and again when there is more."""
        self._timer = None
        due_s = self._writer.idle()
        _, _, _, low_space, failure = self._writer.progress()
        if failure is not None:
            self._notices.log(logging.WARNING, "capture", failure)
        if low_space is not None and not self._is_low:
            self._notices.log(logging.WARNING, "low_space", f"{self._directory}: {low_space:,} bytes are left")
        self._is_low = low_space is not None
        if due_s is not None:
            self._timer = asyncio.get_running_loop().call_later(due_s + 0.001, self._look)

    def flush(self) -> None:
        """Waits until all so far is durable: not for a loop."""
        self._writer.flush()

    def progress(self) -> tuple[int, int, int]:
        """Rows recorded, rows durable, segments."""
        recorded, durable, segments, _, _ = self._writer.progress()
        return recorded, durable, segments

    async def close(self) -> tuple[int, int, int] | None:
        """Makes all durable and visible, and ends it; gives rows recorded, rows durable and segments."""
        if self._timer is not None:
            self._timer.cancel()
        return await asyncio.to_thread(self._writer.close)
