"""The HTTP server of a role's metrics, which Prometheus scrapes and Kubernetes probes."""

from __future__ import annotations

import errno
import json
import logging
import os
import selectors
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from trunkline import _threads

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Scrapes"]

# How long a connection may take for its one request and the answer, however slowly it reads and writes.
_CONNECTION_S = 10.0

# How many there are at a time: beyond, the oldest is closed, so that those who never end their request keep nobody out.
_MOST_CONNECTIONS = 16

# How many answers there may be at a time, those included whose connection is closed: it takes counters that do not come.
_MOST_THREADS = 4 * _MOST_CONNECTIONS

# How long the end waits for answers that are being made.
_PARTING_S = 2.0

# How long nobody is let in where the process has no descriptor for them.
_BREATH_S = 0.1

# One that takes no descriptor, which a child would have as well.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)

_TEXT = "text/plain; charset=utf-8"
_METRICS, _HEALTH = "/metrics", "/healthz"

_log = logging.getLogger("trunkline")

# Those of this process. In the child of a fork their sockets are copies, which would keep the port of the parent.
_open: weakref.WeakSet[Scrapes] = weakref.WeakSet()


def _forget() -> None:
    for scrapes in _open:
        scrapes.leave()
    _open.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)


class Scrapes:
    """Answers ``/metrics`` and ``/healthz``, in threads of its own, until it is closed.

    Args:
        host: The address to listen on.
        port: The port; 0 for a free one.
        registry: What is found there.
        state: Says how the role is: "serving", or in a word why it does not.
        name: The name of the role.

    Raises:
        OSError: The port is taken, or the address is not one of this machine.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry, state: Callable[[], str], name: str) -> None:
        self.registry = registry
        self.state = state
        self.name = name
        self._pid = os.getpid()
        self._socket = _listening(host, port)
        # Who has gone before it is accepted is not to be waited for.
        self._socket.settimeout(0)
        bound, number = self._socket.getsockname()[:2]
        self.url = f"http://{f'[{bound}]' if ':' in bound else bound}:{number}{_METRICS}"
        # Readable once it is to end.
        self._ended, self._end = socket.socketpair()
        self._lock = threading.Lock()
        # When each has to be done, the oldest first.
        self._connections: dict[socket.socket, float] = {}
        # Those that answer, until the end or the next connection has seen them end.
        self._threads: list[threading.Thread] = []
        _open.add(self)
        self._thread = _threads.Thread(self._accept_all, "trunkline-metrics")
        self._thread.start()

    def stop(self) -> None:
        """Has it end, and does not wait for that."""
        if os.getpid() == self._pid:
            # It is closed once it has ended.
            with suppress(OSError):
                self._end.send(b"\0")

    def close(self) -> None:
        """Ends it: afterwards the port is free, and no thread is left but of an answer that takes longer than two seconds."""
        if os.getpid() != self._pid:
            return
        self.stop()
        self._thread.join()
        until = time.monotonic() + _PARTING_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _accept_all(self) -> None:
        # The threads it starts have them blocked as well: a signal is for the main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with _Selector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(self._cut_off(time.monotonic()))]
                if self._ended in ready:
                    break
                if ready:
                    self._accept()
        self._cut_off(float("inf"))
        for each in (self._socket, self._ended, self._end):
            each.close()
        _open.discard(self)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            # Whoever it was has gone. Where there is no descriptor left, who waits would be tried again at once.
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_BREATH_S)
            return
        connection.settimeout(_CONNECTION_S)
        thread = _threads.Thread(lambda: self._answer(connection), "trunkline-scrape")
        self._threads = [each for each in self._threads if each.is_alive()]
        if len(self._threads) >= _MOST_THREADS:
            connection.close()
            return
        with self._lock:
            self._connections[connection] = time.monotonic() + _CONNECTION_S
            if len(self._connections) > _MOST_CONNECTIONS:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                _shut(oldest)
        try:
            thread.start()
            self._threads.append(thread)
        except RuntimeError:  # the process may have no more threads
            self._forget(connection)

    def _cut_off(self, now: float) -> float | None:
        """Ends those whose time is up; how long the next one has."""
        with self._lock:
            for connection, due in self._connections.items():
                if due > now:
                    return due - now
                _shut(connection)
        return None

    def _answer(self, connection: socket.socket) -> None:
        try:
            # Who has gone needs no answer.
            with suppress(OSError):
                _Handler(connection, self)
        finally:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.pop(connection, None)
        _shut(connection)
        connection.close()

    def leave(self) -> None:
        """Closes what a child has of its parent's, and shuts nothing down: that would end the parent's connections."""
        for each in (self._socket, self._ended, self._end, *self._connections):
            descriptor = each.detach()
            if descriptor >= 0:
                os.close(descriptor)


def _shut(connection: socket.socket) -> None:
    # It may be closed, or never have been connected.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _listening(host: str, port: int) -> socket.socket:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except OSError as error:
        hint = ": choose another port, or 0 for a free one" if error.errno == errno.EADDRINUSE else ""
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        message = f"metrics at {where}: {reason}{hint}"
        raise OSError(error.errno, message) from None


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of a connection."""

    server_version = "trunkline"
    sys_version = ""
    timeout = _CONNECTION_S
    # An answer goes out in one piece, with its headers.
    wbufsize = -1

    def __init__(self, connection: socket.socket, scrapes: Scrapes) -> None:
        self._scrapes = scrapes
        super().__init__(connection, connection.getpeername(), scrapes)  # type: ignore[arg-type]  # it only keeps it

    def do_GET(self) -> None:
        """Answers with the metrics, or with how the role is."""
        where = urlsplit(self.path)
        if where.path == _METRICS:
            self._tell_metrics(parse_qs(where.query).get("name[]"))
        elif where.path == _HEALTH:
            self._tell_health()
        else:
            self._tell(HTTPStatus.NOT_FOUND, _TEXT, f"there are {_METRICS} and {_HEALTH}\n".encode())

    def do_HEAD(self) -> None:
        """The same without the body."""
        self.do_GET()

    def parse_request(self) -> bool:
        """Reads the request; refuses what would change something, as there is nothing to change."""
        if not super().parse_request():
            return False
        if self.command in {"GET", "HEAD"}:
            return True
        self._tell(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"GET or HEAD\n", Allow="GET, HEAD")
        return False

    def _tell_metrics(self, names: list[str] | None) -> None:
        from prometheus_client.exposition import choose_encoder

        encode, kind = choose_encoder(self.headers.get("Accept", ""))
        registry: Any = self._scrapes.registry
        try:
            told = encode(registry.restricted_registry(names) if names else registry)
        except Exception as error:  # noqa: BLE001 - counters may come from a store of the user's
            _log.warning("the metrics of %s could not be read: %s: %s", self._scrapes.name, type(error).__name__, error)
            self._tell(HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"the counters could not be read\n")
        else:
            self._tell(HTTPStatus.OK, kind, told)

    def _tell_health(self) -> None:
        state = self._scrapes.state()
        status = HTTPStatus.OK if state == "serving" else HTTPStatus.SERVICE_UNAVAILABLE
        said = json.dumps({"role": self._scrapes.name, "state": state}) + "\n"
        self._tell(status, "application/json", said.encode())

    def _tell(self, status: HTTPStatus, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        more = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store", **headers}
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is overridden
        """Logs nothing: a scrape every few seconds is no news."""
