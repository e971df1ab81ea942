"""`trunkline spark`: captures into tables and reports."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trunkline._locations import need_local
from trunkline._text import counted
from trunkline.cli.apart import apart
from trunkline.cli.family import Family
from trunkline.cli.groups import grouped
from trunkline.cli.options import (
    DECODABLE,
    DecodingCodec,
    Json,
    Overwrite,
    Payload,
    Tags,
    decoding_options,
    example,
    need_decodable,
    place,
    spoken,
)
from trunkline.cli.output import Output
from trunkline.cli.selecting import Selecting, note_unmatched
from trunkline.cli.spark_stream import STREAM, stream
from trunkline.cli.spark_submit import SUBMIT, Submit, submit
from trunkline.cli.sparking import source_options, spark_session, watched
from trunkline.cli.whole import is_report, whole

app = typer.Typer(cls=Family, help="Captures as Spark tables.", no_args_is_help=True, rich_markup_mode=None)

Capture = Annotated[
    "os.PathLike[str]", typer.Argument(metavar="CAPTURE", help="The capture directory, or its URL.", parser=place)
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
@grouped
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
    payload: Payload = False,
    selecting: Selecting,
    as_json: Json = False,
) -> None:
    """Decodes a capture into a Parquet table with Spark."""
    options = decoding_options(tags, codec, payload=payload)
    need_decodable(protocol, options)
    selection = selecting.selection(protocol) if selecting != Selecting() else None
    from trunkline.capture import reading
    from trunkline.spark._paths import spark_path, tables

    output = Output(json=as_json)
    opened = reading.open(capture)
    if selection is not None:
        # Reports an unknown run before the JVM is started.
        selection.of(opened)
    need_local(out)
    given = {"mode": mode.value} | source_options(protocol, options) | selecting.source_options(selection)
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole(out) as part, spark_session("trunkline spark decode") as session:
        table = session.read.format("trunkline").options(**given).load(os.fspath(opened.path.absolute()))
        with watched(session, "decoding (tasks)"):
            table.write.parquet(spark_path(part))
        messages = tables(session).parquet(spark_path(part)).count()
    if not messages:
        reading.warn_of_others(opened, protocol)
    output.result("decoded", f"{counted(messages, 'row')} in {out}", rows=messages, path=str(out))
    note_unmatched(output, capture, selection, messages)


@app.command(
    epilog=example(
        "trunkline spark report run7 run7.html", "trunkline spark report run7 one.html --sender Detector.one"
    )
)
@grouped
@apart
def report(
    capture: Capture,
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The report: one file with everything in it.")],
    *,
    selecting: Selecting,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Writes a report with tables and plots. A former report of that name is replaced."""
    selection = selecting.selection()
    from trunkline import spark
    from trunkline.capture import reading

    output = Output(json=as_json)
    reading.open(capture)
    with (
        whole(out, replaces=overwrite or is_report(out)) as part,
        spark_session("trunkline spark report") as session,
        watched(session, "counting (tasks)"),
    ):
        made = spark.report(capture, part, name=str(capture), selection=selection)
    output.result("report", str(out), **made.to_dict() | {"path": str(out)})
    note_unmatched(output, capture, selection, made.rows)


app.command(epilog=STREAM)(stream)
app.command(cls=Submit, epilog=SUBMIT)(submit)
