"""Our own threads, which call code of the user."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Thread", "survivable"]


class Thread(threading.Thread):
    """A thread of ours. Neither Ctrl-C nor the end of the interpreter waits for what it does."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        super().__init__(target=run, name=name, daemon=True)


def survivable() -> type[BaseException]:
    """The exceptions of user code that must not end the thread.

    In a thread of ours that is any: others wait for the thread. In a thread of the user, SystemExit and
    KeyboardInterrupt pass.
    """
    return BaseException if isinstance(threading.current_thread(), Thread) else Exception
