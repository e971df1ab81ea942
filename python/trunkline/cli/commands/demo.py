"""`trunkline demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline.cli.options.shared import Json, example
from trunkline.cli.process.child import apart

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line
from trunkline.cli.terminal.output import Output

EXAMPLE = example("trunkline demo --output demo")


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


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline.cli.terminal.json_lines import line, of
    from trunkline.report.cdtp_counts import SenderReport

    return {
        "demo": [of("sender", SenderReport), line("report", path=str, seconds=float)],
    }
