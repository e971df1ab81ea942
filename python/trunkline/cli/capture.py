"""`trunkline capture`: look at captures, print them, send them again, bring messages in, mend."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trunkline import errors
from trunkline._text import amount, counted, span
from trunkline.cli.apart import apart
from trunkline.cli.cat import Cat, moment
from trunkline.cli.content import Content
from trunkline.cli.family import Family
from trunkline.cli.groups import Endpoints, Private, Sockets, grouped
from trunkline.cli.lines import STDIN, stdin
from trunkline.cli.options import Json, Overwrite, example, listed
from trunkline.cli.options import span as lasting
from trunkline.cli.output import Output
from trunkline.cli.progress import Progress
from trunkline.cli.selecting import Selecting, tell_unmatched
from trunkline.cli.signals import CUT_OFF, Stopping
from trunkline.cli.tables import Decoding
from trunkline.cli.whole import is_report, whole

if TYPE_CHECKING:
    from trunkline.capture import Run

app = typer.Typer(
    cls=Family, help="Recorded traffic, bit for bit, as plain Parquet.", no_args_is_help=True, rich_markup_mode=None
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The capture directory.")]


@app.command(epilog=example("trunkline capture info run7"))
def info(directory: Directory, *, as_json: Json = False) -> None:
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
# The columns that are mostly empty, and what they are of.
_RARE = {"id": "run_id", "missed": "missed", "again": "duplicates", "late": "out_of_order"}


@app.command(epilog=example("trunkline capture runs run7"))
def runs(directory: Directory, *, as_json: Json = False) -> None:
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
            f"not all is here: {opened.let_go:,} times a sender made way for others, "
            f"{opened.unfollowed:,} messages had names too long"
        )
    if not found:
        return
    # What there is none of in any run has no column.
    shown = [name for name in _RUN_COLUMNS if name not in _RARE or any(getattr(run, _RARE[name]) for run in found)]
    output.table(shown, [[cells[name] for name in shown] for cells in map(_run_cells, found)])


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


@app.command(
    epilog=example(
        "trunkline capture cat run7 --sender Detector.one --type BOR",
        "trunkline capture cat run7 --since 2h --format '{received_at} {sender} {payload}'",
    )
)
@grouped
def cat(
    directory: Directory,
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
    cat = Cat(directory, selection, content.printer(output))
    for row in cat.rows(head, tail, follow=follow):
        cat.show(row)
        shown += 1
    if 0 not in (head, tail):
        tell_unmatched(output, directory, selection, shown)


@app.command(epilog=example("trunkline capture decode run7 run7.parquet --tags run=bigint"))
@grouped
@apart
def decode(
    directory: Directory,
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


@app.command(
    epilog=example(
        "trunkline capture export run7 run7.csv --sender Detector.one",
        "trunkline capture export run7 run7.arrow --payload --tags run=bigint",
        "trunkline capture export runs run7.h5 --run run_7",
    )
)
@grouped
@apart
def export(
    directory: Directory,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file: .csv, .jsonl, .arrow, .parquet or .h5.")],
    *,
    decoding: Decoding,
    selecting: Selecting,
    as_json: Json = False,
) -> None:
    """Writes messages for other programs, by the suffix of the file: a table as CSV, JSON lines, Arrow or Parquet, or a run as HDF5.

    An HDF5 file has the layout of Constellation's H5DataWriter: a group for each sender, with all payloads and tags.
    """
    from trunkline.capture.exporting import format_of

    try:
        form = format_of(out)
    except errors.LocalProtocolError as error:
        message = f"{error}."
        raise typer.BadParameter(message) from None
    decoding.write(directory, out, form, selecting, Output(json=as_json), event="exported")


@app.command(
    epilog=example("trunkline capture report run7 run7.html", "trunkline capture report run7 new.html --since 2h")
)
@grouped
@apart
def report(
    directory: Directory,
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The report: one file with everything in it.")],
    *,
    selecting: Selecting,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Writes a report with tables and plots, without Spark: for captures of up to some ten million rows.

    A former report of that name is replaced.
    """
    selection = selecting.selection()
    from trunkline import capture

    output = Output(json=as_json)
    with whole(out, replaces=overwrite or is_report(out)) as part, Progress("counting (messages)", None) as progress:
        found = capture.report(directory, part, selection=selection, on_progress=progress.at)
    output.result("report", str(out), path=str(out), rows=found.rows)
    tell_unmatched(output, directory, selection, found.rows)


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
    directory: Directory,
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
    with Progress("replaying", capture.open(directory).info().directions.get("in", 0)) as progress:
        sent = capture.replay(
            directory,
            rate=speed,
            timeout_s=timeout,
            on_ready=lambda bound: output.ready("capture.replay", endpoints.real(bound), "replaying to"),
            on_progress=progress.at,
            selection=selection,
            **made,
            **endpoints.keywords(),
        )
    output.result("stopped", f"{counted(sent, 'message')} sent", reason="eof", stats={"sent": sent})
    tell_unmatched(output, directory, selection, sent)


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


@app.command(epilog=example("trunkline capture recover run7"))
def recover(directory: Directory, *, as_json: Json = False) -> None:
    """Publishes what a killed recorder left behind, and verifies the checksums of all segments: exits with 1 if one does not match."""
    from trunkline import capture

    output = Output(json=as_json)
    found = capture.recover(directory)
    if output.json:
        output.event(
            "recovered", rows=found.rows, cut_bytes=found.cut_bytes, segment=found.segment, damaged=list(found.damaged)
        )
    elif found.rows:
        cut = f"; {found.cut_bytes} bytes of an unfinished write cut" if found.cut_bytes else ""
        output.line(f"{counted(found.rows, 'message')} recovered into segment {found.segment}{cut}")
    else:
        output.line("nothing to recover")
    if found.damaged:
        numbers = ", ".join(map(str, found.damaged))
        message = f"{directory}: not as they were published: segments {numbers}; trunkline capture verify says more"
        raise errors.CaptureError(message)


@app.command(epilog=example("trunkline capture verify run7"))
def verify(directory: Directory, *, as_json: Json = False) -> None:
    """Reads a whole capture and checks it: checksums, and numbers without gaps or duplicates. Exits with 1 if something is wrong."""
    from trunkline import capture

    output = Output(json=as_json)
    found = capture.verify(directory)
    counts = {"segments": found.segments, "messages": found.messages, "unchecked": found.unchecked}
    for problem in found.problems:
        text = f"{problem.path}: {problem.what}"
        output.result("problem", text, path=str(problem.path), what=problem.what)
    if output.json:
        output.event("verified", **counts, problems=len(found.problems))
    elif not found.problems:
        unchecked = f", {found.unchecked:,} of them without a sum to check" if found.unchecked else ""
        output.line(
            f"all is well: {counted(found.messages, 'message')} in {counted(found.segments, 'segment')}{unchecked}"
        )
    if found.problems:
        raise typer.Exit(1)
