"""Commands that are made on first use: a process runs one of the many that there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer

from trunkline.cli.options.groups import grouped
from trunkline.cli.options.help import Family

__all__ = ["Commands", "family_of", "only"]

Function = TypeVar("Function", bound=Callable[..., Any])


class Commands(typer.Typer):
    """A group of commands, each of which is made when it is run or its help is shown."""

    def __init__(self, **given: Any) -> None:
        self._makers: dict[str, Callable[[], Any]] = {}
        # typer makes the group from a class, and its commands before that.
        kind = type("Family", (Family,), {"makers": self._makers})
        super().__init__(cls=kind, no_args_is_help=True, rich_markup_mode=None, **given)

    def later(self, name: str, make: Callable[[], Any]) -> None:
        """Adds a command or a group that `make` makes."""
        self._makers[name] = make

    def command(self, name: str | None = None, **given: Any) -> Callable[[Function], Function]:
        """Adds a function as a command, with its group parameters replaced by their options."""

        def add(function: Function) -> Function:
            known = name or function.__name__
            self.later(known, lambda: only(function, known, **given))
            return function

        return add


def only(function: Callable[..., Any], name: str, **given: Any) -> Any:
    """The command of a function."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, **given)(grouped(function))
    return typer.main.get_command(alone)


def family_of(app: Commands, name: str) -> Any:
    """The group of some commands."""
    above: Any = typer.Typer(add_completion=False, rich_markup_mode=None)
    above.add_typer(app, name=name)
    return typer.main.get_command(above).commands[name]  # type: ignore[attr-defined]
