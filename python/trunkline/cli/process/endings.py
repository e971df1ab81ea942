"""How a command ends: by itself, by an error, or because its output has no reader. Signals are in `signals`."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import TextIO

from trunkline._extras import extra_of, how_to_install
from trunkline._text import readable
from trunkline.cli.process import signals
from trunkline.cli.terminal.pipe import PipeClosed
from trunkline.cli.terminal.stderr import NO_READER, log_to_stderr, note

__all__ = ["guarded"]

# Advice for the most frequent errors of the system.
_ADVICE = {
    errno.EEXIST: "remove it, or choose another name",
    errno.EACCES: "check the permissions",
    errno.ENOSPC: "free some space",
    errno.ENOENT: "check the path",
    errno.EROFS: "choose another place",
}

# Arguments of the library, and their options of the command line.
_OPTIONS = {
    "user": "--user",
    "password": "--password-file (or TRUNKLINE_PASSWORD)",
    "users": "--users",
    "anonymous": "--anonymous",
    "connect": "--connect",
    "bind": "--bind",
    "group": "--group",
    "curve": "--curve-secret",
    "server_key": "--curve-server-key",
    "allow": "--curve-allow",
    "max_message_bytes": "--max-message-bytes",
    "handshake_timeout_s": "--handshake-timeout",
}
_ARGUMENT = re.compile(rf"\b({'|'.join(_OPTIONS)})=(?:True)?(?![^\s,;:])")


def guarded(command: Callable[[], object]) -> int:
    """Runs a command.

    Returns:
        The exit code.
    """
    signals.leave_on_signals()
    signals.keep_exit_codes()
    # Registered first, so it runs last: roles log their end before.
    atexit.register(_forget_readers)
    _fill_closed_streams()
    log_to_stderr()
    try:
        command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except PipeClosed:
        _forget(sys.stdout)
    except BaseException as error:  # noqa: BLE001 - the user gets one line
        _say(error)
        return 1
    return 0


def _fill_closed_streams() -> None:
    """Opens closed standard streams, so that no other file gets their descriptors."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None:
            # It gets the lowest free number, which is the stream's own.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _forget(stream: TextIO | None) -> None:
    """Redirects a stream to the null device, so that the interpreter's flush at exit does not fail."""
    if stream is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _forget_readers() -> None:
    """Redirects streams without a reader: unflushed output would fail at the interpreter's exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            # The interpreter reports other errors.
            if error.errno in NO_READER:
                _forget(stream)


def _say(error: BaseException) -> None:
    if os.environ.get("TRUNKLINE_DEBUG") == "1":
        traceback.print_exception(error)
    # The text may come from a peer.
    line = readable(" ".join(_explain(error).split()))
    note(f"error: {line}", logging.ERROR)


def _explain(error: BaseException) -> str:
    from trunkline.errors import AuthenticationError, CaptureError, LocalProtocolError, TrunklineError

    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        package = error.name.partition(".")[0]
        extra = extra_of(package) if "pip install" not in str(error) else None
        if extra is not None:
            return f"{package} is missing: {how_to_install(extra)}"
    if isinstance(error, AuthenticationError | CaptureError | LocalProtocolError):
        return _ARGUMENT.sub(lambda found: _OPTIONS[found[1]], str(error))
    if isinstance(error, TrunklineError | ImportError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error})" if str(error) else "there is not enough memory"
    if isinstance(error, OSError):
        # str() of an OSError starts with its number, which means nothing to a user.
        text = error.strerror or str(error)
        if error.strerror and error.filename is not None:
            text = f"{os.fsdecode(error.filename)}: {text}"
        advice = None if error.errno is None else _ADVICE.get(error.errno)
        return f"{text}: {advice}" if advice else text
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - e.g. a Java exception after the end of its JVM
        text = "no reason available"
    return f"{type(error).__name__}: {text} (TRUNKLINE_DEBUG=1 shows where)"
