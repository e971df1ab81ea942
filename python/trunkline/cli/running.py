"""Roles that run on until a signal ends them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from trunkline import errors
from trunkline.cli.ending import Stopped, Stopping
from trunkline.cli.options import Pace
from trunkline.cli.output import Output
from trunkline.cli.panel import watching

__all__ = ["Reloading", "Service", "run"]


class Service(Protocol):
    """A role that needs nobody to run."""

    @property
    def endpoints(self) -> Sequence[str]:
        """Where it listens."""

    @property
    def stats(self) -> Any:
        """Its counters."""

    def wait(self, *, timeout_s: float | None = None) -> None:
        """Waits until it is closed."""

    def close(self, *, drain_s: float = ...) -> None:
        """Ends it."""


def run(
    role: Service,
    stopping: Stopping,
    output: Output,
    *,
    name: str,
    doing: str,
    stats_interval: float | None,
    drain_s: float,
    capture: Path | None = None,
) -> None:
    """Says that a role runs, tells its counters now and then, and ends it with the first signal."""
    output.ready(name, role.endpoints, doing)
    pace = Pace(lambda: output.stats(role.stats), stats_interval)
    try:
        with (
            stopping.interrupting(),
            watching(output, lambda: role.stats, doing=f"{name} {doing} {' '.join(role.endpoints)}", capture=capture),
        ):
            while not _is_over(role, pace.wait_s()):
                pace.look_up()
    except Stopped:
        pass
    role.close(drain_s=drain_s)
    output.stopped("signal", role.stats)


def _is_over(role: Service, timeout_s: float | None) -> bool:
    try:
        role.wait(timeout_s=timeout_s)
    except errors.TimeoutError:
        return False
    return True


class Reloading:
    """What SIGHUP does, once there is anything to do it to."""

    def __init__(self) -> None:
        self._reload: Callable[[], None] | None = None
        self._is_wanted = False

    def begin(self, reload: Callable[[], None]) -> None:
        """Has this reload from now on, and at once if that was wanted before."""
        self._reload = reload
        if self._is_wanted:
            self.reload()

    def reload(self, *_: object) -> None:
        """Reads again what may have changed; as a handler of signals."""
        self._is_wanted = True
        if self._reload is None:
            return
        try:
            self._reload()
        except errors.LocalProtocolError as error:
            logging.getLogger("trunkline").warning("policies, users and allow-lists stay as they were: %s", error)
        except errors.ClosedError:
            # It ends.
            pass
