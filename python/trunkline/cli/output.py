"""What commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, TextIO

from trunkline._text import amount, counted, finite, readable
from trunkline.cli.cells import cut, padded, wide
from trunkline.cli.ending import PipeClosed
from trunkline.cli.rates import Rates
from trunkline.cli.supervisor import notify
from trunkline.cli.telling import NO_READER, tell, tell_no_more, tell_what_happened

__all__ = ["Output", "encode", "on_terminal", "plain", "text_of_bytes"]

Reason = Literal["signal", "count", "idle", "eof", "timeout", "error"]

# How much is held back at most.
_HELD_BYTES = 1 << 16

_NUMBER = re.compile(r"[\d.,]+( \w+)?")

# A value that is plain, as JSON.
encode = json.JSONEncoder(allow_nan=False, separators=(", ", ": ")).encode


# How a terminal is told to colour what follows.
_DIM, _RED, _PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[0m"

# Columns of what nobody wants to see.
_BAD = {"missed", "again", "late"}


class Output:
    """Where a command's results go.

    Args:
        json: Whether results are JSON, one object a line, flushed line by line.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._held = bytearray()
        self._is_holding = False
        self._rates = Rates()
        if not json:
            # A name from the network may not be what the terminal can show.
            reconfigure(errors="backslashreplace")

    def event(self, event: str, /, **fields: Any) -> None:
        """Prints a line of JSON."""
        self._write(encode({"event": event, **{name: plain(value) for name, value in fields.items()}}))

    def result(self, event: str, text: str, /, **fields: Any) -> None:
        """Prints a result: a line of JSON for machines, a line of text for people."""
        if self.json:
            self.event(event, **fields)
        else:
            self.line(text)

    def remark(self, event: str, text: str, /, **fields: Any) -> None:
        """Tells what is no result: machines as a line of JSON, people on standard error."""
        if self.json:
            self.event(event, **fields)
        else:
            self.note(text)

    def listing(self, event: str, columns: Sequence[str], found: Sequence[Mapping[str, Any]]) -> None:
        """Prints what was found: a line of JSON each with all of it, or a table of these columns."""
        if self.json:
            for one in found:
                self.event(event, **one)
        else:
            self.table(columns, [[one[name] for name in columns] for one in found])

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Holds back what is printed inside, but no more than 64 KiB and until `flush`: a write for each of many lines is
        what takes most of their time.
        """
        self._is_holding = True
        try:
            yield
        finally:
            self._is_holding = False
            self.flush()

    def flush(self) -> None:
        """Prints what is held back."""
        held, self._held = self._held, bytearray()
        if held:
            self._print(held)

    def line(self, text: str) -> None:
        """Prints a line as it is."""
        self._write(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Prints a table: names to the left, numbers to the right, with their units or without.

        On a terminal its head is dim, and what is bad is red, as in panels: a count of a column of `_BAD`, and a condition.
        """
        cells = [[f"{cell:,}" if isinstance(cell, int) else readable(str(cell)) for cell in row] for row in rows]
        are_numbers = [all(_NUMBER.fullmatch(row[at]) for row in cells) for at in range(len(columns))]
        widths = [max(map(wide, column)) for column in zip(columns, *cells, strict=True)]
        for line in (columns, *cells):
            words = zip(line, widths, are_numbers, strict=True)
            shown = [padded(cell, width, to_right=is_number) for cell, width, is_number in words]
            self._coloured(
                shown, [_DIM if line is columns else _colour(*one) for one in zip(columns, line, strict=True)]
            )

    def _coloured(self, cells: Sequence[str], colours: Sequence[str]) -> None:
        """Prints a line of cells; of one that a terminal would break, as much as fits."""
        line = "  ".join(cells).rstrip()
        if not has_colours():
            self.fitted(line)
            return
        shown, at = "", 0
        room = shutil.get_terminal_size().columns
        text = cut(line, room)
        for cell, colour in zip(cells, colours, strict=True):
            part, gap = text[at : at + len(cell)], text[at + len(cell) : at + len(cell) + 2]
            shown += (f"{colour}{part}{_PLAIN}" if colour and part else part) + gap
            at += len(cell) + 2
        self.line(shown)

    def fitted(self, text: str) -> None:
        """Prints a line; of one that a terminal would break, as much as fits."""
        room = shutil.get_terminal_size().columns if on_terminal() else sys.maxsize
        self.line(cut(text, room))

    def raw(self, data: bytes) -> None:
        """Prints a result as it is, and a line's end; a terminal gets nothing that moves its cursor."""
        if on_terminal():
            self.line(readable(data.decode(errors="backslashreplace")))
        else:
            self._write(data)

    def whole(self, data: bytes) -> None:
        """Prints a result as it is, byte for byte; a terminal gets nothing that moves its cursor."""
        if on_terminal():
            self.raw(data)
        else:
            self._write(data, end=b"")

    def note(self, text: str) -> None:
        """Tells people what is no result."""
        tell(text)

    def ready(self, role: str, endpoints: Sequence[str], doing: str, *, data_endpoints: Sequence[str] = ()) -> None:
        """Says that a role runs; and where it takes data, if not where it takes commands."""
        self._rates = Rates()
        if self.json:
            data = {"data_endpoints": list(data_endpoints)} if data_endpoints else {}
            self.event("ready", role=role, endpoints=list(endpoints), **data, pid=os.getpid())
        else:
            where = f" {', '.join(endpoints)}" if endpoints else ""
            where += f", data at {', '.join(data_endpoints)}" if data_endpoints else ""
            self.note(f"{doing}{where}; Ctrl-C stops")
        notify("READY=1")
        tell_what_happened()

    def stats(self, stats: object) -> None:
        """Tells the counters of a role that goes on, and how fast they grow."""
        rates = self._rates.look(stats)
        if self.json:
            self.event("stats", stats=stats, **rates)
        else:
            words = [f"{counted(round(rates['messages_per_s']), 'message')}/s"]
            # Of CDTP2 and of what is passed on, what comes in is not what goes to users.
            if rates.get("received_per_s", rates["messages_per_s"]) != rates["messages_per_s"]:
                words.append(f"{rates['received_per_s']:,.0f} received/s")
            words += [f"{amount(rates['bytes_per_s'])}/s"] if "bytes_per_s" in rates else []
            self.note("; ".join([_counters(stats), *words]))

    def stopped(self, reason: Reason, stats: object, result: str = "") -> None:
        """Says that a role has ended; to people, in words, also what has come of it. That is the last that is said."""
        # Not above: what only prints needs no role.
        from trunkline._notices import settle

        settle()
        tell_no_more()
        self.summary(reason, stats, "; ".join(filter(None, (f"stopped ({reason}): {_counters(stats)}", result))))

    def summary(self, reason: Reason, stats: object, text: str, **more: object) -> None:
        """Says how a command with an end of its own has ended, and what has come of it."""
        self.remark("stopped", text, reason=reason, stats=stats, **more)

    def _write(self, text: str | bytes, end: bytes = b"\n") -> None:
        stdout = sys.stdout
        if stdout is None:
            raise PipeClosed
        line = text if isinstance(text, bytes) else text.encode(stdout.encoding or "utf-8", stdout.errors or "strict")
        self._held += line
        self._held += end
        if not self._is_holding or len(self._held) >= _HELD_BYTES:
            self.flush()

    def _print(self, lines: bytearray) -> None:
        stdout = sys.stdout
        try:
            descriptor = _descriptor(stdout)
            if descriptor is None:
                stdout.write(lines.decode(stdout.encoding or "utf-8", "backslashreplace"))
                stdout.flush()
            else:
                _write_all(descriptor, lines)
        except OSError as error:
            if error.errno not in NO_READER:
                raise
            raise PipeClosed from None


def _descriptor(stream: TextIO) -> int | None:
    """Where it writes to; None if that is no file of the system's, or a terminal above whose bar Rich prints."""
    try:
        return stream.fileno() if stream.encoding else None
    except OSError:
        return None


def _write_all(descriptor: int, data: bytearray) -> None:
    """Writes all of it. Python's own streams lose what a signal keeps a large write from taking in one go."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def on_terminal() -> bool:
    """Whether somebody sees standard output."""
    return sys.stdout is not None and sys.stdout.isatty()


def has_colours() -> bool:
    """Whether whoever sees standard output wants colours, and has them."""
    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _colour(column: str, cell: str) -> str:
    is_bad = (column in _BAD and cell != "0") or (column == "condition" and cell != "GOOD")
    return _RED if is_bad else ""


def reconfigure(*, errors: str) -> None:
    """Says what standard output does with characters it has no bytes for."""
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors=errors)  # type: ignore[union-attr]


def plain(value: Any) -> Any:
    r"""A value as JSON can hold it.

    Bytes are a string where they are printable UTF-8, else ``{"base64": …}``. Of what MessagePack knows and JSON does
    not, a timestamp is its nanoseconds, an extension ``{"ext", "data"}``, a map with other than string keys a list of
    ``{"key", "value"}``; a float that is no number is its name. Of what MTL knows, a time is ISO 8601 in UTC, a decimal text.

    >>> plain({"a": b"text", "b": b"\xff", 3: float("nan")})
    [{'key': 'a', 'value': 'text'}, {'key': 'b', 'value': {'base64': '/w=='}}, {'key': 3, 'value': 'NaN'}]
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, bytes):
        return text_of_bytes(value)
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: plain(member) for key, member in value.items()}
        return [{"key": plain(key), "value": plain(member)} for key, member in value.items()]
    if isinstance(value, Sequence):
        return [plain(member) for member in value]
    return _special(value)


def text_of_bytes(data: bytes) -> str | dict[str, str]:
    """Bytes as JSON can hold them: printable text as it is, else in base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else {"base64": base64.b64encode(data).decode()}


def _special(value: Any) -> Any:
    from trunkline.msgpack import Ext, Timestamp

    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Timestamp):
        return value.to_ns()
    if isinstance(value, Ext):
        return {"ext": value.code, "data": text_of_bytes(value.data)}
    # A name that is a word of Python's has an underscore there.
    return {field.name.rstrip("_"): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _counters(stats: object) -> str:
    """Counters in a line: those that count something, and the first one."""
    shown = []
    for name, value in plain(stats).items():
        if name == "senders":
            missed = sum(sender["missed"] for sender in value.values())
            shown += [f"missing {missed:,}"] if missed else []
        elif name == "dropped" and value:
            shown.append("dropped " + ", ".join(f"{count} {kind}" for kind, count in value.items()))
        elif isinstance(value, int) and (value or not shown):
            shown.append(f"{name} {value:,}")
    return "; ".join(shown)
