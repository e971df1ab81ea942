"""`trunkline demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.apart import apart
from trunkline.cli.options import Json
from trunkline.cli.output import Output


@apart
def demo(
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help="Keep the capture and the report here; must not exist yet."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Runs the whole workflow in about a minute: senders, recorder, capture, Spark, table and report."""
    from trunkline.demo.run import run

    run(output, Output(json=as_json))
