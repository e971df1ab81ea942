"""A middleware and its subscribers that are killed and stopped at random moments, under load."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import zmq

from benches.harness import Restarted
from benches.mc0.peers import answers, noop, put, sub, unsub
from benches.processes import PATIENCE_S
from trunkline import mc0

TOPIC = b"load"
CONNECTOR = b"connector"

# Bare sockets take a bus for dead that is silent for as long, and come back with a new one.
PATIENCE_MS = 700
# What is stopped is so for shorter or longer than that.
STOPS_S = 1.5

WINDOW = 50


@dataclass
class Endings:
    """What was done to a bus and its subscribers, and what they had all the same."""

    seconds: float
    kills: int = 0
    stops: int = 0
    peer_kills: int = 0
    peer_stops: int = 0
    messages: int = 0
    unsubscribed: int = 0
    submitted: int = 0
    reconnects: int = 0
    faults: list[str] = field(default_factory=list)


@contextlib.contextmanager
def dealer(endpoint: str) -> Iterator[zmq.Socket[bytes]]:
    """A DEALER of one connection: one that breaks is not made anew in its time."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        # libzmq aborts when one that never dials again loses its connection within a message it reads.
        socket.reconnect_ivl = 3_600_000
        socket.rcvhwm = socket.sndhwm = 0
        socket.rcvtimeo = socket.sndtimeo = PATIENCE_MS
        socket.connect(endpoint)
        yield socket


def publish(endpoint: str, seed: int, reports: Connection) -> None:
    """Puts numbered messages, each life a publisher of its own, and so many unconfirmed at a time."""
    life = 0
    while True:
        life += 1
        name = b"%d-%d" % (seed, life)
        with dealer(endpoint) as socket, contextlib.suppress(zmq.Again):
            sent = confirmed = 0
            while True:
                while sent < confirmed + WINDOW:
                    socket.send_multipart(put(TOPIC, name, b"%d" % sent, id_=b"%d" % sent))
                    sent += 1
                frames = socket.recv_multipart()
                if not answers(frames, b"%d" % confirmed):
                    reports.send(f"publisher {name!r}: {frames} where the OK of {confirmed} was due")
                confirmed += 1


class Subscriber:
    """A bare subscriber, and what it is due: of each publisher the next number, from the first one on."""

    def __init__(self, endpoint: str, reports: Connection) -> None:
        self._endpoint = endpoint
        self._reports = reports
        self._next: dict[bytes, int] = {}
        self.messages = 0
        self.unsubscribed = 0

    def live(self) -> None:
        """One connection, from its SUB on until nothing comes any more."""
        with dealer(self._endpoint) as socket, contextlib.suppress(zmq.Again):
            for turn in range(1 << 30):
                self._next.clear()
                socket.send_multipart(sub(TOPIC, id_=b"s%d" % turn))
                frames = socket.recv_multipart()
                if not answers(frames, b"s%d" % turn):
                    self._reports.send(f"{frames} came before the OK of SUB {turn}")
                for _ in range(5000):
                    self._take(socket.recv_multipart())
                socket.send_multipart(unsub(TOPIC, id_=b"u%d" % turn))
                while not answers(frames := socket.recv_multipart(), b"u%d" % turn):
                    self._take(frames)
                self.unsubscribed += 1
                time.sleep(0.01)
                socket.send_multipart(noop(b"n%d" % turn))
                frames = socket.recv_multipart()
                if not answers(frames, b"n%d" % turn):
                    self._reports.send(f"{frames} came after the OK of UNSUB {turn}")

    def _take(self, frames: list[bytes]) -> None:
        if frames[1:4] != [b"MESSAGE", b"TOPIC", TOPIC]:
            self._reports.send(f"{frames} is no message of the topic")
            return
        self.messages += 1
        name, number = frames[5], int(frames[6])
        if name == CONNECTOR:
            # What is submitted comes at least once, and again after a connection that broke.
            return
        due = self._next.setdefault(name, number)
        if number != due:
            self._reports.send(f"{number} of {name!r} where {due} was due")
        self._next[name] = number + 1


def subscribe(endpoint: str, reports: Connection) -> None:
    """Lives one after the other, and how many messages so far."""
    subscriber = Subscriber(endpoint, reports)
    while True:
        subscriber.live()
        reports.send((subscriber.messages, subscriber.unsubscribed))


class Peer:
    """A process of a bare peer, which may be killed; what it says is kept."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self.faults: list[str] = []
        self.counts = (0, 0)
        self._mine, theirs = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                said = self._mine.recv()
                if isinstance(said, str):
                    self.faults.append(said)
                else:
                    self.counts = said

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Ends it at once; fails when it has ended by itself."""
        assert self._process.is_alive(), f"a bare peer has ended with {self._process.exitcode}"
        self._process.kill()
        self._process.join(PATIENCE_S)
        self._reading.join(PATIENCE_S)


def middleware() -> Restarted:
    """A middleware."""
    # Large queues: a client that is stopped for a while loses nothing.
    return Restarted("mc0", "middleware", "--client-queue-messages", "1000000", "--client-queue-bytes", str(1 << 30))


def submit(connector: mc0.Connector, over: threading.Event, submitted: list[Future[None]]) -> None:
    """Submits until it is over, so many unconfirmed at a time."""
    room = threading.Semaphore(WINDOW)
    while not over.is_set():
        if room.acquire(timeout=0.1):
            future = connector.submit(TOPIC, [CONNECTOR, b"%d" % len(submitted)])
            future.add_done_callback(lambda _: room.release())
            submitted.append(future)


def endings(seconds: float, seed: int = 1) -> Endings:
    """Kills and stops the bus and its subscribers for so long; fails on a fault."""
    chance, ended = random.Random(seed), Endings(seconds)
    bus, over = middleware(), threading.Event()
    submitted: list[Future[None]] = []
    gone: list[Peer] = []
    publishers = [Peer(publish, bus.endpoint, number) for number in range(2)]
    subscribers = [Peer(subscribe, bus.endpoint) for _ in range(3)]
    with mc0.Connector(connect=bus.endpoint, ttl_ms=500) as connector:
        submitting = threading.Thread(target=submit, args=(connector, over, submitted))
        submitting.start()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(chance.uniform(0, 2))
                kind, at = chance.randrange(4), chance.randrange(len(subscribers))
                if kind == 0:
                    bus.again()
                    ended.kills += 1
                elif kind == 1:
                    bus.signal(signal.SIGSTOP)
                    time.sleep(chance.uniform(0, STOPS_S))
                    bus.signal(signal.SIGCONT)
                    ended.stops += 1
                elif kind == 2:
                    subscribers[at].kill()
                    gone.append(subscribers[at])
                    subscribers[at] = Peer(subscribe, bus.endpoint)
                    ended.peer_kills += 1
                else:
                    subscribers[at].signal(signal.SIGSTOP)
                    time.sleep(chance.uniform(0, STOPS_S))
                    subscribers[at].signal(signal.SIGCONT)
                    ended.peer_stops += 1
            over.set()
            submitting.join(PATIENCE_S)
            for future in submitted:
                future.result(PATIENCE_S)
            # The last life of each is over when nothing comes any more.
            bus.again()
            time.sleep(3 * PATIENCE_MS / 1000)
        finally:
            over.set()
            for peer in [*publishers, *subscribers]:
                peer.kill()
            bus.kill()
        ended.submitted, ended.reconnects = len(submitted), connector.stats.reconnects
        connector.close(drain_s=0)
    gone += subscribers
    ended.messages, ended.unsubscribed = (sum(peer.counts[at] for peer in gone) for at in range(2))
    ended.faults = [fault for peer in [*publishers, *gone] for fault in peer.faults]
    assert not ended.faults, ended.faults[:10]
    return ended
