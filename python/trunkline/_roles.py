"""Base classes of the roles of all protocols: opening, waiting and closing."""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import logging
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, get_args

from trunkline import _native, _notices
from trunkline._admission import Admission
from trunkline._arguments import (
    named,
    need_choice,
    need_flag,
    need_number,
    need_path,
    need_seconds,
    need_text,
    refuse,
)
from trunkline._endpoints import Side, is_public, need_endpoints
from trunkline._waits import Waits
from trunkline.curve import Curve
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.options import DEFAULTS, CaptureOverflow, Endpoints, RoleOptions, Transport

if TYPE_CHECKING:
    from trunkline._native import Role as _Engine
    from trunkline._scrapes import Scrapes

__all__ = [
    "AsyncRole",
    "AsyncService",
    "AsyncStream",
    "BlockingRole",
    "BlockingService",
    "Role",
    "RoleWithQuestions",
]

Native = TypeVar("Native", bound="_Engine")
Received = TypeVar("Received")

_DAY_S = 24 * 60 * 60

# The options that say how a capture is written.
CAPTURE_OPTIONS = (
    "segment_bytes",
    "segment_s",
    "keep_bytes",
    "keep_days",
    "capture_private",
    "warn_free_bytes",
    "critical_free_bytes",
)

# The largest message of a CURVE handshake: the client's second, with the longest routing id there is, 255 bytes.
_CURVE_HANDSHAKE_BYTES = 547

# How long an engine may take to end at once.
_PARTING_S = 1.0

# How often a cancelled caller checks whether the thread that opens a role has ended.
_LOOK_S = 0.05

# How long a service drains by default.
_DRAIN_S = 5.0


_ready = threading.Lock()
_library: str | None = None


def _use_pyzmq() -> None:
    """Takes libzmq from pyzmq, and registers the end of all roles after pyzmq's, so that it runs before that."""
    global _library  # noqa: PLW0603 - once a process
    with _ready:
        if _library is None:
            from zmq.backend.cython import _zmq

            _library = _zmq.__file__
            _native.use_libzmq(_library)
            atexit.register(_shut_down)


def _shut_down() -> None:
    """Ends every role of the process and reports their last notices. An interrupt ends the current step."""
    for step in (_notices.stop, _native.shutdown, _notices.report_ends):
        with suppress(KeyboardInterrupt):
            step()


def endpoints(side: Side, given: Endpoints) -> list[str]:
    """One endpoint or several, as a list."""
    return named(side, given)


def closed(kind: str) -> ClosedError:
    """The error of a call on a closed role, by the kind of its machine: ``dcp.client``."""
    protocol, _, role = kind.rpartition(".")
    text = f"this {protocol}.{role.capitalize()} is closed"
    return ClosedError(text)


def need_client(what: str, given: RoleOptions) -> None:
    """Refuses what a role that connects to a server cannot have: an endpoint to listen on, and the security of a server."""
    if given.get("bind"):
        message = f"{what}: use connect="
        raise LocalProtocolError(message)
    curve = given.get("curve")
    if isinstance(curve, Curve) and not curve.is_client:
        message = f"{what}, whose public key it needs: Curve(secret, server_key=…)"
        raise LocalProtocolError(message)


def native_options(given: RoleOptions, *, grace_s: float, finds: bool = False, **more: Any) -> dict[str, Any]:
    """The options as the native role takes them; a role that finds its peers has no endpoints of its own."""
    _use_pyzmq()
    chosen: RoleOptions = {**DEFAULTS, **given}
    _need_right(chosen)
    socket, context, curve = chosen["socket"], chosen["context"], chosen["curve"]
    bind, connect = endpoints("bind", chosen["bind"]), endpoints("connect", chosen["connect"])
    need_endpoints("bind", bind)
    need_endpoints("connect", connect)
    if finds and (socket is not None or bind or connect):
        message = "a role that finds its peers in a group takes no bind=, connect= or socket="
        raise LocalProtocolError(message)
    if socket is None and not bind and not connect and not finds:
        message = "a role needs an endpoint: give bind= or connect=, or a socket="
        raise LocalProtocolError(message)
    if curve is not None and chosen["max_message_bytes"] < _CURVE_HANDSHAKE_BYTES:
        message = (
            f"max_message_bytes must be at least {_CURVE_HANDSHAKE_BYTES} with curve=, not {chosen['max_message_bytes']}: "
            "messages of the handshake are that large, and no connection could be made"
        )
        raise LocalProtocolError(message)
    _refuse_beside(chosen, bind, connect)
    if context is None and any(endpoint.startswith("inproc:") for endpoint in (*bind, *connect)):
        message = "inproc:// needs context=, the pyzmq Context in which both ends are"
        raise LocalProtocolError(message)
    if chosen["raise_file_limit"]:
        _raise_file_limit()
    keep_alive: list[object] = []
    if socket is not None:
        if context is not None:
            message = "socket= has its own context: leave out context="
            raise LocalProtocolError(message)
        if curve is not None:
            message = "socket= has its own security: leave out curve="
            raise LocalProtocolError(message)
        context = socket.context
        keep_alive.append(socket)
    if context is not None:
        keep_alive.append(context)
    capture = chosen["capture"]
    return {
        **({} if curve is None else curve.options()),
        "bind": bind,
        "connect": connect,
        "options": dict(chosen["options"]),
        "socket": None if socket is None else socket.underlying,
        "context": None if context is None else context.underlying,
        "keep_alive": keep_alive,
        "queue_messages": chosen["queue_messages"],
        "queue_bytes": chosen["queue_bytes"],
        "outbox_bytes": chosen["outbox_bytes"],
        "transport": chosen["transport"],
        "max_connections": chosen["max_connections"],
        "max_connections_per_host": chosen["max_connections_per_host"],
        "max_message_bytes": chosen["max_message_bytes"],
        "max_message_frames": chosen["max_message_frames"],
        "max_handshake_bytes": chosen["max_handshake_bytes"],
        "handshake_timeout_s": chosen["handshake_timeout_s"],
        "has_limits": any(chosen[name] != DEFAULTS[name] for name in _LIMITS),  # type: ignore[literal-required]
        "capture": None if capture is None else os.fspath(capture),
        "capture_overflow": chosen["capture_overflow"],
        **capture_settings(chosen),
        "grace_s": grace_s,
        **more,
    }


def _need_right(chosen: RoleOptions) -> None:
    """Refuses options of a wrong type or out of range, and names them."""
    import zmq

    options = chosen["options"]
    if not isinstance(options, Mapping):
        refuse("options", "a mapping of socket options to values, e.g. {zmq.TCP_KEEPALIVE: 1}", options)
    for number, value in options.items():
        need_number("options", number)
        if not isinstance(value, bytes | str):
            need_number(f"options[{number}]", value, least=-(1 << 31))
    if not isinstance(chosen["socket"], zmq.Socket | None):
        refuse("socket", "a zmq.Socket", chosen["socket"])
    if not isinstance(chosen["context"], zmq.Context | None):
        refuse("context", "a zmq.Context", chosen["context"])
    if not isinstance(chosen["curve"], Curve | None):
        refuse("curve", "a trunkline.Curve", chosen["curve"])
    need_number("queue_messages", chosen["queue_messages"], least=1, error=LocalProtocolError)
    need_number("queue_bytes", chosen["queue_bytes"], least=1, error=LocalProtocolError)
    need_number("outbox_bytes", chosen["outbox_bytes"], least=1, error=LocalProtocolError)
    need_number("max_message_bytes", chosen["max_message_bytes"])
    need_number("max_message_frames", chosen["max_message_frames"], least=1, most=DEFAULTS["max_message_frames"])
    need_number("max_handshake_bytes", chosen["max_handshake_bytes"], least=1024)
    need_seconds("handshake_timeout_s", chosen["handshake_timeout_s"], least=0.001, may_be_none=True)
    need_number("max_connections", chosen["max_connections"], least=1, may_be_none=True)
    need_number("max_connections_per_host", chosen["max_connections_per_host"], least=1, may_be_none=True)
    need_flag("raise_file_limit", chosen["raise_file_limit"])
    if chosen["transport"] is not None:
        need_choice("transport", chosen["transport"], get_args(Transport))
    need_path("capture", chosen["capture"], may_be_none=True)
    need_choice("capture_overflow", chosen["capture_overflow"], get_args(CaptureOverflow))
    need_capture_options(chosen)


def need_capture_options(chosen: Mapping[str, Any]) -> None:
    """Refuses capture options of a wrong type or out of range."""
    need_number("segment_bytes", chosen["segment_bytes"], least=1, may_be_none=True)
    need_seconds("segment_s", chosen["segment_s"], may_be_none=True)
    need_number("keep_bytes", chosen["keep_bytes"], may_be_none=True)
    need_seconds("keep_days", chosen["keep_days"], may_be_none=True, unit="days")
    need_flag("capture_private", chosen["capture_private"])
    need_number("warn_free_bytes", chosen["warn_free_bytes"])
    need_number("critical_free_bytes", chosen["critical_free_bytes"])


def capture_settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """How a capture is written, as the native side takes it."""
    segment_bytes, segment_s, keep_days = chosen["segment_bytes"], chosen["segment_s"], chosen["keep_days"]
    return {
        "segment_bytes": DEFAULTS["segment_bytes"] if segment_bytes is None else segment_bytes,
        "segment_s": DEFAULTS["segment_s"] if segment_s is None else segment_s,
        "keep_bytes": chosen["keep_bytes"],
        "keep_s": None if keep_days is None else keep_days * _DAY_S,
        "capture_private": chosen["capture_private"],
        "warn_free_bytes": chosen["warn_free_bytes"],
        "critical_free_bytes": chosen["critical_free_bytes"],
    }


# Options that bound what a peer can do.
_LIMITS = tuple(name for name in DEFAULTS if name.startswith(("max_", "handshake_")))

# The options that a transport does not support.
_LACKS = {
    "zmtp": ("socket", "context"),
    "zeromq": ("curve", "socket", "context", "options", *_LIMITS),
}


def _refuse_beside(chosen: RoleOptions, bound: list[str], dialled: list[str]) -> None:
    """Refuses options that the transport does not support; warns if strangers can connect to one without limits."""
    transport = chosen["transport"]
    if transport not in _LACKS:
        return
    for name in _LACKS[transport]:
        if chosen[name] != DEFAULTS[name]:  # type: ignore[literal-required]  # they are names of options
            message = f"transport={transport!r} does not support {name}=: leave it out, or use transport='libzmq'"
            raise LocalProtocolError(message)
    for endpoint in (*bound, *dialled):
        if endpoint.startswith("inproc:"):
            message = (
                f"transport={transport!r} does not support {endpoint}: use tcp:// or ipc://, or transport='libzmq'"
            )
            raise LocalProtocolError(message)
    for endpoint in bound:
        if transport == "zeromq" and is_public(endpoint):
            text = f"{endpoint}: transport='zeromq' has no limits for peers, any of which can end the process: trusted peers only"
            logging.getLogger("trunkline").warning(text)


def _raise_file_limit() -> None:
    try:
        import resource
    except ImportError:  # Windows, where there is no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def give_up(native: _Engine) -> None:
    """Ends an engine at once, without waiting for pending work."""
    native.close(0.0)
    native.join(_PARTING_S)


def opened(native: Native, given: RoleOptions, notices: _notices.Notices) -> Native:
    """Sets up the admission of a native role that was just opened: its allow-list, and the log of refused clients."""
    _warn_of_limits(native.missing, notices)
    _notices.connections.dialled.update(named("connect", given.get("connect") or ()))
    curve, guard = given.get("curve"), native.guard
    if curve is not None and guard is not None:
        curve.used_by(guard)
        admission = Admission(guard, curve.asks, notices)
        if curve.asks is None:
            _notices.watch(guard, admission.look)
        else:
            admission.start()
    return native


# Missing limits that the process has warned of.
_warned: set[int | str] = set()


def _warn_of_limits(missing: int | str | None, notices: _notices.Notices) -> None:
    """Warns that a role runs over libzmq, which has weaker limits, if the user did not choose it."""
    if missing is None or missing in _warned:
        return
    _warned.add(missing)
    what = f"option {_option_name(missing)}" if isinstance(missing, int) else missing
    text = f"runs over libzmq, without the limits of transport='zmtp', which does not support {what}"
    if missing == "libsodium":
        text = "runs over libzmq, without the limits of transport='zmtp', which found no libsodium for CURVE"
    notices.log(logging.WARNING, "transport", text)


def _option_name(number: int) -> str:
    """A socket option as pyzmq calls it."""
    import zmq

    try:
        return zmq.SocketOption(number).name
    except ValueError:
        return str(number)


def _then_unscraped(close: Callable[..., Any]) -> Callable[..., Any]:
    """A `close` that ends the metrics server too, last of all: until then it reports that the role is closing."""
    if not inspect.iscoroutinefunction(close):

        @functools.wraps(close)
        def closing(self: Role, *given: Any, **named: Any) -> None:
            try:
                close(self, *given, **named)
            finally:
                self._end_scrapes()

        return closing

    @functools.wraps(close)
    async def closing_async(self: Role, *given: Any, **named: Any) -> None:
        try:
            await close(self, *given, **named)
        finally:
            if self._scrapes is not None:
                await asyncio.to_thread(self._end_scrapes)

    return closing_async


class Role:
    """The base class of all roles, blocking and asyncio."""

    # The engine; None until the role is open.
    _native: Any = None

    # An engine that waits for the answer of a peer before the role is open.
    _opening: Any = None

    # The server of its metrics, if any.
    _scrapes: Scrapes | None = None

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "close" in vars(cls):
            cls.close = _then_unscraped(vars(cls)["close"])  # type: ignore[attr-defined]  # each has one

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
            from trunkline._exposition import exposed

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

    def _machine(self) -> tuple[str, dict[str, Any]]:
        """The kind and the settings of its state machine, without endpoints."""
        raise NotImplementedError

    def _notices_of(self, native: Any) -> Any:
        """The native object that has its notices."""
        return native

    def _settled(self, native: Any) -> None:
        """Once the engine has ended: reports its last notices and writes its log."""
        _notices.end(self._notices_of(native))

    def _let_go(self, native: Any) -> None:
        """Leaves the engine of a garbage-collected role to end by itself."""
        _notices.unwatch(self._notices_of(native))

    def _log_unsent(self) -> None:
        """Logs unsent messages that no exception reports."""

    def _check_sent(self, native: Any, waited_s: float) -> None:
        """Raises if the transport ended with messages that it had accepted: only libzmq knows how many."""
        if native.unsent:
            message = f"the last messages were not sent within {waited_s} s: the peer does not read"
            raise TimeoutError(message, unsent=1)

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
        return native.told

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

    def _finish(self, drain_s: float) -> None:
        """Closes the role and waits for its end."""
        native = self._role
        was_closed = native.closed
        native.close(drain_s)
        native.join()
        self._settled(native)
        native.raise_failure()
        if not was_closed:
            self._check_sent(native, drain_s)

    def _abandon(self) -> None:
        """Closes after an exception without hiding it."""
        try:
            self.close()
        except TimeoutError:
            self._log_unsent()

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
            await self.close()
        except TimeoutError:
            self._log_unsent()

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            await self.close()
        else:
            await self._abandon()

    async def _ended(self) -> None:
        """Waits until the engine has ended; overridden where the engine needs help for that."""
        role = self._role
        await self._waits.until(lambda: role.closed, None)

    async def _join(self) -> None:
        """Waits until the engine has ended; cancelled, it ends the engine at once."""
        role = self._role
        try:
            await self._ended()
        except BaseException:
            give_up(role)
            raise
        role.join()

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
        await self._join()
        self._settled(native)
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

    _notices: _notices.Notices

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
