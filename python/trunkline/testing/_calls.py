"""Calls that return their replies as futures, in a simulation."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from trunkline._native import Simulated
from trunkline.errors import ClosedError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.testing._world import World, need_open

__all__ = ["Calls", "Future"]

Reply = TypeVar("Reply")


class Future(concurrent.futures.Future[Reply], Generic[Reply]):
    """The future of a reply. Waiting for it advances the clock."""

    def __init__(self, wait: Callable[[Callable[[], object], float | None], bool], forget: Callable[[], None]) -> None:
        super().__init__()
        self._wait = wait
        self._forget = forget

    def cancel(self) -> bool:
        """Stops waiting for the reply; the request is not sent if it has not been sent yet."""
        cancelled = super().cancel()
        if cancelled:
            self._forget()
        return cancelled

    def result(self, timeout: float | None = None) -> Reply:
        """Advances the clock until the reply arrives, or by at most this much; see
        `concurrent.futures.Future.result`.
        """
        self._wait(self.done, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Advances the clock as `result` does; see `concurrent.futures.Future.exception`."""
        self._wait(self.done, timeout)
        return super().exception(0)


class Calls(Generic[Reply]):
    """The futures of one role."""

    def __init__(self, world: World, engine: Simulated) -> None:
        self._world = world
        self._engine = engine
        self._futures: dict[int, tuple[Future[Reply], float | None]] = {}
        self._numbers = itertools.count()

    def put(self, verb: str, timeout_s: float | None, **given: Any) -> Future[Reply]:
        """Submits a call to the machine."""
        need_open(self._engine)
        call = next(self._numbers)
        self._engine.ask(verb, call=call, timeout_s=timeout_s, **given)
        future: Future[Reply] = Future(self._world.until, functools.partial(self._cancel, call))
        self._futures[call] = future, timeout_s
        return future

    def complete(self, kind: str, call: int, reply: Any = None) -> None:
        """Completes a call with its reply or an error."""
        future, timeout_s = self._futures.pop(call, (None, None))
        if future is None or not future.set_running_or_notify_cancel():
            return
        if kind == "timed_out":
            future.set_exception(TimeoutError(f"no reply came within {timeout_s} s"))
        elif kind == "unanswered":
            future.set_exception(ClosedError("this role is closed"))
        elif isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    def timeout_of(self, call: int) -> float | None:
        """The timeout of a call in seconds; None without limit."""
        return self._futures[call][1] if call in self._futures else None

    def lose(self) -> None:
        """Fails all pending calls."""
        for call in list(self._futures):
            self.complete("unanswered", call)

    def _cancel(self, call: int) -> None:
        self._futures.pop(call, None)
        self._engine.ask("cancel", call=call)
