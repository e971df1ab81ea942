"""Opening a role of CDT that runs on: its server may take its time, and a signal ends that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from trunkline.cli import running
from trunkline.cli.output import Output
from trunkline.cli.pace import LOOK_S, Pace
from trunkline.cli.signals import Stopping
from trunkline.cli.telling import tell_no_more

if TYPE_CHECKING:
    from trunkline.cdt._parts import BlockingPart

__all__ = ["opened"]

Opened = TypeVar("Opened", bound="BlockingPart")


@contextmanager
def opened(make: Callable[[], Opened], stopping: Stopping, output: Output) -> Iterator[Opened | None]:
    """A role that is closed at the end; None if a signal came before it was there, which is told then.

    Args:
        make: Makes it, in a thread of its own.
        stopping: What signals do to it.
        output: Where it is told.
    """
    from trunkline.cdt import _portal

    made: list[Opened] = []
    is_over = threading.Event()

    def begin() -> None:
        try:
            made.append(make())
        finally:
            is_over.set()

    def give_up() -> None:
        # It may not have begun to wait for its server yet.
        while not is_over.wait(LOOK_S):
            _portal.give_up()

    if running.began(begin, give_up, Pace(stopping, lambda: None, None)):
        with made[0] as role:
            yield role
        return
    for role in made:
        role.close(drain_s=0.0)
    tell_no_more()
    output.summary("signal", {}, "stopped (signal)")
    yield None
