"""The file formats that messages are exported to. Help lists them, so this imports nothing large."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from trunkline._locations import without_secrets
from trunkline.errors import LocalProtocolError

__all__ = ["FORMATS", "TABLES", "TEXT", "TREES", "Format", "format_of", "in_words", "is_compressed"]

Format: TypeAlias = Literal["parquet", "arrow", "csv", "jsonl", "hdf5", "root"]

FORMATS: tuple[Format, ...] = get_args(Format)

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".root": "root",
}

# The text formats, which may go to standard output or be compressed.
TEXT: tuple[Format, ...] = ("csv", "jsonl")

# The formats of trees of arrays.
TREES: tuple[Format, ...] = ("hdf5", "root")

# The formats of any table.
TABLES: tuple[Format, ...] = tuple(form for form in FORMATS if form not in TREES)


def format_of(path: str | os.PathLike[str], forms: Sequence[Format] = FORMATS) -> Format:
    """The format for a file of this name, one of `forms`.

    Raises:
        LocalProtocolError: The format is unknown, or none of these.
    """
    name = Path(path)
    plain = name.with_suffix("") if is_compressed(name) else name
    found = _SUFFIXES.get(plain.suffix.lower())
    if found is None or found not in forms or (plain != name and found not in TEXT):
        ends = ", ".join(suffix for form in forms for suffix in _suffixes(form))
        message = f"unknown format of {without_secrets(os.fspath(path))!r}: end the name with {ends}"
        raise LocalProtocolError(message)
    return found


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Whether a file of this name is compressed with gzip."""
    return Path(path).suffix.lower() == ".gz"


def in_words(forms: Sequence[Format] = FORMATS) -> str:
    """The suffixes of formats, the first one of each.

    >>> in_words(("csv", "hdf5", "root"))
    '.csv, .h5 or .root'
    """
    *most, last = (_suffixes(form)[0] for form in forms)
    return f"{', '.join(most)} or {last}"


def _suffixes(form: Format) -> list[str]:
    plain = [suffix for suffix, of in _SUFFIXES.items() if of == form]
    return plain + [f"{suffix}.gz" for suffix in plain if form in TEXT]
