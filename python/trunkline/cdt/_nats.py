"""Connections over nats-py."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import urlsplit

from trunkline.cdt._connection import Deliver, Happened
from trunkline.cdt._waits import cut_off, within
from trunkline.errors import AuthenticationError, LocalProtocolError, PeerLostError

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["Identity", "NatsConnection", "without_credentials"]

# How long a first connection may take in all, the server to say that it has everything, and a connection to end.
_CONNECT_S = 5.0
_FLUSH_S = 10.0
_CLOSE_S = 1.0

# How often a server is asked whether it is there, and how often it may leave that unanswered.
_PING_S = 10.0
_PINGS = 2

# How long after a lost connection the next one is tried, at first.
_RECONNECT_S = 0.25

# Whatever else it is, nats-py takes it for the name of a machine, and looks for that.
_SERVER = re.compile(r"(nats|tls|wss?)://.+|[^/]+:\d+")

# What every credentials file has.
_CREDENTIALS = (b"BEGIN NATS USER JWT", b"BEGIN USER NKEY SEED")

_UNENCRYPTED = "the server does not encrypt: set up TLS there, or leave out tls and tls://"


class Identity(TypedDict, total=False):
    """Who we are to a server."""

    credentials: str | None
    nkey_seed: str | None
    user: str | None
    password: str | None
    token: str | None
    tls: ssl.SSLContext | None


def without_credentials(server: str) -> str:
    """A URL as it may be shown: without user, password and token."""
    try:
        parts = urlsplit(server)
    except ValueError:
        return server.rpartition("@")[2]
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme or 'nats'}://{host}" if host else server.rpartition("@")[2]


def _no_server(where: str) -> LocalProtocolError:
    return LocalProtocolError(f"servers: {where!r} is no URL of a NATS server: it is nats://HOST:PORT")


def _need_credentials(path: str) -> None:
    """Refuses what is no credentials file: it is read only if the server asks for any, and then without end."""
    content = Path(path).read_bytes()
    if not all(begin in content for begin in _CREDENTIALS):
        message = f"credentials: {path} is no credentials file of NATS"
        raise LocalProtocolError(message)


def _is_final(error: BaseException) -> bool:
    """Whether the two do not trust each other, which no other try will change."""
    words = str(error).lower()
    is_refused = "authorization" in words or "authentication" in words
    return is_refused or words == _UNENCRYPTED.lower() or isinstance(error, ssl.SSLCertVerificationError)


class _Headers(dict[str, str]):
    """The headers of a message, and the block they were read from."""

    block: bytes = b""


def _guarded(deliver: Deliver) -> Client:
    """A client that no message puts out of action, and that hands over those of our subscriptions as they come.

    The parser of nats-py calls the first two for every message; what they raise would end its reading, and the connection would be
    deaf from then on. The third writes a ping at once, before what waits to be written: its answer would say nothing of that. The fourth begins
    a connection, and the fifth waits for ever until a server that reads nothing has been sent the rest of the last one. The sixth
    encrypts only where the server insists, and would send passwords in the clear where it does not.
    """
    import nats.errors
    from nats.aio.client import PING_PROTO, Client

    class Unencrypted(nats.errors.Error):
        def __str__(self) -> str:
            return _UNENCRYPTED

    class Guarded(Client):
        def __init__(self) -> None:
            super().__init__()
            self.taken: dict[int, int] = {}
            self.may_read = asyncio.Event()
            self.may_read.set()

        async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
            if not self.may_read.is_set():
                await self.may_read.wait()
            if not headers:
                return None
            read = _Headers()
            read.block = headers
            try:
                read.update(await super()._process_headers(headers) or {})
            except Exception:  # noqa: BLE001 - whatever it is, it is the sender's
                logging.getLogger("trunkline.cdt").debug("a header block of NATS that is none: %r", headers[:200])
            return read

        def _build_message(
            self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
        ) -> Any:
            number = self.taken.get(sid)
            if number is not None:
                deliver(number, subject, reply, headers.block if isinstance(headers, _Headers) else b"", data)
                return None
            try:
                return super()._build_message(sid, subject, reply, data, headers)
            except UnicodeDecodeError:
                return None

        async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
            pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            if future is None and not self.may_read.is_set():
                # We do not read its answers: whether it reads is what the system looks at.
                self._pings_outstanding = 0
            elif future is not None:
                # Whoever waits may have given up when it comes, which would raise where the client reads.
                pong.add_done_callback(lambda _: None if future.done() else future.set_result(True))
            self._pongs.append(pong)
            await self._send_command(PING_PROTO)
            await self._flush_pending()

        async def _process_connect_init(self) -> None:
            _limit(self)
            await super()._process_connect_init()

        async def _attempt_reconnect(self) -> None:
            _abort(self)
            await super()._attempt_reconnect()

        async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - as nats-py has it
            await super()._process_info(info, initial_connection)
            server = self._current_server
            is_wanted = "tls" in self.options or (server is not None and server.uri.scheme == "tls")
            if initial_connection and is_wanted:
                if not (info.get("tls_required") or info.get("tls_available")):
                    raise Unencrypted
                info["tls_required"] = True

    return Guarded()


def _abort(client: Any) -> None:
    """Ends a connection at once: nats-py waits until all is written, for ever where the server reads nothing any more."""
    writer = _writer(client)
    if writer is not None:
        writer.transport.abort()


def _limit(client: Any) -> None:
    """Has the system end a connection whose server takes nothing of what is sent, as one that hangs, or is cut off."""
    writer, option = _writer(client), getattr(socket, "TCP_USER_TIMEOUT", None)
    if writer is not None and option is not None:
        given_ms = int(_PING_S * (_PINGS + 1) * 1000)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, given_ms)


def _writer(client: Any) -> asyncio.StreamWriter | None:
    """What a connection over TCP writes to."""
    writer: asyncio.StreamWriter | None = getattr(client._transport, "_io_writer", None)  # noqa: SLF001 - it has no other name
    return writer


class NatsConnection:
    """A connection to nats-server."""

    def __init__(
        self, servers: Sequence[str], identity: Identity, name: str, deliver: Deliver, happened: Happened
    ) -> None:
        self._servers = list(servers)
        self._identity = identity
        self._name = name
        self._happened = happened
        self._client: Any = _guarded(deliver)
        self._subscriptions: dict[int, list[Any]] = {}
        self._was_open = False
        self._refused: Exception | None = None
        self._denied = asyncio.Event()

    @property
    def client(self) -> Client:
        """That of nats-py."""
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
                ping_interval=_PING_S,
                max_outstanding_pings=_PINGS,
                reconnect_time_wait=_RECONNECT_S,
                max_reconnect_attempts=-1,
                **{name: value for name, value in who.items() if value is not None},
            )
        )
        denied = asyncio.ensure_future(self._denied.wait())
        try:
            done, _ = await asyncio.wait([connecting, denied], timeout=_CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
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
            # A seed that is none, alone or in a file of credentials; what nkeys says of it is of any type.
            message = f"nkey_seed or credentials: they cannot be used: {error}"
            raise LocalProtocolError(message)
        self._was_open = True

    async def _give_up(self, connecting: asyncio.Task[Any]) -> None:
        await cut_off(connecting)
        await self._end()

    def _why(self, error: BaseException) -> Exception:
        where = ", ".join(without_credentials(server) for server in self._servers)
        words = str(error) or type(error).__name__
        if "connect url" in words:
            return _no_server(where)
        if isinstance(error, ssl.SSLCertVerificationError):
            advice = "tls is a context that believes who has signed it (--tls-ca on the command line)"
            return AuthenticationError(f"{where}: its certificate is not believed, {error.verify_message}: {advice}")
        if _is_final(error):
            return AuthenticationError(f"{where}: {words.removeprefix('nats: ')}")
        if isinstance(error, TimeoutError | ConnectionRefusedError) or "no servers" in words:
            return PeerLostError(f"{where}: no NATS server answers there")
        return PeerLostError(f"{where}: {words.removeprefix('nats: ')}")

    async def subscribe(self, number: int, subject: str, queue: str) -> None:
        subscription = await self._client.subscribe(subject, queue=queue)
        self._client.taken[subscription._id] = number  # noqa: SLF001 - it has no other name
        self._subscriptions.setdefault(number, []).append(subscription)

    async def unsubscribe(self, number: int) -> None:
        for subscription in self._subscriptions.pop(number, ()):
            self._client.taken.pop(subscription._id, None)  # noqa: SLF001 - it has no other name
            if not self._client.is_closed:
                await subscription.unsubscribe()

    async def publish(self, subject: str, reply_to: str, body: bytes) -> None:
        import nats.errors

        try:
            await self._client.publish(subject, body, reply=reply_to)
        except nats.errors.Error as error:
            raise PeerLostError(str(error)) from error

    def pause(self) -> None:
        self._client.may_read.clear()

    def resume(self) -> None:
        self._client.may_read.set()

    async def flush(self) -> None:
        import nats.errors

        if not self._client.is_connected:
            message = "there is no connection to a NATS server"
            raise PeerLostError(message)
        try:
            await within(self._client.flush(_FLUSH_S), _FLUSH_S)
        except TimeoutError:
            message = f"the NATS server did not answer within {_FLUSH_S:g} s"
            raise PeerLostError(message) from None
        except (nats.errors.Error, ValueError, OSError) as error:
            raise PeerLostError(str(error)) from error

    async def close(self) -> None:
        self.resume()
        if not self._client.is_closed:
            await self._end()

    async def _end(self) -> None:
        """Ends it whatever the server does: nats-py would wait for one that reads nothing any more."""
        try:
            await within(self._client.close(), _CLOSE_S)
        except Exception as error:  # noqa: BLE001 - there is nobody to tell, and what is left is ended below
            logging.getLogger("trunkline.cdt").debug("a connection to NATS did not end by itself: %r", error)
        _abort(self._client)

    async def _on_error(self, error: Exception) -> None:
        words = str(error)
        if not self._client.is_connected:
            # What the server says goes before what becomes of the connection, which it ends.
            if not self._denied.is_set():
                self._refused = error
            if _is_final(error):
                self._denied.set()
            return
        kind = "refused" if "permissions violation" in words.lower() else "failed"
        self._happened(kind, words.removeprefix("nats: "))

    async def _on_disconnected(self) -> None:
        # nats-py says so of a connection too that never came about.
        if self._was_open:
            self._happened("disconnected", ", ".join(map(without_credentials, self._servers)))

    async def _on_reconnected(self) -> None:
        self._happened("connected", ", ".join(self.endpoints))
