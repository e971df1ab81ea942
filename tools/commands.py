"""The pages of the site about the command line, made from the commands themselves: a page for each group of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from tools import json_lines, terminals
from typer.main import get_command

from trunkline.cli.app import app

DOCS = Path(__file__).parents[1] / "docs"

# What help has in brackets behind its words: a default, a range, whether it must be given.
_EXTRA = re.compile(r"\s*\[([^\[\]]*)\]$")
_RANGE = re.compile(r"^(\S+)<=x<=(\S+)$")
# A type in place of a word for a value.
_TYPE = re.compile(r"<(\w+)(?:\[.*\])?>$")
_TYPES = {"str": "TEXT", "int": "N", "float": "X"}
_EXAMPLE = re.compile(r"\s*Examples?:\s*")
_BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True)
class Row:
    """An argument or option as a row of a table."""

    name: str
    meaning: str
    default: str
    panel: str

    def __str__(self) -> str:
        return f"| {self.name} | {self.meaning} | {self.default} |"


@dataclass(frozen=True)
class Page:
    """A group of commands, or the program itself with the commands that are in none."""

    name: str
    command: Any
    context: Any

    @property
    def commands(self) -> Iterator[tuple[str, Any, Any]]:
        """Its commands in the order of its help, each with what to type and its context; of the program, only its own."""
        for path, command, context in _below(self.command, self.context):
            if not hasattr(command, "commands"):
                yield path, command, context
            elif self.context.parent is not None:
                yield from Page(path, command, context).commands

    @cached_property
    def text(self) -> str:
        """In Markdown."""
        lines = [f"# {self.name}", "", _escaped(self.command.help), ""]
        if (DOCS / "reference" / f"{self.context.info_name}.md").exists():
            lines += [f"In Python: [trunkline.{self.context.info_name}](../reference/{self.context.info_name}.md).", ""]
        return "\n".join([*lines, *self.body])

    @property
    def body(self) -> Iterator[str]:
        """A table of its commands, and each of them."""
        yield from ("| command | what it does |", "|---|---|")
        for path, command, _ in self.commands:
            yield f"| [`{path}`](#{_anchor(path)}) | {_escaped(_first_sentence(command.help))} |"
        for path, command, context in self.commands:
            yield from ("", f"## {path} {{#{_anchor(path)}}}", "", _escaped(command.help))
            yield from ("", "```text", _usage(path, command, context), "```", "")
            yield from _tables(command, context)
            example = _EXAMPLE.sub("", command.epilog or "", count=1).replace("\b", "")
            if example.strip():
                yield from (
                    "```console",
                    *(f"$ {line.strip()}" for line in example.splitlines() if line.strip()),
                    "```",
                )
            yield from _lines(path.removeprefix("trunkline "))
            if path in terminals.SHOWN:
                yield from ("", f"![What it prints](../{terminals.place(path)})")


def pages() -> list[Page]:
    """The program itself first, and then its groups by their names."""
    command = get_command(app)
    context = command.make_context("trunkline", [], resilient_parsing=True)
    groups = [Page(name, below, inner) for name, below, inner in _below(command, context) if hasattr(below, "commands")]
    return [Page("trunkline", command, context), *sorted(groups, key=lambda page: page.name)]


def overview(text: str) -> str:
    """The page about all commands: what is written there, then the groups, and the commands that are in none."""
    program, *groups = pages()
    lines = ["## Groups", "", "| group | what it is for | commands |", "|---|---|---|"]
    for group in groups:
        names = ", ".join(
            f"[{path.removeprefix(group.name + ' ')}]({_file(group)}#{_anchor(path)})" for path, *_ in group.commands
        )
        lines.append(f"| [`{group.name}`]({_file(group)}) | {_escaped(group.command.help)} | {names} |")
    return "\n".join([text.rstrip(), "", *lines, "", "## Commands of their own", "", *program.body, ""])


def files() -> dict[str, str]:
    """The pages that are not written by hand, by their places in the documentation."""
    _, *groups = pages()
    return {f"commands/{_file(group)}": group.text for group in groups}


def parameters(command: Any, context: Any) -> Iterator[Any]:
    """What a command takes and its help shows, without the help itself."""
    for parameter in command.get_params(context):
        if parameter.name != "help" and not getattr(parameter, "hidden", False):
            yield parameter


def _below(command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if not below.hidden:
            yield f"{context.command_path} {name}", below, type(context)(below, info_name=name, parent=context)


def _file(page: Page) -> str:
    return f"{page.context.info_name}.md"


def _anchor(path: str) -> str:
    return path.removeprefix("trunkline ").replace(" ", "-")


def _usage(path: str, command: Any, context: Any) -> str:
    return re.sub(r"\{(\w[^{}|]*)\}", r"\1", " ".join([path, *command.collect_usage_pieces(context)]))


def _tables(command: Any, context: Any) -> Iterator[str]:
    rows = list(parameters(command, context))
    arguments = [_row(each, context) for each in rows if each.param_type_name == "argument"]
    options = [_row(each, context) for each in rows if each.param_type_name == "option"]
    if arguments:
        yield from ("| argument | meaning | default |", "|---|---|---|", *map(str, arguments), "")
    # Options stand in their panels, where they have such, as in the help.
    for panel, together in groupby(sorted(options, key=lambda row: row.panel), key=lambda row: row.panel):
        yield from (
            f"| {_escaped(panel).lower() or 'option'} | meaning | default |",
            "|---|---|---|",
            *map(str, together),
            "",
        )


def _lines(command: str) -> Iterator[str]:
    """What it prints as JSON."""
    lines = json_lines.LINES.get(command, ())
    if not lines:
        return
    yield from (
        "",
        f"Lines of JSON; `trunkline schema {command}` prints their schema:",
        "",
        "| event | fields |",
        "|---|---|",
    )
    for line in lines:
        fields = [
            f"`{name}`{' (where known)' * isinstance(kind, json_lines.Maybe)}" for name, kind in line.fields.items()
        ]
        yield f"| `{line.event}` | {', '.join(fields)} |"


def _row(parameter: Any, context: Any) -> Row:
    name, words = parameter.get_help_record(context)
    extras: list[str] = []
    while (found := _EXTRA.search(words)) is not None:
        words = words[: found.start()]
        extras = [*found[1].split("; "), *extras]
    default = ""
    limits = []
    for extra in extras:
        if extra == "required":
            default = extra
        elif extra.startswith("default: "):
            default = _default(parameter, extra.removeprefix("default: "))
        else:
            limits.append(_RANGE.sub(r"\1 to \2", extra).replace("x>=", "at least ").replace("x<=", "at most "))
    meaning = _escaped(words) + (f" ({_escaped('; '.join(limits))})" if limits else "")
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
    name = _TYPE.sub(lambda found: _TYPES.get(found[1], found[1].upper()), name)
    # A choice keeps its bar: a cell of a table would end at it.
    code = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")
    return Row(f"<code>{code}</code>", meaning, default, getattr(parameter, "rich_help_panel", None) or "")


def _default(parameter: Any, shown: str) -> str:
    # What help says in words is no value.
    if parameter.default is None or f"[default: {shown}]" in (getattr(parameter, "help", None) or ""):
        return _escaped(shown)
    if "bytes" in parameter.name and shown.isdigit():
        for size, unit in _BINARY:
            if int(shown) and not int(shown) % size:
                return f"{int(shown) // size} {unit}"
    return f"`{shown}`"


def _first_sentence(text: str | None) -> str:
    return re.split(r"(?<=\.)\s", (text or "").strip(), maxsplit=1)[0]


def _escaped(text: str | None) -> str:
    """Words that are no Markdown, as Markdown; lines that belong together as one."""
    paragraphs = re.split(r"\n\s*\n", (text or "").replace("\b", "").replace("\f", "").strip())
    joined = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", joined)
