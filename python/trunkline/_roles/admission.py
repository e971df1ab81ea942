"""Admission of CURVE clients: asks the user's `allow=` about each, and logs those that were refused."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from trunkline._roles.pool import Pool
from trunkline._roles.questions import poll_engine
from trunkline._roles.threads import survivable

if TYPE_CHECKING:
    from trunkline._native import Guard
    from trunkline._roles.notices import Notices
    from trunkline.curve import Allow

__all__ = ["Admission"]

# Calls of `allow` at a time; more clients wait for their turn.
_THREADS = 4


class Admission:
    """The admission of one role: logs refused clients, and calls `allow` for each client if it is a callable.

    Questions are read by a thread of the role's own, not by that of the notices, where a callback of another role would delay
    every client.
    """

    def __init__(self, guard: Guard, allow: Allow | None, notices: Notices) -> None:
        self._guard = guard
        self._allow = allow
        self._notices = notices
        self._pool = Pool(_THREADS, "trunkline-allow")

    def start(self) -> None:
        """Reads questions in a thread of its own, until the role ends."""
        poll_engine(self._guard, self.look, "trunkline-admission", self._pool.end)

    def look(self) -> None:
        """Handles the clients that came since the last call."""
        for token, key, address in self._guard.read():
            if token is None:
                who = f"{address} with the key {key}" if key else f"{address} without a key"
                self._notices.log(logging.WARNING, "refused", f"refused a connection from {who}")
            else:
                self._pool.run(functools.partial(self._ask, token, key, address))

    def _ask(self, token: int, key: str, address: str) -> None:
        assert self._allow is not None
        name = None
        try:
            answer = self._allow(key.encode(), address)
            name = answer if isinstance(answer, str) else key if answer else None
            # A name that cannot be encoded counts as an exception.
            (name or "").encode()
        except survivable() as error:
            name = None
            self._notices.log(logging.ERROR, "allow raised", f"allow= raised for {address} with the key {key}", error)
        if not self._guard.closed:
            self._guard.answer(token, name)
