"""`trunkline spark`: captures into tables and reports."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline._locations import location_of, need_local
from trunkline._text import counted
from trunkline.cli.commands.spark_stream import STREAM, stream
from trunkline.cli.commands.spark_submit import SUBMIT, Submit, submit
from trunkline.cli.options.commands import Commands
from trunkline.cli.options.selection import Selecting, note_unmatched
from trunkline.cli.options.shared import (
    DECODABLE,
    CapturePath,
    DecodingCodec,
    Json,
    Overwrite,
    Payload,
    PayloadFile,
    Tags,
    decoding_options,
    example,
    location,
    need_decodable,
    report_layout,
    spoken,
)
from trunkline.cli.process.atomic import is_report, whole
from trunkline.cli.process.child import apart
from trunkline.cli.process.spark import source_options, spark_session, watched
from trunkline.cli.terminal.output import Output

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line

app = Commands(help="Captures as Spark tables.")

Capture = Annotated[
    CapturePath,
    typer.Argument(
        metavar="CAPTURE", help="The capture directory, or a folder of captures; or the URL of one.", parser=location
    ),
]


class Mode(StrEnum):
    """How malformed messages are handled."""

    PERMISSIVE = "PERMISSIVE"
    FAILFAST = "FAILFAST"
    DROPMALFORMED = "DROPMALFORMED"


@app.command(
    epilog=example(
        "trunkline spark decode run7 run7-messages --protocol cdtp --tags run=bigint",
        "trunkline spark decode run7 bad --protocol cdtp --where 'error is not null'",
    )
)
@apart
def decode(
    capture: Capture,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The directory of the Parquet table; must not exist yet.")],
    *,
    protocol: Annotated[str, typer.Option("--protocol", help=f"What to decode: {DECODABLE}.", callback=spoken)],
    tags: Tags = None,
    mode: Annotated[
        Mode,
        typer.Option("--mode", help="What to do with undecodable headers: keep them as rows, fail, or leave them out."),
    ] = Mode.PERMISSIVE,
    codec: DecodingCodec = None,
    payload: Payload = None,
    payload_file: PayloadFile = None,
    selecting: Selecting,
    as_json: Json = False,
) -> None:
    """Decodes a capture, or a folder of captures, into a Parquet table with Spark."""
    options = decoding_options(tags, codec, payload=payload, payload_file=payload_file)
    need_decodable(protocol, options)
    selection = selecting.selection(protocol) if selecting != Selecting() else None
    from trunkline.capture import reading
    from trunkline.capture.folders import is_folder_of_captures
    from trunkline.spark._paths import spark_path, tables

    output = Output(json=as_json)
    are_many = is_folder_of_captures(capture)
    if not are_many:
        opened = reading.open(capture)
        if selection is not None:
            # Reports an unknown run before the JVM is started.
            selection.of(opened)
    need_local(out)
    given = {"mode": mode.value, "recursive": str(are_many).lower()} | source_options(protocol, options)
    given |= selecting.source_options(selection)
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole(out) as part, spark_session("trunkline spark decode") as session:
        table = session.read.format("trunkline").options(**given).load(os.fspath(location_of(capture).absolute()))
        with watched(session, "decoding (tasks)"):
            table.write.parquet(spark_path(part))
        messages = tables(session).parquet(spark_path(part)).count()
    if not messages and not are_many:
        reading.warn_of_others(opened, protocol)
    output.result("decoded", f"{counted(messages, 'row')} in {out}", rows=messages, path=str(out))
    note_unmatched(output, capture, selection, messages)


@app.command(
    epilog=example(
        "trunkline spark report run7 run7.html", "trunkline spark report run7 one.html --sender Detector.one"
    )
)
@apart
def report(
    capture: Capture,
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The report: one file with everything in it.")],
    *,
    selecting: Selecting,
    payload: Payload = None,
    payload_file: PayloadFile = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Writes a report with tables and plots. A former report of that name is replaced."""
    selection = selecting.selection()
    layout = report_layout(payload, payload_file)
    from trunkline import spark
    from trunkline.capture import reading
    from trunkline.capture.folders import is_folder_of_captures

    output = Output(json=as_json)
    if not is_folder_of_captures(capture):
        reading.open(capture)
    elif selecting != Selecting():
        message = f"{capture}: is a folder of captures: messages are selected of one capture."
        raise typer.BadParameter(message)
    with (
        whole(out, replaces=overwrite or is_report(out)) as part,
        spark_session("trunkline spark report") as session,
        watched(session, "counting (tasks)"),
    ):
        made = spark.report(capture, part, name=str(capture), selection=selection, payload=layout)
    output.result("report", str(out), **made.to_dict() | {"path": str(out)})
    note_unmatched(output, capture, selection, made.rows)


app.command(epilog=STREAM)(stream)
app.command(cls=Submit, epilog=SUBMIT)(submit)


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline.cli.commands.spark_stream import Streamed
    from trunkline.cli.terminal.json_lines import REPORT, WRITTEN, Maybe, line, ready, stopped

    return {
        "spark decode": [line("decoded", **WRITTEN)],
        "spark report": [REPORT],
        "spark stream": [
            ready(metrics_url=Maybe(str)),
            line("batch", id=int, rows=int, rows_with_error=int, segments_behind=int),
            stopped(Streamed),
        ],
    }
