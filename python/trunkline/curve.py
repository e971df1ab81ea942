"""CURVE: the keys of a role, and the clients it accepts."""

from __future__ import annotations

import os
import re
import struct
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trunkline._roles.reloads import difference, reading, report_reload
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    from trunkline._native import Guard

__all__ = ["Allow", "Curve", "Key"]
__dir__ = __all__.copy

Allow = Callable[[bytes, str], bool | str]
Key = str | bytes | os.PathLike[str] | tuple[bytes | str, bytes | str]

# As a certificate of zmq.auth has them.
_HALF = re.compile(rb"""^\s*(public|secret)-key\s*=\s*["']([^"']*)["']""", re.MULTILINE)

_Z85_LETTERS = 40
_BYTES = 32


class Curve:
    """Encryption and authentication of a role's sockets by CURVE.

    With a `server_key` the role is a client of the server with that key. Without one it is a server, which needs a
    `secret` and accepts every client that knows its public key, or only those in `allow`.

    A key is a file (a certificate written by ``zmq.auth.create_certificates``, or a file with a bare key in Z85), 40
    characters of Z85, 32 bytes, or a pair ``(public, secret)`` from ``zmq.curve_keypair``.

    The allow-list is read when the role opens and on `reload`; `stats.refused` counts refused clients.

    Args:
        secret: The role's own secret key. A client without one generates a new key pair, which is enough for servers
            without an allow-list.
        server_key: The server's public key.
        allow: The clients to accept: a directory with a file for each public key, or the keys. Or a callable that decides
            on each client that connects: it takes the client's public key in Z85 and its address, and returns whether
            to accept it, or the name under which to accept it. It is called in up to four threads of the role, so that
            a slow decision does not delay other clients. A client is refused if the callable raises, or does not return
            within 5 seconds.

    Raises:
        LocalProtocolError: A key is invalid, or a server has no secret key.
        OSError: A file or folder cannot be read.

    ```pycon
    >>> import zmq
    >>> public, secret = zmq.curve_keypair()
    >>> server, client = Curve(secret), Curve(server_key=public)

    ```
    """

    def __init__(
        self,
        secret: Key | None = None,
        *,
        server_key: Key | None = None,
        allow: str | os.PathLike[str] | Iterable[Key] | Allow | None = None,
    ) -> None:
        import zmq

        if server_key is None and secret is None:
            message = "a CURVE server needs its secret key, a client needs the public key of the server"
            raise LocalProtocolError(message)
        if server_key is not None and allow is not None:
            message = "an allow-list is for servers: leave out allow= or server_key="
            raise LocalProtocolError(message)
        letters = zmq.curve_keypair()[1] if secret is None else _letters(secret, secret=True)
        self._secret = _decoded(letters)
        self._public = _decoded(zmq.curve_public(letters))
        self._server = None if server_key is None else _decoded(_letters(server_key, secret=False))
        if allow is None or callable(allow) or isinstance(allow, str | os.PathLike):
            self._allow: str | os.PathLike[str] | list[Key] | Allow | None = allow
        else:
            self._allow = list(allow)
        self._allowed = self._read()
        self._guards: weakref.WeakSet[Guard] = weakref.WeakSet()
        # Reentrant: a signal handler may reload meanwhile.
        self._admitting = threading.RLock()

    @property
    def public_key(self) -> bytes:
        """The role's own public key in Z85, which its peers need."""
        from zmq.utils import z85

        return bytes(z85.encode(self._public))

    def reload(self) -> None:
        """Reads the allow-list again, for every role that uses it, and cuts off the clients that it does not have any more.

        A callable is asked again about each client that is connected. Over libzmq connected clients stay until they
        disconnect, as it cannot close the connection of one.

        Raises:
            LocalProtocolError: The list is invalid or cannot be read; it stays as it was.

        ```pycon
        >>> import pathlib, tempfile, zmq
        >>> (public, secret), (ada, _) = zmq.curve_keypair(), zmq.curve_keypair()
        >>> with tempfile.TemporaryDirectory() as keys:
        ...     server = Curve(secret, allow=keys)
        ...     pathlib.Path(keys, "ada.key").write_bytes(ada)
        ...     server.reload()
        ...     list(server.names.values())
        40
        ['ada']

        ```
        """
        with reading():
            allowed = self._read()
        report_reload(self._admit(allowed))

    def __reduce__(self) -> NoReturn:
        message = "Curve holds a secret key and cannot be copied or pickled: create it again from its files"
        raise TypeError(message)

    def __repr__(self) -> str:
        side = "server" if self._server is None else "client"
        return f"<trunkline.Curve {side} {self.public_key.decode()}>"

    def _native_options(self) -> dict[str, Any]:
        """As the native role takes it."""
        return {
            "curve_secret": self._secret,
            "curve_public": self._public,
            "curve_server": self._server,
            "allow": self._allowed,
        }

    @property
    def is_client(self) -> bool:
        """Whether it is the side that knows the other's key."""
        return self._server is not None

    @property
    def asks(self) -> Allow | None:
        """The callable that decides about each client, if any."""
        return self._allow if callable(self._allow) else None

    @property
    def lets_in_some(self) -> bool:
        """Whether access is limited, rather than open to everyone with a key."""
        return self._allow is not None

    @property
    def names(self) -> dict[bytes, str]:
        """The names of the clients in the allow-list, by key in 32 bytes; empty without a list."""
        return self._allowed if isinstance(self._allowed, dict) else {}

    def _admit(self, allowed: dict[bytes, str] | Allow | None) -> list[str]:
        """Admits these clients from now on, in place of those of the previous allow-list.

        Returns:
            The difference in words, for the log; empty without a list.
        """
        with self._admitting:
            before, self._allowed = self.names, allowed
            for guard in self._guards:
                if isinstance(self._allowed, dict):
                    guard.allow(self._allowed)
                elif callable(self._allowed):
                    guard.ask_again()
            if not isinstance(allowed, dict):
                return []
            source = self._allow if isinstance(self._allow, str | os.PathLike) else "the allow-list"
            return [difference(source, "key", before.items(), allowed.items())]

    def _used_by(self, guard: Guard) -> None:
        """Registers a guard for changes of the allow-list, and applies those made since the role was set up."""
        with self._admitting:
            self._guards.add(guard)
            if isinstance(self._allowed, dict):
                guard.allow(self._allowed)

    def _read(self) -> dict[bytes, str] | Allow | None:
        """The current allow-list: names by keys, or the callable that decides, or None if all are admitted."""
        if self._allow is None or callable(self._allow):
            return self._allow
        if isinstance(self._allow, list):
            return dict(map(_named, self._allow))
        allowed = {}
        for file in _files(Path(self._allow)):
            # One that is gone since the directory was read was removed.
            with suppress(FileNotFoundError):
                key, name = _named(file)
                allowed[key] = name
        return allowed


def _named(key: Key) -> tuple[bytes, str]:
    """A client's key in 32 bytes, and its name: that of the file, or the key itself."""
    letters = _letters(key, secret=False)
    is_file = isinstance(key, os.PathLike) or (isinstance(key, str) and Path(key).exists())
    name = Path(os.fspath(key)).name.removesuffix(".key") if is_file else letters.decode()  # type: ignore[arg-type]
    return _decoded(letters), name


def _files(folder: Path) -> list[Path]:
    files = (file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    return sorted(file for file in files if file.suffix != ".key_secret")


def _letters(key: Key, *, secret: bool) -> bytes:
    """A key in Z85, from any of its forms."""
    from zmq.utils import z85

    if isinstance(key, tuple):
        half = key[1] if secret else key[0]
        return _checked(half.encode() if isinstance(half, str) else half, "the pair")
    if isinstance(key, bytes):
        return bytes(z85.encode(key)) if len(key) == _BYTES else _checked(key, "the key")
    if isinstance(key, str) and len(key) == _Z85_LETTERS and not Path(key).exists():
        return _checked(key.encode(), "the key")
    return _from_file(Path(key), secret=secret)


def _from_file(path: Path, *, secret: bool) -> bytes:
    # Read once: it may be replaced or removed at any time.
    text = path.read_bytes()
    if b"public-key" not in text:
        return _checked(text.strip(), str(path))
    halves = dict(_HALF.findall(text))
    if b"public" not in halves:
        message = f"{path} is not a certificate: no line of it is a public-key"
        raise LocalProtocolError(message)
    if secret and b"secret" not in halves:
        message = f"{path} is the public half of a certificate: the secret half is needed here"
        raise LocalProtocolError(message)
    return _checked(halves.get(b"secret" if secret else b"public", b""), str(path))


def key_of(letters: bytes) -> bytes | None:
    """The 32 bytes of a key in Z85; None if it is not a key."""
    try:
        return _decoded(letters) if len(letters) == _Z85_LETTERS else None
    except (KeyError, ValueError, struct.error):
        return None


def _checked(letters: bytes, what: str) -> bytes:
    if key_of(letters) is None:
        message = f"{what} is not a CURVE key, which is 40 characters of Z85"
        raise LocalProtocolError(message)
    return letters


def _decoded(letters: bytes) -> bytes:
    from zmq.utils import z85

    return bytes(z85.decode(letters))
