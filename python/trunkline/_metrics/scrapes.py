"""The HTTP server of a role's metrics, which Prometheus scrapes and Kubernetes probes."""

from __future__ import annotations

import errno
import ipaddress
import json
import logging
import os
import re
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

from trunkline._roles.threads import Thread
from trunkline._text import readable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Scrapes"]

# How long a connection may take for its one request and the answer.
_CONNECTION_S = 10.0

# Connections at a time: beyond, the oldest is closed, so that clients that never finish their request block no others.
_MOST_CONNECTIONS = 16

# Answers at a time, including those of closed connections, which pile up only if counters cannot be read.
_MOST_THREADS = 4 * _MOST_CONNECTIONS

# How long the end waits for answers in progress.
_PARTING_S = 2.0

# How long nothing more is logged of requests that cannot be answered.
_SILENT_S = 60.0

# How long to wait before the next accept when the process has no free descriptor.
_BREATH_S = 0.1

# A selector without a descriptor of its own, which a forked child would inherit.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)

_TEXT = "text/plain; charset=utf-8"
_METRICS, _HEALTH = "/metrics", "/healthz"

_log = logging.getLogger("trunkline")

# Those of this process. In a forked child their sockets are copies, which would keep the parent's port in use.
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
        registry: The metrics to serve.
        state: Returns the state of the role: "serving", or in a word why it does not serve.
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
        # Accept does not block if the client is gone by then.
        self._socket.settimeout(0)
        bound, number = self._socket.getsockname()[:2]
        # Whether only this machine can connect.
        self.is_local = ipaddress.ip_address(bound).is_loopback
        self.url = f"http://{f'[{bound}]' if ':' in bound else bound}:{number}{_METRICS}"
        # Readable once the server is to end.
        self._ended, self._end = socket.socketpair()
        self._lock = threading.Lock()
        # The deadline of each, the oldest first.
        self._connections: dict[socket.socket, float] = {}
        # Until when each kind of fault is not logged again.
        self._silent_until: dict[str, float] = {}
        # The threads that answer; finished ones are removed at the next connection.
        self._threads: list[threading.Thread] = []
        _open.add(self)
        self._thread = Thread(self._accept_all, "trunkline-metrics")
        self._thread.start()

    def stop(self) -> None:
        """Requests the end without waiting for it."""
        if os.getpid() == self._pid:
            # The thread closes it when it has ended.
            with suppress(OSError):
                self._end.send(b"\0")

    def close(self) -> None:
        """Ends it: the port is free afterwards, and only threads of answers that take longer than two seconds are left."""
        if os.getpid() != self._pid:
            return
        self.stop()
        self._thread.join()
        until = time.monotonic() + _PARTING_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _accept_all(self) -> None:
        # The threads it starts inherit the mask: signals are for the main thread.
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
            # The client is gone, or no descriptor is free: then the next accept would fail at once again.
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_BREATH_S)
            return
        connection.settimeout(_CONNECTION_S)
        thread = Thread(lambda: self._answer(connection), "trunkline-scrape")
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
        """Ends connections past their deadline; returns the time to the next deadline."""
        with self._lock:
            for connection, due in self._connections.items():
                if due > now:
                    return due - now
                _shut(connection)
        return None

    def _answer(self, connection: socket.socket) -> None:
        try:
            _Handler(connection, self)
        except OSError:
            # The client is gone.
            pass
        except Exception as error:  # noqa: BLE001 - a client must not fill the log
            self.complain("could not be served", error)
        finally:
            self._forget(connection)

    def complain(self, what: str, error: Exception) -> None:
        """Logs a fault, each kind at most once a minute: clients may cause as many as they like."""
        with self._lock:
            now = time.monotonic()
            if now < self._silent_until.get(what, 0.0):
                return
            self._silent_until[what] = now + _SILENT_S
        _log.warning("the metrics of %s %s: %s: %s", self.name, what, type(error).__name__, readable(str(error)))

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.pop(connection, None)
        _shut(connection)
        connection.close()

    def leave(self) -> None:
        """Closes the child's copies of the sockets without a shutdown, which would end the parent's connections."""
        for each in (self._socket, self._ended, self._end, *self._connections):
            descriptor = each.detach()
            if descriptor >= 0:
                os.close(descriptor)


def _shut(connection: socket.socket) -> None:
    # It may be closed already.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _is_local(host: str) -> bool:
    """Whether a header ``Host`` names this machine; true of none, which no browser sends.

    >>> [_is_local(host) for host in ("", "127.0.0.1:9100", "[::1]", "localhost:9100", "evil.example", "[::1", "127.0.0.1.evil")]
    [True, True, True, True, False, False, False]
    """
    name = re.sub(r":\d*$", "", host) if not host.endswith("]") else host
    if not name or name.lower().rstrip(".") in ("localhost", socket.gethostname().lower()):
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


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
        """Answers with the metrics or the state of the role."""
        try:
            where = urlsplit(self.path)
            names = parse_qs(where.query).get("name[]")
        except ValueError as error:
            self._refuse("the URL", error)
            return
        if where.path == _METRICS:
            self._send_metrics(names)
        elif where.path == _HEALTH:
            self._send_health()
        else:
            self._send(HTTPStatus.NOT_FOUND, _TEXT, f"there are {_METRICS} and {_HEALTH}\n".encode())

    def do_HEAD(self) -> None:
        """The same without the body."""
        self.do_GET()

    def parse_request(self) -> bool:
        """Reads the request; refuses what would change something, as there is nothing to change, and foreign hosts."""
        if not super().parse_request():
            return False
        if not self._is_for_us():
            self._send(HTTPStatus.MISDIRECTED_REQUEST, _TEXT, b"this host is not served here\n")
            return False
        if self.command in {"GET", "HEAD"}:
            return True
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"GET or HEAD\n", Allow="GET, HEAD")
        return False

    def _is_for_us(self) -> bool:
        """Whether the request names no host of others.

        A role on a loopback address is asked by the name of that. A page in a browser of this machine may have a name of its
        own resolve to it, to read what is not its business, and the browser names that one.
        """
        return not self._scrapes.is_local or _is_local(self.headers.get("Host", ""))

    def _send_metrics(self, names: list[str] | None) -> None:
        from prometheus_client.exposition import choose_encoder

        try:
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
        except Exception as error:  # noqa: BLE001 - the header is the client's
            self._refuse("the header Accept", error)
            return
        registry: Any = self._scrapes.registry
        try:
            text = encode(registry.restricted_registry(names) if names else registry)
        except Exception as error:  # noqa: BLE001 - counters may come from a store of the user's
            self._scrapes.complain("could not be read", error)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"the counters could not be read\n")
        else:
            self._send(HTTPStatus.OK, kind, text)

    def _refuse(self, what: str, error: Exception) -> None:
        self._scrapes.complain(f"were asked for by a request that cannot be read, for {what}", error)
        self._send(HTTPStatus.BAD_REQUEST, _TEXT, f"{what} cannot be read\n".encode())

    def _send_health(self) -> None:
        state = self._scrapes.state()
        status = HTTPStatus.OK if state == "serving" else HTTPStatus.SERVICE_UNAVAILABLE
        body = json.dumps({"role": self._scrapes.name, "state": state}) + "\n"
        self._send(status, "application/json", body.encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        more = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store", **headers}
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is overridden
        """Logs nothing: scrapes come every few seconds."""
