"""What commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import codecs
import io
import os
import select
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn, TextIO

import typer

from trunkline._jsonable import encode, plain
from trunkline._metrics.counters import NO_FAULTS
from trunkline._text import amount, counted, readable, readable_bytes
from trunkline.cli.terminal.cells import cut
from trunkline.cli.terminal.layout import is_bad, laid_out
from trunkline.cli.terminal.pipe import PipeClosed
from trunkline.cli.terminal.rates import Rates, records_of
from trunkline.cli.terminal.stderr import NO_READER, mute, note, release_held
from trunkline.cli.terminal.systemd import notify

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Output", "on_terminal"]

Reason = Literal["signal", "count", "idle", "eof", "timeout", "error"]

# The most bytes held back.
_HELD_BYTES = 1 << 16

# Escape sequences of colours.
_DIM, _RED, _PLAIN = "\x1b[2m", "\x1b[31m", "\x1b[0m"


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
        """Prints a remark that is no result: a line of JSON, or text on standard error."""
        if self.json:
            self.event(event, **fields)
        else:
            self.note(text)

    def listing(
        self, event: str, columns: Sequence[str], found: Sequence[Mapping[str, Any]], least: Sequence[str] = ()
    ) -> None:
        """Prints a list: as JSON, one object a line with all fields, or as a `table` of these columns."""
        if self.json:
            for one in found:
                self.event(event, **one)
        else:
            self.table(columns, [[one[name] for name in columns] for one in found], least)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Buffers up to 64 KiB of output until `flush`: one write per line would take most of the time."""
        self._is_holding = True
        try:
            yield
        finally:
            self._is_holding = False
            self.flush()

    def flush(self) -> None:
        """Prints buffered output."""
        held, self._held = self._held, bytearray()
        if held:
            self._print(held)

    def line(self, text: str) -> None:
        """Prints a line as it is."""
        self._write(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], least: Sequence[str] = ()) -> None:
        """Prints a table: names to the left, numbers to the right.

        On a terminal it is `laid_out` in its width, its head is dim, and failures are red, as in panels.
        """
        table = laid_out(columns, [[_cell(cell) for cell in row] for row in rows], _room(), least)
        head, *lines = table.lines
        self._coloured(head, [_DIM] * len(head))
        for line in lines:
            bad = map(is_bad, table.columns, map(str.strip, line))
            self._coloured(line, [_RED if one else "" for one in bad])
        for footnote in table.notes:
            self._coloured([footnote], [_DIM])

    def _coloured(self, cells: Sequence[str], colours: Sequence[str]) -> None:
        """Prints a line of cells."""
        if has_colours():
            cells = [f"{colour}{cell}{_PLAIN}" if colour else cell for cell, colour in zip(cells, colours, strict=True)]
        self.line("  ".join(cells).rstrip())

    def fitted(self, text: str) -> None:
        """Prints a line, cut to the width of a terminal."""
        self.line(cut(text, _room()))

    def paragraph(self, start: str, text: str) -> None:
        """Prints words behind a start; on a terminal the lines after the first one are indented by as much."""
        room = max(_room() - len(start), 1)
        lines = textwrap.wrap(text, room, break_on_hyphens=False, replace_whitespace=False) or [""]
        for at, line in enumerate(lines):
            self.line(f"{' ' * len(start) if at else start}{line}")

    def raw(self, data: bytes) -> None:
        """Prints a result and a newline; on a terminal without control characters."""
        if on_terminal():
            self.line(readable(data.decode(errors="backslashreplace")))
        else:
            self._write(data)

    def whole(self, data: bytes) -> None:
        """Prints a result byte for byte; on a terminal as a line without control characters."""
        if on_terminal():
            self.raw(data)
        else:
            self.verbatim(data)

    def verbatim(self, data: bytes) -> None:
        """Prints bytes without a newline."""
        self._write(data, end=b"")

    @contextmanager
    def file(self) -> Iterator[IO[bytes]]:
        """Standard output as a binary file of text; on a terminal without control characters."""
        with io.BufferedWriter(_Stdout(self), _HELD_BYTES) as file:
            yield file

    def need_reader(self) -> None:
        """Ends the command if its output has no reader any more, as the next write would.

        Raises:
            PipeClosed: The pipe or the terminal is closed at its other end.
        """
        descriptor = None if sys.stdout is None else _descriptor(sys.stdout)
        if descriptor is None or not hasattr(select, "poll"):  # Windows has none
            return
        poll = select.poll()
        poll.register(descriptor, 0)
        if poll.poll(0):
            raise PipeClosed

    def note(self, text: str) -> None:
        """Writes a note to standard error."""
        note(text)

    def ready(
        self,
        role: str,
        endpoints: Sequence[str],
        doing: str,
        *,
        data_endpoints: Sequence[str] = (),
        metrics_url: str | None = None,
    ) -> None:
        """Reports that a role is ready, with its endpoints, data endpoints if they differ, and the URL of its metrics."""
        self._rates = Rates()
        if self.json:
            data = {"data_endpoints": list(data_endpoints)} if data_endpoints else {}
            metrics = {} if metrics_url is None else {"metrics_url": metrics_url}
            self.event("ready", role=role, endpoints=list(endpoints), **data, **metrics, pid=os.getpid())
        else:
            where = f" {', '.join(endpoints)}" if endpoints else ""
            where += f", data at {', '.join(data_endpoints)}" if data_endpoints else ""
            where += "" if metrics_url is None else f", metrics at {metrics_url}"
            self.note(f"{doing}{where}; Ctrl-C stops")
        notify("READY=1")
        release_held()

    def stats(self, stats: object) -> None:
        """Reports the counters of a running role, and their rates."""
        rates = self._rates.look(stats)
        if self.json:
            self.event("stats", stats=stats, **rates)
        else:
            words = [f"{counted(round(rates['messages_per_s']), 'message')}/s"]
            # With CDTP2 and with roles that pass messages on, received and delivered messages differ.
            if rates.get("received_per_s", rates["messages_per_s"]) != rates["messages_per_s"]:
                words.append(f"{rates['received_per_s']:,.0f} received/s")
            words += [f"{amount(rates['bytes_per_s'])}/s"] if "bytes_per_s" in rates else []
            self.note("; ".join([_counters(stats), *words]))

    def stopped(self, reason: Reason, stats: object, result: str = "", **more: Any) -> None:
        """Reports that a role has ended, to people with its result too. This is the last line."""
        # Imported here: a command that only prints needs no role.
        from trunkline._roles.notices import settle

        settle()
        mute()
        text = "; ".join(filter(None, (f"stopped ({reason}): {_counters(stats)}", result)))
        self.summary(reason, stats, text, **more)

    def summary(self, reason: Reason, stats: object, text: str, *, failed: bool = False, **more: object) -> None:
        """Reports how a command has ended, and its counters; one that failed exits with 1."""
        self.remark("stopped", text, reason=reason, stats=stats, **more)
        if failed:
            self.fail(text)

    def checked(self, context: Any) -> None:
        """Reports a successful check, and what it looked at; fails if a variable is none of any option."""
        from trunkline.cli.options import variables

        wrong = variables.unknown(context.find_root().command)
        if wrong:
            # They have been logged.
            raise typer.Exit(1)
        found = variables.looked_at(context)
        self.result("checked", f"all is well: {variables.in_words(found)}", **found)

    def fail(self, text: str) -> NoReturn:
        """Exits with 1. With JSON the reason goes to standard error as well, for the log."""
        if self.json:
            self.note(text)
        raise typer.Exit(1)

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


class _Stdout(io.RawIOBase):
    """Standard output as a binary file of text in UTF-8."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        written = bytes(data)
        if on_terminal():
            lines = self._decoder.decode(written).split("\n")
            self._output.verbatim("\n".join(map(readable, lines)).encode())
        else:
            self._output.verbatim(written)
        return len(written)


def _descriptor(stream: TextIO) -> int | None:
    """The descriptor of a stream; None if it has none, or while Rich prints above its progress bar."""
    try:
        return stream.fileno() if stream.encoding else None
    except OSError:
        return None


def _write_all(descriptor: int, data: bytearray) -> None:
    """Writes all of it. Python's own streams lose data when a signal interrupts a large write."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def _room() -> int:
    """The cells of a line of standard output."""
    return shutil.get_terminal_size().columns if on_terminal() else sys.maxsize


def has_colours() -> bool:
    """Whether standard output is a terminal with colours, and the user wants them."""
    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return readable_bytes(value) if isinstance(value, bytes) else readable(str(value))


def reconfigure(*, errors: str) -> None:
    """Sets what standard output does with characters that it cannot encode."""
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors=errors)  # type: ignore[union-attr]


def _counters(stats: object) -> str:
    """Counters in a line: records if there may be several per message, the first counter, and others that are not 0."""
    records = records_of(stats)
    shown = [] if records is None else [f"records {records:,}"]
    counters = plain(stats)
    first = next(iter(counters), None)
    for name, value in counters.items():
        if name == "senders":
            missed = sum(sender["missed"] for sender in value.values())
            shown += [f"missing {missed:,}"] if missed else []
        elif name == "dropped":
            faults = [f"{count:,} {kind}" for kind, count in value.items() if kind not in NO_FAULTS]
            shown += [f"dropped {', '.join(faults)}"] if faults else []
        elif name == "messages" and records is not None:
            continue  # they are the records
        elif name == "free_bytes":
            shown.append(f"{amount(value)} free")
        elif isinstance(value, int) and (value or name == first):
            shown.append(f"{name} {value:,}")
    return "; ".join(shown)
