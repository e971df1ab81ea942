"""Options from a file: TOML, with a table for each command."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import typer

from trunkline._text import did_you_mean
from trunkline.cli.family import with_hint

__all__ = ["read"]


def read(file: Path, root: Any) -> dict[str, Any]:
    """Reads a file as defaults of the parameters of the commands below `root`.

    Args:
        file: A table for each command and in it its options, named as on the command line without the dashes:
            ``[mc0.middleware]`` and ``max-topics = 1000``. An option that may be repeated takes a list or one value.
        root: The command that has the subcommands.

    Raises:
        typer.BadParameter: The file cannot be read, is not TOML, or has an unknown command or option.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        _refuse(file, f"{error.strerror}.")
    except ValueError as error:
        _refuse(file, f"not valid TOML: {error}.")
    return {name: _table(file, name, root, table) for name, table in tables.items()}


def _table(file: Path, path: str, parent: Any, table: Any) -> dict[str, Any]:
    """The defaults of the command of this path, and of those below it."""
    name = path.rpartition(".")[2]
    command = parent.commands.get(name)
    if command is None:
        _refuse(file, _unknown("command", path, name, parent.commands))
    if not isinstance(table, Mapping):
        _refuse(file, f"{path} must be a table: [{path}].")
    if hasattr(command, "commands"):
        return {below: _table(file, f"{path}.{below}", command, inner) for below, inner in table.items()}
    options = {name: parameter for parameter in command.params for name in _names(parameter)}
    given = {}
    for option, value in table.items():
        parameter = options.get(option)
        if parameter is None:
            _refuse(file, f"[{path}] {_unknown('option', option, option, options)}")
        if isinstance(value, Mapping):
            _refuse(file, f"{path}.{option} must be a value, not a table.")
        is_one = parameter.multiple and not isinstance(value, list)
        given[parameter.name] = [value] if is_one else value
        try:
            parameter.process_value(command.make_context(name, [], resilient_parsing=True), given[parameter.name])
        except typer.BadParameter as error:
            _refuse(file, f"{path}.{option}: {with_hint(error.message)}")
    return given


def _names(parameter: Any) -> Iterable[str]:
    """The names of an option in a file; an argument has none."""
    if parameter.param_type_name == "option" and parameter.name != "help":
        yield from (name.removeprefix("--") for name in parameter.opts if name.startswith("--"))


def _unknown(what: str, path: str, name: str, known: Iterable[str]) -> str:
    return f"there is no {what} {path!r}{did_you_mean(name, known) or '.'}"


def _refuse(file: Path, wrong: str) -> NoReturn:
    message = f"{file}: {wrong}"
    raise typer.BadParameter(message)
