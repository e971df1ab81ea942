"""Who is let in at the sockets of a role, and what is told of the others."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from trunkline._attending import attend
from trunkline._pool import Pool
from trunkline._threads import survivable

if TYPE_CHECKING:
    from trunkline._native import Guard
    from trunkline._notices import Notices
    from trunkline.curve import Allow

__all__ = ["Door"]

# Clients that are asked about at a time; more wait for their turn.
_THREADS = 4


class Door:
    """The door of one role: it logs who is refused, and asks about those whom no list decides on.

    Questions are read by a thread of the role's own, not by that of the notices: a callback of another role would keep
    every client waiting there.
    """

    def __init__(self, guard: Guard, allow: Allow | None, notices: Notices) -> None:
        self._guard = guard
        self._allow = allow
        self._notices = notices
        self._pool = Pool(_THREADS, "trunkline-allow")

    def keep(self) -> None:
        """Looks after it in a thread of its own, until the role ends."""
        attend(self._guard, self.look, "trunkline-door", self._pool.end)

    def look(self) -> None:
        """Sees to who came since the last time."""
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
            # One that is no text is no answer.
            (name or "").encode()
        except survivable() as error:
            name = None
            self._notices.log(logging.ERROR, "allow raised", f"allow= raised for {address} with the key {key}", error)
        if not self._guard.closed:
            self._guard.answer(token, name)
