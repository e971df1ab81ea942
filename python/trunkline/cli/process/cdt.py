"""Opens roles of CDT that keep running: connecting may take long, and a signal ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from trunkline.cli.process import running
from trunkline.cli.process.signals import Stopping
from trunkline.cli.process.waiting import LOOK_S, Pace
from trunkline.cli.terminal.output import Output
from trunkline.cli.terminal.stderr import mute

if TYPE_CHECKING:
    from trunkline.cdt._roles import BlockingCdtRole

__all__ = ["opened"]

Opened = TypeVar("Opened", bound="BlockingCdtRole")


@contextmanager
def opened(make: Callable[[], Opened], stopping: Stopping, output: Output) -> Iterator[Opened | None]:
    """Opens a role, and closes it at the end; yields None if a signal came first, which is then reported.

    Args:
        make: Opens the role, in a thread of its own.
        stopping: The signals that came.
        output: Where to report.
    """
    from trunkline.cdt._opening import give_up_opening

    made: list[Opened] = []
    is_over = threading.Event()

    def begin() -> None:
        try:
            made.append(make())
        finally:
            is_over.set()

    def give_up() -> None:
        # Repeated, as it may not have begun to wait for its server yet.
        while not is_over.wait(LOOK_S):
            give_up_opening()

    if running.began(begin, give_up, Pace(stopping, lambda: None, None)):
        with made[0] as role:
            yield role
        return
    for role in made:
        role.close(drain_s=0.0)
    mute()
    output.summary("signal", {}, "stopped (signal)")
    yield None
