"""Helpers of the soaks: keys, raw peers and attacks at roles in processes of their own."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import zmq
import zmq.auth

from benches.measure import free_endpoint
from benches.processes import PATIENCE_S, RoleProcess

PATIENCE_MS = PATIENCE_S * 1000


@dataclass(frozen=True)
class Keys:
    """The keys of a server, and of a client that it admits.

    Attributes:
        server: The server's public key.
        public: The client's.
        secret: The client's secret one.
        allowed: The folder of the keys that it admits.
        options: Those of a command that is the server.
    """

    server: bytes
    public: bytes
    secret: bytes
    allowed: Path
    options: list[str]

    @property
    def bare(self) -> dict[str, bytes]:
        """The options of a client's bare socket."""
        return {"curve_serverkey": self.server, "curve_publickey": self.public, "curve_secretkey": self.secret}


def certificates(folder: str) -> Keys:
    """Makes keys, and writes those that a command reads to a folder."""
    zmq.auth.create_certificates(folder, "server")
    server, _ = zmq.auth.load_certificate(f"{folder}/server.key")
    public, secret = zmq.curve_keypair()
    allowed = Path(folder) / "allowed"
    allowed.mkdir()
    (allowed / "client.key").write_bytes(public)
    options = ["--curve-secret", f"{folder}/server.key_secret", "--curve-allow", str(allowed)]
    return Keys(server, public, secret, allowed, options)


@contextlib.contextmanager
def bare(kind: int, endpoint: str, options: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Any]:
    """A socket of pyzmq in a context of its own, which lingers until all is sent."""
    with zmq.Context() as context, context.socket(kind) as dialling:
        dialling.sndtimeo = dialling.rcvtimeo = dialling.linger = PATIENCE_MS
        for name, value in options.items():
            setattr(dialling, name, value)
        dialling.connect(endpoint)
        yield dialling


@contextlib.contextmanager
def listening(*command: str, interval_s: float = 0.2) -> Iterator[RoleProcess]:
    """Runs `trunkline COMMAND`, which listens; it ends well, or this fails."""
    whole = [sys.executable, "-m", "trunkline", *command, "--bind", "tcp://127.0.0.1:*", "--json"]
    whole += ["--stats-interval", str(interval_s), "--drain-seconds", "0"]
    with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True) as process:
        try:
            running = RoleProcess(process)
            yield running
            assert running.alive, f"{' '.join(command)} has ended"
            assert running.end(signal.SIGTERM) == 0
        finally:
            process.kill()


class Restarted:
    """`trunkline COMMAND` that is restarted at the same port."""

    def __init__(self, *command: str) -> None:
        self.endpoint = free_endpoint()
        self._command = [sys.executable, "-m", "trunkline", *command, "--bind", self.endpoint, "--json"]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"
        return process

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        self._process.send_signal(number)

    def again(self) -> None:
        """Kills it, and starts another."""
        self.kill()
        self._process = self._start()

    def kill(self) -> None:
        """Ends it at once; fails when it has ended by itself."""
        assert self._process.poll() is None, f"{' '.join(self._command)} has ended"
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes for peers, without state of this one."""
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@contextlib.contextmanager
def dealers(endpoint: str, names: Sequence[bytes], **options: int) -> Iterator[list[zmq.Socket[bytes]]]:
    """Connected DEALERs with these routing ids."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, len(names) + 10)
    sockets = []
    try:
        for name in names:
            sockets.append(context.socket(zmq.DEALER))
            for option, value in {"linger": 0, "rcvtimeo": PATIENCE_MS, "sndtimeo": PATIENCE_MS, **options}.items():
                setattr(sockets[-1], option, value)
            sockets[-1].routing_id = name
            sockets[-1].connect(endpoint)
        yield sockets
    finally:
        context.destroy(linger=0)


def attack_with(
    endpoint: str,
    count: int,
    names_of: Callable[[int], list[bytes]],
    bad: Callable[[list[bytes]], list[bytes]],
    last: list[bytes],
    answers_last: Callable[[list[bytes]], bool],
    chance: random.Random,
    heard: Callable[[list[bytes]], object] = lambda _frames: None,
) -> int:
    """Sends so many messages from ever new peers, which read now and then; gives the number of peers."""
    sent, peers, lives = 0, 0, 0
    while sent < count:
        names = names_of(lives)
        lives += 1
        peers += len(names)
        with dealers(endpoint, names) as sockets:
            for _ in range(min(count - sent, 20_000)):
                socket = chance.choice(sockets)
                socket.send_multipart(bad(names))
                sent += 1
                if chance.random() < 0.1:
                    with contextlib.suppress(zmq.Again):
                        while True:
                            heard(socket.recv_multipart(zmq.NOBLOCK))
            # Messages in flight when a socket closes may be lost: wait for the answer to the last of each. A socket that was
            # disconnected may have lost it, and sends it again.
            for socket in sockets:
                socket.send_multipart(last)
            for socket in sockets:
                end = time.monotonic() + PATIENCE_S
                while not (socket.poll(1000) and answers_last(socket.recv_multipart())):
                    assert time.monotonic() < end, "the last message is not answered"
                    if not socket.poll(0):
                        socket.send_multipart(last)
    return peers


@dataclass
class Withstood:
    """What an attack was.

    Attributes:
        peers: Those that attacked.
        seconds: How long it took.
        times: How long each message of well-behaved peers took, in seconds.
        rss_mib: The memory of the attacked role, from a tenth of the messages on.
    """

    peers: int
    seconds: float
    times: list[float]
    rss_mib: list[float]


def withstand(
    running: RoleProcess,
    attack: Callable[[str, int, int], int],
    behave: Callable[[str, bytes, threading.Event], list[float]],
    count: int,
    attackers: int,
) -> Withstood:
    """Attacks a role by so many messages from so many processes, beside two well-behaved peers."""
    with processes(attackers) as pool:
        over = threading.Event()
        times: list[list[float]] = []
        friends = [
            threading.Thread(target=lambda name=name: times.append(behave(running.endpoint, name, over)))
            for name in (b"one", b"two")
        ]
        for friend in friends:
            friend.start()
        start = time.monotonic()
        share = count // attackers
        attacks = [pool.submit(attack, running.endpoint, seed, share) for seed in range(attackers)]
        rss = []
        try:
            running.until(lambda stats: stats["received"] > count / 10)
            while not all(one.done() for one in attacks):
                rss.append(running.rss_mib)
                time.sleep(0.2)
            peers = sum(one.result() for one in attacks)
        finally:
            over.set()
            for friend in friends:
                friend.join(PATIENCE_S)
        assert len(times) == len(friends), "one who behaves was not answered"
        seconds = time.monotonic() - start
        rss.append(running.rss_mib)
    return Withstood(peers, seconds, [one for friend in times for one in friend], rss)


def percentile(times: Sequence[float], share: float) -> float:
    """Of these times, in milliseconds."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000


def table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """What was looked at, and what was seen."""
    return ["| what | seen |", "|---|---|", *(f"| {what} | {seen} |" for what, seen in rows), ""]


def kinds(dropped: dict[str, int]) -> str:
    """Drops by kind."""
    return ", ".join(f"{kind} {count:,}" for kind, count in sorted(dropped.items())) or "none"
