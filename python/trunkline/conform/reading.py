"""Reads JSON of a peer, whatever it is."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["json_object"]

# More is no answer to what checks ask.
_MOST_BYTES = 1 << 20


def json_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object; None if it is none.

    ```pycon
    >>> json_object(b'{"a": 1}'), json_object(b"[1]"), json_object(b"{"), json_object(b"[" * 100_000)
    ({'a': 1}, None, None, None)

    ```
    """
    if len(data) > _MOST_BYTES:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
