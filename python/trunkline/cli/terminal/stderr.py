"""Notes and log lines on standard error."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from trunkline._jsonable import encode, plain
from trunkline._locations import without_secrets

__all__ = ["NO_READER", "hold_back", "log_as_json", "log_to_stderr", "mute", "note", "release_held"]

# The errors of a write to a pipe or a terminal that is closed.
NO_READER = (errno.EPIPE, errno.EIO)


# Whether notes are JSON; global, as a process runs one command.
_as_json = False


def note(text: str, level: int = logging.INFO) -> None:
    """Writes a note that is no result: as text, or as JSON like a line of the log."""
    if _as_json:
        _write(_JsonLine().format(logging.LogRecord("trunkline", level, "", 0, text, None, None)))
    else:
        _write(f"trunkline: {text}")


def _write(line: str) -> None:
    """Writes a line, and ignores a closed reader. Whatever names a URL does so without its credentials."""
    try:
        sys.stderr.write(f"{without_secrets(line)}\n")
        sys.stderr.flush()
    except OSError as error:
        if error.errno not in NO_READER:
            raise


def log_to_stderr() -> None:
    """Shows trunkline's log without tracebacks: errors are reported in one line."""
    handler = _StderrHandler()
    if os.environ.get("TRUNKLINE_DEBUG") != "1":
        handler.addFilter(logging.Filter("trunkline"))
        handler.addFilter(_without_traceback)
        handler.addFilter(_is_news)
    handler.setFormatter(_Line())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _is_news(record: logging.LogRecord) -> bool:
    # A command warns of what does not answer itself, after a few seconds: its peers may start after it.
    fields = getattr(record, "fields", {})
    return not (isinstance(fields, Mapping) and fields.get("kind") == "unreachable")


def log_as_json() -> None:
    """Writes the log and notes as JSON: one object a line, without a prefix."""
    global _as_json  # noqa: PLW0603 - as it says
    _as_json = True
    for handler in _handlers():
        handler.prefix = ""
        handler.setFormatter(_JsonLine())


def hold_back() -> None:
    """Enables INFO, e.g. of connections, but holds it back until the role has printed its first line."""
    logger = logging.getLogger("trunkline")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    for handler in _handlers():
        handler.hold()


def release_held() -> None:
    """Writes what was held back."""
    for handler in _handlers():
        handler.go_on()


def mute() -> None:
    """Writes only warnings and errors from now on."""
    for handler in _handlers():
        handler.end()


class _Line(logging.Formatter):
    """A line for people; INFO has no level name."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno <= logging.INFO else f"{record.levelname}: {text}"


class _JsonLine(logging.Formatter):
    """A line for machines."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        said = {"time": moment, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        fields = {name: value for name, value in getattr(record, "fields", {}).items() if value is not None}
        return encode(plain(said | fields))


def _handlers() -> Iterator[_StderrHandler]:
    return (handler for handler in logging.getLogger().handlers if isinstance(handler, _StderrHandler))


class _StderrHandler(logging.Handler):
    """Logs to the current standard error: above a progress bar, if one is shown."""

    prefix = "trunkline: "

    def __init__(self) -> None:
        super().__init__()
        self._held: list[logging.LogRecord] | None = None
        self._is_over = False

    def hold(self) -> None:
        """Holds back INFO."""
        self._held = []

    def go_on(self) -> None:
        """Writes what was held back; from now on INFO is written at once."""
        held, self._held = self._held, None
        for record in held or ():
            self.emit(record)

    def end(self) -> None:
        """Drops INFO from now on: the command has printed its last line."""
        self._is_over = True

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno <= logging.INFO and (self._is_over or self._held is not None):
            if self._held is not None:
                self._held.append(record)
            return
        try:
            _write(f"{self.prefix}{self.format(record)}")
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True
