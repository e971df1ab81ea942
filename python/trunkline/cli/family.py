"""Commands that go together, and what their help says of each."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

__all__ = ["Family"]

# No first sentence is longer.
_SENTENCE = 1000


class Family(TyperGroup):
    """A group whose help says of each command all of its first sentence, on as many lines as that takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(_SENTENCE)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
