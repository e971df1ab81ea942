"""The roles of MTL in a simulation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from trunkline._iteration import Receiving
from trunkline._native.mtl import Content, Reply
from trunkline.errors import AuthenticationError, LocalProtocolError, PeerLostError
from trunkline.mtl import client as _client
from trunkline.mtl import flows as _flows
from trunkline.mtl import server as _server
from trunkline.mtl._leases import Terms
from trunkline.mtl.client import Confirm
from trunkline.options import DEFAULTS
from trunkline.testing._calls import Calls
from trunkline.testing._world import Engine, Member, SimulatedNotices, World

__all__ = ["QueueClient", "QueueServer", "Reader", "Writer"]

# Where the server listens, for commands and for data.
ENDPOINT = "tcp://server:1"

# Makes what answers the questions of an engine.
_MakesAnswer: TypeAlias = Callable[[Any], Callable[..., None]]


class _ServerEngine(Engine):
    """As `trunkline._native.mtl.Server`; its questions are answered at once."""

    def __init__(self, world: World, who: QueueServer, notices: SimulatedNotices, make_answer: _MakesAnswer) -> None:
        self._notices = notices
        self._answer = make_answer(self)
        super().__init__(world, who, [ENDPOINT], [])

    @property
    def listens(self) -> tuple[list[str], list[str]]:
        return self.endpoints, self.endpoints

    def challenge(self, token: int, challenge: bytes, state: bytes, proven: str | None) -> None:
        self.ask("challenge", token=token, challenge=challenge, state=state, proven=proven)

    def welcome(self, token: int, name: str, read: list[str] | None, write: list[str] | None) -> None:
        self.ask("welcome", token=token, name=name, read=read, write=write)

    def refuse(self, token: int, name: str | None) -> None:
        self.ask("refuse", token=token, name=name)

    def reply(self, token: int, reply: Reply) -> None:
        self.ask("reply", token=token, reply=reply)

    def fail(self, token: int) -> None:
        self.ask("fail", token=token)

    def revoke(self, users: list[str], *, leases: bool) -> None:
        self.ask("revoke", users=users, leases=leases)

    def bar(self, users: list[str]) -> None:
        self.ask("bar", users=users)

    def _handle(self, kind: str, *details: Any) -> None:
        if kind in ("login", "command"):
            self._answer(kind, *details)
        else:
            _server.report(self._notices, kind, *details)


class QueueServer(Member, _server.ServerBase):
    """A simulated `trunkline.mtl.Server`: the same keywords, without those of sockets and ``durable``, and the same counters.

    Its contents are in memory and lost in a crash.
    """

    def __init__(self, world: World, /, **settings: Any) -> None:
        self._world = world
        if settings.get("durable") is not None or settings.get("data_bind"):
            message = "a simulation has no disks and no sockets: leave out durable= and data_bind="
            raise LocalProtocolError(message)
        super().__init__(**settings)

    def _open(self) -> None:
        notices = SimulatedNotices("mtl", "server", self._on_drop)

        def make_answer(engine: Any) -> Callable[..., None]:
            return _server.Answerer(engine, self._authenticator, self._handlers, notices).answer

        engine: Any = _ServerEngine(self._world, self, notices, make_answer)
        self._native = engine

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.mtl.Server.close`; advances the clock until it is closed."""
        self._role.close(drain_s)
        self._role.join()


class _CallingEngine(Engine):
    """An engine with calls: waiting for a reply advances the clock."""

    def __init__(self, world: World, who: Any) -> None:
        super().__init__(world, who, [], [ENDPOINT])
        self._calls: Calls[Any] = Calls(world, self._native)

    def request(self, asked: dict[str, Any], *, room_s: float | None, timeout_s: float | None) -> Any:  # noqa: ARG002 - as live
        given = {"timeout_s": timeout_s, **{name: value for name, value in asked.items() if value is not None}}
        return self._calls.put("call", **{"name": None, "body": None, **given}).result()

    def _lose(self) -> None:
        self._calls.lose()


class _ClientEngine(_CallingEngine):
    """As `trunkline._native.mtl.Client`."""

    endpoint = ENDPOINT
    logs_in = False

    def __init__(
        self,
        world: World,
        who: QueueClient,
        notices: SimulatedNotices,
        make_answer: _MakesAnswer,
        lose: Callable[[], None],
    ) -> None:
        self._notices = notices
        self._answer = make_answer(self)
        self._lose_more = lose
        super().__init__(world, who)

    def call(self, name: str | None, body: Any, timeout_s: float | None) -> dict[str, Any]:
        if name is not None and "." not in name:
            message = f"{name!r} is not a command name: use Class.Method"
            raise LocalProtocolError(message)
        return {"name": name, "body": body, "timeout_s": timeout_s}

    def respond(self, token: int, mechanism: str, response: bytes, *, is_done: bool) -> None:
        self.ask("respond", token=token, mechanism=mechanism, response=response, is_done=is_done)

    def give_up(self, token: int, reason: str) -> None:
        self.ask("give_up", token=token, reason=reason)

    def _handle(self, kind: str, *details: Any) -> None:
        if kind in ("begin", "challenge"):
            self._answer(kind, *details)
        elif kind == "unauthenticated":
            call, offered = details
            text = "the server refused the login: unknown user, or wrong password or key"
            self._calls.complete("refused", call, AuthenticationError(text, tuple(offered)))
        elif kind == "no_login":
            call, reason, offered = details
            self._calls.complete("refused", call, AuthenticationError(reason, tuple(offered)))
        elif kind == "call_lost":
            error = PeerLostError("the connection was lost before the reply arrived")
            self._calls.complete("refused", details[0], error)
        elif kind in ("entered", "reply", "garbled", "timed_out", "unanswered"):
            self._calls.complete(kind, *details)
        else:
            self._notices.report(kind, *details)

    def _lose(self) -> None:
        super()._lose()
        self._lose_more()


class QueueClient(Member, _client.Client):
    """A simulated `trunkline.mtl.Client`: the same keywords, without those of sockets, and the same counters.

    It is logged in before `Simulation.add` returns, which advances the clock. Its writers and readers crash with it and
    do not come back when it is restarted.
    """

    def __init__(self, world: World, /, **settings: Any) -> None:
        self._world = world
        super().__init__(**settings)

    def _open(self) -> None:
        notices = SimulatedNotices("mtl", "client", self._on_drop)

        def make_answer(engine: Any) -> Callable[..., None]:
            return _client.Answerer(engine, self._credentials, notices).answer

        engine: Any = _ClientEngine(self._world, self, notices, make_answer, self._lose)
        self._enter(engine)
        self._native = engine

    def _lose(self) -> None:
        # They are of one process.
        for engine in self._connections:
            flow: Any = engine
            self._world.crash(flow.who)

    def writer(
        self, resources: str | Sequence[str] = (), *, confirm: Confirm | None = None, window: int = 1000
    ) -> Writer:
        """Opens a data connection, which advances the clock; see `trunkline.mtl.Client.writer`."""
        return Writer(self._world, self._terms(resources, confirm, window, reads=False))

    def reader(
        self, resources: str | Sequence[str] = (), *, confirm: Confirm | None = None, window: int | None = None
    ) -> Reader:
        """Opens a data connection, which advances the clock; see `trunkline.mtl.Client.reader`."""
        return Reader(self._world, self._terms(resources, confirm, window, reads=True))

    def _settled(self, native: Any) -> None:
        """Nothing waits for its notices."""


class _FlowEngine(_CallingEngine, Receiving[Content]):
    """As `trunkline._native.mtl.Flow`."""

    def __init__(self, world: World, who: Any, terms: Terms, renew: Callable[[Any, str, int], None]) -> None:
        self._contents: deque[Content] = deque()
        self._notices = SimulatedNotices("mtl", terms.who, terms.on_drop)
        self._renew = renew
        self._terms = terms
        self.who = who
        super().__init__(world, who)

    def call(self, asked: str, resource: str, timeout_s: float | None) -> dict[str, Any]:
        return {"asked": asked, "resource": resource, "timeout_s": timeout_s}

    def outbound(self, body: Any, properties: Any, resource: str | None) -> tuple[str, dict[str, Any]]:
        leased = self._terms.resources
        if not resource and len(leased) > 1:
            message = "the lease is for several resources: choose one with resource="
            raise LocalProtocolError(message)
        if resource and leased and resource not in leased:
            message = f"the resource {resource!r} is not leased"
            raise LocalProtocolError(message)
        return "send", {"body": body, "properties": properties, "resource": resource}

    def flushing(self) -> tuple[str, dict[str, Any]]:
        return "flush", {}

    def put_outbound(self, outbound: tuple[str, dict[str, Any]], timeout_s: float | None = None) -> None:
        self._world.until(lambda: self.stats()["unconfirmed"] < self._terms.window or self.closed, timeout_s)
        verb, given = outbound
        self.ask(verb, **given)

    def wait_drained(self, timeout_s: float | None = None) -> bool:
        drained = self._world.until(lambda: not self.stats()["unconfirmed"] or self.closed, timeout_s)
        self.check_open()
        return drained

    def receive(self, timeout_s: float | None = None) -> Content:
        return self._world.take(self._contents, self._native, timeout_s, "no content came")

    def confirm(self, content: Content, *, multiple: bool) -> None:
        self.ask("confirm", content=content, multiple=multiple)

    def reject(self, content: Content, *, multiple: bool, recycle: bool) -> None:
        self.ask("reject", content=content, multiple=multiple, recycle=recycle)

    def granted(self, token: int, endpoint: str, lease: str) -> None:
        self.ask("granted", token=token, endpoint=endpoint, lease=lease)

    def denied(self, token: int, reason: str | None) -> None:
        self.ask("denied", token=token, reason=reason)

    def stats(self) -> dict[str, Any]:
        return {name: value for name, value in super().stats().items() if name != "rejects"}

    def rejects(self) -> list[int]:
        return list(super().stats()["rejects"])

    def _handle(self, kind: str, *details: Any) -> None:
        if kind == "content":
            self._contents.append(details[0])
        elif kind == "wanted":
            if not self.closed:
                self._renew(self, kind, details[0])
        elif kind in ("done", "refused", "timed_out", "unanswered"):
            self._calls.complete(kind, *details)
        else:
            _flows.report(self._notices, kind, *details)

    def _lose(self) -> None:
        self._contents.clear()
        super()._lose()


class _Flow(Member, _flows.FlowBase):
    """What a simulated data connection does like any other."""

    def __init__(self, world: World, terms: Terms) -> None:
        self._world = world
        self._options = {}
        super().__init__(terms)

    def _machine(self) -> tuple[str, dict[str, Any]]:
        return "mtl.flow", self._terms.settings(*self._terms.leasing().wait(), DEFAULTS["max_message_bytes"])

    def _open(self) -> None:
        engine: Any = _FlowEngine(self._world, self, self._terms, self._keeper.answer)
        self._show(engine)
        self._began(engine)

    def _settled(self, native: Any) -> None:
        self._terms.connections.end(native)


class Writer(_Flow, _flows.Writer):
    """A simulated `trunkline.mtl.Writer`: waiting advances the clock. It measures no times."""


class Reader(_Flow, _flows.Reader):
    """A simulated `trunkline.mtl.Reader`: waiting advances the clock."""
