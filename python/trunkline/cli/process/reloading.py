"""SIGHUP: reloads the files of a role."""

from __future__ import annotations

import logging
from collections.abc import Callable

from trunkline.errors import ClosedError, LocalProtocolError

__all__ = ["Reloading"]


class Reloading:
    """The SIGHUP handler, which reloads once there is something to reload.

    Args:
        what: What is reloaded, with its verb: "allow-list stays".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._reload: Callable[[], None] | None = None
        self._is_wanted = False
        self._is_under_way = False

    def begin(self, reload: Callable[[], None]) -> None:
        """Sets the function that reloads; calls it at once if a SIGHUP came before."""
        self._reload = reload
        if self._is_wanted:
            self.reload()

    def reload(self, *_: object) -> None:
        """Reloads; a signal handler, which may interrupt itself."""
        self._is_wanted = True
        if self._reload is None:
            return
        # One after the other, so that older contents never replace newer ones.
        while self._is_wanted and not self._is_under_way:
            self._is_under_way, self._is_wanted = True, False
            self._read_again(self._reload)
            self._is_under_way = False

    def _read_again(self, reload: Callable[[], None]) -> None:
        try:
            reload()
        except LocalProtocolError as error:
            logging.getLogger("trunkline").warning("not reloaded, the old %s in effect: %s", self._what, error)
        except ClosedError:
            # The role is closed.
            pass
