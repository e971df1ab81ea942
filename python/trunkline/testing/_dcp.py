"""The roles of DCP in a simulation."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from trunkline._frames import Frame, Parts
from trunkline._native import Simulated
from trunkline._native.dcp import Reply, Request
from trunkline.dcp import broker as _broker
from trunkline.dcp import client as _client
from trunkline.dcp import worker as _worker
from trunkline.dcp.worker import Handler, OnError
from trunkline.errors import ClosedError, TimeoutError  # noqa: A004 - trunkline's
from trunkline.testing._world import Member, SimulatedNotices, World, need_open

__all__ = ["Broker", "Client", "Future", "Worker", "echo"]

# Where the broker listens.
ENDPOINT = "tcp://broker:1"

# What is told of a call, which is for its future.
_OUTCOMES = frozenset({"reply", "timed_out", "unanswered"})


class Future(concurrent.futures.Future[Reply]):
    """A reply to come. To wait for it is to move the clock."""

    def __init__(self, wait: Callable[[Callable[[], object], float | None], bool], forget: Callable[[], None]) -> None:
        super().__init__()
        self._wait = wait
        self._forget = forget

    def cancel(self) -> bool:
        """Waits for the reply no more; the request is not sent any more if that has not been done."""
        cancelled = super().cancel()
        if cancelled:
            self._forget()
        return cancelled

    def result(self, timeout: float | None = None) -> Reply:
        """Moves the clock until the reply is there, or so far; see `concurrent.futures.Future.result`."""
        self._wait(self.done, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Moves the clock as `result` does; see `concurrent.futures.Future.exception`."""
        self._wait(self.done, timeout)
        return super().exception(0)


class _Calls:
    """The futures of one role."""

    def __init__(self, world: World, engine: Simulated) -> None:
        self._world = world
        self._engine = engine
        self._futures: dict[int, tuple[Future, float | None]] = {}
        self._numbers = itertools.count()

    def put(
        self, service: bytes, data: Parts, metadata: Sequence[Frame], timeout_s: float | None, retries: int
    ) -> Future:
        need_open(self._engine)
        call = next(self._numbers)
        self._engine.ask(
            "request",
            call=call,
            service=service,
            data=data,
            metadata=metadata,
            timeout_s=timeout_s,
            retries=retries,
        )
        future = Future(self._world.until, functools.partial(self._cancel, call))
        self._futures[call] = future, timeout_s
        return future

    def complete(self, kind: str, call: int, reply: Reply | None = None) -> None:
        future, timeout_s = self._futures.pop(call, (None, None))
        if future is None or not future.set_running_or_notify_cancel():
            return
        if reply is not None:
            future.set_result(reply)
        elif kind == "timed_out":
            future.set_exception(TimeoutError(f"no reply came within {timeout_s} s"))
        else:
            future.set_exception(ClosedError("this role is closed"))

    def lose(self) -> None:
        for call in list(self._futures):
            self.complete("unanswered", call)

    def _cancel(self, call: int) -> None:
        self._futures.pop(call, None)
        self._engine.ask("cancel", call=call)


class Broker(Member, _broker.Brokering):
    """A simulated `trunkline.dcp.Broker`: the same keywords, without those of sockets, and the same counters."""

    def __init__(self, world: World, /, **settings: Any) -> None:
        self._world = world
        super().__init__(**settings)

    def _open(self) -> None:
        self._notices = SimulatedNotices("dcp", "broker", self._on_drop)
        engine = self._world.add(*self._machine(), bind=[ENDPOINT], connect=())
        self._native = self._world.join(self, engine, self._tell, lambda: None)

    def _tell(self, kind: str, *details: Any) -> None:
        _broker.tell(self._notices, kind, *details)

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.dcp.Broker.close`; moves the clock until it has ended."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)


class Worker(Member, _worker.Working):
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
        self._calls = _Calls(self._world, engine)
        self._native = self._world.join(self, engine, self._tell, self._lose)

    def _tell(self, kind: str, *details: Any) -> None:
        if kind in _OUTCOMES:
            self._calls.complete(kind, *details)
        elif kind != "request":
            _worker.tell(self._notices, kind, *details)
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
        """Asks another service and moves the clock until the reply is there; see `trunkline.dcp.Worker.request`.

        From inside a handler as well: everybody else goes on meanwhile.
        """
        return self._calls.put(service, data, metadata, timeout_s, 0).result()

    def receive(self, *, timeout_s: float | None = None) -> Request:
        """Moves the clock until a request comes.

        Args:
            timeout_s: How far at most; None as far as it takes, 0 not at all.

        Raises:
            TimeoutError: None came.
            ClosedError: The worker has crashed or ended.
        """
        return self._world.take(self._requests, self._native, timeout_s, "no request came")

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.dcp.Worker.close`; moves the clock until it has ended."""
        self.stop(drain_s=drain_s)
        self._world.until(self._is_over)
        self._calls.lose()

    def _is_over(self) -> bool:
        # Nobody takes them any more.
        while self._requests and not self.closed:
            request = self._requests.popleft()
            request.forward(request.service, request.data)
        return self.closed


class Client(Member, _client.Asking):
    """A simulated `trunkline.dcp.Client`: the same keywords, without those of sockets, and the same counters."""

    def __init__(self, world: World, /, **settings: Any) -> None:
        self._world = world
        super().__init__(**settings)

    def _open(self) -> None:
        self._notices = SimulatedNotices("dcp", "client", self._on_drop)
        engine = self._world.add(*self._machine(), bind=(), connect=[ENDPOINT])
        self._calls = _Calls(self._world, engine)
        self._native = self._world.join(self, engine, self._tell, self._calls.lose)

    def _tell(self, kind: str, *details: Any) -> None:
        if kind in _OUTCOMES:
            self._calls.complete(kind, *details)
        else:
            self._notices.tell(kind, *details)

    def request(
        self,
        service: bytes,
        data: Parts,
        *,
        metadata: Sequence[Frame] = (),
        timeout_s: float | None = None,
        retries: int = 0,
    ) -> Reply:
        """Asks a service and moves the clock until the reply is there; see `trunkline.dcp.Client.request`.

        Raises:
            TimeoutError: No reply came.
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
    ) -> Future:
        """Asks a service and leaves the clock alone; see `trunkline.dcp.Client.submit`."""
        return self._calls.put(service, data, metadata, timeout_s, retries)

    def close(self, *, drain_s: float = 5.0) -> None:
        """See `trunkline.dcp.Client.close`; moves the clock until it has ended."""
        self._native.close(drain_s)
        self._world.until(lambda: self.closed)
        # What it had to say of its end is told by now.
        self._calls.lose()


def echo(request: Request) -> tuple[bytes, ...]:
    """The handler of a worker that `pair` is given by its class alone: the data come back."""
    return request.data
