"""The pages of the site with all messages, by area: what each is raised as, and where it is explained.

A message is explained where a page quotes it: in a row of the page of troubleshooting, else in a section of a guide. If
none does, the reference of the module it comes from is the place to look.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from itertools import groupby
from pathlib import PurePosixPath

from tools import commands, quotes
from tools.quotes import DOCS
from tools.rust_texts import kinds
from tools.texts import Text, key, system, texts

# The pages, and the folders whose messages they have. What is in no other folder is of all roles.
AREAS = {
    "commands": ("Commands", {"cli", "demo", "conform"}),
    "captures": ("Captures", {"capture", "report", "analysis", "columns"}),
    "spark": ("Spark", {"spark"}),
    "topics": ("CDTP, CHIRP, DCP and mc0", {"cdtp", "chirp", "dcp", "mc0"}),
    "queues": ("MTL and CDT", {"mtl", "store", "cdt", "nats"}),
    "roles": ("All roles", set[str]()),
}

_LEVELS = {"CRITICAL", "ERROR", "WARNING", "INFO"}

# A message that is pasted finds its row, and a single word finds the guides first.
_BOOST = "---\nsearch:\n  boost: 0.75\n---"

_INDEX = """# Index of messages

Errors, warnings and lines of the log, as the source has them. What varies, as a name or a number, is `…`. The search finds a
message by its words, best without names, numbers and paths. In quotation marks, all of the words have to be there. What is seen
most often is on the page [Troubleshooting](../troubleshooting.md).

| area | messages |
|---|---|
{areas}

Kinds of one word, as `bad_header`, `queue_full` or `other_mechanism`, are in the tables of
[trunkline.errors](../reference/errors.md).

A command prints an error as one line, `trunkline: error: …`, with `--bind` where the message here has `bind=`, and ends with the
exit code of the message: 2 for a wrong use of the command, 1 for what fails. In Python the same is an exception. A line of the log
has a level instead, and the program goes on.
"""


def index() -> str:
    """The first of the pages."""
    areas = "\n".join(f"| [{title}]({name}.md) | {len(_of(name))} |" for name, (title, _) in AREAS.items())
    return _INDEX.format(areas=areas)


@functools.cache
def files() -> dict[str, str]:
    """The pages, by their places in the documentation."""
    return {"messages/index.md": index()} | {f"messages/{name}.md": _page(name) for name in AREAS}


def tables() -> str:
    """The kinds, in Markdown: they are part of messages."""
    lists = kinds()
    lines = []
    for title, words_before, place in (
        ("Messages that cannot be decoded", "The `kind` of a `DecodeError`, and in the log.", "wire.error.ErrorKind"),
        ("Messages that are dropped", "The `kind` of what `on_drop` gets, and in the log.", "wire.error.DropKind"),
        ("Payloads", "Why a payload is not of its layout.", "columns.mod.PayloadKind"),
        ("Connections to NATS servers", "Why one is given up: the words in the log.", "wire.reason.Reason"),
    ):
        lines += [f"## {title}", "", words_before, "", "| kind | what it means |", "|---|---|"]
        lines += [f"| `{slug}` | {meaning} |" for slug, meaning in lists[place].items()]
        lines += [""]
    return "\n".join(lines)


def _of(area: str) -> list[tuple[str, list[Text]]]:
    """The messages of an area, each with all that raise it."""
    found = [text for text in [*texts(), *system()] if _area(text.place) == area]
    found.sort(key=lambda text: (key(text.text), text))
    return [(text, list(same)) for text, same in groupby(found, key=lambda text: text.text)]


def _rooms(place: str) -> list[str]:
    """The names in a path that may be those of a folder or of a page of the reference, the first first."""
    parts = PurePosixPath(place).with_suffix("").parts[2 if place.startswith("python/") else 1 :]
    return [
        name for part in parts for name in dict.fromkeys((part, part.strip("_"), part.strip("_").partition("_")[0]))
    ]


@functools.cache
def _area(place: str) -> str:
    rooms = _rooms(place)
    return next((name for room in rooms for name, (_, folders) in AREAS.items() if room in folders), "roles")


def _page(area: str) -> str:
    lines = [_BOOST, f"# {AREAS[area][0]}: messages", "", "What varies is `…`: [how to read it](index.md).", ""]
    anchors = Counter[str]()
    for letter, rows in groupby(_of(area), key=lambda row: key(row[0])[0].upper()):
        lines += [f"## {letter}", "", "| message | raised as, exit code | see |", "|---|---|---|"]
        for text, same in rows:
            anchor = quotes.anchor(text)
            anchors[anchor] += 1
            number = f"-{anchors[anchor]}" if anchors[anchor] > 1 else ""
            lines.append(f"| {_heading(text, anchor + number)} | {_raised(text, same)} | {_see(text, same[0].place)} |")
        lines += [""]
    return "\n".join(lines)


def _heading(text: str, anchor: str) -> str:
    """The search leads to headings."""
    shown = re.sub(r"[^a-zA-Z0-9\s….,:;='()/-]", lambda mark: f"&#{ord(mark[0])};", text)
    return f'<h3 class="message" id="{anchor}"><code>{shown}</code></h3>'


def _raised(text: str, same: list[Text]) -> str:
    raised = list(dict.fromkeys(name for each in same for name in each.raised.split(" or ")))
    shown = " or ".join(f"log, {name}" if name in _LEVELS else f"`{name}`" for name in raised)
    is_usage = raised == ["BadParameter"] or "/cli/options/" in same[0].place
    is_error = not set(raised) <= _LEVELS or text.startswith("error: ")
    return shown + (", 2" if is_usage else ", 1" if is_error else "")


def _see(text: str, place: str) -> str:
    for quote in quotes.every():
        if quotes.fits(quote, text):
            return f"[{_title(quote.page)}](../{quote.page}#{quote.anchor})"
    for room in _rooms(place):
        for page in (f"reference/{room}.md", f"commands/{room}.md"):
            if (DOCS / page).exists() or page in _generated():
                return f"[{'trunkline ' * page.startswith('c')}{room}](../{page})"
    if "/cli/" in place:
        return "[commands](../commands/index.md)"
    return "[errors](../reference/errors.md)"


@functools.cache
def _generated() -> dict[str, str]:
    return commands.files()


@functools.cache
def _title(page: str) -> str:
    return (DOCS / page).read_text().partition("\n")[0].removeprefix("# ")
