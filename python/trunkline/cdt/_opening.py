"""The first connection of a role of CDT."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Sequence
from typing import Any

from trunkline._roles.native import closed, give_up
from trunkline._roles.notices import Notices
from trunkline.errors import AuthenticationError, PeerLostError

__all__ = ["await_connected", "give_up_opening"]

# The engines of roles that are being opened.
_opening: set[Any] = set()


def await_connected(native: Any, servers: Sequence[str], connect_s: float, notices: Notices) -> None:
    """Waits until a server has the subscriptions of an engine, which else is ended.

    Raises:
        PeerLostError: No server answers in time.
        AuthenticationError: A server refuses the login or a subscription, or is not trusted.
        ClosedError: The opening was given up.
    """
    _opening.add(native)
    try:
        _await(native, servers, time.monotonic() + connect_s, notices)
    except BaseException:
        give_up(native)
        raise
    finally:
        _opening.discard(native)


def give_up_opening() -> None:
    """Ends the opening of roles, from any thread: the threads that open them get a `ClosedError`."""
    for native in _opening.copy():
        native.close(0.0)


def _await(native: Any, servers: Sequence[str], end_s: float, notices: Notices) -> None:
    queue = native.notice_queue
    poll = select.poll()
    poll.register(queue.fileno(), select.POLLIN)
    where = ", ".join(map(without_credentials, servers))
    why = f"{where}: no NATS server answers there"
    refusals: list[str] = []
    while True:
        is_over = queue.closed
        for kind, *details in queue.read():
            if kind == "connected":
                if refusals:
                    raise AuthenticationError(refusals[0])
                notices.report(kind, *details)
                return
            if kind == "denied":
                raise AuthenticationError(_denied(*details))
            if kind == "refused":
                refusals.append(details[0])
            elif kind == "failed":
                why = ": ".join(details)
            elif kind != "unreachable":
                notices.report(kind, *details)
        if is_over:
            native.raise_failure()
            kind = f"cdt.{type(native).__name__}"
            raise closed(kind)
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise PeerLostError(why)
        if not queue.arm():
            poll.poll(math.ceil(left_s * 1000))
        queue.disarm()


def _denied(endpoint: str, reason: str) -> str:
    advice = ""
    if "certificate" in reason:
        advice = ": give tls= a trunkline.Tls whose ca= is its issuer (--tls-ca on the command line)"
    return f"{endpoint}: {reason}{advice}"


def without_credentials(server: str) -> str:
    """A URL without user, password and token, even with unencoded characters in these."""
    scheme, mark, rest = server.partition("://")
    host = (rest if mark else server).rpartition("@")[2]
    return f"{scheme if mark else 'nats'}://{host}"
