"""What the roles of all protocols share: options, waits, endings."""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypedDict, TypeVar

from trunkline import _native, _notices
from trunkline._door import Door
from trunkline._endpoints import need_endpoints
from trunkline._waits import Waits
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's

if TYPE_CHECKING:
    import zmq

    from trunkline._native import Role as _Engine
    from trunkline.curve import Curve

__all__ = [
    "AsyncRole",
    "AsyncStream",
    "BlockingRole",
    "Endpoints",
    "Overflow",
    "Role",
    "RoleOptions",
    "SocketOptions",
]

Native = TypeVar("Native", bound="_Engine")
Received = TypeVar("Received")

Endpoints = str | Sequence[str]
Overflow = Literal["block", "raise"]
CaptureOverflow = Literal["count", "block"]

_DAY_S = 24 * 60 * 60

# How long an engine that is to end at once may take.
_PARTING_S = 1.0


class SocketOptions(TypedDict, total=False):
    """What every role takes about its sockets.

    Attributes:
        bind: One endpoint to listen on, or several, as ``"tcp://127.0.0.1:*"``.
        connect: One endpoint to dial, or several.
        options: Socket options by their number, as ``{zmq.TCP_KEEPALIVE: 1}``.
        socket: A pyzmq socket of yours to use; do not close it while the role lives.
        curve: Encryption and authentication; not beside `socket`, which brings its own.
        context: A pyzmq Context to share, for ``inproc://``; do not close it while the role lives.
        queue_messages: Messages that may wait between the role and you, at least 1.
        queue_bytes: Bytes that they may take: those of their frames, and 64 for each frame. One larger message is taken
            when nothing waits.
        outbox_bytes: Bytes that may wait for the peers of a role that answers (a broker), all of them together; beyond it
            the peer with the most waiting loses its newest message.
        max_message_bytes: The largest frame that is taken.
        raise_file_limit: Raise the limit of open files to what the system allows, for all of the process: each connection
            of a role that listens is a file.
    """

    bind: Endpoints
    connect: Endpoints
    options: Mapping[int, int | bytes | str]
    socket: zmq.Socket[bytes] | None
    context: zmq.Context[Any] | None
    curve: Curve | None
    queue_messages: int
    queue_bytes: int
    outbox_bytes: int
    max_message_bytes: int
    raise_file_limit: bool


class RoleOptions(SocketOptions, total=False):
    """What every role takes: `SocketOptions`, and what says whether and how it records its traffic.

    Attributes:
        capture: A directory to record everything in that is received and sent.
        capture_overflow: What happens when the capture cannot keep up: the rows it misses are counted in
            ``stats.capture_lost``, or nothing is read until it can. When the capture fails, the role goes on without it.
        segment_bytes: The frame bytes of one segment file of the capture, at most.
        segment_s: The age at which a segment is published, in seconds.
        keep_bytes: The bytes that all segments together may take on disk; what is more is deleted, the oldest first.
        keep_days: How many days ago a segment may have been published; what is older is deleted.
        warn_free_bytes: Warn when the disk has less left: in the log, each time it falls below.
        critical_free_bytes: Tell once more when it has less than this.
    """

    capture: str | os.PathLike[str] | None
    capture_overflow: CaptureOverflow
    segment_bytes: int | None
    segment_s: float | None
    keep_bytes: int | None
    keep_days: float | None
    warn_free_bytes: int
    critical_free_bytes: int


_ready = threading.Lock()
_library: str | None = None


def _use_pyzmq() -> None:
    """Finds libzmq in what pyzmq has loaded, and sees to a clean end of the process: after pyzmq, so it runs before."""
    global _library  # noqa: PLW0603 - once a process
    with _ready:
        if _library is None:
            from zmq.backend.cython import _zmq

            _library = _zmq.__file__
            _native.use_libzmq(_library)
            atexit.register(_shut_down)


def _shut_down() -> None:
    """Ends every role of the process, and has the last word of each. An interrupt ends what it comes to."""
    for step in (_notices.stop, _native.shutdown, _notices.tell_ends):
        with suppress(KeyboardInterrupt):
            step()


def endpoints(given: Endpoints) -> list[str]:
    """One endpoint or several, as a list."""
    return [given] if isinstance(given, str) else list(given)


def need_known(given: RoleOptions) -> None:
    """Refuses keywords that no role has."""
    unknown = set(given) - set(RoleOptions.__annotations__)
    if unknown:
        message = f"unexpected keyword argument {unknown.pop()!r}"
        raise TypeError(message)


def native_options(given: RoleOptions, *, grace_s: float, finds: bool = False, **more: Any) -> dict[str, Any]:
    """The options as the native role takes them; one that finds its peers has no endpoints of its own."""
    _use_pyzmq()
    need_known(given)
    socket, context = given.get("socket"), given.get("context")
    bind, connect = endpoints(given.get("bind", ())), endpoints(given.get("connect", ()))
    need_endpoints("bind", bind)
    need_endpoints("connect", connect)
    if finds and (socket is not None or bind or connect):
        message = "a role that finds its peers in a group takes no bind=, connect= or socket="
        raise LocalProtocolError(message)
    if socket is None and not bind and not connect and not finds:
        message = "a role needs an endpoint to bind or to connect, or a socket"
        raise LocalProtocolError(message)
    if given.get("raise_file_limit", False):
        _raise_file_limit()
    keep_alive: list[object] = []
    if socket is not None:
        if context is not None:
            message = "socket= brings its own context: leave out context="
            raise LocalProtocolError(message)
        if given.get("curve") is not None:
            message = "socket= brings its own security: leave out curve="
            raise LocalProtocolError(message)
        context = socket.context
        keep_alive.append(socket)
    if context is not None:
        keep_alive.append(context)
    bounds = {
        "queue_messages": given.get("queue_messages", 100_000),
        "queue_bytes": given.get("queue_bytes", 256 << 20),
        "outbox_bytes": given.get("outbox_bytes", 256 << 20),
    }
    for name, bound in bounds.items():
        if bound < 1:
            message = f"{name} is at least 1, not {bound!r}"
            raise LocalProtocolError(message)
    capture, curve, keep_days = given.get("capture"), given.get("curve"), given.get("keep_days")
    overflow = given.get("capture_overflow", "count")
    if overflow not in ("count", "block"):
        message = f"capture_overflow is 'count' or 'block', not {overflow!r}"
        raise ValueError(message)
    return {
        **({} if curve is None else curve.options()),
        "bind": bind,
        "connect": connect,
        "options": {int(number): value for number, value in given.get("options", {}).items()},
        "socket": None if socket is None else socket.underlying,
        "context": None if context is None else context.underlying,
        "keep_alive": keep_alive,
        **bounds,
        "max_message_bytes": given.get("max_message_bytes", 1 << 30),
        "capture": None if capture is None else os.fspath(capture),
        "capture_overflow": overflow,
        "segment_bytes": given.get("segment_bytes"),
        "segment_s": given.get("segment_s"),
        "keep_bytes": given.get("keep_bytes"),
        "keep_s": None if keep_days is None else keep_days * _DAY_S,
        "warn_free_bytes": given.get("warn_free_bytes"),
        "critical_free_bytes": given.get("critical_free_bytes"),
        "grace_s": grace_s,
        **more,
    }


def _raise_file_limit() -> None:
    try:
        import resource
    except ImportError:  # Windows, where there is no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def give_up(native: _Engine) -> None:
    """Ends an engine at once, whatever it still waits for."""
    native.close(0.0)
    native.join(_PARTING_S)


def opened(native: Native, given: RoleOptions, notices: _notices.Notices) -> Native:
    """A native role just opened: from now on its allow-list may change, and who is refused is logged."""
    curve, guard = given.get("curve"), native.guard
    if curve is not None and guard is not None:
        curve.used_by(guard)
        door = Door(guard, curve.asks, notices)
        if curve.asks is None:
            _notices.watch(guard, door.look)
        else:
            door.keep()
    return native


class Role:
    """The part of a role's public face that blocking and asyncio share. A room adds what its own two share."""

    # The engine, of the class its protocol has for it; None until it is opened.
    _native: Any = None

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints it listens on, ports filled in."""
        return tuple(self._role.endpoints)

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self._native is not None and bool(self._native.closed)

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
        """Ends the constructor, where everything about the role has been said."""
        raise NotImplementedError

    def _let_go(self, native: Any) -> None:
        """Leaves the engine of a role that is collected to end by itself."""
        _notices.unwatch(native)

    def _tell_unsent(self) -> None:
        """Logs what was not sent, where nobody else is told."""

    def __del__(self) -> None:
        native = self._native
        if native is not None and not native.closed:
            self._let_go(native)
            warnings.warn(f"unclosed {type(self).__name__}", ResourceWarning, source=self, stacklevel=1)

    def __reduce__(self) -> NoReturn:
        message = f"{type(self).__name__} runs here: it can be neither copied nor pickled"
        raise TypeError(message)

    def __repr__(self) -> str:
        state = "not open" if self._native is None else "closed" if self._native.closed else "open"
        where = f" at {', '.join(self.endpoints)}" if self._native is not None and self.endpoints else ""
        return f"<{type(self).__module__}.{type(self).__name__} {state}{where}>"


class BlockingRole(Role):
    """A role whose waits block; a context manager."""

    def _made(self) -> None:
        self._open()

    def close(self) -> None:
        raise NotImplementedError

    def _abandon(self) -> None:
        """Closes after an exception, which is not to be hidden."""
        try:
            self.close()
        except TimeoutError:
            self._tell_unsent()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            self.close()
        else:
            self._abandon()


class AsyncRole(Role):
    """A role whose waits are coroutines; an asynchronous context manager, bound to the loop it is opened in."""

    def _made(self) -> None:
        # `async with` opens it.
        pass

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        if self._native is None:
            opening = asyncio.get_running_loop().run_in_executor(None, self._open)
            try:
                await asyncio.shield(opening)
            except asyncio.CancelledError:
                # The thread goes on, and nobody else closes what it opens.
                await asyncio.wait([opening])
                if self._native is not None:
                    await self._abandon()
                raise
        return self

    @functools.cached_property
    def _waits(self) -> Waits:
        return Waits(self._role)

    async def _abandon(self) -> None:
        """Closes after an exception, which is not to be hidden."""
        try:
            await self.close()
        except TimeoutError:
            self._tell_unsent()

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            await self.close()
        else:
            await self._abandon()

    async def _ended(self) -> None:
        """Waits until the engine is over, and does meanwhile what it needs for that."""
        role = self._role
        await self._waits.until(lambda: role.closed, None)

    async def _join(self) -> None:
        """Waits until the engine has ended; one who is cancelled gives up what it still waits for."""
        role = self._role
        try:
            await self._ended()
        except BaseException:
            give_up(role)
            raise
        role.join()


class AsyncStream(AsyncRole, Generic[Received]):
    """A role that hands something out; an asynchronous iterator of all of it until the role is closed."""

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
