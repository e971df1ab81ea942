"""The server: logins, leases, and the delivery of contents."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from trunkline._arguments import (
    named,
    need_callable,
    need_flag,
    need_number,
    need_path,
    need_seconds,
    need_sequence,
    refuse,
)
from trunkline._metrics.counters import Count, Latencies, Level, TransportName, measured
from trunkline._native.mtl import Reply
from trunkline._native.mtl import Server as _Server
from trunkline._roles.base import AsyncService, BlockingService, RoleWithQuestions
from trunkline._roles.endpoints import need_endpoints
from trunkline._roles.native import opened
from trunkline._roles.notices import Dropped, Notices, client_fields, watch
from trunkline._roles.options import endpoints, native_options
from trunkline._roles.questions import answer_questions
from trunkline._roles.reloads import difference, reading, report_reload
from trunkline._roles.threads import survivable
from trunkline._text import client, counted, readable, were
from trunkline.errors import LocalProtocolError
from trunkline.mtl.profiles import Handler, Profile, Session, known, need_leasable
from trunkline.mtl.sasl import Authenticator, Challenge, Welcome
from trunkline.mtl.users import Users
from trunkline.options import Endpoints, RoleOptions, spelled_out

__all__ = ["AsyncServer", "ResourceStats", "Server", "ServerBase", "ServerStats"]

# The largest count that the engine accepts.
_MOST = 2**32 - 1

# Logins checked at a time, and custom commands answered at a time.
_THREADS = 4

_ENDS = {
    "silent": "does not answer pings: its lease has ended",
    "gone": "disconnected: its lease has ended",
    "revoked": "had its lease revoked",
    "unread": "does not read its answers: its lease has ended",
}


@dataclass(frozen=True, slots=True)
class ResourceStats:
    """Counters of one resource since the start.

    Attributes:
        virtual_host: Its virtual host.
        profile: Its profile.
        resource: Its name; each name cut at 200 bytes.
        queued: Contents in the queue, delivered but unconfirmed ones included.
        queued_bytes: Their bytes, and 64 for each frame.
        readers: Readers that have summoned it.
        writers: Data connections that may write to it.
        in_: Contents accepted; ``in`` in JSON.
        out: Contents handed to the transport, counted per reader.
        confirmed: Contents that readers confirmed.
        rejected: Contents that readers rejected.
        redelivered: Contents delivered again.
        dead_lettered: Contents that became dead letters.
        expired: Contents that expired in the queue.
    """

    virtual_host: str
    profile: str
    resource: str
    queued: Level
    queued_bytes: Level
    readers: Level
    writers: Level
    in_: Count
    out: Count
    confirmed: Count
    rejected: Count
    redelivered: Count
    dead_lettered: Count
    expired: Count


@dataclass(frozen=True, slots=True)
class ServerStats:
    """Counters of a server since its start.

    Attributes:
        received: Messages read from the sockets.
        sent: Messages handed to the transport.
        dropped: Dropped messages by kind; only kinds that occurred.
        bytes: Bytes of all frames received.
        peers: Peers connected now, except those over ``inproc://``.
        sessions: Open sessions.
        leases: Data connections with a redeemed lease.
        refused: Logins that failed, and CURVE clients that were refused.
        latency: How long contents took from their queue to a reader that confirmed them, redeliveries included; where nothing is
            confirmed, until the transport took them. What was stored before the server started counts from its start.
        resources: One entry per resource, at most 1000.
        capture_lost: Rows dropped because the capture could not keep up.
        turned_away: Connections closed at once because ``max_connections`` or ``max_connections_per_host`` was reached.
        connection_failures: Connections that were refused or given up, by reason, e.g. ``too_many_frames`` or
            ``handshake_timeout``; only reasons that occurred, and none over libzmq, which does not tell them.
        transport: The implementation of ZeroMQ that it runs over, e.g. ``"zmtp"``.
    """

    received: Count
    sent: Count
    dropped: Mapping[str, Count]
    bytes: Count
    peers: Level
    sessions: Level
    leases: Level
    refused: Count
    latency: Latencies
    resources: Sequence[ResourceStats]
    capture_lost: Count
    turned_away: Count
    connection_failures: Mapping[str, Count]
    transport: TransportName


class ServerBase(RoleWithQuestions):
    """The base class of the server, without its waits."""

    _native: _Server | None = None

    @spelled_out(RoleOptions, without=("connect", "socket"))
    def __init__(
        self,
        *,
        data_bind: Endpoints = (),
        users: str | os.PathLike[str] | Mapping[str, str] | None = None,
        anonymous: bool = False,
        virtual_hosts: Sequence[str] = ("/",),
        profiles: Sequence[str | Profile] = ("test", "queue"),
        resources: Sequence[str] = (),
        durable: str | os.PathLike[str] | None = None,
        max_queue: int = 100_000,
        max_queue_bytes: int = 256 << 20,
        queue_ttl_s: float | None = None,
        max_queues: int = 10_000,
        max_user_queues: int = 1000,
        max_recycle: int = 5,
        ping_interval_s: float = 2.5,
        liveness: int = 3,
        session_idle_s: float = 3600.0,
        lease_idle_s: float = 30.0,
        capture_secrets: bool = False,
        on_drop: Callable[[Dropped], object] | None = None,
        **options: Unpack[RoleOptions],
    ) -> None:
        if options.get("connect"):
            message = "a server listens and does not connect: use bind="
            raise LocalProtocolError(message)
        if not isinstance(users, str | os.PathLike | Mapping | None):
            refuse("users", "a path, or a mapping of names to passwords", users)
        for name_or_password in itertools.chain.from_iterable(users.items() if isinstance(users, Mapping) else ()):
            if not isinstance(name_or_password, str):
                refuse("users", "a mapping of str to str", name_or_password)
        need_flag("anonymous", anonymous)
        hosts, names = named("virtual_hosts", virtual_hosts), named("resources", resources)
        need_leasable(names)
        need_path("durable", durable, may_be_none=True)
        need_number("max_queue", max_queue, least=1)
        need_number("max_queue_bytes", max_queue_bytes, least=1)
        need_seconds("queue_ttl_s", queue_ttl_s, may_be_none=True)
        need_number("max_queues", max_queues)
        need_number("max_user_queues", max_user_queues)
        need_number("max_recycle", max_recycle, most=_MOST)
        need_seconds("ping_interval_s", ping_interval_s)
        need_number("liveness", liveness, least=2, most=_MOST)
        need_seconds("session_idle_s", session_idle_s)
        need_seconds("lease_idle_s", lease_idle_s)
        need_flag("capture_secrets", capture_secrets)
        need_callable("on_drop", on_drop)
        data_endpoints = endpoints("data_bind", data_bind)
        need_endpoints("data_bind", data_endpoints)
        curve = options.get("curve")
        if users is None and not anonymous and (curve is None or not curve.lets_in_some):
            message = "a server needs users=, a curve= with allow=, or anonymous=True"
            raise LocalProtocolError(message)
        self._given_users = users
        self._users = None if users is None else Users.read(users)
        if isinstance(users, Mapping):
            # The passwords themselves are not kept.
            self._given_users = None
        # All names of the allow-list so far: connections of removed keys still have them.
        self._proved: set[str] = set()
        self._authenticator = Authenticator(self._users, anonymous=anonymous)
        profiles = [profiles] if isinstance(profiles, str | Profile) else profiles
        need_sequence("profiles", profiles)
        self._handlers = {
            (profile.name, name.lower()): handler
            for profile in profiles
            if isinstance(profile, Profile)
            for name, handler in profile.commands.items()
        }
        is_open = users is None and anonymous
        self._settings = {
            "data_bind": data_endpoints,
            "access": None if is_open else (self._users is not None, True, anonymous),
            "virtual_hosts": hosts,
            "profiles": known(profiles, names),
            "max_queue": max_queue,
            "max_queue_bytes": max_queue_bytes,
            "queue_ttl_s": queue_ttl_s,
            "max_queues": max_queues,
            "max_user_queues": max_user_queues,
            "max_recycle": max_recycle,
            "ping_interval_s": ping_interval_s,
            "liveness": liveness,
            "session_idle_s": session_idle_s,
            "lease_idle_s": lease_idle_s,
            "durable": None if durable is None else os.fspath(durable),
            "capture_secrets": capture_secrets,
        }
        self._on_drop = on_drop
        self._options = options
        self._made()

    def _open(self) -> None:
        options = native_options(self._options, grace_s=0.0)
        if self._options.get("socket") is not None:
            message = "a server opens its own sockets: leave out socket="
            raise LocalProtocolError(message)
        curve = self._options.get("curve")
        if curve is not None:
            self._proved.update(curve.names.values())
        native = _Server(options, self._settings)
        self._notices = notices = Notices("mtl", "server", self._on_drop)
        pending = native.notice_queue
        watch(pending, lambda: _report_all(pending, notices))
        answerer = _Answerer(native, self._authenticator, self._handlers, notices)
        answer_questions(native.asked, answerer.answer, "trunkline-mtl-server", _THREADS, apart=["login"])
        self._native = opened(native, self._options, notices)

    @property
    def _server(self) -> _Server:
        native: _Server = self._opened()
        return native

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints for commands, with the actual ports."""
        return tuple(self._server.listens[0])

    @property
    def data_endpoints(self) -> tuple[str, ...]:
        """The endpoints for data: the same, unless ``data_bind`` is given (MTL-31)."""
        return tuple(self._server.listens[1])

    @property
    def stats(self) -> ServerStats:
        """The current counters; the final ones once closed."""
        counts = measured(self._server.stats())
        resources = tuple(
            ResourceStats(**{"in_" if name == "in" else name: value for name, value in resource.items()})
            for resource in counts["resources"]
        )
        return ServerStats(**{**counts, "resources": resources})

    def reload(self) -> None:
        """Reads the users and the allow-list again.

        Users that were removed, changed their password or lost rights have to authenticate again with their next command; data
        connections of users that were removed or lost rights are closed (MTL-15). Sessions and data connections of clients
        that are no longer in the allow-list end, and their connections can no longer be used.

        Raises:
            LocalProtocolError: One of the two is invalid or cannot be read; neither is replaced.
            ClosedError: The server is closed.

        ```pycon
        >>> import pathlib, subprocess, sys, tempfile
        >>> from trunkline import mtl
        >>> add_ada = [sys.executable, "-m", "trunkline", "mtl", "users", "add", "ada", "--file", "users.toml"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     users = pathlib.Path(folder, "users.toml")
        ...     size = users.write_text("users.bob = {}")
        ...     with mtl.Server(bind="tcp://127.0.0.1:*", users=users) as server:
        ...         added = subprocess.run(add_ada, cwd=folder, input=b"sesame", capture_output=True, check=True)
        ...         server.reload()
        ...         with mtl.Client(connect=server.endpoints, user="ada", password="sesame"):
        ...             server.stats.sessions
        1

        ```
        """
        native, curve = self._server, self._options.get("curve")
        native.check_open()
        with reading():
            allowed = None if curve is None else curve._read()  # noqa: SLF001 - of the roles
            users = self._users if self._given_users is None else Users.read(self._given_users)
        read = []
        if curve is not None:
            read += curve._admit(allowed)  # noqa: SLF001 - of the roles
            self._proved.update(curve.names.values())
            native.bar(sorted(self._proved - set(curve.names.values())))
        if users is not None and self._users is not None:
            before, self._users = self._users, users
            self._authenticator.users = users
            gone = before.changed(users)
            others = [name for name in before if name not in gone and before.get(name) != users.get(name)]
            native.revoke(sorted(gone), leases=True)
            native.revoke(others, leases=False)
            by_name = [[(each.get(name), name) for name in each] for each in (before, users)]
            read.append(difference(self._given_users, "user", *by_name))
        report_reload(read)


class _Answerer:
    """Answers the questions of the engine: logins, and commands of custom profiles."""

    def __init__(
        self,
        native: _Server,
        authenticator: Authenticator,
        handlers: Mapping[tuple[str, str], Handler],
        notices: Notices,
    ) -> None:
        self._native = native
        self._authenticator = authenticator
        self._handlers = handlers
        self._notices = notices

    def answer(self, kind: str, token: int, *details: Any) -> None:
        """Answers a question; does not raise."""
        if kind == "login":
            self._check(token, *details)
        else:
            self._serve(token, *details)

    def _check(
        self,
        token: int,
        mechanism: str,
        response: bytes,
        state: bytes,
        is_private: bool,  # noqa: FBT001 - as the engine asks
        user_id: str | None,
    ) -> None:
        try:
            answer = self._authenticator.step(mechanism, response, state, is_private=is_private, user_id=user_id)
        except Exception as error:  # noqa: BLE001 - the client waits for an answer
            self._notices.log(logging.ERROR, "login", "a login could not be checked", error)
            self._native.fail(token)
            return
        if isinstance(answer, Challenge):
            self._native.challenge(token, answer.challenge, answer.state, answer.proven)
        elif isinstance(answer, Welcome):
            self._native.welcome(token, answer.user, _listed(answer.read), _listed(answer.write))
        else:
            self._native.refuse(token, answer.user)

    def _serve(
        self, token: int, profile: str, name: str, body: dict[str, Any], user: str | None, virtual_host: str
    ) -> None:
        try:
            said = self._handlers[profile, name.lower()](Session(user, virtual_host, profile), body)
            reply = said if isinstance(said, Reply) else Reply(200, {"status": "OK", **said})
        except survivable() as error:
            self._notices.log(logging.ERROR, f"{name} raised", f"the handler of {name} raised", error)
            self._native.fail(token)
        else:
            self._native.reply(token, reply)


def _listed(patterns: Sequence[str] | None) -> list[str] | None:
    return None if patterns is None else list(patterns)


def _report_all(pending: Any, notices: Notices) -> None:
    for kind, *details in pending.read():
        _report(notices, kind, *details)


def _report(notices: Notices, kind: str, *details: Any) -> None:
    """Logs a notice of the engine."""
    if kind == "logged_in":
        (who,) = details
        notices.log(
            logging.INFO, kind, f"client {client(*who)} logged in", fields={"kind": kind, **client_fields(*who)}
        )
    elif kind == "login_refused":
        who, tried = details
        text = f"refused the login of client {client(*who)}{f' as {readable(tried)}' if tried else ''}"
        notices.log(logging.WARNING, kind, text, fields={"kind": kind, **client_fields(*who), "tried": tried})
    elif kind == "leased":
        who, reads = details
        text = f"data connection of {client(*who)} opened for {'reading' if reads else 'writing'}"
        notices.log(logging.INFO, kind, text, fields={"kind": kind, **client_fields(*who), "reads": reads})
    elif kind == "lease_ended":
        who, why = details
        text = f"data connection of {client(*who)} {_ENDS[why]}"
        notices.log(logging.INFO, f"{kind} {why}", text, fields={"kind": kind, **client_fields(*who), "why": why})
    elif kind == "given_up":
        text = (
            f"dropped a content of {details[0]}: it was recycled too often, and its dead-letter resource cannot take it"
        )
        notices.log(logging.WARNING, f"{kind} {details[0]}", text)
    elif kind == "store_failed":
        notices.log(logging.ERROR, kind, f"contents cannot be stored, and are not confirmed: {details[0]}")
    elif kind == "not_restored":
        queues, contents = details
        text = (
            f"{were(queues, 'stored queue')} not restored, with {counted(contents, 'content')}: this server does not have "
            "their virtual host or profile; they stay in the store"
        )
        notices.log(logging.WARNING, kind, text)
    else:
        notices.report(kind, *details)


class Server(ServerBase, BlockingService):
    """Authenticates clients, leases them data connections, and delivers contents from writers to readers (MTL-01 … MTL-62).

    It runs on a thread of its own until it is closed. Profiles define how contents are routed: ``"test"`` has one resource
    ``resource`` whose contents go to all readers; ``"queue"`` has queues, where each content goes to one reader, in order, and
    returns to the queue when that reader rejects it or disconnects.

    Args:
        data_bind: One or more endpoints for data; by default those of ``bind`` (MTL-31).
        users: A users file, as written by ``trunkline mtl users``, or a mapping of names to passwords, which are stored as
            verifiers only.
        anonymous: Accept clients without a login; without ``users``, none is required (MTL-13).
        virtual_hosts: The virtual hosts; each has its own resources.
        profiles: ``"test"``, ``"queue"``, and any `Profile` of your own.
        resources: Queues to create at the start, in every virtual host.
        durable: A directory in which to store the contents of queues; a content is confirmed once it would survive a power
            failure.
        max_queue: How many contents a queue may hold; further ones are rejected. A client may create queues with lower limits,
            not with higher ones.
        max_queue_bytes: How many bytes a queue may hold, likewise; a single larger content is accepted.
        queue_ttl_s: How long a content may wait, in seconds, likewise; None for no limit.
        max_queues: How many queues clients may create; further ones are answered with 429, and counted in ``stats.dropped`` as
            ``too_many_queues``.
        max_user_queues: How many of them a user who has logged in may create.
        max_recycle: How many times a content may be recycled before it becomes a dead letter (MTL-54).
        ping_interval_s: How long a data connection may be silent before a Ping is sent (MTL-57).
        liveness: The number of silent intervals after which it is closed (MTL-58).
        session_idle_s: How long a session without a data connection is kept.
        lease_idle_s: How long a lease may stay unused (MTL-26).
        capture_secrets: Record credentials and leases in ``capture``; by default they are replaced by placeholders.
        on_drop: Called with a `trunkline.Dropped`, in the thread ``trunkline-notices``; for contents that do
            not fit into a queue, once per burst.
        **options: Endpoints, access and capture: ``bind``, ``curve``, ``capture`` and more, each in
            `trunkline.RoleOptions`; a server has neither ``connect`` nor ``socket``.

    Raises:
        OSError: An endpoint cannot be bound, the users cannot be read, or the store cannot be opened.
        LocalProtocolError: The options contradict each other, or the users file is invalid.
        CaptureError: The capture cannot be opened.

    ```pycon
    >>> import threading
    >>> with Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server:
    ...     len(server.endpoints), server.stats.sessions
    ...     threading.Timer(0.1, lambda: server.close(drain_s=2)).start()
    ...     server.wait(timeout_s=10)
    (1, 0)

    ```
    """


class AsyncServer(ServerBase, AsyncService):
    """`Server` for asyncio: opened by ``async with``.

    ```pycon
    >>> import asyncio
    >>> from trunkline import mtl
    >>> async def main():
    ...     async with mtl.AsyncServer(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server:
    ...         closing = asyncio.create_task(server.close(drain_s=2))
    ...         await server.wait(timeout_s=10)
    ...         await closing
    ...         return len(server.endpoints), server.stats.sessions
    >>> asyncio.run(main())
    (1, 0)

    ```
    """
