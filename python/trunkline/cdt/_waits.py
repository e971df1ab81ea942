"""Waits of coroutines of CDT, and their cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["cut_off", "until", "within"]

Result = TypeVar("Result")

# How long a task that is cancelled may take before it is cancelled again.
_AGAIN_S = 0.1


async def until(changed: asyncio.Event, ready: Callable[[], object], timeout_s: float | None) -> bool:
    """Waits until `ready`, which is checked at each `changed`; returns whether it is. A timeout of 0 only checks."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not ready():
                changed.clear()
                await changed.wait()
    return bool(ready())


async def within(what: Coroutine[Any, Any, Result], timeout_s: float) -> Result:
    """Awaits a coroutine with a timeout.

    Raises:
        TimeoutError: It took longer, and was cancelled; or it raised this itself.
    """
    task = asyncio.ensure_future(what)
    try:
        await asyncio.wait([task], timeout=timeout_s)
        if not task.done():
            raise TimeoutError
    finally:
        await cut_off(task)
    if task.cancelled():
        # The awaited coroutine was cancelled, not this task.
        raise TimeoutError
    return task.result()


async def cut_off(task: asyncio.Task[Any]) -> None:
    """Cancels a task until it has ended.

    Once is not enough: nats-py swallows a cancellation in some places, and so does `asyncio.wait_for` of Python 3.11 if it
    comes together with the result.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_AGAIN_S)
    if not task.cancelled():
        # asyncio warns of exceptions that are never retrieved.
        task.exception()
