"""A durable server, its writers and its readers, killed and stopped at random moments under load."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import zmq

from benches.harness import Restarted
from benches.mc0.endings import Peer, dealer
from benches.mtl.peers import PING, PONG, ask, confirm, content, enter, leased, redeem, sequence_of
from benches.mtl.rivals import DISK
from benches.processes import PATIENCE_S

# What is stopped is so for shorter or longer than the server waits for a sign of life.
STOPS_S = 3.0

WINDOW = 100

REDELIVERED = b"\x0bredeliveredt\x01"


@dataclass
class Endings:
    """What was done to a server and its peers, and what became of the contents.

    Attributes:
        confirmed: Contents that their writers know to be safe.
        delivered: Different contents that readers have had.
        again: Contents that came more than once, each time but the first marked as `redelivered`.
    """

    seconds: float
    kills: int = 0
    stops: int = 0
    peer_kills: int = 0
    peer_stops: int = 0
    confirmed: int = 0
    delivered: int = 0
    again: int = 0
    unmarked: int = 0
    lost: int = 0


@contextlib.contextmanager
def flow(endpoint: str, kind: str) -> Iterator[zmq.Socket[bytes]]:
    """A data connection with a lease of the one queue there is."""
    with dealer(endpoint) as control, dealer(endpoint) as data:
        enter(control)
        redeem(data, leased(control, kind, "jobs", window=WINDOW), *(["jobs"] if kind == "Reader" else []))
        yield data


def write(endpoint: str, seed: int, reports: Connection) -> None:
    """Writes contents, each once and with a unique name, and reports which are confirmed."""
    life = 0
    while True:
        life += 1
        with contextlib.suppress(zmq.Again, AssertionError), flow(endpoint, "Writer") as data:
            sent, open_ = 0, set[int]()
            while True:
                while len(open_) < WINDOW:
                    sent += 1
                    open_.add(sent)
                    data.send_multipart(content(sent, b"%d-%d-%d" % (seed, life, sent)))
                header, _ = data.recv_multipart()
                if header[0] == 6:
                    last = sequence_of(header)
                    safe = {one for one in open_ if one <= last} if header[9] else {last}
                    open_ -= safe
                    reports.send([b"%d-%d-%d" % (seed, life, one) for one in safe])
                elif header[0] == 7:
                    open_.discard(sequence_of(header))


def read(endpoint: str, reports: Connection) -> None:
    """Reads contents, reports them and whether they are marked as redelivered, and only then confirms them."""
    while True:
        with contextlib.suppress(zmq.Again, AssertionError), flow(endpoint, "Reader") as data:
            while True:
                frames = [data.recv_multipart()]
                with contextlib.suppress(zmq.Again):
                    while len(frames) < WINDOW:
                        frames.append(data.recv_multipart(zmq.NOBLOCK))
                if PING in frames:
                    data.send_multipart(PONG)
                contents = [(header, body) for header, body in frames if header[0] == 5]
                reports.send([(body, REDELIVERED in header) for header, body in contents])
                for header, _ in contents:
                    data.send_multipart(confirm(sequence_of(header)))


class Keeping(Peer):
    """The process of a peer that reports lists.

    Attributes:
        reported: All their items.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self.reported: list[Any] = []
        super().__init__(target, *arguments)

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.reported.extend(self._mine.recv())


def durable(store: Path) -> Restarted:
    """A server with one store."""
    queue = ["--anonymous", "--resource", "jobs", "--durable", str(store), "--max-queue", "10000000"]
    # However often a content comes back, it is no dead letter.
    return Restarted("mtl", "server", *queue, "--max-recycle", "1000000", "--ping-interval", "0.5", "--liveness", "3")


def _until_empty(endpoint: str) -> None:
    end = time.monotonic() + PATIENCE_S * 2
    while time.monotonic() < end:
        with contextlib.suppress(zmq.Again, AssertionError), dealer(endpoint) as control:
            enter(control)
            while True:
                _, said = ask(control, "Queue.Info", {"name": "jobs"})
                if said["messages"] == said["unconfirmed"] == 0:
                    return
                assert time.monotonic() < end, said
                time.sleep(0.1)
    message = "the queue is never empty"
    raise AssertionError(message)


def endings(seconds: float, seed: int = 1) -> Endings:
    """Kills and stops the server, its writers and its readers for so long; fails on what is lost or comes twice unmarked."""
    chance, ended = random.Random(seed), Endings(seconds)
    folder = Path(tempfile.mkdtemp(dir=DISK))
    server = durable(folder / "store")
    made = 0

    def writer() -> Keeping:
        nonlocal made
        made += 1
        return Keeping(write, server.endpoint, made)

    def reader() -> Keeping:
        return Keeping(read, server.endpoint)

    gone: dict[bool, list[Keeping]] = {False: [], True: []}
    peers = {False: [writer() for _ in range(2)], True: [reader() for _ in range(3)]}
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.uniform(0, 1.5))
            kind, reads = chance.randrange(4), chance.random() < 0.6
            at = chance.randrange(len(peers[reads]))
            if kind == 0:
                server.again()
                ended.kills += 1
            elif kind == 1:
                server.signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0, STOPS_S))
                server.signal(signal.SIGCONT)
                ended.stops += 1
            elif kind == 2:
                peers[reads][at].kill()
                gone[reads].append(peers[reads][at])
                peers[reads][at] = reader() if reads else writer()
                ended.peer_kills += 1
            else:
                peers[reads][at].signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0, STOPS_S))
                peers[reads][at].signal(signal.SIGCONT)
                ended.peer_stops += 1
        while peers[False]:
            one = peers[False].pop()
            one.kill()
            gone[False].append(one)
        # What a server has in hand when it is killed comes again from its store.
        server.again()
        _until_empty(server.endpoint)
    finally:
        for reads, ones in peers.items():
            for one in ones:
                one.kill()
            gone[reads] += ones
        server.kill()
        shutil.rmtree(folder)
    judge(ended, gone)
    return ended


def judge(ended: Endings, gone: dict[bool, list[Keeping]]) -> None:
    """Counts what was confirmed and what came."""
    safe = {body for one in gone[False] for body in one.reported}
    came = [delivery for one in gone[True] for delivery in one.reported]
    # A reader may be killed before it reports the first delivery: at most one delivery of each is unmarked.
    unmarked: dict[bytes, int] = {}
    for body, is_marked in came:
        unmarked[body] = unmarked.get(body, 0) + (not is_marked)
    ended.confirmed, ended.delivered = len(safe), len(unmarked)
    ended.again = len(came) - len(unmarked)
    ended.unmarked = sum(count > 1 for count in unmarked.values())
    ended.lost = len(safe - unmarked.keys())
    assert not ended.lost, sorted(safe - unmarked.keys())[:10]
    assert not ended.unmarked, [body for body, count in unmarked.items() if count > 1][:10]
