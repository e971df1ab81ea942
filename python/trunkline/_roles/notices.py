"""The notices of roles: what they report to the log and to callbacks."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, TypeVar

from trunkline._native import drop_meanings, topic
from trunkline._roles.threads import Thread, survivable
from trunkline._text import client, counted, readable, readable_bytes
from trunkline.errors import ClosedError, DecodeError, TrunklineError

__all__ = [
    "Connections",
    "Dropped",
    "Notices",
    "client_fields",
    "connections",
    "end",
    "log",
    "report_ends",
    "settle",
    "stop",
    "unwatch",
    "watch",
]

Reported = TypeVar("Reported")

# Within this interval a kind of warning is logged once, and a kind of information up to `_LINES` times.
_INTERVAL_S = 1.0
_LINES = 20

# Protocols that name peers by text, a subject or an address, and how a dropped message relates to the peer.
_NAMED = {"cdt": "to", "chirp": "from"}

# Reasons to drop an outgoing message.
_OUTGOING = {"peer_full", "unroutable"}

# How long the end of a role waits for a callback that is running.
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped message.

    Attributes:
        error: Why its bytes could not be decoded; None for a valid message that could not be delivered.
        kind: The reason, as a slug.
        frames: The frames of the message, unchanged.
        peer: The routing id it came from, or was to go to, where the socket has routing ids; with CDT, the subject it was
            sent to; with CHIRP, the address it came from.
        endpoint: The endpoint it arrived at, if its socket has only one; None for CDT, and for messages that were to be sent.
        seq: The number of its row in the capture, if it was recorded.
        user: The user behind `peer`: with MTL as it has logged in, else the name of its key in the allow-list, or the key
            itself; None without a login and without CURVE.
        address: The address it was sent from, as ``"tcp://127.0.0.1:37492"``, where that is known: not over ``ipc://``, and not
            with ``transport="zeromq"``; None for messages that were to be sent.
    """

    error: DecodeError | None
    kind: str
    frames: tuple[bytes, ...]
    peer: bytes | None = None
    endpoint: str | None = None
    seq: int | None = None
    user: str | None = None
    address: str | None = None


@dataclass(slots=True)
class Connections:
    """Connections of all roles of this process.

    Attributes:
        dialled: The endpoints that roles connect to.
        made: How many connections there have been.
        open: How many there are.
        failures: How often connections to an endpoint failed, and why the last one did, of those that are not connected since.
        on_failed: Called when a connection failed.
    """

    dialled: set[str] = field(default_factory=set)
    made: int = 0
    open: int = 0
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    on_failed: Callable[[], object] | None = None

    def failed(self, endpoint: str, why: str) -> None:
        """Records a failed connection to an endpoint that is dialled."""
        if endpoint in self.dialled:
            self.failures[endpoint] = self.failed_at(endpoint) + 1, why
            if self.on_failed is not None:
                self.on_failed()

    def failed_at(self, endpoint: str) -> int:
        """How many connections to an endpoint failed since the last successful one."""
        return self.failures.get(endpoint, (0, ""))[0]


_MEANINGS = drop_meanings()

connections = Connections()
_counting = threading.Lock()


def _meaning(kind: str) -> str:
    """Why a valid message was dropped, in words."""
    words = _MEANINGS.get(kind)
    return f"{kind} ({words})" if words else kind


class Notices:
    """The log and the callbacks of one role. Of each kind, one warning a second reaches the log, or some lines of news."""

    def __init__(
        self, protocol: str, who: str, on_drop: Callable[[Dropped], object] | None, *, is_simulated: bool = False
    ) -> None:
        # In a simulation there is no thread, and its time does not limit lines.
        self.is_simulated = is_simulated
        self._protocol = protocol
        self._logger = logging.getLogger(f"trunkline.{protocol}")
        self._who = who
        self._on_drop = on_drop
        # For each kind, how many more lines it may have, and until when.
        self._room: dict[str, tuple[float, int]] = {}
        self._silent: dict[str, int] = {}

    def dropped(self, dropped: Dropped, *, level: int = logging.WARNING) -> None:
        """Logs a drop and passes it to the callback; an exception of the callback is logged."""
        subject = topic(self._protocol, dropped.frames)
        about = "" if subject is None else f", of {readable_bytes(subject[:100])}"
        sender = client_fields(dropped.peer, dropped.user, dropped.address)
        if dropped.peer is not None and self._protocol in _NAMED:
            sender["peer"] = readable_bytes(dropped.peer[:100])
            about += f", {_NAMED[self._protocol]} {sender['peer']}"
        elif name := client(dropped.peer or b"", dropped.user, dropped.address):
            about += f", {'to' if dropped.kind in _OUTGOING else 'from'} {name}"
        if dropped.endpoint is not None:
            about += f", at {dropped.endpoint}"
        if dropped.seq is not None:
            about += f", row {dropped.seq}"
        fields = {
            "kind": dropped.kind,
            "endpoint": dropped.endpoint,
            "seq": dropped.seq,
            **sender,
        }
        self.log(level, f"dropped {dropped.kind}", f"{dropped.error or _meaning(dropped.kind)}{about}", fields=fields)
        self.call("on_drop", self._on_drop, dropped)

    def call(self, name: str, callback: Callable[[Reported], object] | None, reported: Reported) -> None:
        """Calls the user's callback, if there is one; its exception is logged."""
        if callback is None:
            return
        try:
            callback(reported)
        except survivable():
            self._logger.exception("%s: %s raised", self._who, name)

    def report(self, kind: str, *details: Any) -> None:
        """Reports a notice that every role may have: of dropped messages, of its capture and of its connections."""
        if kind == "dropped":
            self.dropped(Dropped(*details))
            return
        if kind in ("connected", "disconnected"):
            self._connection(kind, *details)
            return
        if kind in ("began", "ended"):
            self._run(kind, *details)
            return
        text = readable(": ".join(filter(None, details)))
        if kind == "failed" and details[1:]:
            connections.failed(*details)
        if kind == "critical":
            self.log(logging.CRITICAL, kind, text)
        elif kind in ("deleted", "unshipped"):
            # Segments that are shipped are not lost.
            self.log(logging.WARNING if kind == "unshipped" else logging.INFO, "deleted", text)
        elif kind in (
            "capture",
            "losing",
            "low_space",
            "runs_let_go",
            "runs_unfollowed",
            "failed",
            "refused",
        ):
            self.log(logging.WARNING, kind, text)
        elif kind == "unreachable":
            endpoint, reason = details
            fields = {"kind": kind, "endpoint": endpoint}
            text = readable(f"{endpoint} cannot be reached: {reason}; it is tried again and again")
            self.log(logging.INFO, kind, text, fields=fields)
        else:
            endpoint = details[0] if kind in ("found", "departed") and details else None
            self.log(logging.INFO, kind, f"{text} {kind}".strip(), fields={"kind": kind, "endpoint": endpoint})

    def _run(
        self, kind: str, sender: str, run: str | None, condition: str | None = None, missed: int | None = None
    ) -> None:
        """Reports that a sender began or ended a run, and what is wrong with it."""
        fields = {"kind": f"run_{kind}", "sender": sender, "run": run, "condition": condition, "missed": missed}
        what = [condition] if condition not in (None, "GOOD") else []
        what += [f"{counted(missed, 'message')} missing"] if missed else []
        outcome = f": {', '.join(what)}" if what else ""
        text = readable(f"{sender}: {'a run' if run is None else f'run {run}'} {kind}{outcome}")
        # Many runs may end together: each is logged, a bad one too.
        self.log(logging.WARNING if what else logging.INFO, kind, text, fields=fields, lines=_LINES)

    def _connection(self, kind: str, endpoint: str, address: str = "") -> None:
        """Reports a connection or its end: the peer's address at an endpoint of ours, else the endpoint."""
        is_new = kind == "connected"
        with _counting:
            connections.made += is_new
            connections.open += 1 if is_new else -1
            if is_new:
                connections.failures.pop(endpoint, None)
        who = f"{address} {kind} {'to' if is_new else 'from'} {endpoint}" if address else f"{endpoint} {kind}"
        fields = {"kind": kind, "endpoint": endpoint or None, "address": address or None}
        self.log(logging.INFO, kind, readable(who.strip()), fields=fields)

    def log(
        self,
        level: int,
        kind: str,
        text: str,
        error: BaseException | None = None,
        fields: Mapping[str, object] | None = None,
        lines: int | None = None,
    ) -> None:
        """Logs, with the traceback of an error, unless this kind has used up its lines of the last second.

        `fields` become `record.fields`.
        """
        if self.is_simulated:
            self._logger.log(level, "%s: %s", self._who, text, exc_info=error, extra={"fields": fields or {}})
            return
        now = time.monotonic()
        until, left = self._room.get(kind, (0.0, 0))
        if now >= until:
            until, left = now + _INTERVAL_S, lines or (_LINES if level <= logging.INFO else 1)
        if not left:
            self._silent[kind] = self._silent.get(kind, 0) + 1
            return
        self._room[kind] = until, left - 1
        silent = self._silent.pop(kind, 0)
        more = f" (and {silent} more like it)" if silent else ""
        log(self._logger, level, f"{self._who}: {text}{more}", error, {} if fields is None else fields)


def client_fields(peer: bytes | None, user: str | None, address: str | None) -> dict[str, object]:
    """A client of a service, as the fields of a record name it."""
    return {"peer": None if peer is None else peer[:32].hex(), "user": user, "address": address}


class _Watched(Protocol):
    """A role with notices to read."""

    @property
    def closed(self) -> bool: ...
    def fileno(self) -> int: ...
    def arm(self) -> bool: ...
    def disarm(self) -> None: ...


class _Watch:
    """A role and the function that reads its notices."""

    def __init__(self, role: _Watched, read: Callable[[], None], end: Callable[[], None] | None) -> None:
        self.role = role
        self._read = read
        self._end = end
        # Closing a role waits until its last notices are reported; reentrant, as a callback may close its own role.
        self._reporting = threading.RLock()

    def report(self) -> None:
        """Reports pending notices, after those of another thread; with a timeout: its callback may wait for this thread."""
        is_alone = self._reporting.acquire(timeout=_PATIENCE_S)
        try:
            self._read()
            self.report_end()
        except TrunklineError:
            # The role has ended; its user gets the reason.
            pass
        except survivable() as error:
            log(logging.getLogger("trunkline"), logging.ERROR, "a notice could not be delivered", error)
        finally:
            if is_alone:
                self._reporting.release()

    def report_end(self) -> None:
        if self._end is not None and self.role.closed:
            self._end()


_Record: TypeAlias = tuple[logging.Logger, int, str, BaseException | None, Mapping[str, object]]


class _Thread:
    """The thread of the process that reads the notices of all roles and writes their log."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        # Reentrant: the thread that holds it may collect a role, which unwatches it.
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._watched: dict[int, _Watch] = {}
        # And what to call once those before it are written.
        self._records: deque[_Record | Callable[[], None]] = deque(maxlen=65_536)
        self._wake: tuple[int, int] | None = None
        self._stopping = False

    def watch(self, role: _Watched, read: Callable[[], None], end: Callable[[], None] | None = None) -> None:
        """Reads the notices of a role from now on, and calls `end`, perhaps more than once, when it has ended."""
        simulation = getattr(role, "simulation", None)
        if simulation is not None:
            simulation.watch(read)
            return
        self._start()
        with self._lock:
            self._watched[id(role)] = _Watch(role, read, end)
        self._notify()

    def unwatch(self, role: _Watched) -> None:
        if self._process != os.getpid():
            return
        with self._lock:
            watched = self._watched.pop(id(role), None)
        if watched is not None:
            watched.report()
            self._notify()

    def end(self, role: _Watched) -> None:
        """Reads the last notices of a role that has ended, and writes its log."""
        self.unwatch(role)
        self.settle()

    def log(
        self,
        logger: logging.Logger,
        level: int,
        text: str,
        error: BaseException | None,
        fields: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        if not logger.isEnabledFor(level):
            return
        self._start()
        self._records.append((logger, level, text, error, fields))
        if threading.current_thread() is not self._thread:
            self._notify()

    def settle(self) -> None:
        """Waits until pending records are written; with a timeout: a log handler may wait for this thread."""
        if self._process != os.getpid() or self._thread is None or threading.current_thread() is self._thread:
            return
        # Not an event: an interrupt may leave its lock behind, and the thread would wait for that.
        written = threading.Lock()
        written.acquire()
        self._records.append(written.release)
        self._notify()
        written.acquire(timeout=_PATIENCE_S)

    def stop(self) -> None:
        if self._process != os.getpid() or self._thread is None:
            return
        self._stopping = True
        self._notify()
        self._thread.join(timeout=5)
        self._write()

    def report_ends(self) -> None:
        """Reports the end of roles that ended after the thread did, at the end of the process."""
        if self._process != os.getpid():
            return
        with self._lock:
            watched = list(self._watched.values())
        for one in watched:
            one.report_end()
        self._write()

    def _start(self) -> None:
        if self._process != os.getpid():
            self._reset()
        with self._lock:
            if self._thread is None and not self._stopping:
                self._wake = os.pipe()
                for end in self._wake:
                    os.set_blocking(end, False)
                thread = Thread(self._run, "trunkline-notices")
                thread.start()
                # Set last: a signal handler may raise before the thread has started.
                self._thread = thread

    def _notify(self) -> None:
        if self._wake is not None:
            with suppress(BlockingIOError):
                os.write(self._wake[1], b"\0")

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        assert self._wake is not None
        wake = self._wake[0]
        while not self._stopping:
            self._write()
            with self._lock:
                watched = list(self._watched.values())
            poll = select.poll()
            poll.register(wake, select.POLLIN)
            ready = False
            for one in watched:
                try:
                    ready |= one.role.arm()
                    poll.register(one.role.fileno(), select.POLLIN)
                except ClosedError:
                    continue
            if not ready:
                poll.poll()
            with suppress(BlockingIOError):
                os.read(wake, 4096)
            for one in watched:
                # Unwatch a role that has ended: its descriptor stays readable.
                is_over = one.role.closed
                one.role.disarm()
                one.report()
                if is_over:
                    with self._lock:
                        self._watched.pop(id(one.role), None)

    def _write(self) -> None:
        while self._records:
            record = self._records.popleft()
            if callable(record):
                record()
                continue
            logger, level, text, error, fields = record
            try:
                logger.log(level, text, exc_info=error, extra={"fields": fields})
            except survivable():
                # A filter of the user, say. As logging does with exceptions of handlers.
                traceback.print_exc()


_thread = _Thread()
watch = _thread.watch
unwatch = _thread.unwatch
end = _thread.end
log = _thread.log
settle = _thread.settle
stop = _thread.stop
report_ends = _thread.report_ends
