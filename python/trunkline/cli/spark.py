"""`trunkline spark`: captures into tables and reports."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.family import Family
from trunkline.cli.options import DECODABLE, Json, Tags, decoding_options, example, need_decodable
from trunkline.cli.output import Output
from trunkline.cli.sparking import spark_session, watched
from trunkline.cli.whole import whole

app = typer.Typer(cls=Family, help="Captures as Spark tables.", no_args_is_help=True, rich_markup_mode=None)

Capture = Annotated[Path, typer.Argument(metavar="CAPTURE", help="The capture directory.")]


class Mode(StrEnum):
    """What becomes of a header that is none."""

    PERMISSIVE = "PERMISSIVE"
    FAILFAST = "FAILFAST"
    DROPMALFORMED = "DROPMALFORMED"


@app.command(epilog=example("trunkline spark decode run7 run7-messages --protocol cdtp --tags run=bigint"))
def decode(
    capture: Capture,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the Parquet table; not there yet.")],
    *,
    protocol: Annotated[str, typer.Option("--protocol", help=f"What to decode: {DECODABLE}.")],
    tags: Tags = None,
    mode: Annotated[
        Mode, typer.Option("--mode", help="What becomes of a header that is none: kept, an error, or left out.")
    ] = Mode.PERMISSIVE,
    as_json: Json = False,
) -> None:
    """Decodes a capture into a Parquet table with Spark."""
    options = decoding_options(tags)
    need_decodable(protocol, options)
    from trunkline import spark
    from trunkline.capture import reading

    output = Output(json=as_json)
    reading.open(capture)
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole(out) as part, spark_session("trunkline spark decode") as session:
        rows = (
            session.read.schema(spark.capture_schema()).option("pathGlobFilter", reading.SEGMENTS).parquet(str(capture))
        )
        with watched(session, "decoding (tasks)"):
            spark.decode(rows, protocol, mode=mode.value, **options).write.parquet(str(part))
        messages = session.read.parquet(str(part)).count()
    if output.json:
        output.event("decoded", rows=messages, path=str(out))
    else:
        output.line(f"{messages:,} rows in {out}")


@app.command(epilog=example("trunkline spark report run7 run7.html"))
def report(
    capture: Capture,
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The report: one file with everything in it.")],
    *,
    as_json: Json = False,
) -> None:
    """Writes tables and plots of what was recorded."""
    from trunkline import capture as room
    from trunkline import spark

    output = Output(json=as_json)
    room.open(capture)
    with (
        whole(out) as part,
        spark_session("trunkline spark report") as session,
        watched(session, "counting (tasks)"),
    ):
        spark.report(capture, part)
    if output.json:
        output.event("report", path=str(out))
    else:
        output.line(str(out))
