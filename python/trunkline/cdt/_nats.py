"""Connections over nats-py."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import unquote

from trunkline._native import Messages
from trunkline._native.cdt import publications
from trunkline.cdt import _client
from trunkline.cdt._client import UNENCRYPTED, Guarded
from trunkline.cdt._connection import Deliver, Happened
from trunkline.cdt._waits import cut_off, within
from trunkline.errors import AuthenticationError, LocalProtocolError, PeerLostError

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["Identity", "NatsConnection", "without_credentials"]

# The timeouts of a flush and of closing a connection.
_FLUSH_S = 10.0
_LEAST_S = 0.1
_CLOSE_S = 1.0

# The first delay before a lost connection is made again.
_RECONNECT_S = 0.25

# nats-py would take any other URL for a host name.
_SERVER = re.compile(r"(nats|tls|wss?)://.+|[^/]+:\d+")

_UNFIT = "it is larger than the server accepts, or its subject is invalid"

# Our words for nats-py's reasons of a lost connection.
_LOST_BY = {
    "unexpected EOF": "the NATS server closed the connection",
    "stale connection": "the NATS server does not answer pings",
    "Connection lost": "the NATS server closed the connection",
}

# The mark of a credentials file.
_CREDENTIALS = (b"BEGIN NATS USER JWT", b"BEGIN USER NKEY SEED")


class Identity(TypedDict, total=False):
    """The credentials for a server."""

    credentials: str | None
    nkey_seed: str | None
    user: str | None
    password: str | None
    token: str | None
    tls: ssl.SSLContext | None


def without_credentials(server: str) -> str:
    """A URL without user, password and token, even with unencoded characters in these."""
    scheme, _, host = _parts(server)
    return f"{scheme or 'nats'}://{host}"


def _parts(server: str) -> tuple[str, str | None, str]:
    """The scheme of a URL, which may be empty, the credentials, and the rest."""
    scheme, mark, rest = server.partition("://")
    who, at, host = (rest if mark else server).rpartition("@")
    return scheme if mark else "", who if at else None, host


def _logins(servers: Sequence[str]) -> tuple[list[str], Identity]:
    """Servers without the credentials of their URLs, and these, decoded from percent-encoding."""
    found: Identity = {}
    bare = []
    for server in servers:
        scheme, who, host = _parts(server)
        bare.append(f"{scheme}://{host}" if scheme else host)
        if who is not None and not found:
            user, colon, password = who.partition(":")
            found = {"user": unquote(user), "password": unquote(password)} if colon else {"token": unquote(user)}
    return bare, found


def _no_server(where: str) -> LocalProtocolError:
    return LocalProtocolError(f"servers: {where!r} is not a URL of a NATS server: use nats://HOST:PORT")


def _need_credentials(path: str) -> None:
    """Refuses other files: nats-py reads a file only if the server wants credentials, and then retries without end."""
    content = Path(path).read_bytes()
    if not all(begin in content for begin in _CREDENTIALS):
        message = f"credentials: {path} is not a NATS credentials file"
        raise LocalProtocolError(message)


def _is_final(error: BaseException) -> bool:
    """Whether an error is about trust between client and server, so that a retry is no use."""
    words = str(error).lower()
    is_refused = "authorization" in words or "authentication" in words
    return is_refused or words == UNENCRYPTED.lower() or isinstance(error, ssl.SSLCertVerificationError)


class NatsConnection:
    """A connection to nats-server."""

    def __init__(
        self,
        servers: Sequence[str],
        identity: Identity,
        name: str,
        connect_s: float,
        deliver: Deliver,
        happened: Happened,
    ) -> None:
        self._servers, in_urls = _logins(servers)
        given = {name: value for name, value in identity.items() if value is not None}
        self._identity = Identity(**{**in_urls, **given})  # type: ignore[typeddict-item]
        self._name = name
        self._connect_s = connect_s
        # The deadline of opening.
        self._open_until: float | None = None
        self._happened = happened
        # nats-py's type says int, but it accepts float.
        self._client: Any = Guarded(deliver, lambda: happened("limits", ""))
        self._subscriptions: dict[int, list[Any]] = {}
        self._was_open = False
        self._refused: Exception | None = None
        self._denied = asyncio.Event()
        self._lost = asyncio.Event()

    @property
    def client(self) -> Client:
        """The client of nats-py."""
        client: Client = self._client
        return client

    @property
    def max_payload(self) -> int:
        return int(self._client.max_payload)

    @property
    def endpoints(self) -> tuple[str, ...]:
        url = self._client.connected_url
        return () if url is None else (without_credentials(url.geturl()),)

    async def open(self) -> None:
        import nats.errors

        for server in self._servers:
            if not _SERVER.fullmatch(server):
                raise _no_server(without_credentials(server))
        self._open_until = asyncio.get_running_loop().time() + self._connect_s
        given = self._identity
        credentials = given.get("credentials")
        if credentials is not None:
            await asyncio.to_thread(_need_credentials, credentials)
        who = {
            "user_credentials": credentials,
            "nkeys_seed_str": given.get("nkey_seed"),
            "user": given.get("user"),
            "password": given.get("password"),
            "token": given.get("token"),
            "tls": given.get("tls"),
        }
        connecting = asyncio.ensure_future(
            self._client.connect(
                servers=self._servers,
                name=self._name,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnected,
                reconnected_cb=self._on_reconnected,
                allow_reconnect=True,
                connect_timeout=2,
                ping_interval=_client.PING_S,
                max_outstanding_pings=_client.PINGS,
                reconnect_time_wait=_RECONNECT_S,
                max_reconnect_attempts=-1,
                **{name: value for name, value in who.items() if value is not None},
            )
        )
        denied = asyncio.ensure_future(self._denied.wait())
        try:
            done, _ = await asyncio.wait(
                [connecting, denied], timeout=self._connect_s, return_when=asyncio.FIRST_COMPLETED
            )
        except BaseException:
            await self._give_up(connecting)
            raise
        finally:
            denied.cancel()
        if connecting not in done:
            await self._give_up(connecting)
            raise self._why(self._refused or TimeoutError())
        error = connecting.exception()
        if isinstance(error, OSError | nats.errors.Error):
            raise self._why(self._refused or error) from error
        if error is not None:
            # An invalid seed, alone or in a credentials file; nkeys raises errors of any type.
            message = f"nkey_seed or credentials cannot be used: {error}"
            raise LocalProtocolError(message)
        self._was_open = True

    async def _give_up(self, connecting: asyncio.Task[Any]) -> None:
        await cut_off(connecting)
        await self._end()

    def _why(self, error: BaseException) -> Exception:
        where = ", ".join(without_credentials(server) for server in self._servers)
        words = str(error).strip("'") or type(error).__name__
        if "connect url" in words:
            return _no_server(where)
        if isinstance(error, ssl.SSLCertVerificationError):
            advice = "give tls= a context that trusts its issuer (--tls-ca on the command line)"
            return AuthenticationError(f"{where}: its certificate is not trusted, {error.verify_message}: {advice}")
        if _is_final(error):
            return AuthenticationError(f"{where}: {words.removeprefix('nats: ')}")
        if isinstance(error, TimeoutError | ConnectionRefusedError) or "no servers" in words:
            return PeerLostError(f"{where}: no NATS server answers there")
        return PeerLostError(f"{where}: {words.removeprefix('nats: ')}")

    async def subscribe(self, number: int, subject: str, queue: str) -> None:
        subscription = await self._client.subscribe(subject, queue=queue)
        self._client.inflow.take(subscription._id, number)  # noqa: SLF001 - it has no other name
        self._subscriptions.setdefault(number, []).append(subscription)

    async def unsubscribe(self, number: int) -> None:
        for subscription in self._subscriptions.pop(number, ()):
            self._client.inflow.leave(subscription._id)  # noqa: SLF001 - it has no other name
            if not self._client.is_closed:
                await subscription.unsubscribe()

    @property
    def is_full(self) -> bool:
        return bool(self._client.is_full)

    async def room(self) -> None:
        await self._client.room()

    def publish(self, messages: Messages) -> dict[int, str]:
        client = self._client
        if client.is_closed:
            return dict.fromkeys(range(len(messages)), "the connection is closed")
        if client.is_connected:
            written, refused = publications(messages, client.max_payload)
            client.write(written)
            return dict.fromkeys(refused, _UNFIT)
        found: dict[int, str] = {}
        for position, message in enumerate(messages):
            written, refused = publications(Messages([message]), client.max_payload)
            if refused:
                found[position] = _UNFIT
            elif message[1] is not None:
                # Fail at once a message that wants confirmation: buffered, it would go out later all the same.
                found[position] = "there is no connection to a NATS server"
            elif len(written) > client.spare_bytes:
                found[position] = "there is no connection, and no room for what waits for one"
            else:
                client.write(written)
        return found

    def pause(self) -> None:
        self._client.pause()

    def resume(self) -> None:
        self._client.resume()

    async def flush(self) -> None:
        import nats.errors

        if not self._client.is_connected:
            message = "there is no connection to a NATS server"
            raise PeerLostError(message)
        self._lost.clear()
        timeout_s = _FLUSH_S
        if self._open_until is not None:
            # The first connection is a part of opening.
            timeout_s = min(max(self._open_until - asyncio.get_running_loop().time(), _LEAST_S), timeout_s)
        try:
            await self._unless_lost(self._client.flush(_FLUSH_S), timeout_s)
            self._open_until = None
        except TimeoutError:
            message = f"the NATS server did not answer within {timeout_s:.3g} s"
            raise PeerLostError(message) from None
        except (nats.errors.Error, ValueError, OSError) as error:
            raise PeerLostError(str(error)) from error

    async def _unless_lost(self, flushing: Coroutine[Any, Any, None], timeout_s: float) -> None:
        """Waits for an answer of the server; raises if the connection is lost."""
        losing = asyncio.ensure_future(self._lost.wait())
        answering = asyncio.ensure_future(flushing)
        try:
            await asyncio.wait([losing, answering], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                if losing.done():
                    message = "the connection to the NATS server was lost"
                    raise PeerLostError(message)
                raise TimeoutError
        finally:
            losing.cancel()
            await cut_off(answering)
        answering.result()

    async def close(self) -> None:
        self.resume()
        if not self._client.is_closed:
            await self._end()

    async def _end(self) -> None:
        """Closes it with a timeout: nats-py would wait for a server that does not read."""
        try:
            await within(self._client.close(), _CLOSE_S)
        except Exception as error:  # noqa: BLE001 - no caller needs it, and the rest is ended below
            logging.getLogger("trunkline.cdt").debug("a connection to NATS had to be aborted: %r", error)
        with suppress(Exception):
            await within(self._client.end(), _CLOSE_S)

    async def _on_error(self, error: Exception) -> None:
        words = str(error)
        if not self._client.is_connected:
            # The server's error takes precedence over that of the connection, which follows.
            if not self._denied.is_set():
                self._refused = error
            if _is_final(error):
                self._denied.set()
            return
        kind = "refused" if "permissions violation" in words.lower() else "failed"
        words = words.removeprefix("nats: ")
        self._happened(kind, _LOST_BY.get(words, words))

    async def _on_disconnected(self) -> None:
        self._lost.set()
        # nats-py also reports failed attempts.
        if self._was_open:
            self._happened("disconnected", ", ".join(map(without_credentials, self._servers)))

    async def _on_reconnected(self) -> None:
        self._happened("connected", ", ".join(self.endpoints))
