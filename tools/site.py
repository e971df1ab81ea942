"""What mkdocs does beside its own: pages that are made from the code, and links from the pages into the repository.

On a page as it lies in the repository such a link is relative. The site has no sources: where `repo_url` says who has
them the link goes there. Else the words stay, with the file where they do not name it; a button goes.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

# mkdocs runs this file by itself.
sys.path.insert(0, str(Path(__file__).parents[1]))
from tools import commands, messages, metrics, options, quotes, terminals, wire

from trunkline import connection_failures

ROOT = Path(__file__).parents[1]

# Files of the repository that are pages of the site.
_PAGES = {"SECURITY.md": "security-policy.md", "CHANGELOG.md": "changelog.md"}

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]*)\)(\{[^}]*\})?")


def on_config(config: Any, **_: Any) -> Any:
    """Called by mkdocs first: gives the pages that are made from the code their places in the navigation."""
    made = {"Commands": ["commands/index.md", *sorted(commands.files())], "Index of messages": list(messages.files())}

    def fill(entries: list[Any]) -> None:
        for entry in entries:
            for title, below in entry.items() if isinstance(entry, dict) else ():
                entry[title] = made.get(title, below)
                fill(below if isinstance(below, list) else [])

    fill(config.nav)
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Called by mkdocs when it has found the pages: adds those that are made from the code."""
    policy = {page: _from_root((ROOT / file).read_text()) for file, page in _PAGES.items()}
    for place, text in (commands.files() | messages.files() | terminals.pictures() | policy).items():
        files.append(File.generated(config, place, content=text))
    return files


def _from_root(text: str) -> str:
    """A page of the root as one of the documentation: links to pages of that are those of its folder."""
    return re.sub(r"\]\((?!https?:|#)", "](../", text).replace("](../docs/", "](")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called by mkdocs with each page before it is rendered."""
    if page.file.src_uri == "commands/index.md":
        markdown = commands.overview(markdown)
    if page.file.src_uri == "reference/options.md":
        introduction, heading, types = markdown.partition("## Types")
        markdown = f"{introduction}{options.tables()}\n{heading}{types}"
    if page.file.src_uri == "reference/metrics.md":
        markdown = f"{markdown}\n{metrics.tables()}"
    if page.file.src_uri == "reference/errors.md":
        rows = "".join(f"| `{reason}` | {meaning} |\n" for reason, meaning in connection_failures().items())
        markdown = f"{markdown}\n| reason | what it means |\n|---|---|\n{rows}\n{messages.tables()}"
    if page.file.src_uri == quotes.TROUBLE:
        markdown = quotes.anchored(markdown)
    markdown = wire.expand(markdown)
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def link(found: re.Match[str]) -> str:
        words, target, button = found.groups(default="")
        place, number, line = target.partition("#")
        place = posixpath.normpath(posixpath.join(folder, place))
        if place in _PAGES:
            page_of = posixpath.relpath(posixpath.join("docs", _PAGES[place]), folder)
            return f"[{words}]({page_of}{number}{line}){button}"
        if place.startswith("docs/"):
            return found[0]
        if config.repo_url:
            return f"[{words}]({config.repo_url.rstrip('/')}/blob/HEAD/{place}{number}{line}){button}"
        if button:
            return ""
        return f"{words} ({place})" if words.startswith("`") and words.strip("`") != place else words

    return _LINK.sub(link, markdown)
