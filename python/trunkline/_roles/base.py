"""Base classes of the roles of all protocols: opening, waiting and closing."""

from __future__ import annotations

import asyncio
import functools
import logging
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from trunkline._arguments import (
    need_text,
)
from trunkline._roles.native import give_up
from trunkline._roles.notices import Notices, end, unwatch
from trunkline._roles.waits import Waits
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's

if TYPE_CHECKING:
    from trunkline._metrics.scrapes import Scrapes
    from trunkline._native import Role as _Engine

__all__ = [
    "AsyncRole",
    "AsyncService",
    "AsyncStream",
    "BlockingRole",
    "BlockingService",
    "Role",
    "RoleWithQuestions",
    "need_sent",
]

Received = TypeVar("Received")


# How often a cancelled caller checks whether the thread that opens a role has ended.
_LOOK_S = 0.05

# How long a service drains by default.
_DRAIN_S = 5.0


def need_sent(native: Any, waited_s: float) -> None:
    """Raises if the transport ended with messages that it had accepted: only libzmq knows how many."""
    if native.unsent:
        message = f"the last messages were not sent within {waited_s} s: the peer does not read"
        raise TimeoutError(message, unsent=1)


class Role:
    """The base class of all roles, blocking and asyncio."""

    # The engine; None until the role is open.
    _native: Any = None

    # An engine that waits for the answer of a peer before the role is open.
    _opening: Any = None

    # The server of its metrics, if any.
    _scrapes: Scrapes | None = None

    # The futures of what it has asked, if it asks.
    _calls: Any = None

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints it listens on, with the actual ports."""
        return tuple(self._role.endpoints)

    @property
    def closed(self) -> bool:
        """Whether the role is closed, or has ended by itself."""
        return self._native is not None and bool(self._native.closed)

    @property
    def transport(self) -> str | None:
        """The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``; None of one without, as those of CDT and CHIRP."""
        return getattr(self._role, "transport", None)

    @property
    def metrics_url(self) -> str | None:
        """Where its metrics are, with the actual port, e.g. ``http://127.0.0.1:9100/metrics``; None without ``metrics``."""
        return None if self._scrapes is None else self._scrapes.url

    @property
    def _metrics(self) -> str | None:
        """Where to serve its metrics; None for a part of another role, which has no options."""
        options: Mapping[str, Any] = getattr(self, "_options", {})
        return options.get("metrics")

    @property
    def _state(self) -> str:
        """The state for health probes: "serving", or why it does not serve."""
        native = self._native
        if native is None:
            return "opening"
        if native.closed:
            return "closed"
        return self._open_state(native)

    def _open_state(self, native: Any) -> str:
        """The state while it is open."""
        return "closing" if native.closing else "serving"

    def _begin_scrapes(self) -> None:
        """Serves its metrics if wanted: before the role opens, so that a port in use fails early."""
        at = self._metrics
        need_text("metrics", at, may_be_none=True)
        if at is not None:
            from trunkline._metrics.exposition import exposed

            self._scrapes = exposed(self, at)

    def _end_scrapes(self) -> None:
        """Ends the server of its metrics."""
        if self._scrapes is not None:
            self._scrapes.close()

    def _open_scraped(self) -> None:
        """Opens the role and its metrics."""
        self._begin_scrapes()
        try:
            self._open()
        except BaseException:
            self._end_scrapes()
            raise

    @property
    def _role(self) -> _Engine:
        native: _Engine = self._opened()
        return native

    def _opened(self) -> Any:
        if self._native is None:
            message = f"{type(self).__name__} is not open yet: use `async with`"
            raise LocalProtocolError(message)
        return self._native

    def _open(self) -> None:
        raise NotImplementedError

    def _made(self) -> None:
        """The last step of the constructor."""
        raise NotImplementedError

    def _notices_of(self, native: Any) -> Any:
        """The native object that has its notices."""
        return native

    def _conclude(self, native: Any) -> None:
        """Once the engine has ended, however it was closed: completes its futures, reports its last notices and writes its log."""
        if self._calls is not None:
            self._calls.end()
        end(self._notices_of(native))

    def _let_go(self, native: Any) -> None:
        """Leaves the engine of a garbage-collected role to end by itself."""
        unwatch(self._notices_of(native))

    def _log_unsent(self) -> None:
        """Logs unsent messages that no exception reports."""

    def _check_sent(self, native: Any, waited_s: float) -> None:
        """Reports messages that the transport had accepted and did not send; of most roles none are missed."""

    def __del__(self) -> None:
        if self._scrapes is not None:
            self._scrapes.stop()
        native = self._native
        if native is not None and not native.closed:
            self._let_go(native)
            warnings.warn(f"unclosed {type(self).__name__}", ResourceWarning, source=self, stacklevel=1)

    def __reduce__(self) -> NoReturn:
        message = f"{type(self).__name__} cannot be copied or pickled"
        raise TypeError(message)

    def __repr__(self) -> str:
        state = "not open" if self._native is None else "closed" if self._native.closed else "open"
        where = f" at {', '.join(self.endpoints)}" if self._native is not None and self.endpoints else ""
        return f"<{type(self).__module__}.{type(self).__name__} {state}{where}>"


class RoleWithQuestions(Role):
    """A role with an engine that asks questions; the answering thread holds the engine."""

    def _notices_of(self, native: Any) -> Any:
        return native.notice_queue

    def _let_go(self, native: Any) -> None:
        super()._let_go(native)
        # The thread holds the engine, and ends with it.
        native.close(0.0)


class BlockingRole(Role):
    """A role with blocking calls; a context manager."""

    def _made(self) -> None:
        self._open_scraped()

    def close(self) -> None:
        raise NotImplementedError

    def _ended(self) -> None:
        """Waits until the engine has ended; overridden where the engine needs help for that."""
        self._role.join()

    def _await_end(self) -> None:
        """Waits until the engine has ended; until then its metrics say that it is closing."""
        try:
            self._ended()
        finally:
            self._end_scrapes()
        self._conclude(self._role)

    def _finish(self, drain_s: float) -> None:
        """Closes the role and waits for its end."""
        native = self._role
        was_closed = native.closed
        native.close(drain_s)
        self._await_end()
        native.raise_failure()
        if not was_closed:
            self._check_sent(native, drain_s)

    def _abandon(self) -> None:
        """Closes after an exception without hiding it."""
        try:
            self._interrupt()
        except TimeoutError:
            self._log_unsent()

    def _interrupt(self) -> None:
        """Closes after an exception."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            self.close()
        else:
            self._abandon()


class AsyncRole(Role):
    """A role with coroutines; an asynchronous context manager, bound to the event loop it is opened in."""

    # The thread that opens the role, and whether the role was closed meanwhile.
    _entering: asyncio.Future[None] | None = None
    _is_unwanted = False

    def _made(self) -> None:
        # `async with` opens it.
        pass

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        if self._native is None:
            self._is_unwanted = False
            self._entering = opening = asyncio.get_running_loop().run_in_executor(None, self._open_scraped)
            try:
                await asyncio.shield(opening)
            except asyncio.CancelledError:
                # The thread goes on: what it opens is closed here.
                await self._end_opening(opening)
                if opening.exception() is None:
                    await self._abandon()
                raise
            finally:
                self._entering = None
            if self._is_unwanted:
                message = f"{type(self).__name__} was closed while it opened"
                raise ClosedError(message)
        return self

    async def _end_opening(self, opening: asyncio.Future[None]) -> None:
        """Interrupts the thread that opens the role, and waits until it is done."""
        while not opening.done():
            if self._opening is not None:
                self._opening.close(0.0)
            await asyncio.wait([opening], timeout=_LOOK_S)

    @functools.cached_property
    def _waits(self) -> Waits:
        return Waits(self._role)

    async def _abandon(self) -> None:
        """Closes after an exception without hiding it."""
        try:
            await self._interrupt()
        except TimeoutError:
            self._log_unsent()

    async def _interrupt(self) -> None:
        """Closes after an exception."""
        await self.close()

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            await self.close()
        else:
            await self._abandon()

    async def _ended(self) -> None:
        """Waits until the engine has ended; overridden where the engine needs help for that."""
        role = self._role
        await self._waits.until(lambda: role.closed, None)

    async def _await_end(self) -> None:
        """Waits until the engine has ended; cancelled, it ends the engine at once."""
        role = self._role
        try:
            await self._ended()
            role.join()
        except BaseException:
            give_up(role)
            raise
        finally:
            await self._unexposed()
        self._conclude(role)

    async def _unexposed(self) -> None:
        """Ends the server of its metrics, which takes a moment."""
        if self._scrapes is not None:
            await asyncio.to_thread(self._end_scrapes)

    async def _finish(self, drain_s: float) -> None:
        """Closes the role and waits for its end; a role that is opening is closed as soon as it is open."""
        if self._native is None and self._entering is not None:
            self._is_unwanted = True
            await self._end_opening(self._entering)
        native = self._native
        if native is None:
            return
        was_closed = native.closed
        native.close(drain_s)
        await self._await_end()
        native.raise_failure()
        if not was_closed:
            self._check_sent(native, drain_s)


class AsyncStream(AsyncRole, Generic[Received]):
    """A role that receives; an asynchronous iterator over what it receives until it is closed."""

    async def receive(self, *, timeout_s: float | None = None) -> Received:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        try:
            return await self.receive()
        except ClosedError:
            self._role.raise_failure()
            raise StopAsyncIteration from None


def _still_runs(role: Role, timeout_s: float | None) -> TimeoutError:
    return TimeoutError(f"{role!r} is still running after {timeout_s} s")


class _Service(Role):
    """A role that runs by itself in the background."""

    _notices: Notices

    def _check_sent(self, native: Any, waited_s: float) -> None:
        """Logs it: that a peer does not read is no error of the caller of `close`."""
        if native.unsent:
            text = f"the last messages to a peer that does not read were not sent within {waited_s} s"
            self._notices.log(logging.WARNING, "unsent", text)


class BlockingService(_Service, BlockingRole):
    """A role that runs by itself in the background."""

    def wait(self, *, timeout_s: float | None = None) -> None:
        """Waits until the role is closed by another thread; it runs by itself meanwhile.

        Args:
            timeout_s: How long to wait; None for no limit, 0 to only look.

        Raises:
            TimeoutError: It is still running.
            ClosedError: It has ended by itself, e.g. because its ZeroMQ context was terminated.
        """
        if not self._role.join(timeout_s):
            raise _still_runs(self, timeout_s)
        self._role.raise_failure()

    def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """Accepts nothing new, completes what is in progress for at most `drain_s` seconds, and closes.

        What is left by then is dropped, and counted in `stats.queued`.
        """
        self._finish(drain_s)

    def _abandon(self) -> None:
        self.close(drain_s=0.0)


class AsyncService(_Service, AsyncRole):
    """A role that runs by itself in the background, for asyncio."""

    async def wait(self, *, timeout_s: float | None = None) -> None:
        """Waits until the role is closed by another task; see the blocking class."""
        role = self._role
        if not await self._waits.until(lambda: role.closed, timeout_s):
            raise _still_runs(self, timeout_s)
        role.raise_failure()

    async def close(self, *, drain_s: float = _DRAIN_S) -> None:
        """Completes what is in progress and closes; see the blocking class."""
        await self._finish(drain_s)

    async def _abandon(self) -> None:
        await self.close(drain_s=0.0)
