"""A NATS in this process: subjects, wildcards, queue groups, and replies to requests without listeners."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from trunkline._native import Messages
from trunkline._native.cdt import matches
from trunkline.cdt._connection import Deliver, Happened

__all__ = ["MemoryConnection"]

MAX_PAYLOAD = 1 << 20

_NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"


@dataclass(frozen=True, eq=False, slots=True)
class _Subscription:
    connection: MemoryConnection
    number: int
    subject: str
    queue: str


class _Server:
    """The state that all connections to one name share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Subscriptions to single subjects, and those with wildcards.
        self._exact: dict[str, list[_Subscription]] = {}
        self._wild: list[_Subscription] = []

    def add(self, subscription: _Subscription) -> None:
        with self._lock:
            self._place(subscription.subject).append(subscription)

    def remove(self, subscriptions: Iterable[_Subscription]) -> None:
        with self._lock:
            for subscription in subscriptions:
                self._place(subscription.subject).remove(subscription)

    def _place(self, subject: str) -> list[_Subscription]:
        is_wild = "*" in subject or ">" in subject
        return self._wild if is_wild else self._exact.setdefault(subject, [])

    def publish(self, subject: str, reply_to: str, block: bytes, body: bytes) -> None:
        with self._lock:
            heard = [*self._exact.get(subject, ()), *(one for one in self._wild if matches(one.subject, subject))]
        chosen = [one for one in heard if not one.queue]
        groups: dict[str, list[_Subscription]] = {}
        for one in heard:
            if one.queue:
                groups.setdefault(one.queue, []).append(one)
        chosen += [random.choice(group) for group in groups.values()]  # noqa: S311 - not for secrets
        for one in chosen:
            one.connection.hand_over(one.number, subject, reply_to, block, body)
        if not chosen and reply_to:
            self.publish(reply_to, "", _NO_RESPONDERS, b"")


_servers: dict[str, _Server] = {}
_servers_lock = threading.Lock()


def _forget() -> None:
    """In a forked child: the servers' clients do not exist there, and the lock may be held for ever."""
    global _servers, _servers_lock
    _servers, _servers_lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget)


class MemoryConnection:
    """A connection to the in-process NATS of this name."""

    def __init__(self, server: str, deliver: Deliver, happened: Happened) -> None:
        self._url = server
        self._deliver = deliver
        self._happened = happened
        self._subscriptions: dict[int, list[_Subscription]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        with _servers_lock:
            self._server = _servers.setdefault(server, _Server())

    @property
    def max_payload(self) -> int:
        return MAX_PAYLOAD

    @property
    def endpoints(self) -> tuple[str, ...]:
        return (self._url,)

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def subscribe(self, number: int, subject: str, queue: str) -> None:
        subscription = _Subscription(self, number, subject, queue)
        self._subscriptions.setdefault(number, []).append(subscription)
        self._server.add(subscription)

    async def unsubscribe(self, number: int) -> None:
        self._server.remove(self._subscriptions.pop(number, ()))

    @property
    def is_full(self) -> bool:
        return False

    async def room(self) -> None:
        """There is always room."""

    def publish(self, messages: Messages) -> dict[int, str]:
        for _, _, subject, (reply_to, _, body) in messages:
            self._server.publish(subject.decode(), reply_to.decode(), b"", body)
        return {}

    def pause(self) -> None:
        """Nothing: messages are delivered as they are sent."""

    def resume(self) -> None:
        """Nothing: see `pause`."""

    async def flush(self) -> None:
        """Nothing: messages are delivered as they are sent."""

    async def close(self) -> None:
        for number in list(self._subscriptions):
            await self.unsubscribe(number)
        self._loop = None

    def hand_over(self, number: int, subject: str, reply_to: str, block: bytes, body: bytes) -> None:
        """Delivers a message in our event loop, from any thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        heard = Messages([(number, None, subject.encode(), (reply_to.encode(), block, body))])
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            loop.call_soon(self._deliver, heard)
        else:
            loop.call_soon_threadsafe(self._deliver, heard)
