"""Runs a command in a child process, so that a signal can end it at once.

On a signal the parent kills the child's process group, whatever it does - an import, a native loop, a JVM -, and then
removes unfinished files.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from trunkline.cli.process import orphans
from trunkline.cli.process.signals import CUT_OFF, ending_signals, restore_terminal
from trunkline.cli.terminal.stderr import note

__all__ = ["apart", "removed_unless_finished"]

Command = TypeVar("Command", bound=Callable[..., Any])

# Where a child records unfinished paths; None in other processes.
_begun: Path | None = None


def apart(command: Command) -> Command:
    """Runs a command in a child process.

    Its temporary files and its unfinished paths are removed when it ends, however it ends. The exit code is the command's;
    130 after a signal.
    """

    @functools.wraps(command)
    def run(*args: Any, **keywords: Any) -> Any:
        # Windows cannot fork: there it runs here.
        if hasattr(os, "fork"):
            _Child().run()
        return command(*args, **keywords)

    return cast("Command", run)


def removed_unless_finished(path: Path) -> None:
    """Registers a path that is being written: if it still exists when the command has ended, it is removed."""
    if _begun is not None:
        with _begun.open("ab") as file:
            file.write(os.fsencode(path.absolute()) + b"\0")


class _Child:
    """A child process, as its parent sees it."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._is_cut_off = False
        self._numbers = ending_signals()

    def run(self) -> None:
        """Returns in the child; exits in the parent, once the child has ended."""
        scratch = Path(tempfile.mkdtemp(prefix="trunkline-"))
        ending_with_parent = orphans.ending_with_parent(os.getpid())
        orphans.adopt_orphans()
        for number in self._numbers:
            signal.signal(number, self._cut_off)
        signal.signal(signal.SIGTSTP, self._pause)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        pid = os.fork()
        if pid == 0:
            for number in (*self._numbers, signal.SIGTSTP):
                signal.signal(number, signal.SIG_DFL)
            _begin(scratch, ending_with_parent)
            return
        sys.exit(self._exit_code(self._wait(pid, scratch)))

    def _wait(self, pid: int, scratch: Path) -> int:
        """Waits for the child, and kills what is left of its group."""
        # The child does so too: either may come first, and its own children must be in the group.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        self._pid = pid
        if self._is_cut_off:
            self._signal(signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._signal(signal.SIGKILL)
        self._pid = None
        orphans.end_orphans()
        _remove(scratch)
        return status

    def _exit_code(self, status: int) -> int:
        if status >= 0:
            return status
        restore_terminal()
        if self._is_cut_off or -status in self._numbers:
            return CUT_OFF
        why = " (possibly out of memory)" if -status == signal.SIGKILL else ""
        note(f"error: the worker process was ended by {signal.Signals(-status).name}{why}", logging.ERROR)
        return 1

    def _cut_off(self, *_: object) -> None:
        self._is_cut_off = True
        self._signal(signal.SIGKILL)

    def _pause(self, *_: object) -> None:
        """Stops the child on Ctrl-Z too: its group is not the terminal's foreground group."""
        self._signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)


def _begin(scratch: Path, ending_with_parent: Callable[[], None] | None) -> None:
    """Prepares this process to be killed at any time."""
    global _begun  # noqa: PLW0603 - there is one command a process
    os.setpgid(0, 0)
    if ending_with_parent is not None:
        ending_with_parent()
    # Lets it write to a terminal with `stty tostop`, as the foreground group may.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    tempfile.tempdir = str(scratch)
    _begun = scratch / "begun"


def _remove(scratch: Path) -> None:
    begun = scratch / "begun"
    names = begun.read_bytes().split(b"\0")[:-1] if begun.exists() else []
    for path in (*(Path(os.fsdecode(name)) for name in names), scratch):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
