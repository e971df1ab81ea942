"""Columns as SQL declares them: ``run bigint, `mode of run` string, * variant``."""

from __future__ import annotations

import re

from trunkline.errors import LocalProtocolError

__all__ = ["columns_of"]

# pyspark's own parser needs the JVM, which a data source does not have.
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s,`:]+))(?:\s*:\s*|\s+)(\w+)\s*(,|$)")

# SQL's names of the types of tags.
_TYPES = {"long": "bigint", "bool": "boolean", "bytes": "binary", "float8": "double", "text": "string"}

_WORDS: dict[str, str | None] = {"variant": "variant", "json": "json", "none": None}


def columns_of(option: str, text: str) -> dict[str, str] | str | None:
    """The types of the columns in an option, by name; or one of the words ``variant`` and ``json``; None for ``none``.

    Raises:
        LocalProtocolError: It is none of these.

    ```pycon
    >>> columns_of("tags", "run bigint, `mode, of run` string, * variant")
    {'run': 'bigint', 'mode, of run': 'string', '*': 'variant'}

    ```
    """
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    columns: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _COLUMN.match(text, at)
        if found is None:
            message = (
                f"option {option}: expected a name and a type at {text[at : at + 40]!r}: it takes DDL such as "
                "'run bigint, * variant', or variant, json or none"
            )
            raise LocalProtocolError(message)
        quoted, plain, kind, _ = found.groups()
        name = plain if quoted is None else quoted.replace("``", "`")
        if name in columns:
            message = f"option {option}: {name!r} is named twice"
            raise LocalProtocolError(message)
        columns[name] = _TYPES.get(kind.lower(), kind.lower())
        at = found.end()
    if not columns or text.rstrip().endswith(","):
        message = f"option {option}: a column is missing in {text!r}"
        raise LocalProtocolError(message)
    return columns
