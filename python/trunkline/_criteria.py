"""Parses criteria of a selection."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from trunkline.errors import LocalProtocolError

__all__ = ["moment_ns", "routing_id"]

_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

# The latest time in captures.
_MOST_NS = (1 << 63) - 1


def routing_id(given: str) -> bytes:
    r"""A routing id, given as text, or as 0x and hexadecimal digits.

    Raises:
        LocalProtocolError: The digits are none.

    ```pycon
    >>> routing_id("worker-1"), routing_id("0x00ff")
    (b'worker-1', b'\x00\xff')

    ```
    """
    if not given.startswith("0x"):
        return given.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(given[2:])
    except ValueError:
        message = f"takes text, or 0x and hexadecimal digits, not {given!r}"
        raise LocalProtocolError(message) from None


def moment_ns(given: str) -> int:
    """A time in nanoseconds since 1970, given as a time in UTC unless it says otherwise, or as an age.

    Raises:
        LocalProtocolError: It is neither, or one that no capture can have.

    ```pycon
    >>> moment_ns("2026-11-23T14:00:00.5")
    1795442400500000000

    ```
    """
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", given)
    if ago is not None:
        return _within(time.time_ns() - round(min(float(ago[1]) * _SPANS[ago[2]] * 1e9, _MOST_NS * 2)), given)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        message = f"takes a time such as 2026-11-23T14:00:00, or an age such as 90m, 2h or 3d, not {given!r}"
        raise LocalProtocolError(message) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    seconds, rest = divmod(moment.timestamp(), 1)
    return _within(int(seconds) * 10**9 + round(rest * 1e6) * 1000, given)


def _within(time_ns: int, given: str) -> int:
    if not -_MOST_NS <= time_ns <= _MOST_NS:
        message = f"takes a time from 1677-09-22 to 2262-04-11, not {given!r}"
        raise LocalProtocolError(message)
    return time_ns
