"""What signals do to a command. No handler raises: it sets a flag, ends a child, or exits at once.

SIGINT, SIGTERM and SIGHUP cut off a command with an end of its own, which exits with 130. A long-running role is stopped by
the first (`Stopping`) and exits with 0; a second SIGINT or SIGTERM exits at once. A second SIGHUP does not: a lost
terminal may send it twice, by the shell and by the system.
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
from trunkline.cli.terminal.stderr import hold_back, release_held
from trunkline.cli.terminal.systemd import notify

__all__ = [
    "CUT_OFF",
    "Stopping",
    "closing",
    "ending_signals",
    "keep_exit_codes",
    "leave",
    "leave_on_signals",
    "restore_terminal",
]

CUT_OFF = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none

_LOOK_S = 0.1

# How long a command that is cut off may take to end.
_UNWIND_S = 1.0

# After how long without a connection to warn.
_UNANSWERED_S = 3.0

# The terminal's settings before a prompt for a password.
_echoing: list[Any] | None = None


def leave(*_: object) -> NoReturn:
    """Exits at once with 130; also a signal handler."""
    try:
        restore_terminal()
    finally:
        os._exit(CUT_OFF)


def restore_terminal() -> None:
    """Removes a progress bar from the terminal, and restores its cursor and echo."""
    with contextlib.suppress(OSError):
        if _echoing is not None:
            import termios

            # A background process is not stopped for it. Block, as only the main thread could ignore the signal.
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


def keep_exit_codes() -> None:
    """Restores the default of SIGCHLD. Where whoever started us ignores it, the exit codes of our children would be lost."""
    if hasattr(signal, "SIGCHLD"):  # Windows has none
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def ending_signals() -> list[signal.Signals]:
    """The signals that end a command: SIGHUP too, unless it is ignored, as under nohup, or has another handler."""
    ends = _HANGUP is not None and signal.getsignal(_HANGUP) in (signal.SIG_DFL, leave)
    return [*_SIGNALS, _HANGUP] if _HANGUP is not None and ends else [*_SIGNALS]


@contextmanager
def closing(close: Callable[[], object]) -> Iterator[None]:
    """Closes a role on a signal, so that its capture is published; a second signal exits at once.

    Args:
        close: Closes it, in a thread of its own; this ends waits for the role.
    """
    is_cut_off = False
    unwound = threading.Event()
    # Reentrant, unlike an Event: a signal handler may interrupt another one.
    signalled: queue.SimpleQueue[None] = queue.SimpleQueue()

    def cut() -> None:
        signalled.get()
        try:
            close()
            # The command removes its progress bar before the terminal is restored.
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
    reminder = _reminder()
    try:
        yield
    finally:
        reminder.cancel()
        unwound.set()
        while is_cut_off:
            # Exceptions of the closed role are not errors of the command; the thread exits.
            time.sleep(_LOOK_S)
        for number in numbers:
            signal.signal(number, leave)


def _warn_unanswered() -> None:
    """Warns that no peer has answered yet: a role dials without end."""
    from trunkline._roles.notices import connections
    from trunkline._roles.reachability import why_not

    if connections.dialled and not connections.made:
        where = readable(", ".join(sorted(connections.dialled)))
        reasons = {why for why in map(why_not, sorted(connections.dialled)) if why}
        why = f" ({'; '.join(sorted(reasons))})" if reasons else ""
        logging.getLogger("trunkline").warning("no connection to %s yet: still trying%s", where, why)


def _reminder() -> threading.Timer:
    """A timer that warns unless it is cancelled, or a peer has answered by then."""
    timer = threading.Timer(_UNANSWERED_S, _warn_unanswered)
    timer.daemon = True
    timer.start()
    return timer


class Stopping:
    """What signals do to a long-running role: the first one stops it, a second SIGINT or SIGTERM exits at once.

    Attributes:
        stopped: Whether a signal has come. Waits check it, many times a second.
    """

    def __init__(self) -> None:
        hold_back()
        self.stopped = False
        self._stopped_at = 0.0
        self._leave: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in ending_signals()}
        self._reminder = _reminder()
        return self

    def __exit__(self, *_: object) -> None:
        self._reminder.cancel()
        release_held()
        if not self.stopped:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def leaves(self, leave: Callable[[], object]) -> None:
        """Sets what the second signal still does before the exit."""
        self._leave = leave

    def overdue(self, drain_s: float) -> bool:
        """Whether the time to drain is over."""
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
