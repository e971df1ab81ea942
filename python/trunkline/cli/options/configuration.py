"""Options from a file: TOML, with a table for each command."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import typer

from trunkline._locations import without_secrets
from trunkline._text import did_you_mean
from trunkline.cli.options.help import with_hint

__all__ = ["read"]


def read(file: Path, root: Any) -> dict[str, Any]:
    """Reads a file as defaults of the parameters of the commands below `root`.

    Args:
        file: A table for each command and in it its options, named as on the command line without the dashes:
            ``[mc0.middleware]`` and ``max-topics = 1000``. An option that may be repeated takes a list or one value.
        root: The command that has the subcommands.

    Raises:
        typer.BadParameter: The file cannot be read, is not TOML, or has unknown commands or invalid options; the message has
            a line for each.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        _refuse(file, [f"{error.strerror}."])
    except (ValueError, RecursionError) as error:
        _refuse(file, [f"not valid TOML: {error}."])
    reader = _Reader()
    defaults = {name: reader.table(name, root, table) for name, table in tables.items()}
    if reader.mistakes:
        _refuse(file, reader.mistakes)
    return defaults


class _Reader:
    """Reads the tables of a file, and collects everything that is wrong with them."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def table(self, path: str, parent: Any, table: Any) -> dict[str, Any]:
        """The defaults of the command of this path, and of those below it."""
        name = path.rpartition(".")[2]
        command = parent.commands.get(name)
        if command is None:
            self.mistakes.append(_unknown("command", path, name, parent.commands))
        elif not isinstance(table, Mapping):
            self.mistakes.append(f"{path} must be a table: [{path}].")
        elif hasattr(command, "commands"):
            return {below: self.table(f"{path}.{below}", command, inner) for below, inner in table.items()}
        else:
            return self._options(path, command, table)
        return {}

    def _options(self, path: str, command: Any, table: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: parameter for parameter in command.params for name in _names(parameter)}
        given = {}
        for option, value in table.items():
            parameter = options.get(option)
            if parameter is None:
                self.mistakes.append(f"[{path}] {_unknown('option', option, option, options)}")
                continue
            if isinstance(value, Mapping):
                self.mistakes.append(f"{path}.{option} must be a value, not a table.")
                continue
            is_one = parameter.multiple and not isinstance(value, list)
            given[parameter.name] = [value] if is_one else value
            try:
                context = command.make_context(command.name, [], resilient_parsing=True)
                parameter.process_value(context, given[parameter.name])
            except typer.BadParameter as error:
                self.mistakes.append(f"{path}.{option}: {with_hint(error.message)}")
        return given


def _names(parameter: Any) -> Iterable[str]:
    """The names of an option in a file; an argument has none."""
    if parameter.param_type_name == "option" and parameter.name != "help":
        yield from (name.removeprefix("--") for name in parameter.opts if name.startswith("--"))


def _unknown(what: str, path: str, name: str, known: Iterable[str]) -> str:
    return f"there is no {what} {path!r}{did_you_mean(name, known) or '.'}"


def _refuse(file: Path, wrong: Iterable[str]) -> NoReturn:
    message = without_secrets("\n".join(f"{file}: {each}" for each in wrong))
    raise typer.BadParameter(message)
