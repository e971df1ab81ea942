"""The command line with all commands."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from trunkline._protocols import PROTOCOLS
from trunkline._text import counted
from trunkline.cli.options.commands import Commands, family_of, only
from trunkline.cli.options.shared import example
from trunkline.cli.terminal.stderr import log_as_json

__all__ = ["app"]

app = Commands(
    help=(
        "Message protocols over ZeroMQ and NATS, from a live socket to a Spark table.\n\n"
        "Options can also be given by variables, as TRUNKLINE_MC0_MIDDLEWARE_MAX_TOPICS=1000, and by a file (--config). "
        "Sizes and durations take units: 50MB, 1.5GiB, 500ms, 10s, 5m, 2h, 1d."
    ),
    epilog=example("trunkline demo"),
    context_settings={"help_option_names": ["--help", "-h"], "auto_envvar_prefix": "TRUNKLINE"},
    # `process.endings` handles exceptions, not typer.
    pretty_exceptions_enable=False,
)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"trunkline.cli.commands.{name}")


def _only(name: str, module: str) -> Any:
    room = _module(module)
    return only(getattr(room, name), name, epilog=room.EXAMPLE)


def _family(name: str) -> Any:
    return family_of(_module(name).app, name)


for _name in ("demo", "nats", "conform", "keygen", "doctor", "schema"):
    app.later(_name, functools.partial(_only, _name, {"nats": "nats_server"}.get(_name, _name)))
for _name in (*sorted(each.name for each in PROTOCOLS), "capture", "spark"):
    app.later(_name, functools.partial(_family, _name))


# The error about the file, in the notes of the context.
_WRONG = "trunkline.wrong"


class LogFormat(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


def _show_version(value: bool) -> None:  # noqa: FBT001 - typer's way to call it
    if value:
        doctor = _module("doctor")
        typer.echo(doctor.version())
        # An eager option, which comes before all others.
        if {"-v", "--verbose"} & set(sys.argv[1:]):
            typer.echo(doctor.transports())
        raise typer.Exit


def _configure(context: typer.Context, file: Path | None) -> Path | None:
    if file is not None:
        # Imported late: most commands have no configuration file.
        from trunkline.cli.options import configuration

        try:
            context.default_map = configuration.read(file, context.command)
        except typer.BadParameter as error:
            # It is raised later: a check goes on to the variables.
            error.ctx, error.param_hint = context, "'--config'"
            context.meta[_WRONG] = error
    return file


def _check(context: typer.Context, value: bool) -> None:  # noqa: FBT001 - typer's way to call it
    if not value:
        return
    from trunkline.cli.options import variables

    wrong = variables.mistakes(context.command)
    if _WRONG in context.meta:
        wrong = [context.meta[_WRONG].message, *wrong]
    if wrong:
        raise typer.BadParameter("\n".join(wrong))
    file = context.params["config"]
    names = [name for name in variables.used(context.command) if name != "TRUNKLINE_CONFIG"]
    parts = [] if file is None else [str(file)]
    parts += [f"{counted(len(names), 'variable')} ({', '.join(names)})"] if names else []
    if not parts:
        message = "there is nothing to check: give --config FILE, or set variables."
        raise typer.BadParameter(message)
    typer.echo(f"all is well: {', and '.join(parts)}")
    raise typer.Exit


@app.callback()
def _trunkline(
    context: typer.Context,
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
    # Not eager: it comes after --config, wherever that is named.
    check: Annotated[  # noqa: ARG001 - its callback does all
        bool,
        typer.Option(
            "--check",
            callback=_check,
            allow_from_autoenv=False,
            help="Check the file of --config and the variables, and exit.",
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
    if _WRONG in context.meta:
        raise context.meta[_WRONG]
    _warn_of_variables(context)


def _warn_of_variables(context: typer.Context) -> None:
    if any(name.startswith("TRUNKLINE_") for name in os.environ):
        from trunkline.cli.options import variables

        for wrong in variables.unknown(context.command):
            logging.getLogger("trunkline").warning("%s", wrong)
