"""The client: it logs in, sends commands, and opens data connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, Unpack

from trunkline._arguments import named, need_callable, need_choice, need_flag, need_number, need_seconds, refuse
from trunkline._native.mtl import Client as _Client
from trunkline._native.mtl import Reply
from trunkline._roles.base import AsyncRole, BlockingRole, RoleWithQuestions
from trunkline._roles.calls import AsyncCalls
from trunkline._roles.native import give_up, opened
from trunkline._roles.notices import Dropped, Notices, unwatch, watch
from trunkline._roles.options import endpoints, native_options, need_client
from trunkline._roles.questions import answer_questions
from trunkline._roles.reachability import unreached
from trunkline.errors import (
    AuthenticationError,
    LocalProtocolError,
    TimeoutError,  # noqa: A004 - trunkline's
)
from trunkline.mtl._leases import ClientStats, Connections, Terms, checked
from trunkline.mtl.flows import AsyncReader, AsyncWriter, Reader, Writer
from trunkline.mtl.mechanisms import Anonymous, External, Mechanism, Plain, ScramSha256, choose
from trunkline.mtl.sasl import ANONYMOUS, EXTERNAL, PLAIN
from trunkline.mtl.saslprep import saslprep
from trunkline.options import DEFAULTS, RoleOptions, spelled_out

__all__ = ["AsyncClient", "Client", "ClientBase", "ClientStats", "Confirm", "confirmation"]

Confirm: TypeAlias = Literal["none", "full"]

# Requests in flight; each is only a few lines.
_COMMANDS = 10_000

# Contents of a reader that may be unconfirmed, unless it says how many.
_WINDOW = 1000


def confirmation(given: Confirm | None, profile: str) -> Confirm:
    """Whether contents are confirmed: as given, or the default of the profile."""
    if given is None:
        # Names of profiles are case-insensitive (MTL-21).
        return "full" if profile.lower() == "queue" else "none"
    need_choice("confirm", given, ("none", "full"))
    return given


class ClientBase(RoleWithQuestions):
    """The base class of the client, without its waits."""

    _native: _Client | None = None

    @spelled_out(RoleOptions, without=("bind", "socket"))
    def __init__(
        self,
        *,
        user: str | None = None,
        password: str | None = None,
        profile: str = "queue",
        virtual_host: str = "/",
        mechanism: str | None = None,
        timeout_s: float = 5.0,
        ping_interval_s: float = 2.5,
        liveness: int = 3,
        capture_secrets: bool = False,
        on_drop: Callable[[Dropped], object] | None = None,
        **options: Unpack[RoleOptions],
    ) -> None:
        need_client("a client connects to its server", options)
        if options.get("socket") is not None:
            message = "a client opens its own sockets: leave out socket="
            raise LocalProtocolError(message)
        for name, value in (("user", user), ("password", password), ("mechanism", mechanism)):
            if not isinstance(value, str | None):
                refuse(name, "a str", value)
        for name, value in (("profile", profile), ("virtual_host", virtual_host)):
            if not isinstance(value, str):
                refuse(name, "a str", value)
        need_seconds("timeout_s", timeout_s)
        need_seconds("ping_interval_s", ping_interval_s)
        need_number("liveness", liveness, least=2, most=2**32 - 1)
        need_flag("capture_secrets", capture_secrets)
        need_callable("on_drop", on_drop)
        # For data connections: the queue of a control connection has a fixed size.
        queue_messages = options.get("queue_messages", DEFAULTS["queue_messages"])
        need_number("queue_messages", queue_messages, least=1, error=LocalProtocolError)
        self._credentials = _Credentials(user, password, mechanism, has_key=options.get("curve") is not None)
        self._settings: dict[str, Any] = {
            "virtual_host": virtual_host,
            "profile": profile,
            "timeout_s": timeout_s,
            "capture_secrets": capture_secrets,
        }
        self._timeout_s = timeout_s
        self._heartbeat = {"ping_interval_s": ping_interval_s, "liveness": liveness}
        self._on_drop = on_drop
        self._options = options
        self._connections = Connections()
        self._made()

    def _open(self) -> None:
        options = native_options({**self._options, "queue_messages": _COMMANDS}, grace_s=0.0)
        native = _Client(options, **self._settings)
        notices = Notices("mtl", "client", self._on_drop)
        pending = native.notice_queue
        watch(pending, lambda: _report_all(pending, notices))
        answerer = _Answerer(native, self._credentials, notices)
        answer_questions(native.asked, answerer.answer, "trunkline-mtl-login", 1)
        opened(native, self._options, notices)
        self._opening = native
        try:
            self._enter(native)
        except BaseException:
            give_up(native)
            unwatch(pending)
            raise
        self._native = native

    def _enter(self, native: _Client) -> None:
        """Opens the session, which everything else needs."""
        try:
            reply: Reply | None = native.request(native.call(None, None, None), room_s=None, timeout_s=self._timeout_s)
        except TimeoutError:
            # A simulated server is not to be probed for.
            dialled = () if native.simulation is not None else endpoints("connect", self._options.get("connect", ()))
            where = unreached(dialled) or native.endpoint
            text = f"no session with a server at {where} within {self._timeout_s:g} s"
            if native.logs_in:
                text += ": the login was not answered; after several failed ones, a wrong password is answered late"
            raise TimeoutError(text) from None
        if reply is not None:
            checked("the request for a session", reply)

    @property
    def _client(self) -> _Client:
        native: _Client = self._opened()
        return native

    @property
    def stats(self) -> ClientStats:
        """The current counters; the final ones once closed."""
        return self._connections.stats(self._client.stats())

    def _terms(
        self, resources: str | Sequence[str], confirm: Confirm | None, window: int | None, *, reads: bool
    ) -> Terms:
        names = named("resources", resources)
        is_confirmed = confirmation(confirm, self._settings["profile"]) == "full"
        need_number("window", window, least=1, may_be_none=reads)
        return Terms(
            connections=self._connections,
            control=lambda: self._client,
            reads=reads,
            resources=names,
            is_confirmed=is_confirmed,
            window=_WINDOW if window is None else window,
            # Without confirmations, a server would stop once a given window is full.
            says_window=window is not None or is_confirmed,
            timeout_s=self._timeout_s,
            heartbeat=self._heartbeat,
            capture_secrets=self._settings["capture_secrets"],
            options=self._options,
            on_drop=self._on_drop,
        )


@dataclass(frozen=True, slots=True)
class _Credentials:
    """The credentials of a login."""

    user: str | None
    password: str | None
    mechanism: str | None
    has_key: bool

    def __post_init__(self) -> None:
        """Refuses credentials that no server could accept, before connecting (MTL-16)."""
        for name, value in (("user", self.user), ("password", self.password)):
            try:
                saslprep(value or "")
            except ValueError as error:
                message = f"{name}: {error}"
                raise LocalProtocolError(message) from None

    def begin(self, offered: Sequence[str], *, is_private: bool) -> tuple[str, Mechanism]:
        name = choose(
            offered,
            user=self.user,
            password=self.password,
            mechanism=self.mechanism,
            is_private=is_private,
            has_key=self.has_key,
        )
        user, password = self.user or "", self.password or ""
        if name == EXTERNAL:
            return name, External()
        if name == ANONYMOUS:
            return name, Anonymous()
        if name == PLAIN:
            return name, Plain(user, password)
        return name, ScramSha256(user, password)

    def __repr__(self) -> str:
        return f"<credentials of {self.user}>"


class _Answerer:
    """Answers the challenges of logins."""

    def __init__(self, native: _Client, credentials: _Credentials, notices: Notices) -> None:
        self._native = native
        self._credentials = credentials
        self._notices = notices
        self._mechanism: Mechanism | None = None

    def answer(self, kind: str, token: int, *details: Any) -> None:
        """Answers a question; does not raise."""
        try:
            if kind == "begin":
                offered, is_private = details
                name, self._mechanism = self._credentials.begin(offered, is_private=is_private)
                mechanism, response = self._mechanism, self._mechanism.step(None)
            else:
                # The engine passes no challenge before `begin`.
                assert self._mechanism is not None
                name, challenge = details
                mechanism, response = self._mechanism, self._mechanism.step(challenge)
        except Exception as error:  # noqa: BLE001 - the pending call gets it
            if not isinstance(error, AuthenticationError):
                self._notices.log(logging.ERROR, "login", "a login failed", error)
            self._native.give_up(token, str(error))
        else:
            self._native.respond(token, name, response, is_done=mechanism.is_done)


def _report_all(pending: Any, notices: Notices) -> None:
    for kind, *details in pending.read():
        notices.report(kind, *details)


class Client(ClientBase, BlockingRole):
    """Logs in to a server, sends commands, and opens data connections to write and read contents.

    The login is complete when the constructor returns. Commands are sent one at a time (MTL-01); after one
    that timed out or was cancelled, the next command uses a new connection (MTL-02). If the server asks for authentication
    again, or has lost the session, the client logs in again by itself (MTL-15).

    Args:
        user: The user name; None if the server requires no login, or for a login by the key in ``curve``.
        password: The password; SCRAM-SHA-256 does not send it.
        profile: The profile (MTL-20).
        virtual_host: The virtual host (MTL-12).
        mechanism: The SASL mechanism; None selects the strongest one offered. On an unprotected transport, PLAIN is only used
            if it is named here.
        timeout_s: The timeout of a command.
        ping_interval_s: How long a data connection may be silent before a Ping is sent (MTL-57).
        liveness: The number of silent intervals after which the connection is considered lost (MTL-58).
        capture_secrets: Record credentials and leases in ``capture``; by default they are replaced by placeholders.
        on_drop: Called with a `trunkline.Dropped`, in the thread ``trunkline-notices``.
        **options: Where the server listens, what is recorded, and more: ``connect``, ``curve``, ``capture``, each in
            `trunkline.RoleOptions`; a client has no ``bind`` and no ``socket``. If several endpoints are given, each is
            tried for an equal share of `timeout_s`. A capture includes the data connections; it ends with the client.

    Raises:
        AuthenticationError: The login was refused; `.mechanisms` has the mechanisms offered.
        RemoteProtocolError: The server has no such profile or virtual host.
        TimeoutError: The server did not answer.
        LocalProtocolError: The options contradict each other.
        CaptureError: The capture cannot be opened.

    ```pycon
    >>> from trunkline import mtl
    >>> with mtl.Server(bind="tcp://127.0.0.1:*", users={"ada": "sesame"}, resources=["jobs"]) as server:
    ...     client = mtl.Client(connect=server.endpoints, user="ada", password="sesame")
    ...     with client.writer("jobs") as writer:
    ...         writer.send(b"build 7")
    ...         writer.flush(timeout_s=10)
    ...     client.command("Queue.Info", {"name": "jobs"}).body["messages"]
    ...     with client.reader("jobs", window=1) as reader:
    ...         reader.summon("jobs")
    ...         reader.receive(timeout_s=10).body
    ...     client.close()
    1
    b'build 7'

    ```
    """

    def command(self, name: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None) -> Reply:
        """Sends a command and waits for the reply (MTL-07).

        Args:
            name: Its class and method, e.g. ``"Queue.Info"``.
            body: Its arguments, a JSON object.
            timeout_s: How long to wait; None for the client's `timeout_s`.

        Returns:
            The reply, with a status from 200 to 399.

        Raises:
            RemoteProtocolError: The reply has a status of 400 or above; see `.status` and `.body`.
            AuthenticationError: The server requires a new login, and refused it.
            TimeoutError: No reply arrived in time.
            PeerLostError: The connection was lost before the reply arrived.
            LocalProtocolError: `name` is not a command name, or the body exceeds 1 MiB.
            ClosedError: The client is closed.
        """
        native = self._client
        outgoing = native.call(name, None if body is None else dict(body), timeout_s)
        shown_s = self._timeout_s if timeout_s is None else timeout_s
        return checked(name, native.request(outgoing, room_s=shown_s, timeout_s=shown_s))

    def writer(
        self, resources: str | Sequence[str] = (), *, confirm: Confirm | None = None, window: int = 1000
    ) -> Writer:
        """Opens a data connection that sends contents (MTL-23).

        Args:
            resources: One or more resources; an empty sequence for any.
            confirm: ``"full"``: the server confirms or rejects each content; ``"none"``: it confirms none; None: the profile's
                default.
            window: How many contents may be unconfirmed at a time.

        Raises:
            LeaseRefusedError: The user lacks the permission.
            RemoteProtocolError: The server has no such resource, or the profile does not confirm contents.
            TimeoutError: The server did not answer.
        """
        return Writer(self._terms(resources, confirm, window, reads=False))

    def reader(
        self, resources: str | Sequence[str] = (), *, confirm: Confirm | None = None, window: int | None = None
    ) -> Reader:
        """Opens a data connection that receives the contents of the resources it summons (MTL-23).

        Args:
            resources: One or more resources; an empty sequence for any.
            confirm: ``"full"``: each content must be confirmed or rejected; ``"none"``: contents are not confirmed; None: the
                profile's default.
            window: How many delivered contents may be unconfirmed at a time; None for 1000, or for no limit with
                ``confirm="none"``. Since nothing is confirmed then, a server given a window stops after this many contents,
                until all resources are dismissed.

        Raises:
            LeaseRefusedError, RemoteProtocolError, TimeoutError: As for `writer`.
        """
        return Reader(self._terms(resources, confirm, window, reads=True))

    def close(self) -> None:
        """Closes the client and its capture. Its data connections stay open until they are closed; messages they exchange after this
        are not recorded, but counted in their ``capture_lost``.
        """
        self._finish(0.0)


class AsyncClient(ClientBase, AsyncRole):
    """`Client` for asyncio: opened by ``async with``; what can wait is a coroutine.

    ```pycon
    >>> import asyncio
    >>> from trunkline import mtl
    >>> async def main():
    ...     async with mtl.AsyncServer(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server:
    ...         async with mtl.AsyncClient(connect=server.endpoints) as client:
    ...             async with client.writer("jobs") as writer, client.reader("jobs", window=1) as reader:
    ...                 await writer.send(b"build 7")
    ...                 await reader.summon("jobs")
    ...                 content = await reader.receive(timeout_s=10)
    ...             reply = await client.command("Queue.List", timeout_s=10)
    ...             await client.close()
    ...             return content.body, reply.status, reply.body["queues"]
    >>> asyncio.run(main())
    (b'build 7', 200, ['jobs'])

    ```
    """

    def _open(self) -> None:
        super()._open()
        self._calls: AsyncCalls[Reply] = AsyncCalls(self._client, self._waits)

    async def command(
        self, name: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Reply:
        """See `Client.command`."""
        outgoing = self._client.call(name, None if body is None else dict(body), timeout_s)
        shown_s = self._timeout_s if timeout_s is None else timeout_s
        return checked(name, await self._calls.ask(outgoing, shown_s, shown_s))

    def writer(
        self, resources: str | Sequence[str] = (), *, confirm: Confirm | None = None, window: int = 1000
    ) -> AsyncWriter:
        """See `Client.writer`; opened by ``async with``."""
        return AsyncWriter(self._terms(resources, confirm, window, reads=False))

    def reader(
        self, resources: str | Sequence[str] = (), *, confirm: Confirm | None = None, window: int | None = None
    ) -> AsyncReader:
        """See `Client.reader`; opened by ``async with``."""
        return AsyncReader(self._terms(resources, confirm, window, reads=True))

    async def close(self) -> None:
        """See `Client.close`."""
        await self._finish(0.0)
