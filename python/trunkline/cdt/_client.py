"""The connection of the JetStream store, by the public interface of nats-py."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from trunkline._tls import Tls
from trunkline.cdt._opening import without_credentials
from trunkline.errors import AuthenticationError, PeerLostError

if TYPE_CHECKING:
    from nats.aio.client import Client

__all__ = ["connected", "ended"]

_PING_S = 10
_PINGS = 2
_RECONNECT_S = 0.25

# How long closing a connection may take: nats-py would wait for a server that does not read.
_CLOSE_S = 1.0

_UNENCRYPTED = "the server does not encrypt: set up TLS there, or leave out tls and tls://"


class _Context(ssl.SSLContext):
    """A TLS context that knows whether a handshake was begun: nats-py logs in without where the server does not want one."""

    is_used = False

    @classmethod
    def of(cls, tls: Tls) -> Self:
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
        return context

    def wrap_bio(self, *given: Any, **more: Any) -> ssl.SSLObject:
        self.is_used = True
        return super().wrap_bio(*given, **more)


def _secret(text: str, context: _Context | None) -> Callable[[], str]:
    """What gives a secret of the login, but never in the clear where TLS is wanted."""

    def give() -> str:
        if context is not None and not context.is_used:
            raise ConnectionError(_UNENCRYPTED)
        return text

    return give


def _logins(servers: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Servers without the credentials of their URLs, and these, decoded from percent-encoding."""
    found: dict[str, str] = {}
    for server in servers:
        who, at, _ = server.partition("://")[2].rpartition("@")
        if at and not found:
            user, colon, password = who.partition(":")
            found = {"user": unquote(user), "password": unquote(password)} if colon else {"token": unquote(user)}
    return [without_credentials(server) for server in servers], found


async def connected(options: Mapping[str, Any], connect_s: float) -> Client:
    """Connects to the servers of a role, with its login.

    Raises:
        PeerLostError: No server answers in time.
        AuthenticationError: A server refuses the login, or is not trusted.
    """
    import nats

    servers, login = _logins(options["servers"])
    login |= {name: options[name] for name in ("user", "password", "token") if options[name] is not None}
    tls = options["tls"] or (Tls() if any(server.startswith("tls://") for server in servers) else None)
    context = None if tls is None else _Context.of(tls)
    given: dict[str, Any] = {name: _secret(text, context) for name, text in login.items()}
    if context is not None:
        given["tls"] = context
    if options["nkey_seed"] is not None:
        given["nkeys_seed_str"] = options["nkey_seed"]
    if options["credentials"] is not None:
        given["user_credentials"] = str(options["credentials"][0])
    why: list[Exception] = []

    async def note(error: Exception) -> None:
        why.append(error)

    async def begin_again() -> None:
        if context is not None:
            context.is_used = False

    connecting = nats.connect(
        servers=servers,
        name=options["name"],
        error_cb=note,
        disconnected_cb=begin_again,
        ping_interval=_PING_S,
        max_outstanding_pings=_PINGS,
        reconnect_time_wait=_RECONNECT_S,
        max_reconnect_attempts=-1,
        **given,
    )
    where = ", ".join(servers)
    try:
        client = await asyncio.wait_for(connecting, connect_s)
    except Exception as error:
        last = why[-1] if why else error
        words = str(last).strip("'").removeprefix("nats: ")
        is_denied = "authorization" in words.lower() or isinstance(last, ssl.SSLCertVerificationError)
        if is_denied or words == _UNENCRYPTED:
            message = f"{where}: {words}"
            raise AuthenticationError(message) from error
        message = f"{where}: no NATS server answers there"
        raise PeerLostError(message) from error
    if context is not None and not context.is_used:
        await ended(client)
        message = f"{where}: {_UNENCRYPTED}"
        raise AuthenticationError(message)
    return client


async def ended(client: Client) -> None:
    """Closes a connection, whatever its server does."""
    with suppress(Exception):
        await asyncio.wait_for(client.close(), _CLOSE_S)
        return
    logging.getLogger("trunkline.cdt").debug("a connection to NATS could not be closed in time")
