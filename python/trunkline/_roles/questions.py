"""Threads that answer the questions of an engine."""

from __future__ import annotations

import functools
import select
import signal
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trunkline._native import NoticeQueue
from trunkline._roles.pool import Pool
from trunkline._roles.threads import Thread
from trunkline.errors import ClosedError

__all__ = ["answer_questions", "poll_engine"]


class _Engine(Protocol):
    """An engine with events."""

    @property
    def closed(self) -> bool: ...
    def fileno(self) -> int: ...
    def arm(self) -> bool: ...
    def disarm(self) -> None: ...


def poll_engine(engine: _Engine, look: Callable[[], None], name: str, end: Callable[[], None]) -> Thread:
    """Calls `look` in a thread of its own whenever the engine has events, and `end` once the engine has ended.

    It is not the thread of the notices: a slow callback of another role would delay these answers.
    """

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        poll = select.poll()
        try:
            poll.register(engine.fileno(), select.POLLIN)
            while not engine.closed:
                # Waits in Python, so that no native code runs when the interpreter ends.
                if not engine.arm():
                    poll.poll()
                engine.disarm()
                look()
        except ClosedError:
            # The engine has ended.
            pass
        end()

    thread = Thread(run, name)
    thread.start()
    return thread


def answer_questions(
    asked: NoticeQueue, answer: Callable[..., None], name: str, threads: int, *, apart: Sequence[str] = ()
) -> None:
    """Calls `answer` with each question, `(kind, *details)`, in one of so many threads; it must not raise.

    Questions of the kinds `apart` have a pool of the same size each: slow ones delay no others. Those of a simulated
    engine are answered at once.
    """
    simulation = asked.simulation
    if simulation is not None:
        simulation.watch(lambda: _answer_all(asked, answer))
        return
    pool = Pool(threads, name)
    pools = {kind: Pool(threads, f"{name}-{kind}") for kind in apart}

    def look() -> None:
        for kind, *details in asked.read():
            work: Callable[[], Any] = functools.partial(answer, kind, *details)
            pools.get(kind, pool).run(work)

    def end() -> None:
        for one in (pool, *pools.values()):
            one.end()

    poll_engine(asked, look, f"{name}-questions", end)


def _answer_all(asked: NoticeQueue, answer: Callable[..., None]) -> None:
    for kind, *details in asked.read():
        # An answer may advance the clock of the simulation, and its engine may crash meanwhile.
        if not asked.closed:
            answer(kind, *details)
