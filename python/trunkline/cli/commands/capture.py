"""`trunkline capture`: inspect, print, export, replay, import and repair captures."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from trunkline import errors
from trunkline._conditions import condition_text
from trunkline._formats import FORMATS, TEXT, format_of, in_words
from trunkline._text import amount, counted, did_you_mean, span
from trunkline.cli.commands import capture_folds, capture_upkeep
from trunkline.cli.options.commands import Commands
from trunkline.cli.options.groups import Endpoints, Private, Sockets
from trunkline.cli.options.selection import Selecting, note_unmatched
from trunkline.cli.options.shared import (
    Captures,
    Json,
    MaxMessageBytes,
    Overwrite,
    Payload,
    PayloadFile,
    Readable,
    example,
    listed,
    payload_of,
    report_layout,
)
from trunkline.cli.process.atomic import is_report, whole
from trunkline.cli.process.child import apart
from trunkline.cli.process.input import STDIN, stdin
from trunkline.cli.process.signals import CUT_OFF, Stopping
from trunkline.cli.process.tables import Decoding
from trunkline.cli.process.waiting import rest
from trunkline.cli.terminal.content import Content
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.progress import Progress
from trunkline.cli.terminal.rows import Cat, Fields, moment
from trunkline.options import DEFAULTS

if TYPE_CHECKING:
    from trunkline._formats import Format
    from trunkline.capture import Run
    from trunkline.cli.terminal.json_lines import Line
    from trunkline.columns import Layout
    from trunkline.report import Report

app = Commands(help="Recorded traffic, bit for bit, as plain Parquet.")


@app.command(epilog=example("trunkline capture info run7"))
def info(directory: Captures, *, as_json: Json = False) -> None:
    """Summarizes a capture: segments, messages, bytes, times, errors."""
    from trunkline.capture import folders

    output = Output(json=as_json)
    opened = folders.opened(directory)
    found = opened.info()
    if output.json:
        output.event("info", **{name: getattr(found, name) for name in found.__dataclass_fields__})
        return
    first, last = found.first_received_at_ns, found.last_received_at_ns
    if isinstance(opened, folders.Folder):
        output.line(f"captures  {len(opened):,}")
    else:
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
def runs(directory: Captures, *, as_json: Json = False) -> None:
    """Lists the runs of each sender, with missed messages and conditions."""
    from trunkline.capture import folders

    output = Output(json=as_json)
    opened = folders.opened(directory)
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
        "condition": condition_text(run.condition, "|"),
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
    payload: Payload = None,
    payload_file: PayloadFile = None,
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
    layout = payload_of(payload, payload_file)
    fields = None if isinstance(layout, bool) else Fields(layout)
    printer = content.printer(output, () if fields is None else fields.layout.columns)
    cat = Cat(directory, selection, printer, max_message_bytes=max_message_bytes, fields=fields)
    for row in cat.rows(head, tail, follow=follow):
        cat.show(row)
        shown += 1
    if 0 not in (head, tail):
        note_unmatched(output, directory, selection, shown)


@app.command(epilog=example("trunkline capture decode run7 run7.parquet --tags run=bigint"))
@apart
def decode(
    directory: Captures,
    out: Annotated[Path, typer.Argument(metavar="OUT.parquet", help="The table to write.")],
    *,
    decoding: Decoding,
    selecting: Selecting,
    as_json: Json = False,
) -> None:
    """Decodes a capture into a Parquet table, without Spark."""
    with suppress(errors.LocalProtocolError):
        if format_of(out) != "parquet":
            message = f"this writes Parquet: for {out.suffix} take trunkline capture export."
            raise typer.BadParameter(message, param_hint="OUT.parquet")
    decoding.write(directory, out, "parquet", selecting, Output(json=as_json), event="decoded")


def _form(given: str | None) -> str | None:
    """Refuses unknown file formats."""
    if given is not None and given not in FORMATS:
        hint = did_you_mean(given, FORMATS) or f": choose from {', '.join(FORMATS)}."
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
@apart
def export(
    directory: Captures,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help=f"The file: {in_words()}, {in_words(TEXT)} with .gz too; or - for standard output.",
        ),
    ],
    *,
    decoding: Decoding,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"The format, if the name does not say it: {' or '.join(TEXT)} for -.",
            callback=_form,
        ),
    ] = None,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="In CSV, put an apostrophe before text that a spreadsheet would take for a formula.",
        ),
    ] = False,
    selecting: Selecting,
    as_json: Json = False,
) -> None:
    """Writes messages for other programs, in the format that the file's suffix says: a table, or as HDF5 a run.

    An HDF5 file has the layout of Constellation's H5DataWriter: a group for each sender, with all payloads and tags.
    """
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
def report(
    directory: Captures,
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
    payload: Payload = None,
    payload_file: PayloadFile = None,
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
    layout = report_layout(payload, payload_file)
    from trunkline import capture

    output = Output(json=as_json)

    def show(found: Report, *, again: bool = False) -> None:
        # People want its name once, machines each of its contents.
        if output.json or not again:
            output.result("report", str(out), **found.to_dict() | {"path": str(out)})

    new = whole(out, replaces=overwrite or is_report(out))
    if follow:
        _follow(directory, out, new, 2.0 if every is None else every, show, layout)
        return
    with new as part, Progress("counting (messages)", None) as progress:
        found = capture.report(directory, part, selection=selection, payload=layout, on_progress=progress.at)
    show(found)
    note_unmatched(output, directory, selection, found.rows)


def _follow(
    directory: os.PathLike[str],
    out: Path,
    new: AbstractContextManager[Path],
    every_s: float,
    show: Callable[..., None],
    layout: Layout | None,
) -> None:
    """Writes pages until a signal comes; the last one does not refresh itself."""
    from trunkline.report.following import Following
    from trunkline.report.making import checked

    checked(out)
    following = Following(directory, str(directory), layout)
    with Stopping() as stopping:
        with new as part:
            found = following.page(part, every_s)
        if found is not None:
            show(found)
        while True:
            rest(stopping, every_s)
            if stopping.stopped:
                break
            found = following.page(out, every_s)
            if found is not None:
                show(found, again=True)
        found = following.page(out, None)
        if found is not None:
            show(found, again=True)


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


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline import capture
    from trunkline.cli.terminal.json_lines import EXPORTED, REPORT, WRITTEN, Maybe, fold, line, of, ready, stopped

    frames = dict.fromkeys(("envelope", "payload"), list[str])
    row = {
        **dict.fromkeys(("capture_id", "protocol", "direction", "received_at"), str),
        **dict.fromkeys(("segment", "seq", "received_at_ns", "n_frames", "n_bytes"), int),
        **dict.fromkeys(("endpoint", "peer", "topic", "reply_to", "header", "error"), str | None),
        "n_head": int | None,
        **frames,
        "messages": list[dict[str, Any]],
    }
    return {
        "capture info": [of("info", capture.CaptureInfo)],
        "capture runs": [of("run", capture.Run), line("incomplete", let_go=int, unfollowed=int)],
        "capture gaps": [fold("gap", "gaps"), EXPORTED],
        "capture requests": [fold("request", "requests"), EXPORTED],
        "capture topics": [fold("topic", "topics"), EXPORTED],
        "capture contents": [fold("content", "contents"), EXPORTED],
        "capture rollout": [fold("configuration", "rollout"), EXPORTED],
        "capture cat": [line("row", **row)],
        "capture decode": [line("decoded", **WRITTEN)],
        "capture export": [EXPORTED],
        "capture report": [REPORT],
        "capture replay": [ready(), stopped(dict[str, int])],
        "capture import": [line("imported", messages=int, capture=str)],
        "capture recover": [of("recovered", capture.Recovery)],
        "capture verify": [
            line("problem", path=str, what=str),
            line("verified", segments=int, messages=int, unchecked=int, problems=int),
        ],
        "capture compact": [
            of("compacted", capture.Compaction),
            ready(),
            of("decoded_files", capture.DecodedFiles),
            stopped(capture.DecodedFiles),
        ],
        "capture ship": [
            ready(metrics_url=Maybe(str)),
            of("shipped", capture.Shipped),
            line("retry", error=str, wait_s=float),
            stopped(capture.Shipped),
        ],
    }
