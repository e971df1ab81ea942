"""The capture of a role of CDT."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any

from trunkline._arguments import refuse
from trunkline._native.capture import Writer
from trunkline._notices import Notices
from trunkline._roles import CAPTURE_OPTIONS, capture_settings, need_capture_options
from trunkline._text import counted
from trunkline.errors import ClosedError
from trunkline.options import DEFAULTS

__all__ = ["Tap", "settings_of"]


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options of a capture, as the writer takes them; refuses other options."""
    if not isinstance(given, Mapping):
        refuse("capture_options", "a mapping of options to values", given)
    unknown = set(given) - set(CAPTURE_OPTIONS)
    if unknown:
        message = f"unknown capture option {unknown.pop()!r} (choose from {', '.join(sorted(CAPTURE_OPTIONS))})"
        raise TypeError(message)
    chosen = {**DEFAULTS, **{name: value for name, value in given.items() if value is not None}}
    need_capture_options(chosen)
    return capture_settings(chosen)


class Tap:
    """The capture of a role, and the notices about it. Its methods are called in the loop of the role.

    Raises:
        CaptureError: It is locked, or the directory is something else.
    """

    def __init__(self, directory: str | os.PathLike[str], options: dict[str, Any], notices: Notices) -> None:
        self._writer = Writer(directory, "cdt", options)
        self._directory = os.fspath(directory)
        self._notices = notices
        self._is_low = False
        self._timer: asyncio.TimerHandle | None = None
        self._last = (0, 0, 0)
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
                self._notices.log(
                    logging.WARNING,
                    "losing",
                    f"{self._directory} cannot keep up: rows are lost, see stats.capture_lost",
                )
            self.lost += 1
        if self._timer is None:
            self._look()

    def _look(self) -> None:
        """Runs due work of the writer, and schedules the next time."""
        self._timer = None
        due_s = self._writer.idle()
        _, _, _, low_space, failure = self._writer.progress()
        if failure is not None:
            self._notices.log(logging.WARNING, "capture", failure)
        if low_space is not None and not self._is_low:
            self._notices.log(
                logging.WARNING, "low_space", f"{self._directory}: the disk has only {counted(low_space, 'byte')} left"
            )
        self._is_low = low_space is not None
        if due_s is not None:
            self._timer = asyncio.get_running_loop().call_later(due_s + 0.001, self._look)

    def flush(self) -> None:
        """Waits until all rows so far are durable; blocks, so not in an event loop."""
        self._writer.flush()

    def progress(self) -> tuple[int, int, int]:
        """Rows recorded, rows durable, segments; the last ones once closed."""
        try:
            recorded, durable, segments, _, _ = self._writer.progress()
        except ClosedError:
            return self._last
        return recorded, durable, segments

    async def close(self) -> None:
        """Makes everything durable and visible, and closes."""
        if self._timer is not None:
            self._timer.cancel()
        # Callers may read it while it ends.
        self._last = self.progress()
        last: tuple[int, int, int] | None = await asyncio.to_thread(self._writer.close)
        self._last = last or self._last
