"""The keys of tables, by which a stream updates their rows."""

from __future__ import annotations

from trunkline._native.analysis import Fold
from trunkline._text import did_you_mean
from trunkline.errors import LocalProtocolError

__all__ = ["keys_of"]


def keys_of(table: str) -> tuple[str, ...]:
    """The key columns of a table that `runs`, `gaps`, `pair_requests` and the others make.

    A stream gives a row again when something has changed in it, and the last row of a key is the one that counts. Of `gaps`
    there are none: a row is given once, and never again.

    ```pycon
    >>> from trunkline import spark
    >>> spark.keys_of("requests")
    ('capture_id', 'request_seq')

    ```

    Args:
        table: ``"runs"``, ``"gaps"``, ``"requests"``, ``"topics"``, ``"contents"`` or ``"rollout"``.

    Raises:
        LocalProtocolError: There is no such table.
    """
    if table not in Fold.NAMES:
        message = f"no table {table}{did_you_mean(table, Fold.NAMES)}"
        raise LocalProtocolError(message)
    return Fold(table).key
