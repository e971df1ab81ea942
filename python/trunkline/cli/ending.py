"""How a command ends: by itself, by a signal, by an error, or because nobody reads what it prints.

A command with an end of its own is cut off by SIGINT, SIGTERM and SIGHUP: `CutOff` rises through it, so that it cleans
up, and it exits with 130. A role that runs on is stopped by them (`Stopping`) and exits with 0. In both a second SIGINT or
SIGTERM leaves at once. SIGHUP does not: who loses a terminal may get it from the shell and from the system.
"""

from __future__ import annotations

import atexit
import errno
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Self, TextIO

from trunkline._extras import extra_of, how_to_install

__all__ = [
    "CUT_OFF",
    "NO_READER",
    "CutOff",
    "PipeClosed",
    "Stopped",
    "Stopping",
    "cut_off_on_signals",
    "guarded",
    "log_as_json",
    "tell",
    "tell_no_more",
    "tell_what_happened",
]

CUT_OFF = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none

# What a write says when whoever read it is gone: a pipe, or a terminal.
NO_READER = (errno.EPIPE, errno.EIO)

# How long a signal that comes where nothing can be raised waits before it looks again.
_AGAIN_S = 0.02

# What to do about what the system says most often.
_ADVICE = {
    errno.EEXIST: "remove it, or choose another name",
    errno.EACCES: "check who may read and write there",
    errno.ENOSPC: "free some space",
    errno.ENOENT: "check the name, or make it first",
    errno.EROFS: "choose another place",
}


class _Signalled(BaseException):
    """What a signal raises.

    Args:
        handler: What is called again soon, if the exception has come where it changes nothing.
    """

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        super().__init__()
        self.handler = handler


class CutOff(_Signalled):
    """A signal ends a command that has an end of its own."""


class Stopped(_Signalled):
    """A signal ends a wait of a role that runs on."""


class PipeClosed(BaseException):
    """Nobody reads standard output any more."""


class Stopping:
    """What signals do to a role that runs on: the first one stops it, a second SIGINT or SIGTERM leaves at once.

    Args:
        tells: Whether what happens to it is logged, who connects and who leaves, and not only what goes wrong.
    """

    def __init__(self, *, tells: bool = False) -> None:
        logger = logging.getLogger("trunkline")
        if tells and logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
        for handler in _telling():
            handler.hold()
        self.stopped = False
        self._stopped_at = 0.0
        self._stop: Callable[[], object] | None = None
        self._leave: Callable[[], object] | None = None
        self._interrupting = False

    def __enter__(self) -> Self:
        # The alarm: one that came during an import comes again now, and stops the role instead of cutting it off.
        numbers = (*_ending_signals(), signal.SIGALRM)
        self._before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        tell_what_happened()
        if not self.stopped:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def calls(self, stop: Callable[[], object]) -> None:
        """Says what the first signal does; one that came before does it now."""
        self._stop = stop
        if self.stopped:
            stop()

    def leaves(self, leave: Callable[[], object]) -> None:
        """Says what is still to be done when the second signal comes."""
        self._leave = leave

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Lets the first signal raise `Stopped` inside; one that came before raises it now."""
        self._interrupting = True
        try:
            if self.stopped:
                raise Stopped(self._interrupt)
            yield
        finally:
            self._interrupting = False

    def overdue(self, drain_s: float) -> bool:
        """Whether what was to be drained has had its time."""
        return self.stopped and time.monotonic() >= self._stopped_at + drain_s

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            if number == _HANGUP:
                return
            try:
                if self._leave is not None:
                    self._leave()
            finally:
                os._exit(CUT_OFF)
        self.stopped = True
        self._stopped_at = time.monotonic()
        if self._stop is not None:
            self._stop()
        self._interrupt(number, frame)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        if self._interrupting:
            _raise(Stopped(self._interrupt), frame)


def _ending_signals() -> list[signal.Signals]:
    """The signals that end a command: SIGHUP too, unless it is ignored, as under nohup, or has a meaning of its own."""
    ends = _HANGUP is not None and signal.getsignal(_HANGUP) in (signal.SIG_DFL, _cut_off)
    return [*_SIGNALS, _HANGUP] if _HANGUP is not None and ends else [*_SIGNALS]


def guarded(command: Callable[[], object]) -> int:
    """Runs a command.

    Returns:
        What the process is to exit with.
    """
    cut_off_on_signals()
    # The first to be registered is the last to run: roles have their last word before.
    atexit.register(_forget_readers)
    sys.unraisablehook = _raise_after
    _fill_closed_streams()
    _log_to_stderr()
    try:
        return _run(command)
    except CutOff:
        # It came as the command ended.
        return CUT_OFF
    finally:
        # What is left is the end of the interpreter, in which whatever is raised is told and forgotten.
        _leave_on_signals()
        signal.setitimer(signal.ITIMER_REAL, 0)


def _run(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except PipeClosed:
        _forget(sys.stdout)
    except BaseException as error:  # noqa: BLE001 - whatever it is, a user gets one line
        if _is_cut_off(error):
            return CUT_OFF
        _say(error)
        return 1
    return 0


def _is_cut_off(error: BaseException | None) -> bool:
    """Whether it is a signal that ended the command, or what came of it: py4j mixes up answers after one."""
    while error is not None:
        # The latter where pyspark has put its handler in the place of ours.
        if isinstance(error, CutOff | KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _fill_closed_streams() -> None:
    """Takes the place of standard streams that are closed, lest what is opened next is taken for one of them."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None:
            # The lowest number that is free, which is its own.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _log_to_stderr() -> None:
    """Shows what we log. What others do would be the traceback of something that is told in one line."""
    handler = _Telling()
    if os.environ.get("TRUNKLINE_DEBUG") != "1":
        handler.addFilter(logging.Filter("trunkline"))
        handler.addFilter(_without_traceback)
    handler.setFormatter(_Line())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class _Line(logging.Formatter):
    """A line for people: what only happens has no level."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno <= logging.INFO else f"{record.levelname}: {text}"


class _JsonLine(logging.Formatter):
    """A line for machines."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        said = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        return json.dumps(said)


def log_as_json() -> None:
    """Writes the log as JSON, one object a line and nothing before it."""
    for handler in _telling():
        handler.prefix = ""
        handler.setFormatter(_JsonLine())


def tell_what_happened() -> None:
    """Tells what was held back until a role has said what it does."""
    for handler in _telling():
        handler.go_on()


def tell_no_more() -> None:
    """Says only what goes wrong from now on."""
    for handler in _telling():
        handler.end()


def _telling() -> Iterator[_Telling]:
    return (handler for handler in logging.getLogger().handlers if isinstance(handler, _Telling))


class _Telling(logging.Handler):
    """Tells what is logged, where standard error is at that time: above a bar, if one is shown."""

    prefix = "trunkline: "

    def __init__(self) -> None:
        super().__init__()
        self._held: list[logging.LogRecord] | None = None
        self._is_over = False

    def hold(self) -> None:
        """Holds back what only happens until the command has said what it does."""
        self._held = []

    def go_on(self) -> None:
        """Tells what was held back, and from now on everything at once."""
        held, self._held = self._held, None
        for record in held or ():
            self.emit(record)

    def end(self) -> None:
        """Tells nothing more that only happens: the command has said how it ended."""
        self._is_over = True

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno <= logging.INFO and (self._is_over or self._held is not None):
            if self._held is not None:
                self._held.append(record)
            return
        try:
            tell(self.format(record), self.prefix)
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


def cut_off_on_signals() -> None:
    """Lets signals cut the command off; again, after someone else has taken them."""
    for number in _ending_signals():
        signal.signal(number, _cut_off)


def _leave_on_signals() -> None:
    for number in _ending_signals():
        signal.signal(number, signal.SIG_IGN if number == _HANGUP else lambda *_: os._exit(CUT_OFF))


def _cut_off(_number: int, frame: FrameType | None) -> None:
    _leave_on_signals()
    _raise(CutOff(_cut_off), frame)


def _raise(error: _Signalled, frame: FrameType | None) -> None:
    if _imports(frame):
        _come_again(error)
    else:
        raise error


def _come_again(error: _Signalled) -> None:
    signal.signal(signal.SIGALRM, error.handler)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


def _raise_after(unraisable: sys.UnraisableHookArgs) -> None:
    """Has a signal come again that came in a finalizer: py4j asks the JVM in its own, and what is raised there is lost."""
    if isinstance(unraisable.exc_value, _Signalled):
        _come_again(unraisable.exc_value)
    else:
        sys.__unraisablehook__(unraisable)


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported: what is raised there may come out as another error, or not at all."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _forget(stream: TextIO | None) -> None:
    """Lets the interpreter flush a standard stream at its exit without an error."""
    if stream is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _forget_readers() -> None:
    """Lets go of streams whose reader is gone: what was left for it would be an error of the interpreter's end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            # What else is wrong with it is the interpreter's to tell.
            if error.errno in NO_READER:
                _forget(stream)


def _say(error: BaseException) -> None:
    if os.environ.get("TRUNKLINE_DEBUG") == "1":
        traceback.print_exception(error)
    line = " ".join(_explain(error).split())
    tell(f"error: {line}")


def tell(text: str, prefix: str = "trunkline: ") -> None:
    """Tells people what is no result; if there is nobody, nobody."""
    try:
        sys.stderr.write(f"{prefix}{text}\n")
        sys.stderr.flush()
    except OSError as error:
        if error.errno not in NO_READER:
            raise


def _explain(error: BaseException) -> str:
    from trunkline.errors import TrunklineError

    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        package = error.name.partition(".")[0]
        extra = extra_of(package) if "pip install" not in str(error) else None
        if extra is not None:
            return f"{package} is missing: {how_to_install(extra)}"
    if isinstance(error, TrunklineError | ImportError):
        return str(error)
    if isinstance(error, OSError):
        # str() of an OSError starts with its number, which tells a user nothing.
        text = error.strerror or str(error)
        if error.strerror and error.filename is not None:
            text = f"{os.fsdecode(error.filename)}: {text}"
        advice = None if error.errno is None else _ADVICE.get(error.errno)
        return f"{text}: {advice}" if advice else text
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - as of a Java exception whose JVM is gone
        text = "it cannot be said why"
    return f"{type(error).__name__}: {text} (TRUNKLINE_DEBUG=1 shows where)"
