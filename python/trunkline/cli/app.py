"""The command line with all commands."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli import (
    capture,
    cdt,
    cdtp,
    chirp,
    dcp,
    demo,
    doctor,
    keygen,
    mc0,
    middleware,
    mtl,
    nats_server,
    schema,
    spark,
)
from trunkline.cli.family import Family
from trunkline.cli.options import example
from trunkline.cli.stderr import log_as_json

__all__ = ["app"]

app = typer.Typer(
    cls=Family,
    help=(
        "Message protocols over ZeroMQ and NATS, from a live socket to a Spark table.\n\n"
        "Options can also be given by variables, as TRUNKLINE_MC0_MIDDLEWARE_MAX_TOPICS=1000, and by a file (--config)."
    ),
    epilog=example("trunkline demo"),
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"], "auto_envvar_prefix": "TRUNKLINE"},
    # `ending` handles exceptions, not typer.
    pretty_exceptions_enable=False,
)
app.add_typer(cdt.app, name="cdt")
app.add_typer(cdtp.app, name="cdtp")
app.add_typer(chirp.app, name="chirp")
app.add_typer(dcp.app, name="dcp")
app.add_typer(mc0.app, name="mc0")
app.add_typer(mtl.app, name="mtl")
app.add_typer(capture.app, name="capture")
app.add_typer(spark.app, name="spark")
app.command(epilog=example("trunkline demo --output demo"))(demo.demo)
mc0.app.command(epilog=middleware.EXAMPLE)(middleware.middleware)
app.command(epilog=nats_server.EXAMPLE)(nats_server.nats)
app.command(epilog=example("trunkline keygen daq1 --output keys"))(keygen.keygen)
app.command(epilog=example("trunkline doctor"))(doctor.doctor)
app.command(epilog=schema.EXAMPLE)(schema.schema)


class LogFormat(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


def _show_version(value: bool) -> None:  # noqa: FBT001 - typer's way to call it
    if value:
        typer.echo(doctor.version())
        # An eager option, which comes before all others.
        if {"-v", "--verbose"} & set(sys.argv[1:]):
            typer.echo(doctor.transports())
        raise typer.Exit


def _configure(context: typer.Context, file: Path | None) -> Path | None:
    if file is not None:
        # Imported late: most commands have no configuration file.
        from trunkline.cli import configuration

        context.default_map = configuration.read(file, context.command)
    return file


def _check(context: typer.Context, value: bool) -> None:  # noqa: FBT001 - typer's way to call it
    if value:
        if context.default_map is None:
            message = "it needs --config FILE before it."
            raise typer.BadParameter(message)
        typer.echo("all is well")
        raise typer.Exit


@app.callback()
def _trunkline(
    *,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Log more: announcements of CHIRP, and each traced message of CDT.",
        ),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="The format of the log on standard error.")
    ] = LogFormat.TEXT,
    config: Annotated[  # noqa: ARG001 - it is looked at before anything else
        Path | None,
        typer.Option(
            "--config",
            is_eager=True,
            callback=_configure,
            metavar="FILE",
            help="Read options from a TOML file, in which each command has a table: [mc0.middleware].",
            dir_okay=False,
        ),
    ] = None,
    check: Annotated[  # noqa: ARG001 - as above
        bool,
        typer.Option(
            "--check",
            is_eager=True,
            callback=_check,
            allow_from_autoenv=False,
            help="Check the file of --config and exit.",
        ),
    ] = False,
    version: Annotated[  # noqa: ARG001 - as above
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_show_version,
            allow_from_autoenv=False,
            help="Show the version and exit; with -v the transports as well.",
        ),
    ] = False,
) -> None:
    if verbose:
        logging.getLogger("trunkline").setLevel(logging.DEBUG)
    if log_format is LogFormat.JSON:
        log_as_json()
