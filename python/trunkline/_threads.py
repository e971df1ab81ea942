"""Threads of our own, in which code of users' is called."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Thread", "survivable"]


class Thread(threading.Thread):
    """A thread of ours. Neither Ctrl-C nor the end of the interpreter waits for what it does."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        super().__init__(target=run, name=name, daemon=True)


def survivable() -> type[BaseException]:
    """What code of users' may raise and end nothing but itself.

    In a thread of ours that is anything: it serves others, who would wait for ever. In a thread of theirs an exit and an
    interrupt are for them.
    """
    return BaseException if isinstance(threading.current_thread(), Thread) else Exception
