"""Groups of commands, and their help."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperGroup

from trunkline._text import did_you_mean

__all__ = ["Family", "with_hint"]

# The longest first sentence.
_SENTENCE = 1000


# The width of help on a wider terminal.
_COLUMNS = 80


# typer's error about a value that is none of the choices.
_NO_CHOICE = re.compile(r"(?:Value error, )?'(.*)' is not one of ('.*')\.")


def with_hint(message: str) -> str:
    """The error about a value that is none of the choices, with the one that was probably meant.

    >>> with_hint("Value error, 'jsn' is not one of 'json', 'avro'.")
    "'jsn' is not one of 'json', 'avro': did you mean 'json'?"
    """
    found = _NO_CHOICE.fullmatch(message)
    if found is None:
        return message
    given, choices = found.groups()
    hint = did_you_mean(given, re.findall(r"'([^']*)'", choices)) or "."
    return f"{given!r} is not one of {choices}{hint}"


class _Context(typer.Context):
    """A context with help as narrow as the terminal: typer's own is at least 50 columns wide."""

    def make_formatter(self) -> Any:
        """Writes help for the width of the terminal."""
        formatter = super().make_formatter()
        room = min(shutil.get_terminal_size().columns, _COLUMNS)
        formatter.width = room - 2
        # The names of options leave room for their help.
        formatter.write_dl = functools.partial(formatter.write_dl, col_max=room * 3 // 8)  # type: ignore[method-assign]
        return formatter


class Family(TyperGroup):
    """A group with help that shows the whole first sentence of each command, on as many lines as it takes.

    Every option can be given by a variable of its own; the help of each names only those that have another name.
    """

    context_class = _Context

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        for command in self.commands.values():
            command.context_class = _Context
            _hide_variables(command.params)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; the error about an invalid choice suggests the most similar one."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = with_hint(error.message)
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        """The group's own options."""
        found = super().get_params(ctx)
        _hide_variables(found)
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(_SENTENCE)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _hide_variables(parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        parameter.show_envvar = parameter.envvar is not None
        # Options that only print, as shell completion, have no variable.
        if not parameter.expose_value:
            parameter.allow_from_autoenv = False
