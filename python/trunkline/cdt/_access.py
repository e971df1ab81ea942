"""How a target calls its store, whose methods may be coroutine functions."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from typing import Any

from trunkline._roles.threads import Thread
from trunkline.errors import PeerLostError

__all__ = ["Access"]

# How long cancelled tasks of a store may take.
_CANCEL_S = 1.0


class Access:
    """Calls of a store, from any thread; coroutines run in the event loop of a thread of its own.

    Attributes:
        store: The store.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, method: str, *given: Any, **more: Any) -> Any:
        """Calls a method of the store, and waits for it.

        Raises:
            PeerLostError: Its server does not answer.
        """
        function = getattr(self.store, method)
        try:
            called = function(*given, **more)
            return self._run(called) if inspect.iscoroutinefunction(function) else called
        except (SystemExit, KeyboardInterrupt, StopIteration) as error:
            # They would end another thread than this, or its wait for a future.
            message = f"the store raised {error!r}"
            raise RuntimeError(message) from error
        except Exception as error:
            if type(error).__module__.startswith("nats."):
                # From the JetStream store.
                message = f"JetStream: {str(error).removeprefix('nats: ') or 'no answer'}"
                raise PeerLostError(message) from error
            raise

    @property
    def is_remote(self) -> bool:
        """Whether a look at the store takes longer than counters may take."""
        return inspect.iscoroutinefunction(self.store.count)

    def end(self) -> None:
        """Ends its thread; no call is in progress."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                Thread(lambda: _serve(loop), "trunkline-cdt-store-loop").start()
            loop = self._loop
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            # An interrupted wait ends what it waits for.
            future.cancel()
            raise


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        # A store may have left some: those of a connection that was not closed in time.
        if tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=_CANCEL_S))
        loop.close()
