"""What commands print with --json, as JSON Schema."""

from __future__ import annotations

import difflib
import json
import re
from importlib import resources
from typing import Annotated, Any
from urllib.parse import unquote

import typer

from trunkline._text import did_you_mean
from trunkline.cli.options.shared import example
from trunkline.cli.terminal.output import Output

__all__ = ["EXAMPLE", "schema"]

EXAMPLE = example("trunkline schema cdtp record")


def schema(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND...", help="The command, e.g. cdtp record.", show_default="all commands"),
    ] = None,
) -> None:
    """Prints the JSON Schema of the lines that a command prints with --json."""
    whole = json.loads(resources.files("trunkline.cli").joinpath("schemas.json").read_text(encoding="utf-8"))
    _need_command(context.find_root().command, command or [])
    Output(json=False).line(json.dumps(_of(whole, " ".join(command)) if command else whole, indent=2))


def _need_command(group: Any, words: list[str]) -> None:
    """Refuses a command that there is none of."""
    for at, word in enumerate(words):
        below = getattr(group, "commands", {})
        if word not in below:
            message = f"there is no command {' '.join(words[: at + 1])!r}{did_you_mean(word, below) or '.'}"
            raise typer.BadParameter(message)
        group = below[word]


def _of(whole: dict[str, Any], command: str) -> dict[str, Any]:
    """The part for one command, with the definitions that it refers to."""
    defs = whole["$defs"]
    commands = [unquote(one["$ref"].rpartition("/")[2]) for one in whole["anyOf"]]
    if command not in commands:
        near = difflib.get_close_matches(command, commands, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        message = f"trunkline {command} prints no JSON.{hint}"
        raise typer.BadParameter(message)
    needed: dict[str, Any] = {}
    missing = {command}
    while missing:
        name = missing.pop()
        needed[name] = defs[name]
        missing |= set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(defs[name]))) - needed.keys()
    return {"$schema": whole["$schema"], **needed.pop(command), "$defs": needed}
