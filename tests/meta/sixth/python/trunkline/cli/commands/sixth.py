"""`trunkline sixth`: the commands of the made-up protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from trunkline.cli.options.commands import Commands
from trunkline.cli.terminal.content import MessageView, Showing

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line

app = Commands(help="sixth: letters.")


@app.command()
def post(letter: str) -> None:
    """Posts a letter."""
    typer.echo(f"posted {letter}")


@app.command()
def read() -> None:
    """Reads letters."""


def _view(message: Any) -> MessageView:
    return MessageView(message.type, message.letter, {"letter": message.letter}, {}, ())


SHOWING = Showing(_view, fields=("letter",))


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline.cli.terminal.json_lines import line

    return {"sixth post": [line("posted", letter=str)]}
