"""The roles of DCP in a simulation."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from typing import Any

from trunkline._frames import Frame, Parts
from trunkline._native.dcp import Reply, Request
from trunkline.dcp import broker as _broker
from trunkline.dcp import client as _client
from trunkline.dcp import worker as _worker
from trunkline.dcp.worker import Handler, OnError
from trunkline.testing._calls import Calls, Future
from trunkline.testing._world import Member, SimulatedNotices, World

__all__ = ["Broker", "Client", "Worker", "echo"]

# Where the broker listens.
ENDPOINT = "tcp://broker:1"

# Events of a call, for its future.
_OUTCOMES = frozenset({"reply", "timed_out", "unanswered"})


class Broker(Member, _broker.BrokerBase):
    """A simulated `trunkline.dcp.Broker`: the same keywords, without those of sockets, and the same counters."""

    def __init__(self, world: World, /, **settings: Any) -> None:
        self._world = world
        super().__init__(**settings)

    def _open(self) -> None:
        self._notices = SimulatedNotices("dcp", "broker", self._on_drop)
        engine = self._world.add(*self._machine(), bind=[ENDPOINT], connect=())
        self._native = self._world.join(self, engine, self._handle, lambda: None)

    def _handle(self, kind: str, *details: Any) -> None:
        _broker.report(self._notices, kind, *details)

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.dcp.Broker.close`; advances the clock until it is closed."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)


class Worker(Member, _worker.WorkerBase):
    """A simulated `trunkline.dcp.Worker`: the same keywords, without those of sockets, and the same counters.

    Without a handler, take its requests with `receive` and answer them when you like.
    """

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
        self._world = world
        self._handler = handler
        self._on_error = on_error
        self._work_s = work_s
        self._requests: deque[Request] = deque()
        super().__init__(service, **settings)

    def _open(self) -> None:
        self._notices = SimulatedNotices("dcp", self._who, self._on_drop)
        engine = self._world.add(*self._machine(), bind=(), connect=[ENDPOINT])
        self._calls: Calls[Reply] = Calls(self._world, engine)
        self._native = self._world.join(self, engine, self._handle, self._lose)

    def _handle(self, kind: str, *details: Any) -> None:
        if kind in _OUTCOMES:
            self._calls.complete(kind, *details)
        elif kind != "request":
            _worker.report(self._notices, kind, *details)
        elif self._handler is None:
            self._requests.append(details[0])
        elif self._work_s:
            work = functools.partial(self._answer, self._handler, self._on_error, details[0])
            self._world.after(self._work_s, work)
        else:
            self._answer(self._handler, self._on_error, details[0])

    def _lose(self) -> None:
        self._requests.clear()
        self._calls.lose()

    def request(
        self, service: bytes, data: Parts, *, metadata: Sequence[Frame] = (), timeout_s: float | None = None
    ) -> Reply:
        """Asks another service and advances the clock until the reply arrives; see `trunkline.dcp.Worker.request`.

        Works inside a handler too: all other roles continue meanwhile.
        """
        asked = {"service": service, "data": data, "metadata": metadata, "retries": 0}
        return self._calls.put("request", timeout_s, **asked).result()

    def receive(self, *, timeout_s: float | None = None) -> Request:
        """Advances the clock until a request arrives.

        Args:
            timeout_s: By how many seconds at most; None for no limit, 0 not at all.

        Raises:
            TimeoutError: Nothing arrived in time.
            ClosedError: The worker has crashed or ended.
        """
        return self._world.take(self._requests, self._native, timeout_s, "no request came")

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.dcp.Worker.close`; advances the clock until it is closed."""
        self.stop(drain_s=drain_s)
        self._world.until(self._is_over)
        self._calls.lose()

    def _is_over(self) -> bool:
        # Not handed out any more.
        while self._requests and not self.closed:
            request = self._requests.popleft()
            request.forward(request.service, request.data)
        return self.closed


class Client(Member, _client.ClientBase):
    """A simulated `trunkline.dcp.Client`: the same keywords, without those of sockets, and the same counters."""

    def __init__(self, world: World, /, **settings: Any) -> None:
        self._world = world
        super().__init__(**settings)

    def _open(self) -> None:
        self._notices = SimulatedNotices("dcp", "client", self._on_drop)
        engine = self._world.add(*self._machine(), bind=(), connect=[ENDPOINT])
        self._calls: Calls[Reply] = Calls(self._world, engine)
        self._native = self._world.join(self, engine, self._handle, self._calls.lose)

    def _handle(self, kind: str, *details: Any) -> None:
        if kind in _OUTCOMES:
            self._calls.complete(kind, *details)
        else:
            self._notices.report(kind, *details)

    def request(
        self,
        service: bytes,
        data: Parts,
        *,
        metadata: Sequence[Frame] = (),
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> Reply:
        """Asks a service and advances the clock until the reply arrives; see `trunkline.dcp.Client.request`.

        Raises:
            TimeoutError: No reply arrived.
            LocalProtocolError: A part of the metadata is empty.
            ClosedError: The client has crashed or ended.
        """
        return self.submit(service, data, metadata=metadata, timeout_s=timeout_s, retries=retries).result()

    def submit(
        self,
        service: bytes,
        data: Parts,
        *,
        metadata: Sequence[Frame] = (),
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> Future[Reply]:
        """Asks a service without advancing the clock; see `trunkline.dcp.Client.submit`."""
        asked = {"service": service, "data": data, "metadata": metadata, "retries": retries}
        return self._calls.put("request", timeout_s, **asked)

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.dcp.Client.close`; advances the clock until it is closed."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)
        # Its last replies have been handled.
        self._calls.lose()


def echo(request: Request) -> tuple[bytes, ...]:
    """The handler of a worker that is given to `pair` as a class: it returns the data."""
    return request.data
