"""Ends a command that makes one request, when its peers refuse every connection."""

from __future__ import annotations

import _thread
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from trunkline import errors
from trunkline._roles.notices import connections
from trunkline._roles.reachability import unreached

__all__ = ["is_refused", "unless_refused"]

# A server that stops during a handshake looks like a refusal: only this many failures in a row count as one.
_HANDSHAKES = 3

# Interrupts the main thread, which waits for the answer. It is never sent to the process.
_CARRIER = getattr(signal, "SIGUSR1", signal.SIGABRT)


def is_refused(endpoints: Sequence[str]) -> bool:
    """Whether no handshake has succeeded, and three in a row failed with each of the endpoints."""
    return not connections.made and all(connections.failed_at(endpoint) >= _HANDSHAKES for endpoint in endpoints)


@contextmanager
def unless_refused(endpoints: Sequence[str]) -> Iterator[None]:
    """Raises `AuthenticationError` inside once every connection is refused.

    A long-running role retries instead: a server may allow its key later.
    """

    def failed() -> None:
        if is_refused(endpoints):
            connections.on_failed = None
            _thread.interrupt_main(_CARRIER)

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        message = f"every connection is refused by {unreached(endpoints)}"
        raise errors.AuthenticationError(message)

    before = signal.signal(_CARRIER, end)
    connections.on_failed = failed
    try:
        yield
    finally:
        connections.on_failed = None
        signal.signal(_CARRIER, before)
