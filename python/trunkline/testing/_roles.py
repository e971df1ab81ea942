"""The roles of a simulation: the live ones, whose waits advance its clock."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from trunkline import cdt, cdtp, dcp, mc0, mtl
from trunkline._native.dcp import Request
from trunkline._roles.calls import Calls, Future
from trunkline.dcp.worker import Handler, OnError
from trunkline.errors import ClosedError, LocalProtocolError
from trunkline.mtl._leases import Terms
from trunkline.mtl.client import Confirm
from trunkline.mtl.flows import FlowBase
from trunkline.testing._world import Entry, Simulated, World

__all__ = [
    "BROKER",
    "MIDDLEWARE",
    "Broker",
    "Client",
    "Connector",
    "Middleware",
    "QueueClient",
    "QueueServer",
    "Reader",
    "Receiver",
    "Sender",
    "Source",
    "Target",
    "Worker",
    "Writer",
    "echo",
]

# Where the broker, the middleware, the server of MTL and by default a receiver listen.
BROKER = "tcp://broker:1"
RECEIVER = "tcp://receiver:1"
MIDDLEWARE = "tcp://middleware:1"
SERVER = "tcp://server:1"


class Broker(Simulated, dcp.Broker):
    """A simulated `trunkline.dcp.Broker`: the same keywords, without those of sockets, and the same counters.

    ```pycon
    >>> from trunkline import dcp, testing
    >>> with testing.pair(dcp.Client, dcp.Worker) as sim:
    ...     broker = sim.add(dcp.Broker, queue_ttl_s=5)
    ...     reply = sim.client.request(b"echo", b"hello")
    ...     broker.services()[0].replies
    ...     sim.after(5, broker.close)
    ...     broker.wait()
    ...     sim.now_s
    1
    5.0

    ```
    """

    _at = "bind", BROKER


class Client(Simulated, dcp.Client):
    """A simulated `trunkline.dcp.Client`: the same keywords, without those of sockets, and the same counters.

    ```pycon
    >>> from trunkline import dcp, testing
    >>> with testing.pair(dcp.Broker, dcp.Client) as sim:
    ...     future = sim.client.submit(b"echo", b"hello", timeout_s=2)
    ...     sim.advance(1)
    ...     worker = sim.add(dcp.Worker, b"echo", testing.echo)
    ...     future.result().data, sim.client.request(b"echo", b"again").data
    ...     sim.client.close()
    ((b'hello',), (b'again',))

    ```
    """

    _at = "connect", BROKER


class Worker(Simulated, dcp.Worker):
    """A simulated `trunkline.dcp.Worker`: the same keywords, without those of sockets, and the same counters.

    Without a handler, take its requests with `receive` and answer them when you like.

    ```pycon
    >>> from trunkline import dcp, testing
    >>> with testing.pair(dcp.Broker, dcp.Client) as sim:
    ...     worker = sim.add(dcp.Worker, b"upper", lambda request: request.data[0].upper(), work_s=0.5)
    ...     sim.client.request(b"upper", b"hello").data, sim.now_s
    ...     worker.close()
    ...     worker = sim.add(dcp.Worker, b"upper")
    ...     future = sim.client.submit(b"upper", b"hello")
    ...     worker.receive().reply(b"HELLO")
    ...     worker.stop()
    ...     future.result().data
    ((b'HELLO',), 0.5)
    (b'HELLO',)

    ```
    """

    _at = "connect", BROKER

    def __init__(
        self,
        world: World,
        service: bytes,
        handler: Handler | None = None,
        /,
        *,
        on_error: OnError | None = None,
        work_s: float = 0.0,
        **settings: Any,
    ) -> None:
        self._handler = handler
        self._on_error = on_error
        self._work_s = work_s
        super().__init__(world, service, **settings)

    def _open(self) -> None:
        super()._open()
        self._worker.simulation.watch(self._read)

    def _read(self) -> None:
        self._worker.report()
        if self._handler is None:
            return
        while (request := self._next()) is not None:
            work = functools.partial(self._answer, self._handler, self._on_error, request)
            if self._work_s:
                self._world.after(self._work_s, work)
            else:
                work()

    def _next(self) -> Request | None:
        try:
            return self._worker.poll()
        except ClosedError:
            # It has crashed, or has ended, and nothing is left.
            return None

    def serve(self, handler: Callable[[Request], object], *, on_error: OnError | None = None) -> NoReturn:  # noqa: ARG002 - as live
        """Refused: `Simulation.add` takes the handler.

        ```pycon
        >>> from trunkline import dcp, testing
        >>> sim = testing.pair(dcp.Broker, dcp.Worker)
        >>> sim.worker.serve(testing.echo)
        Traceback (most recent call last):
            ...
        trunkline.errors.LocalProtocolError: a simulated worker gets its handler where it is added: ...

        ```
        """
        message = "a simulated worker gets its handler where it is added: add(dcp.Worker, service, handler)"
        raise LocalProtocolError(message)


class Middleware(Simulated, mc0.Middleware):
    """A simulated `trunkline.mc0.Middleware`: the same keywords, without those of sockets, and the same counters.

    ```pycon
    >>> from trunkline import mc0, testing
    >>> with testing.pair(mc0.Connector) as sim:
    ...     bus = sim.add(mc0.Middleware, client_queue_messages=100)
    ...     sim.connector.subscribe("runs.1")
    ...     bus.stats.topics[0].subscribers
    ...     sim.after(5, bus.close)
    ...     bus.wait()
    ...     sim.now_s
    1
    5.0

    ```
    """

    _at = "bind", MIDDLEWARE


class Connector(Simulated, mc0.Connector):
    """A simulated `trunkline.mc0.Connector`: the same keywords, without those of sockets, and the same counters.

    ```pycon
    >>> from trunkline import mc0, testing
    >>> with testing.pair(mc0.Middleware, mc0.Connector, latency_s=0.25) as sim:
    ...     publisher = sim.add(mc0.Connector)
    ...     publisher.ping()
    ...     sim.connector.subscribe("runs.1")
    ...     publisher.put("runs.1", b"run 1 begins")
    ...     sim.connector.receive().body
    ...     sim.connector.unsubscribe("runs.1")
    ...     future = publisher.submit("runs.1", b"run 1 ends")
    ...     publisher.flush()
    ...     publisher.close()
    ...     future.done(), publisher.stats.confirmed
    0.5
    (b'run 1 begins',)
    (True, 1)

    ```
    """

    _at = "connect", MIDDLEWARE


class QueueServer(Simulated, mtl.Server):
    """A simulated `trunkline.mtl.Server`: the same keywords, without those of sockets and ``durable``, and the same counters.

    Its contents are in memory and lost in a crash.

    ```pycon
    >>> from trunkline import mtl, testing
    >>> with testing.Simulation() as sim:
    ...     server = sim.add(mtl.Server, users={"ada": "sesame"}, resources=["jobs"])
    ...     client = sim.add(mtl.Client, user="ada", password="sesame")
    ...     server.stats.sessions
    ...     sim.after(5, server.close)
    ...     server.wait()
    ...     sim.now_s
    1
    5.0

    ```
    """

    _at = "bind", SERVER

    def __init__(self, world: World, /, **settings: Any) -> None:
        if settings.get("durable") is not None or settings.get("data_bind"):
            message = "a simulation has no disks and no sockets: leave out durable= and data_bind="
            raise LocalProtocolError(message)
        super().__init__(world, **settings)


class QueueClient(Simulated, mtl.Client):
    """A simulated `trunkline.mtl.Client`: the same keywords, without those of sockets, and the same counters.

    It is logged in before `Simulation.add` returns, which advances the clock. Its writers and readers crash with it and
    do not come back when it is restarted.

    ```pycon
    >>> from trunkline import mtl, testing
    >>> with testing.pair(mtl.Server, mtl.Client) as sim:
    ...     sim.queue_client.writer("jobs").send(b"build 7")
    ...     sim.advance(1)
    ...     sim.queue_client.command("Queue.Info", {"name": "jobs"}).body["messages"]
    ...     reader = sim.queue_client.reader("jobs")
    ...     reader.summon("jobs")
    ...     sim.queue_client.close()
    ...     reader.receive().body
    1
    b'build 7'

    ```
    """

    _at = "connect", SERVER

    def _lose(self) -> None:
        # They are of one process.
        for flow in self._connections:
            flow.simulation.crash()

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


class _Flow(Simulated, FlowBase):
    """The base class of simulated data connections, which take the endpoint of their lease."""

    def __init__(self, world: World, terms: Terms) -> None:
        self._options = {}
        super().__init__(world, terms)

    def _join(self) -> None:
        options: Any = {**self._terms.options, "simulation": Entry(self._world, self, self._lose)}
        self._terms = dataclasses.replace(self._terms, options=options)


class Writer(_Flow, mtl.Writer):
    """A simulated `trunkline.mtl.Writer`: waiting advances the clock.

    ```pycon
    >>> from trunkline import mtl, testing
    >>> with testing.pair(mtl.Server, mtl.Client, latency_s=0.5) as sim:
    ...     writer = sim.queue_client.writer("jobs")
    ...     writer.send(b"build 7")
    ...     writer.flush()
    ...     writer.send(b"build 8")
    ...     writer.close()
    ...     writer.stats.confirmed
    2

    ```
    """


class Reader(_Flow, mtl.Reader):
    """A simulated `trunkline.mtl.Reader`: waiting advances the clock.

    ```pycon
    >>> from trunkline import mtl, testing
    >>> with testing.pair(mtl.Server, mtl.Client) as sim:
    ...     writer = sim.queue_client.writer("jobs")
    ...     for build in (b"build 7", b"build 8"):
    ...         writer.send(build)
    ...     reader = sim.queue_client.reader("jobs")
    ...     reader.summon("jobs")
    ...     first, second = reader.receive(), reader.receive()
    ...     reader.confirm(first)
    ...     reader.dismiss("jobs")
    ...     reader.reject(second, recycle=True)
    ...     reader.close()
    ...     first.body, sim.queue_client.command("Queue.Info", {"name": "jobs"}).body["messages"]
    (b'build 7', 1)

    ```
    """


class Sender(Simulated, cdtp.Sender):
    """A simulated `trunkline.cdtp.Sender`: the same keywords, of those of sockets ``bind`` and ``connect`` alone.

    Without them, and without a group, it sends to the receiver at the default endpoint. In a group it listens at a
    port of its own. Its messages carry the time of the simulation, from 1970 on. Its queue is unlimited.

    ```pycon
    >>> from trunkline import cdtp, testing
    >>> with testing.pair(cdtp.Receiver) as sim:
    ...     sender = sim.add(cdtp.Sender, "Detector.one", header="B")
    ...     sender.begin_run({"voltage": 1.5})
    ...     sender.send(b"event")
    ...     sender.flush()
    ...     sender.end_run({"run_id": "run_1"})
    ...     sender.close()
    ...     [sim.receiver.receive().type for _ in range(3)]
    ['BOR', 'DAT', 'EOR']

    ```
    """

    _at = "connect", RECEIVER
    _takes = frozenset({"bind", "connect"})

    def __init__(self, world: World, name: str, /, **settings: Any) -> None:
        if settings.get("group") is not None:
            settings.setdefault("bind", "tcp://*:*")
        super().__init__(world, name, **settings)


class Receiver(Simulated, cdtp.Receiver):
    """A simulated `trunkline.cdtp.Receiver`: the same keywords, of those of sockets ``bind`` and ``connect`` alone.

    Without them, and without a group, it listens at the default endpoint of senders. Its waits advance the
    clock; if nothing more will ever arrive, they raise `RuntimeError`.

    ```pycon
    >>> from trunkline import cdtp, testing
    >>> with testing.pair(cdtp.Sender, cdtp.Receiver, latency_s=0.25) as sim:
    ...     sim.sender.send(b"event", tags={"trigger": 7})
    ...     sim.receiver.receive().tags, sim.now_s
    ...     sim.receiver.limit(1)
    ...     sim.sender.send(b"later")
    ...     sim.advance(1)
    ...     sim.receiver.stats.received
    ...     sim.receiver.limit(None)
    ...     sim.receiver.receive().payload
    ...     sim.receiver.stop()
    ...     list(sim.receiver)
    ...     sim.receiver.close()
    ({'trigger': 7}, 0.25)
    1
    (b'later',)
    []

    ```
    """

    _at = "bind", RECEIVER
    _takes = frozenset({"bind", "connect"})

    def _open(self) -> None:
        super()._open()
        self._receiver.simulation.watch(self._receiver.report)

    @property
    def _is_placed(self) -> bool:
        return super()._is_placed or self._settings["group"] is not None

    def _lose(self) -> None:
        self._receiver.give_up()


# What says where a NATS is, what is written on disks, and what is served.
_OF_NATS = frozenset(
    {"servers", "credentials", "nkey_seed", "user", "password", "token", "tls", "capture", "capture_options", "metrics"}
)


class _OfCdt(Simulated):
    """The base class of simulated roles of CDT."""

    def __init__(self, world: World, name: str, /, **settings: Any) -> None:
        refused = sorted(_OF_NATS & settings.keys())
        if refused:
            message = f"a simulation has its own NATS, and writes and serves nothing: leave out {', '.join(f'{name}=' for name in refused)}"
            raise LocalProtocolError(message)
        super().__init__(world, name, **settings)

    def _join(self) -> None:
        self._options = {"simulation": Entry(self._world, self, self._lose)}


class Target(_OfCdt, cdt.Target):
    """A simulated `trunkline.cdt.Target`: the same keywords, without those of NATS and captures, and the same counters.

    Its store answers at the moment it is asked; announcements that were pending when it crashed are not sent after a
    restart.

    ```pycon
    >>> from trunkline import cdt, testing
    >>> with testing.pair(cdt.Target, cdt.Source) as sim:
    ...     first, second = (sim.target.put("app-1", "endpoint-7", content) for content in (b"{}", b"[]"))
    ...     sim.target.rollback("app-1", "endpoint-7", first) == first
    ...     sim.source.report_applied("app-1", "endpoint-7", first)
    ...     sim.target.receive().config_id == first
    ...     sim.target.rollout("app-1")[0].applied == first
    ...     sim.target.get("app-1", "endpoint-7").content, len(sim.target.history("app-1", "endpoint-7"))
    ...     sim.after(5, sim.target.close)
    ...     sim.target.wait()
    ...     sim.now_s
    True
    True
    True
    (b'{}', 3)
    5.0

    ```
    """

    def _lose(self) -> None:
        self._target.asked.read()


class Source(_OfCdt, cdt.Source):
    """A simulated `trunkline.cdt.Source`: the same keywords, without those of NATS and captures, and the same counters.

    ```pycon
    >>> from trunkline import cdt, testing
    >>> with testing.pair(cdt.Target, cdt.Source, latency_s=0.25) as sim:
    ...     config_id = sim.source.push("app-1", "endpoint-7", b"{}")
    ...     sim.source.pull("app-1", "endpoint-7").content, sim.now_s
    ...     future = sim.source.submit("app-1", "endpoint-7")
    ...     sim.advance(1)
    ...     future.result().config_id == config_id
    ...     watch = sim.source.watch("app-1", "endpoint-7")
    ...     watch.receive().content
    ...     sim.source.rollback("app-1", "endpoint-7", config_id) == config_id
    ...     sim.source.receive().config_id == config_id
    ...     sim.source.report_applied("app-1", "endpoint-7", config_id)
    ...     sim.source.close()
    (b'{}', 1.0)
    True
    b'{}'
    True
    True

    ```
    """

    def _open(self) -> None:
        super()._open()
        self._calls: Calls[Any] = Calls(self._source)

    def submit(
        self,
        app_version_name: str,
        endpoint_id: str,
        config_id: str | None = None,
        *,
        timeout_s: float | None = 3.0,
        retries: int = 0,
        endpoint_message_id: str | None = None,
    ) -> Future[cdt.ConfigResponse]:
        """Requests the configuration of an endpoint without advancing the clock."""
        self._need_pull(app_version_name, endpoint_id, config_id, timeout_s, retries)
        key = (app_version_name, endpoint_id, config_id or "")
        call = self._source.pull(
            app_version_name, endpoint_id, config_id or None, endpoint_message_id, timeout_s, retries
        )
        asked = self._calls.put(call, timeout_s, timeout_s)
        pulled: Future[cdt.ConfigResponse] = Future(self._calls, call.call)

        def complete(_: object) -> None:
            if asked.cancelled():
                return
            try:
                pulled.set_result(self._pulled(key, concurrent.futures.Future.result(asked), timeout_s))
            except Exception as error:  # noqa: BLE001 - it is the result
                pulled.set_exception(error)

        asked.add_done_callback(complete)
        return pulled


def echo(request: Request) -> tuple[bytes, ...]:
    """The handler of a worker that is given to `pair` as a class: it returns the data.

    ```pycon
    >>> from trunkline import dcp, testing
    >>> with testing.pair(dcp.Broker, dcp.Client) as sim:
    ...     worker = sim.add(dcp.Worker, b"echo", testing.echo)
    ...     sim.client.request(b"echo", [b"hello", b"world"]).data
    (b'hello', b'world')

    ```
    """
    return request.data
