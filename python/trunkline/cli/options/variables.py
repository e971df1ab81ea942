"""Options from environment variables: which there are, and what a `--check` looked at."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import typer

from trunkline._text import counted, did_you_mean
from trunkline.cli.options.help import with_hint

__all__ = ["in_words", "looked_at", "mistakes", "unknown", "used"]

_PREFIX = "TRUNKLINE_"
# Variables that are no options. Two name libraries for the tests of the project.
_OTHERS = frozenset(f"{_PREFIX}{name}" for name in ("DEBUG", "PASSWORD", "TRANSPORT", "LIBZMQ", "PYTHON"))
# Those that Kubernetes makes in each container for a Service whose name begins with "trunkline".
_OF_A_SERVICE = re.compile(
    r"TRUNKLINE(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def used(root: Any) -> dict[str, tuple[Any, Any]]:
    """The variables that are set, with their commands and options."""
    mine = _given()
    return {name: option for name, option in _options(root, _PREFIX) if name in mine}


def unknown(root: Any) -> list[str]:
    """What is wrong with the names of variables: those that no option has."""
    mine = _given() - _OTHERS
    if not mine:
        return []
    known = {name for name, _ in _options(root, _PREFIX)} | _OTHERS
    strange = [name for name in sorted(mine - known) if not _OF_A_SERVICE.fullmatch(name)]
    return [f"there is no variable {name}{did_you_mean(name, known) or '.'}" for name in strange]


def mistakes(root: Any) -> list[str]:
    """What is wrong with the variables: their names, and the values of those that options have."""
    found = unknown(root)
    for name, (command, option) in used(root).items():
        context = command.make_context(command.name, [], resilient_parsing=True)
        value: Any = os.environ[name]
        if option.multiple or option.nargs != 1:
            value = option.split_envvar_value(value)
        try:
            option.process_value(context, value)
        except typer.BadParameter as error:
            found.append(f"{name}: {with_hint(error.message)}")
    return found


def looked_at(context: Any) -> dict[str, Any]:
    """What a command takes its options from, for its `--check`.

    Returns:
        The ``file``, if any, the names of its ``variables``, and the ``options`` on the command line.
    """
    sources = {parameter: context.get_parameter_source(parameter.name) for parameter in context.command.params}
    names = {
        option.name: name
        for name, (command, option) in used(context.find_root().command).items()
        if command is context.command
    }
    file = context.find_root().params.get("config")
    return {
        "file": None if file is None else str(file),
        "variables": [names[one.name] for one, source in sources.items() if _is(source, "ENVIRONMENT")],
        "options": [
            one.opts[0] for one, source in sources.items() if one.name != "check" and _is(source, "COMMANDLINE")
        ],
    }


def in_words(found: dict[str, Any]) -> str:
    """What was looked at, for people."""
    parts = [] if found["file"] is None else [found["file"]]
    parts += (
        [counted(len(found["variables"]), "variable") + f" ({', '.join(found['variables'])})"]
        if found["variables"]
        else []
    )
    parts += [counted(len(found["options"]), "option") + " of the command line"]
    return ", ".join(parts)


def _is(source: Any, name: str) -> bool:
    return source is not None and source.name == name


def _given() -> set[str]:
    return {name for name in os.environ if name.startswith(_PREFIX)}


def _options(command: Any, prefix: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """The options of a command and of those below it, by their variables."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and getattr(parameter, "allow_from_autoenv", False):
            yield f"{prefix}{parameter.name}".upper(), (command, parameter)
    for name, below in getattr(command, "commands", {}).items():
        yield from _options(below, f"{prefix}{name}_".upper().replace("-", "_"))
