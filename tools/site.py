"""What mkdocs does beside its own: links from the pages into the repository lead there, or are none.

On a page as it lies in the repository such a link is relative. The site has no sources: where `repo_url` says who has
them the link goes there, else the name of the test stays, and its file with it.
"""

from __future__ import annotations

import re
from typing import Any

INTO_REPOSITORY = re.compile(r"\[(`[^`]+`)\]\(\.\./\.\./((?:tests|rust)/[^)]+)\)")


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Called by mkdocs with each page before it is rendered."""

    def link(found: re.Match[str]) -> str:
        name, place = found.groups()
        if config.repo_url:
            return f"[{name}]({config.repo_url.rstrip('/')}/blob/HEAD/{place})"
        return f"{name} ({place.partition('#')[0]})"

    return INTO_REPOSITORY.sub(link, markdown)
