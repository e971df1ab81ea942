"""What a reload has read and what it changes, for the log."""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from trunkline._roles.notices import log
from trunkline._text import counted, readable
from trunkline.errors import LocalProtocolError

__all__ = ["difference", "reading", "report_reload"]

Value = TypeVar("Value", bound=Hashable)

# How many names of each kind a line has.
_NAMED = 10


def difference(
    source: object, what: str, before: Iterable[tuple[Value, str]], after: Iterable[tuple[Value, str]]
) -> str:
    """The words about one file or folder that was read.

    Args:
        source: The file or folder.
        what: What it has several of.
        before: What it had before, each with the name that it is shown by.
        after: What it has now.

    >>> difference("keys", "key", [(b"1", "c1"), (b"2", "c2")], [(b"2", "c2"), (b"3", "c1"), (b"4", "c3")])
    'keys: 3 keys (added: c3; changed: c1)'
    >>> difference("keys", "key", [(b"1", "c1")], [(b"1", "c1")])
    'keys: 1 key, unchanged'
    """
    old, new = set(before), set(after)
    come, gone = ({name for _, name in those} for those in (new - old, old - new))
    kinds = {"added": come - gone, "removed": gone - come, "changed": come & gone}
    words = "; ".join(f"{kind}: {_listed(sorted(names))}" for kind, names in kinds.items() if names)
    where = os.fsdecode(source) if isinstance(source, str | bytes | os.PathLike) else str(source)
    return f"{readable(where)}: {counted(len(new), what)}{f' ({words})' if words else ', unchanged'}"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(map(readable, names[:_NAMED])) + (f" and {more:,} more" if more > 0 else "")


@contextmanager
def reading() -> Iterator[None]:
    """Around what reads the files of a reload: a file that cannot be read is refused as an invalid one is.

    Raises:
        LocalProtocolError: A file or folder cannot be read.
    """
    try:
        yield
    except OSError as error:
        message = f"{error.filename or 'a file'} cannot be read: {error.strerror}"
        raise LocalProtocolError(message) from error


def report_reload(read: list[str]) -> None:
    """Logs what a reload has read, in one line."""
    if read:
        log(logging.getLogger("trunkline"), logging.INFO, f"reloaded {'; '.join(read)}", None, {"kind": "reloaded"})
