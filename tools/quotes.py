"""What the pages quote of messages: in the rows of the page of troubleshooting, and in the sections of guides."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

from markdown.extensions.toc import slugify
from tools import metrics
from tools.rust_texts import kinds
from tools.texts import GAP, system, texts, words

DOCS = Path(__file__).parents[1] / "docs"
TROUBLE = "troubleshooting.md"

_CODE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.*?)(?: \{#(\S+)\})?$")


class Quote(NamedTuple):
    """What a page quotes, and where."""

    text: str
    page: str
    anchor: str


def anchored(markdown: str) -> str:
    """The page of troubleshooting, whose messages can be linked to."""
    return "\n".join(
        _CODE.sub(lambda code: f"{code[0]}{{ #{anchor(code[1])} .message }}", line[: line.index("|", 1)])
        + line[line.index("|", 1) :]
        if line.startswith("| ")
        else line
        for line in markdown.split("\n")
    )


def symptoms() -> list[Quote]:
    """What the page of troubleshooting quotes in the first columns of its tables."""
    rows = re.findall(r"^\| ([^|]*) \|", (DOCS / TROUBLE).read_text(), re.MULTILINE)
    return [Quote(code, TROUBLE, anchor(code)) for row in rows for code in _CODE.findall(row)]


def is_known(symptom: str) -> bool:
    """Whether it is printed: as a message, or as a kind or a counter if it is one word."""
    if len(words(symptom)) < 2:
        slugs = {slug for meanings in kinds().values() for slug in meanings}
        return symptom in slugs or re.search(rf"_{symptom}(_total)?`", metrics.tables()) is not None
    return any(_holds(text, symptom) or _is_example(symptom, text) for text in _printed())


@functools.cache
def _printed() -> list[str]:
    meanings = [f"{slug} ({meaning})" for slugs in kinds().values() for slug, meaning in slugs.items()]
    return [*(text.text for text in [*texts(), *system()]), *meanings]


def _is_example(symptom: str, text: str) -> bool:
    """Whether it is a message with something in place of what varies; a sentence there is a message too."""
    if len(words(text)) < 3 or not _holds(symptom, text):
        return False
    whole = re.search("(.+?)".join(map(re.escape, _pieces(text))), symptom)
    return whole is not None and all(is_known(given) for given in whole.groups() if len(words(given)) > 2)


@functools.cache
def every() -> list[Quote]:
    """What pages quote: code of three words or more in their text, and lines of their blocks, but no code of Python."""
    found = symptoms()
    for page in [*sorted(DOCS.glob("guides/*.md")), *sorted(DOCS.glob("*.md"))]:
        section, fence = "", ""
        for line in page.read_text().split("\n"):
            if line.startswith("```"):
                fence = "" if fence else line
            elif fence:
                found += [Quote(line, str(page.relative_to(DOCS)), section)] * ("python" not in fence)
            elif heading := _HEADING.match(line):
                section = heading[2] or slugify(re.sub(r"[`*]", "", heading[1]), "-")
            elif page.name != TROUBLE:
                found += [Quote(code, str(page.relative_to(DOCS)), section) for code in _CODE.findall(line)]
    return [quote for quote in found if len(words(quote.text)) > 2 or quote.page == TROUBLE]


@functools.cache
def _pieces(text: str) -> list[str]:
    return [piece for piece in text.strip(f"{GAP}:,;. ").split(GAP) if piece.strip()]


def _holds(whole: str, part: str) -> bool:
    """Whether the pieces of a text between what varies are in another one, in their order."""
    at = 0
    for piece in _pieces(part):
        at = whole.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def fits(quote: Quote, text: str) -> bool:
    """Whether a text is quoted: with examples in place of what varies, or in part; a guide quotes half of it or more."""
    own, quoted = len(words(text)), len(words(quote.text))
    is_whole = own > 3 or (own == 3 and quoted < 6)
    is_enough = quoted > 1 and (quote.page == TROUBLE or 2 * quoted >= own)
    return (is_whole and _holds(quote.text, text)) or (is_enough and _holds(text, quote.text))


@functools.cache
def anchor(text: str) -> str:
    """The place of a message on its page."""
    return str(slugify(text.replace("_", "-"), "-"))
