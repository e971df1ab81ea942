"""SIGHUP: reads again what a role was given in files."""

from __future__ import annotations

import logging
from collections.abc import Callable

from trunkline.errors import ClosedError, LocalProtocolError

__all__ = ["Reloading"]


class Reloading:
    """What SIGHUP does, once there is anything to reload."""

    def __init__(self) -> None:
        self._reload: Callable[[], None] | None = None
        self._is_wanted = False
        self._is_under_way = False

    def begin(self, reload: Callable[[], None]) -> None:
        """Has this reload from now on, and at once if that was wanted before."""
        self._reload = reload
        if self._is_wanted:
            self.reload()

    def reload(self, *_: object) -> None:
        """Reads again what may have changed; as a handler of signals, which may come in the midst of it."""
        self._is_wanted = True
        if self._reload is None:
            return
        # One after the other: what was read first never replaces what was read later.
        while self._is_wanted and not self._is_under_way:
            self._is_under_way, self._is_wanted = True, False
            self._read_again(self._reload)
            self._is_under_way = False

    @staticmethod
    def _read_again(reload: Callable[[], None]) -> None:
        try:
            reload()
        except (OSError, LocalProtocolError) as error:
            logging.getLogger("trunkline").warning(
                "not reloaded, the old policies, users and allow-lists stay in effect: %s", error
            )
        except ClosedError:
            # It ends.
            pass
