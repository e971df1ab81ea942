"""Patterns in paths, as Spark's readers of files take them: ``*``, ``?``, ``[a-c]``, ``[^a]`` and ``{a,b}``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from trunkline._locations import Location, Url
from trunkline.capture.stores import folders, is_folder

__all__ = ["is_pattern", "matching"]

_PATTERN = re.compile(r"[*?]|\[[^/\]]+\]|\{[^{}]*\}")

# The innermost braces.
_BRACES = re.compile(r"\{([^{}]*)\}")

_PIECE = re.compile(r"\*|\?|\[(\^?)([^\]]+)\]|(.)", re.DOTALL)


def is_pattern(location: Location) -> bool:
    """Whether a path has a pattern; of a URL, what follows a question mark are options."""
    return bool(_PATTERN.search(_text(location)))


def matching(location: Location) -> Iterator[Location]:
    """The folders that match a pattern, each once, in order. Names that begin with a dot or an underscore must be matched so.

    Raises:
        CaptureError: The store cannot be asked.
    """
    seen = set()
    for text in _alternatives(_text(location)):
        fixed = re.split(r"[*?\[]", text, maxsplit=1)[0]
        base, _, _ = fixed.rpartition("/")
        names = [name for name in text[len(base) :].split("/") if name]
        for found in _below(_with(location, base or "/"), names):
            if found not in seen and is_folder(found):
                seen.add(found)
                yield found


def _below(folder: Location, names: list[str]) -> Iterator[Location]:
    if not names:
        yield folder
        return
    name, *more = names
    if not re.search(r"[*?\[]", name):
        yield from _below(folder / name, more)
        return
    matches = re.compile(_regex(name))
    for found in folders(folder) if is_folder(folder) else ():
        if matches.fullmatch(found) and (found[0] not in "._" or name[0] == found[0]):
            yield from _below(folder / found, more)


def _regex(name: str) -> str:
    def piece(found: re.Match[str]) -> str:
        if found[2]:
            inside = found[2].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            return f"[{found[1]}{inside}]"
        return {"*": ".*", "?": "."}.get(found[0]) or re.escape(found[0])

    return _PIECE.sub(piece, name)


def _alternatives(text: str) -> Iterator[str]:
    """The texts without braces, in the order of what is in them."""
    found = _BRACES.search(text)
    if found is None:
        yield text
        return
    for part in found[1].split(","):
        yield from _alternatives(text[: found.start()] + part + text[found.end() :])


def _text(location: Location) -> str:
    return location.as_posix() if isinstance(location, Path) else urlsplit(location.text).path


def _with(location: Location, text: str) -> Location:
    """The location with another path."""
    return Path(text) if isinstance(location, Path) else Url(urlunsplit(urlsplit(location.text)._replace(path=text)))
