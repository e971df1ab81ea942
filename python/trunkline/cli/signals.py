"""What signals do to a command. None raises anything: a handler sets a flag, ends a child, or leaves at once.

SIGINT, SIGTERM and SIGHUP cut off a command with an end of its own, which exits with 130; a role that runs on is stopped by
the first (`Stopping`) and exits with 0, and a second SIGINT or SIGTERM leaves at once. SIGHUP does not: who loses a
terminal may get it from the shell and from the system.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Self

from trunkline._text import readable
from trunkline.cli.supervisor import notify
from trunkline.cli.telling import hold_back, tell_what_happened

__all__ = [
    "CUT_OFF",
    "Stopping",
    "closing",
    "ending_signals",
    "leave",
    "leave_on_signals",
    "restore_terminal",
]

CUT_OFF = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none

_LOOK_S = 0.1

# How long a command that is cut off may take to come to its end.
_UNWIND_S = 1.0

# After how long without a connection people are told.
_UNANSWERED_S = 3.0

# How the terminal was before anybody was asked for a password.
_echoing: list[Any] | None = None


def leave(*_: object) -> NoReturn:
    """Exits at once with 130, as a handler of signals too."""
    try:
        restore_terminal()
    finally:
        os._exit(CUT_OFF)


def restore_terminal() -> None:
    """Takes a bar off a terminal, which is no longer drawn, and gives it its cursor and its echo back."""
    with contextlib.suppress(OSError):
        if _echoing is not None:
            import termios

            # Who is in the background is not stopped for it. Any thread may block a signal; only the first may ignore it.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, _echoing)
        if os.isatty(2):
            os.write(2, b"\r\x1b[K\x1b[?25h")


def leave_on_signals() -> None:
    """Lets signals end the process with 130."""
    global _echoing  # noqa: PLW0603 - there is one command a process
    if sys.platform != "win32" and os.isatty(0):
        import termios

        _echoing = termios.tcgetattr(0)
    for number in ending_signals():
        signal.signal(number, leave)


def ending_signals() -> list[signal.Signals]:
    """The signals that end a command: SIGHUP too, unless it is ignored, as under nohup, or has a meaning of its own."""
    ends = _HANGUP is not None and signal.getsignal(_HANGUP) in (signal.SIG_DFL, leave)
    return [*_SIGNALS, _HANGUP] if _HANGUP is not None and ends else [*_SIGNALS]


@contextmanager
def closing(close: Callable[[], object]) -> Iterator[None]:
    """Closes a role when the command is cut off inside, so that what it records is published; a second signal leaves at once.

    Args:
        close: Closes it, from a thread of its own; whoever waits for it inside waits no longer.
    """
    is_cut_off = False
    unwound = threading.Event()
    # Unlike an Event it may be filled by a handler that comes while it is being filled.
    signalled: queue.SimpleQueue[None] = queue.SimpleQueue()

    def cut() -> None:
        signalled.get()
        try:
            close()
            # What the command draws is to be off the terminal before that is put in order.
            unwound.wait(_UNWIND_S)
        finally:
            leave()

    def cut_off(number: int, _frame: FrameType | None) -> None:
        nonlocal is_cut_off
        if not is_cut_off:
            is_cut_off = True
            signalled.put(None)
        elif number != _HANGUP:
            leave()

    threading.Thread(target=cut, name="trunkline-cut-off", daemon=True).start()
    numbers = ending_signals()
    for number in numbers:
        signal.signal(number, cut_off)
    try:
        yield
    finally:
        unwound.set()
        while is_cut_off:
            # What is raised here now is none of the command's errors, and the thread ends everything.
            time.sleep(_LOOK_S)
        for number in numbers:
            signal.signal(number, leave)


def _tell_unanswered() -> None:
    """Says that nobody has answered yet: a role dials without end, and would wait for ever without a word."""
    from trunkline._notices import connections
    from trunkline._reaching import why_not

    if connections.dialled and not connections.made:
        where = readable(", ".join(sorted(connections.dialled)))
        reasons = {why for why in map(why_not, sorted(connections.dialled)) if why}
        why = f" ({'; '.join(sorted(reasons))})" if reasons else ""
        logging.getLogger("trunkline").warning("no connection to %s yet: still trying%s", where, why)


class Stopping:
    """What signals do to a role that runs on: the first one stops it, a second SIGINT or SIGTERM leaves at once.

    Attributes:
        stopped: Whether a signal has come. Who waits looks at it, many times a second.
    """

    def __init__(self) -> None:
        hold_back()
        self.stopped = False
        self._stopped_at = 0.0
        self._leave: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in ending_signals()}
        self._reminder = threading.Timer(_UNANSWERED_S, _tell_unanswered)
        self._reminder.daemon = True
        self._reminder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._reminder.cancel()
        tell_what_happened()
        if not self.stopped:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def leaves(self, leave: Callable[[], object]) -> None:
        """Says what is still to be done when the second signal comes."""
        self._leave = leave

    def overdue(self, drain_s: float) -> bool:
        """Whether what was to be drained has had its time."""
        return self.stopped and time.monotonic() >= self._stopped_at + drain_s

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if not self.stopped:
            self._stopped_at = time.monotonic()
            self.stopped = True
            notify("STOPPING=1")
        elif number != _HANGUP:
            try:
                if self._leave is not None:
                    self._leave()
            finally:
                leave()
