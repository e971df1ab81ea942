"""Carries the bytes between a socket of libzmq and a peer, and counts those of the peer.

libzmq itself bounds neither a message of endless frames nor how much it reads ahead.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from pathlib import Path

from trunkline.conform.checks import Limits
from trunkline.errors import TrunklineError

__all__ = ["Link", "dial"]

# What is kept of the beginning: a greeting and the peer's metadata.
_HEAD = 1024
_CHUNK = 1 << 16

_CONNECT_S = 5.0


def dial(endpoint: str, limits: Limits) -> socket.socket:
    """Connects to an endpoint of TCP or of a Unix socket.

    Raises:
        TrunklineError: Nothing can be reached there; it says why.
    """
    transport, _, address = endpoint.partition("://")
    timeout = max(min(_CONNECT_S, limits.left_s), 0.01)
    try:
        made = _unix(address, timeout) if transport == "ipc" else _tcp(address, timeout)
    except socket.gaierror:
        message = f"{endpoint}: the host does not resolve"
        raise TrunklineError(message) from None
    except (ConnectionRefusedError, FileNotFoundError):
        message = f"{endpoint}: nothing listens there"
        raise TrunklineError(message) from None
    except OSError as error:
        why = "no answer from the host" if isinstance(error, TimeoutError) else error.strerror or str(error)
        message = f"{endpoint}: {why}"
        raise TrunklineError(message) from None
    made.settimeout(None)
    return made


def _tcp(address: str, timeout: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host.strip("[]"), int(port)), timeout)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _unix(address: str, timeout: float) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.settimeout(timeout)
        made.connect(f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError:
        made.close()
        raise
    return made


class Link:
    """A connection to a peer, at whose near end a socket of libzmq dials `endpoint`.

    Attributes:
        endpoint: Its near end, for one connection.
        head: The first bytes of the peer.
        has_ended: Set when either side has closed it, or the peer has sent too much.
    """

    def __init__(self, peer: socket.socket, limits: Limits) -> None:
        self._peer = peer
        self._limits = limits
        self.head = b""
        self.has_ended = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix="tl-"))
        self._listener = socket.socket(socket.AF_UNIX)
        path = self._folder / "s"
        self._listener.bind(str(path))
        self._listener.listen(1)
        self.endpoint = f"ipc://{path}"
        self._near: socket.socket | None = None
        threading.Thread(target=self._run, name="trunkline-conform", daemon=True).start()

    def _run(self) -> None:
        try:
            self._near, _ = self._listener.accept()
        except OSError:
            return
        finally:
            self._forget()
        threading.Thread(
            target=self._copy, args=(self._near, self._peer), name="trunkline-conform", daemon=True
        ).start()
        self._copy(self._peer, self._near, counts=True)

    def _copy(self, source: socket.socket, sink: socket.socket, *, counts: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if counts:
                    self.head += data[: _HEAD - len(self.head)]
                    if not self._limits.take(len(data)):
                        break
                sink.sendall(data)
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self.has_ended.set()
        for end in (self._listener, self._peer, self._near):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        self._forget()

    def _forget(self) -> None:
        """Removes the address of the near end."""
        self._listener.close()
        with contextlib.suppress(OSError):
            (self._folder / "s").unlink()
        with contextlib.suppress(OSError):
            self._folder.rmdir()
