"""The client: it logs in, sends commands, and opens data connections."""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, Unpack

from trunkline import _notices
from trunkline._arguments import named, need_callable, need_choice, need_flag, need_number, need_seconds, refuse
from trunkline._attending import attend_questions
from trunkline._calls import AsyncCalls
from trunkline._endpoints import what_is_wrong
from trunkline._native import Outgoing
from trunkline._native.mtl import Client as _Client
from trunkline._native.mtl import Flow, Reply
from trunkline._notices import Dropped, Notices
from trunkline._roles import AsyncRole, AttendedRole, BlockingRole, endpoints, give_up, native_options, opened
from trunkline.errors import (
    AuthenticationError,
    LeaseRefusedError,
    LocalProtocolError,
    RemoteProtocolError,
    TimeoutError,  # noqa: A004 - trunkline's
)
from trunkline.mtl.flows import AsyncReader, AsyncWriter, Reader, Terms, Writer
from trunkline.mtl.mechanisms import Anonymous, External, Mechanism, Plain, ScramSha256, choose
from trunkline.mtl.sasl import ANONYMOUS, EXTERNAL, PLAIN
from trunkline.options import RoleOptions, spelled_out

__all__ = ["Asking", "AsyncClient", "Client", "ClientStats", "Confirm", "Desk", "Leasing", "confirmation"]

Confirm: TypeAlias = Literal["none", "full"]

# Requests under way at a time, none of which is larger than a few lines.
_COMMANDS = 10_000

# Contents of a reader that may be unconfirmed, unless it says how many.
_WINDOW = 1000


def confirmation(given: Confirm | None, profile: str) -> Confirm:
    """Whether contents are confirmed: as given, or the default of the profile."""
    if given is None:
        # The case of its letters does not matter (MTL-21).
        return "full" if profile.lower() == "queue" else "none"
    need_choice("confirm", given, ("none", "full"))
    return given


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Counters of a client since its start, including its data connections.

    Attributes:
        received: Messages received.
        sent: Messages sent.
        dropped: Dropped messages by kind; only kinds that occurred.
        bytes: Bytes of all frames received.
        contents: Contents received, or accepted for sending.
        confirmed: Contents that were confirmed.
        rejected: Contents that were rejected.
        unconfirmed: Contents neither confirmed nor rejected yet.
        at_risk: Contents sent without confirmation on a connection that was lost before they were known to have arrived.
        reconnects: Connections re-established.
        capture_lost: Rows dropped because the capture could not keep up.
    """

    received: int
    sent: int
    dropped: Mapping[str, int]
    bytes: int
    contents: int
    confirmed: int
    rejected: int
    unconfirmed: int
    at_risk: int
    reconnects: int
    capture_lost: int


class Asking(AttendedRole):
    """What a client does apart from waiting."""

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
        if options.get("bind"):
            message = "a client connects to its server: use connect="
            raise LocalProtocolError(message)
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
        self._counting = threading.Lock()
        self._flows: set[Flow] = set()
        self._ended_flows: list[dict[str, Any]] = []
        # Data connections that nobody closed: they are collected in the middle of anything, and wait for no lock.
        self._collected: deque[Flow] = deque()
        self._made()

    def _machine(self) -> tuple[str, dict[str, Any]]:
        return "mtl.client", self._settings

    def _open(self) -> None:
        options = {**native_options({**self._options, "queue_messages": _COMMANDS}, grace_s=0.0)}
        native = _Client(options, **self._settings)
        notices = Notices("mtl", "client", self._on_drop)
        told = native.told
        _notices.watch(told, lambda: _tell_all(told, notices))
        desk = Desk(native, self._credentials, notices)
        attend_questions(native.asked, desk.answer, "trunkline-mtl-login", 1)
        opened(native, self._options, notices)
        self._opening = native
        try:
            self._enter(native)
        except BaseException:
            give_up(native)
            _notices.unwatch(told)
            raise
        self._native = native

    def _enter(self, native: _Client) -> None:
        """Opens the session, which everything else needs."""
        try:
            reply: Reply | None = native.request(native.call(None, None, None), room_s=None, timeout_s=self._timeout_s)
        except TimeoutError:
            where = ", ".join(endpoints("connect", self._options.get("connect", ()))) or native.endpoint
            text = f"no session with a server at {where} within {self._timeout_s:g} s"
            if native.logs_in:
                text += ": the login was not answered; after several failed ones, a wrong password is answered late"
            raise TimeoutError(text) from None
        if reply is not None:
            _checked("the request for a session", reply)

    @property
    def _client(self) -> _Client:
        native: _Client = self._opened()
        return native

    @property
    def stats(self) -> ClientStats:
        """The current counters; the final ones once closed."""
        with self._counting:
            self._end_collected()
            flows, ended = list(self._flows), self._ended_flows
        return _sum([self._client.stats(), *(flow.stats() for flow in flows), *ended])

    def _began(self, flow: Flow) -> None:
        """A data connection is open."""
        with self._counting:
            self._end_collected()
            self._flows.add(flow)

    def _left(self, flow: Flow) -> None:
        """A data connection is closed: its counters are final."""
        with self._counting:
            self._end(flow)

    def _let_go_of(self, flow: Flow) -> None:
        """A data connection is collected, closed or not."""
        if flow in self._flows:
            self._collected.append(flow)

    def _end_collected(self) -> None:
        while self._collected:
            self._end(self._collected.popleft())

    def _end(self, flow: Flow) -> None:
        if flow in self._flows:
            self._flows.remove(flow)
            self._ended_flows = [asdict(_sum([flow.stats(), *self._ended_flows]))]

    def _terms(
        self, resources: str | Sequence[str], confirm: Confirm | None, window: int | None, *, reads: bool
    ) -> Terms:
        names = named("resources", resources)
        is_confirmed = confirmation(confirm, self._settings["profile"]) == "full"
        need_number("window", window, least=1, may_be_none=reads)
        return Terms(
            client=self,
            reads=reads,
            resources=names,
            is_confirmed=is_confirmed,
            window=_WINDOW if window is None else window,
            # Where nothing is confirmed, a server that is told of one stops there.
            says_window=window is not None or is_confirmed,
            timeout_s=self._timeout_s,
            heartbeat=self._heartbeat,
            capture_secrets=self._settings["capture_secrets"],
            options=self._options,
            on_drop=self._on_drop,
        )

    def _leasing(self, body: Mapping[str, Any], *, reads: bool) -> Leasing:
        """Requests a data connection (MTL-26)."""
        name = "Connection.Reader" if reads else "Connection.Writer"
        return Leasing(self._client, name, self._client.call(name, dict(body), None), self._timeout_s)


class Leasing:
    """A request for a lease and the endpoint to redeem it at, made in the thread that waits for it (MTL-26).

    Attributes:
        max_message_bytes: The largest frame that the server accepts, if it announced a limit.
    """

    def __init__(self, native: _Client, name: str, outgoing: Outgoing, timeout_s: float) -> None:
        self._native = native
        self._name = name
        self._outgoing = outgoing
        self._timeout_s = timeout_s
        self.max_message_bytes = sys.maxsize

    def wait(self) -> tuple[str, str]:
        """The endpoint, and the lease.

        Raises:
            LeaseRefusedError, RemoteProtocolError, AuthenticationError, TimeoutError, ClosedError: No lease was granted.
        """
        reply: Reply = self._native.request(self._outgoing, room_s=self._timeout_s, timeout_s=self._timeout_s)
        said = _checked(self._name, reply).body
        lease, port, endpoint = said.get("lease"), said.get("port"), said.get("endpoint")
        if not isinstance(endpoint, str):
            host, _, _ = self._native.endpoint.rpartition(":")
            # Where the server is reached by no host, a port says nothing.
            has_port = host.startswith("tcp://") and isinstance(port, int) and 0 < port < 1 << 16
            endpoint = f"{host}:{port}" if has_port else None
        if not isinstance(lease, str) or not isinstance(endpoint, str) or len(lease.encode()) > 255:
            message = "invalid lease from the server: its reply has no lease, or no port"
            raise RemoteProtocolError(message, "MTL-26", status=reply.status, body=said)
        wrong = what_is_wrong("connect", endpoint)
        if wrong is not None:
            message = f"invalid lease from the server: its endpoint {endpoint!r} {wrong}"
            raise RemoteProtocolError(message, "MTL-26", status=reply.status, body=said)
        most = said.get("max-message-bytes")
        if isinstance(most, int) and most > 0:
            self.max_message_bytes = most
        return endpoint, lease

    def close(self, _grace_s: float) -> None:
        """Ends the wait of the thread."""
        self._native.cancel(self._outgoing.call)


def _sum(all_: Sequence[Mapping[str, Any]]) -> ClientStats:
    """Counters of several connections together."""
    dropped: Counter[str] = Counter()
    for one in all_:
        dropped.update(one["dropped"])
    counts = {
        field.name: sum(one.get(field.name, 0) for one in all_)
        for field in fields(ClientStats)
        if field.name != "dropped"
    }
    return ClientStats(**counts, dropped=dict(dropped))


def _checked(name: str, reply: Reply) -> Reply:
    """The reply, unless its status says that the command failed (MTL-29)."""
    if reply.status < 400:
        return reply
    said = reply.body
    text = f"{name} was answered with {reply.status} {said.get('status', '')}".rstrip()
    if reply.status == 403 and name in ("Connection.Reader", "Connection.Writer"):
        raise LeaseRefusedError(text, reply.status)
    raise RemoteProtocolError(text, status=reply.status, body=said)


@dataclass(frozen=True, slots=True)
class _Credentials:
    """What to log in with."""

    user: str | None
    password: str | None
    mechanism: str | None
    has_key: bool

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


class Desk:
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
                # A server goes on with nothing that was not begun: the engine sees to that.
                assert self._mechanism is not None
                name, challenge = details
                mechanism, response = self._mechanism, self._mechanism.step(challenge)
        except Exception as error:  # noqa: BLE001 - whatever it is, the call that waits is to have it
            if not isinstance(error, AuthenticationError):
                self._notices.log(logging.ERROR, "login", "a login failed", error)
            self._native.give_up(token, str(error))
        else:
            self._native.respond(token, name, response, is_done=mechanism.is_done)


def _tell_all(told: Any, notices: Notices) -> None:
    for kind, *details in told.read():
        notices.tell(kind, *details)


class Client(Asking, BlockingRole):
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
        return _checked(name, native.request(outgoing, room_s=shown_s, timeout_s=shown_s))

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


class AsyncClient(Asking, AsyncRole):
    """`Client` for asyncio: opened by ``async with``; what can wait is a coroutine."""

    def _open(self) -> None:
        super()._open()
        self._calls: AsyncCalls[Reply] = AsyncCalls(self._client, self._waits)

    async def command(
        self, name: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Reply:
        """See `Client.command`."""
        outgoing = self._client.call(name, None if body is None else dict(body), timeout_s)
        shown_s = self._timeout_s if timeout_s is None else timeout_s
        return _checked(name, await (await self._calls.put(outgoing, shown_s, shown_s)))

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

    def _settled(self, native: Any) -> None:
        self._calls.end()
        super()._settled(native)
