"""Replays captures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal, Unpack

from trunkline import cdtp
from trunkline._arguments import need_callable, need_seconds, need_timeout
from trunkline._frames import of_row
from trunkline._native import protocols
from trunkline._text import counted
from trunkline.capture import reading
from trunkline.capture.selecting import Selection, need_selection
from trunkline.errors import LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import RoleOptions, spelled_out

__all__ = ["Rate", "replay"]

Rate = Literal["max", "real"] | float

_LOOK_S = 0.02


@spelled_out(RoleOptions)
def replay(
    path: reading.Readable,
    *,
    rate: Rate = "max",
    timeout_s: float | None = None,
    linger_s: float = 5.0,
    on_ready: Callable[[tuple[str, ...]], object] | None = None,
    on_progress: Callable[[int], object] | None = None,
    selection: Selection | None = None,
    **options: Unpack[RoleOptions],
) -> int:
    """Sends the received messages of a capture again, bit for bit and in order, malformed ones included.

    It waits for a receiver, and until the receiver has everything.

    Args:
        path: The capture directory, or a capture that is open.
        rate: As fast as the receiver accepts them ("max"), as fast as recorded ("real"), or a number of messages per second.
            The clock starts when the first message is sent.
        timeout_s: How long to wait while the receiver accepts nothing.
        linger_s: How long to wait at the end for the transport to send what it holds.
        on_ready: Called with the endpoints it listens on, before anything is sent.
        on_progress: Called from time to time with the number of messages sent so far.
        selection: Which messages to send; all received ones if None.
        **options: Options of the sender, those of every role: see `trunkline.RoleOptions`; at least ``bind=`` or
            ``connect=``.

    Returns:
        The number of messages sent.

    Raises:
        LocalProtocolError: The capture holds messages of another protocol than CDTP, or the rate is invalid.
        TimeoutError: The receiver accepted nothing for `timeout_s`.
        CaptureError: There is no capture, or it cannot be read.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture, cdtp
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as runs, cdtp.Receiver(bind="tcp://127.0.0.1:*") as receiver:
    ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
    ...     capture.replay(runs, connect=receiver.endpoints[0], timeout_s=10)
    ...     receiver.receive(timeout_s=10).type
    12
    'BOR'

    ```
    """
    need_timeout("timeout_s", timeout_s)
    need_seconds("linger_s", linger_s)
    need_callable("on_ready", on_ready)
    need_callable("on_progress", on_progress)
    need_selection(selection)
    is_known = rate > 0 and math.isfinite(rate) if isinstance(rate, int | float) else rate in ("max", "real")
    if not is_known:
        message = f"rate must be 'max', 'real' or a number of messages a second, not {rate!r}"
        raise LocalProtocolError(message)
    opened = reading.opened(path)
    info = opened.info()
    one_way = {protocol.name for protocol in protocols() if protocol.one_way}
    others = {name: count for name, count in info.protocols.items() if name not in one_way}
    if others and (selection is None or selection.spoken not in one_way):
        found = ", ".join(f"{counted(count, 'message')} of {name}" for name, count in sorted(others.items()))
        can = ", ".join(name.upper() for name in sorted(one_way))
        message = (
            f"only {can} can be replayed: messages of other protocols answer each other. The capture holds {found}"
        )
        raise LocalProtocolError(message)
    wanted = info.directions.get("in", 0)
    if selection is not None:
        wanted = sum(row["direction"] == "in" for row in opened.rows(selection))
    with _Sender(wanted, linger_s=linger_s, **options) as sender:
        if on_ready is not None:
            on_ready(sender.endpoints)
        return _Replay(sender, timeout_s, on_progress).run(opened.rows(selection), rate)


class _Sender(cdtp.Sender):
    """A sender that stops when the replay is interrupted, and reports how many messages of the whole are left."""

    def __init__(self, messages: int, **options: Any) -> None:
        self._messages = messages
        super().__init__("replay", **options)

    def _open(self) -> None:
        super()._open()
        self._unsent.all = self._messages

    def _abandon(self) -> None:
        self._linger_s = 0.0
        with suppress(TimeoutError):
            self.close()
        self._log_unsent()


class _Replay:
    """Sends the rows of a capture."""

    def __init__(
        self, sender: cdtp.Sender, timeout_s: float | None, on_progress: Callable[[int], object] | None
    ) -> None:
        self._sender = sender
        self._timeout_s = timeout_s
        self._on_progress = on_progress
        self._looked = time.monotonic()

    def run(self, rows: Iterator[dict[str, Any]], rate: Rate) -> int:
        count = 0
        began = first_ns = 0
        for row in rows:
            if row["direction"] != "in":
                continue
            if rate != "max" and count:
                after_ns = row["received_at_ns"] - first_ns if rate == "real" else round(count / rate * 1e9)
                self._sleep_until(began + after_ns)
            self._sender.send_frames(of_row(row), timeout_s=self._timeout_s)
            count += 1
            if rate != "max" and count == 1:
                self._drain()
                began, first_ns = time.monotonic_ns(), row["received_at_ns"]
            self._report_progress()
        self._drain()
        if self._on_progress is not None:
            self._on_progress(count)
        return count

    def _sleep_until(self, due_ns: int) -> None:
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(min(left_ns / 1e9, 0.5))
            self._report_progress()

    def _drain(self) -> None:
        """Waits until the transport has accepted everything."""
        sent, since = -1, time.monotonic()
        while (stats := self._sender.stats).queued:
            now = time.monotonic()
            if stats.sent != sent:
                sent, since = stats.sent, now
            elif self._timeout_s is not None and now - since >= self._timeout_s:
                message = f"the receiver accepted nothing for {self._timeout_s} s"
                raise TimeoutError(message, unsent=stats.queued)
            time.sleep(_LOOK_S)
            self._report_progress()

    def _report_progress(self) -> None:
        now = time.monotonic()
        if self._on_progress is not None and now - self._looked >= _LOOK_S:
            self._looked = now
            self._on_progress(self._sender.stats.sent)
