"""`trunkline capture`: inspect, print, export, replay, import and repair captures."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from trunkline import errors
from trunkline._text import amount, counted, did_you_mean, span
from trunkline.cli import capture_folds, capture_upkeep
from trunkline.cli.apart import apart
from trunkline.cli.cat import Cat, moment
from trunkline.cli.content import Content
from trunkline.cli.family import Family
from trunkline.cli.groups import Endpoints, Private, Sockets, grouped
from trunkline.cli.lines import STDIN, stdin
from trunkline.cli.options import Json, MaxMessageBytes, Overwrite, Readable, example, listed
from trunkline.cli.options import span as lasting
from trunkline.cli.output import Output
from trunkline.cli.pace import rest
from trunkline.cli.progress import Progress
from trunkline.cli.selecting import Selecting, note_unmatched
from trunkline.cli.signals import CUT_OFF, Stopping
from trunkline.cli.tables import Decoding
from trunkline.cli.whole import is_report, whole
from trunkline.options import DEFAULTS

if TYPE_CHECKING:
    from trunkline.capture import Run
    from trunkline.capture.exporting import Format
    from trunkline.report import Report

app = typer.Typer(
    cls=Family, help="Recorded traffic, bit for bit, as plain Parquet.", no_args_is_help=True, rich_markup_mode=None
)


@app.command(epilog=example("trunkline capture info run7"))
def info(directory: Readable, *, as_json: Json = False) -> None:
    """Summarizes a capture: segments, messages, bytes, times, errors."""
    from trunkline import capture

    output = Output(json=as_json)
    found = capture.open(directory).info()
    if output.json:
        output.event("info", **{name: getattr(found, name) for name in found.__dataclass_fields__})
        return
    first, last = found.first_received_at_ns, found.last_received_at_ns
    output.line(f"capture   {found.capture_id}")
    output.line(f"segments  {found.segments:,}")
    output.line(f"messages  {found.messages:,}" + listed(found.protocols))
    output.line(f"bytes     {amount(found.bytes)}")
    if first is not None and last is not None:
        output.line(f"received  {moment(first)} to {moment(last)} UTC, {(last - first) / 1e9:.3f} s")
    output.line(f"errors    {sum(found.errors.values()):,}" + listed(found.errors))


_RUN_COLUMNS = (
    *("sender", "run", "id", "condition", "messages", "bytes"),
    *("missed", "again", "late", "first (UTC)", "took"),
)
# The columns that a narrow terminal leaves out, the least important first.
_LEAST_OF_RUNS = ("bytes", "id", "again", "late", "messages", "first (UTC)", "took", "missed")
# Columns that are mostly empty, and their fields.
_RARE = {"id": "run_id", "missed": "missed", "again": "duplicates", "late": "out_of_order"}


@app.command(epilog=example("trunkline capture runs run7"))
def runs(directory: Readable, *, as_json: Json = False) -> None:
    """Lists the runs of each sender, with missed messages and conditions."""
    from trunkline import capture

    output = Output(json=as_json)
    opened = capture.open(directory)
    found = opened.runs()
    is_complete = opened.let_go == opened.unfollowed == 0
    if not found:
        output.note(f"no runs in {directory}")
    if output.json:
        for run in found:
            output.event("run", **{name: getattr(run, name) for name in run.__dataclass_fields__})
        if not is_complete:
            output.event("incomplete", let_go=opened.let_go, unfollowed=opened.unfollowed)
        return
    if not is_complete:
        output.note(
            f"not all is here: {counted(opened.let_go, 'time')} a sender made way for others, "
            f"{counted(opened.unfollowed, 'message')} had names too long"
        )
    if not found:
        return
    # Columns that are empty in all runs are left out.
    shown = [name for name in _RUN_COLUMNS if name not in _RARE or any(getattr(run, _RARE[name]) for run in found)]
    output.table(shown, [[cells[name] for name in shown] for cells in map(_run_cells, found)], _LEAST_OF_RUNS)


def _run_cells(run: Run) -> dict[str, str | int]:
    first, last = run.first_received_at_ns, run.last_received_at_ns
    return {
        "sender": run.sender,
        "run": run.ordinal,
        "id": run.run_id or "",
        "condition": run.condition,
        "messages": run.messages,
        "bytes": amount(run.bytes),
        "missed": run.missed,
        "again": run.duplicates,
        "late": run.out_of_order,
        "first (UTC)": moment(first)[:19],
        "took": span(last - first),
    }


capture_folds.add_to(app)


@app.command(
    epilog=example(
        "trunkline capture cat run7 --sender Detector.one --type BOR",
        "trunkline capture cat run7 --since 2h --format '{received_at} {sender} {payload}'",
    )
)
@grouped
def cat(
    directory: Readable,
    *,
    selecting: Selecting,
    head: Annotated[
        int | None,
        typer.Option("--head", "--limit", min=0, metavar="N", help="Print the first N messages; with --json rows."),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Print the last N messages; with --json rows.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep printing what is recorded meanwhile.")] = False,
    content: Content,
    max_message_bytes: MaxMessageBytes = DEFAULTS["max_message_bytes"],
    as_json: Json = False,
) -> None:
    """Prints recorded messages, oldest first: one line per message, or with --json one object per row."""
    if follow and head is not None:
        message = "--follow and --head exclude each other."
        raise typer.BadParameter(message)
    if head is not None and tail is not None:
        message = "--head and --tail exclude each other."
        raise typer.BadParameter(message)
    output = Output(json=as_json)
    selection, shown = selecting.selection(), 0
    cat = Cat(directory, selection, content.printer(output), max_message_bytes=max_message_bytes)
    for row in cat.rows(head, tail, follow=follow):
        cat.show(row)
        shown += 1
    if 0 not in (head, tail):
        note_unmatched(output, directory, selection, shown)


@app.command(epilog=example("trunkline capture decode run7 run7.parquet --tags run=bigint"))
@grouped
@apart
def decode(
    directory: Readable,
    out: Annotated[Path, typer.Argument(metavar="OUT.parquet", help="The table to write.")],
    *,
    decoding: Decoding,
    selecting: Selecting,
    as_json: Json = False,
) -> None:
    """Decodes a capture into a Parquet table, without Spark."""
    from trunkline.capture.exporting import format_of

    with suppress(errors.LocalProtocolError):
        if format_of(out) != "parquet":
            message = f"this writes Parquet: for {out.suffix} take trunkline capture export."
            raise typer.BadParameter(message, param_hint="OUT.parquet")
    decoding.write(directory, out, "parquet", selecting, Output(json=as_json), event="decoded")


def _form(given: str | None) -> str | None:
    """Refuses unknown file formats."""
    from trunkline.capture import exporting

    known = get_args(exporting.Format)
    if given is not None and given not in known:
        hint = did_you_mean(given, known) or f": choose from {', '.join(known)}."
        message = f"{given!r} is no format{hint}"
        raise typer.BadParameter(message)
    return given


@app.command(
    epilog=example(
        "trunkline capture export run7 run7.csv --sender Detector.one",
        "trunkline capture export run7 run7.arrow --payload --tags run=bigint",
        "trunkline capture export run7 - --format jsonl",
        "trunkline capture export runs run7.h5 --run run_7",
    )
)
@grouped
@apart
def export(
    directory: Readable,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="The file: .csv, .jsonl, .arrow, .parquet or .h5; .csv.gz or .jsonl.gz; or - for standard output.",
        ),
    ],
    *,
    decoding: Decoding,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="The format, if the name does not say it: csv or jsonl for -.",
            callback=_form,
        ),
    ] = None,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="In CSV, put an apostrophe before text that a spreadsheet would take for a formula: with = + - @, a tab or a carriage return first.",
        ),
    ] = False,
    selecting: Selecting,
    as_json: Json = False,
) -> None:
    """Writes messages for other programs, by the suffix of the file: a table as CSV, JSON lines, Arrow or Parquet, or a run as HDF5.

    An HDF5 file has the layout of Constellation's H5DataWriter: a group for each sender, with all payloads and tags.
    """
    from trunkline.capture.exporting import TEXT, format_of

    is_stdout = str(out) == STDIN
    if is_stdout and as_json:
        message = "- and --json exclude each other: standard output has the messages."
        raise typer.BadParameter(message)
    if is_stdout and form not in TEXT:
        message = f"- takes --format {' or '.join(TEXT)}."
        raise typer.BadParameter(message)
    try:
        chosen = format_of(out) if form is None else cast("Format", form)
    except errors.LocalProtocolError as error:
        message = f"{error}; or give --format."
        raise typer.BadParameter(message) from None
    if escape_formulas and chosen != "csv":
        message = f"--escape-formulas is for CSV, not {chosen}."
        raise typer.BadParameter(message)
    output = Output(json=as_json)
    if is_stdout:
        decoding.print(directory, chosen, selecting, output, escape_formulas=escape_formulas)
    else:
        decoding.write(directory, out, chosen, selecting, output, event="exported", escape_formulas=escape_formulas)


@app.command(
    epilog=example("trunkline capture report run7 run7.html", "trunkline capture report run7 new.html --since 2h")
)
@grouped
def report(
    directory: Readable,
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The report: one file with everything in it.")],
    *,
    every: Annotated[
        float | None,
        typer.Argument(
            metavar="[S]", min=0.1, help="With --follow, the seconds from one page to the next.", show_default="2"
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Write the report anew as the capture grows; the page shows it by itself.")
    ] = False,
    selecting: Selecting,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Writes a report with tables and plots, without Spark.

    A former report of that name is replaced.
    """
    selection = selecting.selection()
    if every is not None and not follow:
        message = "a number after OUT.html is for --follow."
        raise typer.BadParameter(message)
    if follow and selection is not None:
        message = "--follow reports the whole capture: leave out what selects messages."
        raise typer.BadParameter(message)
    from trunkline import capture

    output = Output(json=as_json)

    def show(found: Report) -> None:
        output.result("report", str(out), **found.to_dict() | {"path": str(out)})

    new = whole(out, replaces=overwrite or is_report(out))
    if follow:
        _follow(directory, out, new, 2.0 if every is None else every, show)
        return
    with new as part, Progress("counting (messages)", None) as progress:
        found = capture.report(directory, part, selection=selection, on_progress=progress.at)
    show(found)
    note_unmatched(output, directory, selection, found.rows)


def _follow(
    directory: os.PathLike[str],
    out: Path,
    new: AbstractContextManager[Path],
    every_s: float,
    show: Callable[[Report], None],
) -> None:
    """Writes pages until a signal comes; the last one does not refresh itself."""
    from trunkline.report.following import Following
    from trunkline.report.making import checked

    checked(out)
    following = Following(directory, str(directory))
    with Stopping() as stopping:
        with new as part:
            found = following.page(part, every_s)
        while True:
            if found is not None:
                show(found)
            rest(stopping, every_s)
            if stopping.stopped:
                break
            found = following.page(out, every_s)
        found = following.page(out, None)
        if found is not None:
            show(found)


def _rate(given: str) -> Literal["max", "real"] | float:
    if given == "max":
        return "max"
    if given == "real":
        return "real"
    try:
        rate = float(given)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        message = f"--rate is real, max or messages a second, not {given!r}."
        raise typer.BadParameter(message)
    return rate


@app.command(epilog=example("trunkline capture replay run7 --connect tcp://127.0.0.1:23999 --rate real"))
@grouped
def replay(
    directory: Readable,
    *,
    endpoints: Endpoints,
    rate: Annotated[
        str,
        typer.Option(
            "--rate", metavar="real|max|N", help="As fast as recorded, as fast as possible, or N messages per second."
        ),
    ] = "max",
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.001,
            metavar="S",
            help="How long to wait while no receiver takes a message. [default: no limit]",
            callback=lasting,
        ),
    ] = None,
    selecting: Selecting,
    sockets: Sockets,
    as_json: Json = False,
) -> None:
    """Sends recorded messages again, bit for bit; waits for a receiver, and until it has taken everything."""
    endpoints.check()
    speed, made, selection = _rate(rate), sockets.keywords(), selecting.selection()
    from trunkline import capture

    output = Output(json=as_json)
    opened = capture.open(directory, max_message_bytes=sockets.max_message_bytes or DEFAULTS["max_message_bytes"])
    with Progress("replaying", opened.info().directions.get("in", 0)) as progress:
        sent = capture.replay(
            opened,
            rate=speed,
            timeout_s=timeout,
            on_ready=lambda bound: output.ready("capture.replay", endpoints.real(bound), "replaying to"),
            on_progress=progress.at,
            selection=selection,
            **made,
            **endpoints.keywords(),
        )
    output.result("stopped", f"{counted(sent, 'message')} sent", reason="eof", stats={"sent": sent})
    note_unmatched(output, directory, selection, sent)


@app.command("import", epilog=example("trunkline capture import recorded.jsonl.gz --capture run7"))
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="JSON lines, plain or .gz; - is standard input.")],
    *,
    capture: Annotated[
        Path, typer.Option("--capture", metavar="DIR", help="The capture to import into; an existing one is continued.")
    ],
    private: Private = False,
    as_json: Json = False,
) -> None:
    """Imports recorded messages into a capture: all of them or, if anything fails, none."""
    from trunkline import capture as room

    output = Output(json=as_json)
    with Stopping() as stopping, Progress("importing (messages)", None) as progress:

        def stop() -> None:
            if stopping.stopped:
                raise typer.Exit(CUT_OFF)

        def look_up(messages: int) -> None:
            stop()
            progress.at(messages)

        given = [stdin(stop) if str(file) == STDIN else file for file in files]
        messages = room.import_(given, capture, private=private, on_progress=look_up)
    text = f"{counted(messages, 'message')} imported into {capture}"
    output.result("imported", text, messages=messages, capture=str(capture))


capture_upkeep.add_to(app)
