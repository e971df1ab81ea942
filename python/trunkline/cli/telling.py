"""What people are told on standard error: notes, and what is logged."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

from trunkline._jsonable import encode, plain

__all__ = ["NO_READER", "hold_back", "log_as_json", "log_to_stderr", "tell", "tell_no_more", "tell_what_happened"]

# What a write says when whoever read it is gone: a pipe, or a terminal.
NO_READER = (errno.EPIPE, errno.EIO)


# Whether what is told is read by machines: there is one command a process.
_as_json = False


def tell(text: str, level: int = logging.INFO) -> None:
    """Tells people what is no result, or machines, as a line of the log."""
    if _as_json:
        _write(_JsonLine().format(logging.LogRecord("trunkline", level, "", 0, text, None, None)))
    else:
        _write(f"trunkline: {text}")


def _write(line: str) -> None:
    """Writes a line for whoever reads it; if there is nobody, for nobody."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError as error:
        if error.errno not in NO_READER:
            raise


def log_to_stderr() -> None:
    """Shows what we log. What others do would be the traceback of something that is told in one line."""
    handler = _Telling()
    if os.environ.get("TRUNKLINE_DEBUG") != "1":
        handler.addFilter(logging.Filter("trunkline"))
        handler.addFilter(_without_traceback)
    handler.setFormatter(_Line())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def log_as_json() -> None:
    """Writes the log, and all else that is told, as JSON: one object a line and nothing before it."""
    global _as_json  # noqa: PLW0603 - as it says
    _as_json = True
    for handler in _telling():
        handler.prefix = ""
        handler.setFormatter(_JsonLine())


def hold_back() -> None:
    """Has logged what only happens, who connects and who leaves, but holds it back until a role has said what it does."""
    logger = logging.getLogger("trunkline")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    for handler in _telling():
        handler.hold()


def tell_what_happened() -> None:
    """Tells what was held back until a role has said what it does."""
    for handler in _telling():
        handler.go_on()


def tell_no_more() -> None:
    """Says only what goes wrong from now on."""
    for handler in _telling():
        handler.end()


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
        fields = {name: value for name, value in getattr(record, "fields", {}).items() if value is not None}
        return encode(plain(said | fields))


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
            _write(f"{self.prefix}{self.format(record)}")
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True
