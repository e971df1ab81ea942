"""Manual pages, made from the commands: `man trunkline`, and a page for each command. The wheel has them as files.

Run: python tools/manual.py writes them anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools import commands

FOLDER = Path(__file__).parents[1] / "packaging" / "wheel" / "data" / "share" / "man" / "man1"

_FILES = (
    ("TRUNKLINE_…", "Any option of any command, e.g. TRUNKLINE_MC0_MIDDLEWARE_MAX_TOPICS."),
    ("TRUNKLINE_DEBUG", "1 shows the traceback of an error."),
    ("NO_COLOR", "Any value: no colours."),
)
_STATUS = (
    ("0", "Success, or ended gracefully by a signal."),
    ("1", "An error, which a line on standard error names."),
    ("2", "Wrong usage."),
    ("130", "A command that ends by itself was interrupted."),
)


def pages() -> dict[str, str]:
    """The pages by the names of their files."""
    program, *groups = commands.pages()
    named = {page.name: (page.command, page.context) for page in (program, *groups)}
    named |= {path: (command, context) for page in (program, *groups) for path, command, context in page.commands}
    return {f"{_name(path)}.1": "\n".join(_page(path, *which, sorted(named))) + "\n" for path, which in named.items()}


def _page(path: str, command: Any, context: Any, everything: list[str]) -> Iterator[str]:
    summary, _, _ = (command.help or "").strip().partition("\n\n")
    yield f'.TH "{_name(path).upper()}" 1 "" trunkline "User Commands"'
    # A name is not to be broken.
    yield ".nh"
    yield from (".SH NAME", f"{_plain(_name(path))} \\- {_plain(re.split(r'[.:] ', summary)[0].rstrip('.'))}")
    yield from (".SH SYNOPSIS", f".B {_plain(path)}")
    yield _plain(" ".join(command.collect_usage_pieces(context)))
    yield from (".SH DESCRIPTION", *_paragraphs(command.help))
    panels: dict[str, list[Any]] = {}
    for parameter in commands.parameters(command, context):
        default = "ARGUMENTS" if parameter.param_type_name == "argument" else "OPTIONS"
        panels.setdefault((getattr(parameter, "rich_help_panel", None) or default).upper(), []).append(parameter)
    for panel, parameters in panels.items():
        yield f".SH {_plain(panel)}"
        for parameter in parameters:
            # A hidden default is a name without words.
            name, words = parameter.get_help_record(context) or (parameter.name, "")
            yield from (".TP", f".B {_plain(name)}", _plain(" ".join(words.split())))
    below = [name for name in everything if name != path and name.rpartition(" ")[0] == path]
    example = re.sub(r"\s*Examples?:\s*", "", command.epilog or "", count=1).replace("\b", "")
    if example.strip():
        yield from (".SH EXAMPLE", ".nf", *(_plain(one.strip()) for one in example.splitlines() if one.strip()), ".fi")
    for heading, entries in (("ENVIRONMENT", _FILES), ("EXIT STATUS", _STATUS)):
        yield f".SH {heading}"
        for name, words in entries:
            yield from (".TP", f".B {_plain(name)}", _plain(words))
    above = [path.rpartition(" ")[0]] if " " in path else []
    others = [f".BR {_plain(_name(name))} (1)" for name in (*above, *below)]
    if others:
        yield from (".SH SEE ALSO", *(f"{one}{',' * (one is not others[-1])}" for one in others))


def _name(path: str) -> str:
    return path.replace(" ", "-")


def _paragraphs(text: str | None) -> Iterator[str]:
    for at, paragraph in enumerate(re.split(r"\n\s*\n", (text or "").replace("\b", "").replace("\f", "").strip())):
        yield from ((".PP",) if at else ())
        yield _plain(" ".join(paragraph.split()))


def _plain(text: str) -> str:
    """Text in which roff sees no commands."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def write() -> None:
    """Writes all pages, and removes those of commands that are gone."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = pages()
    for gone in {file.name for file in FOLDER.iterdir()} - made.keys():
        (FOLDER / gone).unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
