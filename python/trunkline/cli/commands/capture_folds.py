"""The commands that print tables of combined rows of a capture."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trunkline import errors
from trunkline._formats import TABLES, format_of, in_words
from trunkline._text import amount, counted, moment, readable, span, text_or_digits
from trunkline.cli.options.selection import Selecting, note_unmatched
from trunkline.cli.options.shared import Captures, Json, Overwrite, example
from trunkline.cli.process.tables import whole_table
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline.cli.options.commands import Commands

__all__ = ["add_to"]

# How many rows are shown without --json.
_MOST = 1000


@dataclass(frozen=True)
class Writing:
    """Where a table is written."""

    output_file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help=f"Write all rows to this file: {in_words(TABLES)}."),
    ] = None
    overwrite: Overwrite = False

    def write(
        self, directory: os.PathLike[str], shown: _Shown, selecting: Selecting, *, as_json: bool, **options: Any
    ) -> None:
        """Writes the selected table to the file, or prints it."""
        selection = selecting.selection()
        if selection is not None:
            # A selection of another protocol is refused.
            selection = selecting.selection(shown.protocol)
        from trunkline.capture import folders

        output = Output(json=as_json)
        table = getattr(folders.opened(directory), shown.table)(selection=selection, **options)
        if self.output_file is not None:
            rows = self._to_file(self.output_file, table, output)
        elif as_json:
            rows = shown.print_json(table, output)
        else:
            rows = shown.print(table, output)
        if selection is None and not rows:
            output.note(f"no {shown.table} in {directory}")
        note_unmatched(output, directory, selection, rows)

    def _to_file(self, out: Path, table: pa.RecordBatchReader, output: Output) -> int:
        from trunkline.capture.exporting import write

        try:
            form = format_of(out, TABLES)
        except errors.LocalProtocolError as error:
            message = f"{error}."
            raise typer.BadParameter(message, param_hint="--output") from None
        with whole_table(out, replaces=self.overwrite) as file, Progress("reading", None) as progress:
            rows = write(table, file, form, on_progress=progress.at)
        output.result("exported", f"{counted(rows, 'row')} in {out}", rows=rows, path=str(out))
        return rows


@dataclass(frozen=True)
class _Shown:
    """How a table is shown without --json.

    Attributes:
        table: The method of a capture that gives it.
        protocol: The protocol of its messages.
        event: What a row is called in JSON.
        columns: The columns that are shown, each under its head.
        least: The heads of those that may be left out, the first one first.
    """

    table: str
    protocol: str
    event: str
    columns: Mapping[str, str]
    least: tuple[str, ...]

    def print_json(self, table: pa.RecordBatchReader, output: Output) -> int:
        """Prints every row as a line of JSON."""
        number = 0
        for number, row in enumerate(_rows(table), 1):  # noqa: B007 - the count of rows
            output.event(self.event, **row)
        return number

    def print(self, table: pa.RecordBatchReader, output: Output) -> int:
        """Prints the first rows, and the number of further ones."""
        rows = _rows(table)
        first = list(islice(rows, _MOST))
        if not first:
            return 0
        cells = [[_cell(name, row[name]) for name in self.columns] for row in first]
        output.table(list(self.columns.values()), cells, least=self.least)
        more = sum(1 for _ in rows)
        if more:
            output.note(f"and {counted(more, 'more row')}: --json prints all, --output writes them to a file")
        return len(first) + more


def _rows(table: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    for batch in table:
        for row in batch.to_pylist():
            # A sequence of MTL has more than 63 bits, and is a decimal.
            yield {name: int(value) if isinstance(value, Decimal) else value for name, value in row.items()}


def _cell(name: str, value: Any) -> str | int:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return _cell(name, value["start"])
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if name.endswith("_at_ns"):
        return moment(value)[:19]
    if name.endswith("_ns"):
        return span(value)
    if name == "bytes" or name.endswith("_bytes"):
        return amount(value)
    if isinstance(value, bytes):
        return text_or_digits(value)
    return value if isinstance(value, int) else readable(str(value))


_GAPS = _Shown(
    "gaps",
    "cdtp",
    "gap",
    {"sender": "sender", "missed": "missed", "received_at_ns": "received (UTC)", "seq": "row", "endpoint": "endpoint"},
    ("endpoint", "row"),
)
_REQUESTS = _Shown(
    "requests",
    "dcp",
    "request",
    {
        "service": "service",
        "outcome": "outcome",
        "latency_ns": "latency",
        "queued_ns": "queued",
        "worked_ns": "worked",
        "requested_at_ns": "requested (UTC)",
        "client": "client",
        "worker": "worker",
        "seen_by": "seen by",
        "request_seq": "row",
    },
    ("row", "seen by", "worker", "client", "queued", "worked"),
)
_TOPICS = _Shown(
    "topics",
    "mc0",
    "topic",
    {
        "window": "window (UTC)",
        "topic": "topic",
        "puts": "puts",
        "deliveries": "deliveries",
        "bytes": "bytes",
        "publishers": "publishers",
        "subscribers": "subscribers",
        "p50_ns": "p50",
        "p99_ns": "p99",
        "seen_by": "seen by",
    },
    ("seen by", "publishers", "subscribers", "bytes"),
)
_CONTENTS = _Shown(
    "contents",
    "mtl",
    "content",
    {
        "resource": "resource",
        "direction": "way",
        "sequence": "sequence",
        "fate": "fate",
        "attempts": "attempt",
        "latency_ns": "latency",
        "sent_at_ns": "sent (UTC)",
        "body_bytes": "bytes",
        "peer": "peer",
        "status": "status",
    },
    ("status", "peer", "bytes", "attempt", "sequence"),
)
_ROLLOUT = _Shown(
    "rollout",
    "cdt",
    "configuration",
    {
        "app_version_name": "application",
        "endpoint_id": "endpoint",
        "config_id": "configuration",
        "available_at": "available (UTC)",
        "applied_at": "applied (UTC)",
        "time_to_applied_ns": "took",
        "announcements": "announced",
        "pulls": "pulled",
        "reports": "reported",
    },
    ("announced", "reported", "pulled", "available (UTC)"),
)


def gaps(directory: Captures, *, selecting: Selecting, writing: Writing, as_json: Json = False) -> None:
    """Lists the messages of CDTP before which numbers were skipped."""
    writing.write(directory, _GAPS, selecting, as_json=as_json)


def requests(directory: Captures, *, selecting: Selecting, writing: Writing, as_json: Json = False) -> None:
    """Lists the requests of DCP, each with its outcome, worker and latency."""
    writing.write(directory, _REQUESTS, selecting, as_json=as_json)


def topics(
    directory: Captures,
    *,
    window: Annotated[
        float,
        typer.Option("--window", min=1e-6, max=864_000_000, metavar="S", help="How long a window is, in seconds."),
    ] = 60.0,
    selecting: Selecting,
    writing: Writing,
    as_json: Json = False,
) -> None:
    """Counts the traffic of mc0 topics in time windows, with latencies."""
    writing.write(directory, _TOPICS, selecting, as_json=as_json, window_s=window)


def contents(directory: Captures, *, selecting: Selecting, writing: Writing, as_json: Json = False) -> None:
    """Lists the contents of MTL, each with what became of it."""
    writing.write(directory, _CONTENTS, selecting, as_json=as_json)


def rollout(
    directory: Captures,
    *,
    codec: Annotated[Literal["json", "avro"], typer.Option("--codec", help="How bodies are encoded.")] = "json",
    selecting: Selecting,
    writing: Writing,
    as_json: Json = False,
) -> None:
    """Lists the configurations of CDT, each with its progress to an endpoint."""
    writing.write(directory, _ROLLOUT, selecting, as_json=as_json, codec=codec)


def add_to(app: Commands) -> None:
    """Adds the commands to those of captures."""
    app.command(epilog=example("trunkline capture gaps run7 --sender Detector.one"))(gaps)
    app.command(epilog=example("trunkline capture requests run7 --service echo --output requests.parquet"))(requests)
    app.command(epilog=example("trunkline capture topics run7 --window 10"))(topics)
    app.command(epilog=example("trunkline capture contents run7 --resource jobs"))(contents)
    app.command(epilog=example("trunkline capture rollout run7 --json"))(rollout)
