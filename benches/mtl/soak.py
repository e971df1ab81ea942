"""What an MTL server stands: bad messages, leases of nobody's, peers that vanish, never confirm or never read, and kills: `python -m benches.mtl.soak [--fast]`.

The peers are bare sockets, most of them in processes of their own; the server is `trunkline mtl server`, looked at from outside.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import zmq

from benches.harness import dealers, kinds, listening, percentile, processes, table
from benches.measure import machine, save
from benches.mtl.endings import Endings, endings
from benches.mtl.logins import users
from benches.mtl.peers import PING, PONG, confirm, content, enter, leased, redeem, said, sequence_of
from benches.mtl.storms import Guesses, Monsters, Storm, behave, guesses, monsters, storm
from benches.processes import PATIENCE_S, RoleProcess


@contextlib.contextmanager
def serving(*options: str) -> Iterator[RoleProcess]:
    """A server that lets everybody in, with two queues and a quiet host."""
    hosts = ["--virtual-host", "/", "--virtual-host", "quiet"]
    with listening("mtl", "server", "--anonymous", "--resource", "jobs", *hosts, *options) as running:
        yield running


# Clients that vanish.


@dataclass
class Vanished:
    """The result for a server with clients that vanish with unconfirmed contents."""

    clients: int
    seconds: float
    rss_mib: list[float]
    sessions_left: int


def vanish(endpoint: str, turn: int, part: int, clients: int) -> None:
    """So many clients, some at a time: each logs in, writes, reads, confirms nothing, and goes."""
    # No more connections at one time than there is room for, before they are taken: who is turned away there waits a second.
    for start in range(0, clients, 15):
        names = [b"v%d-%d-%d-%d" % (turn, part, start, at) for at in range(min(15, clients - start))]
        with dealers(endpoint, [name + role for name in names for role in (b"-c", b"-w", b"-r")]) as sockets:
            for control, writer, reader in zip(sockets[::3], sockets[1::3], sockets[2::3], strict=True):
                enter(control)
                redeem(writer, leased(control, "Writer", "jobs"))
                redeem(reader, leased(control, "Reader", "jobs", window=5), "jobs")
                leased(control, "Reader", "jobs")
                writer.send_multipart(content(1, b"x" * 1000))
                said(writer)


def vanished(clients: int, parts: int = 2) -> Vanished:
    """Memory after each tenth of them, once all that is left of them is gone."""
    idle = [
        "--session-idle",
        "1",
        "--lease-idle",
        "1",
        "--ping-interval",
        "0.2",
        "--liveness",
        "2",
        "--max-recycle",
        "2",
    ]
    rss, start = [], time.monotonic()
    with serving(*idle) as running, processes(parts) as pool:
        for turn in range(10):
            share = clients // 10 // parts
            for one in [pool.submit(vanish, running.endpoint, turn, part, share) for part in range(parts)]:
                one.result()
            running.until(lambda stats: stats["sessions"] == stats["leases"] == 0)
            rss.append(running.rss_mib)
        left = running.stats["sessions"]
    return Vanished(clients, time.monotonic() - start, rss, left)


# Contents of 64 MiB, and peers that leave things lying.


@dataclass
class Large:
    """What contents of so many bytes cost those who have small ones."""

    contents: int
    size: int
    seconds: float
    p99_ms_without: float
    p99_ms: float
    slowest_ms: float
    rss_mib_most: float
    rss_mib_after: float


def large(count: int, size: int, idle_s: float) -> Large:
    """So many through a queue, one after the other, while another session goes on."""
    with serving() as running, dealers(running.endpoint, [b"c", b"w", b"r"]) as (control, writer, reader):
        enter(control)
        redeem(writer, leased(control, "Writer", "jobs"))
        redeem(reader, leased(control, "Reader", "jobs", window=1), "jobs")
        without = beside(running, lambda: time.sleep(idle_s))
        rss: list[float] = []

        def through() -> None:
            for number in range(1, count + 1):
                body = random.Random(number).randbytes(size)
                writer.send_multipart(content(number, body), copy=False)
                assert said(writer)[0][0] == 6
                header, came = said(reader)
                rss.append(running.rss_mib)
                assert sequence_of(header) == number
                assert hashlib.sha256(came).digest() == hashlib.sha256(body).digest()
                reader.send_multipart(confirm(sequence_of(header)))

        start = time.monotonic()
        times = beside(running, through)
        seconds = time.monotonic() - start
        running.until(lambda stats: all(one["queued"] == 0 for one in stats["resources"]))
        return Large(
            count,
            size,
            seconds,
            percentile(without, 0.99),
            percentile(times, 0.99),
            max(times) * 1000,
            max(rss),
            running.rss_mib,
        )


def beside(running: RoleProcess, meanwhile: Callable[[], object]) -> list[float]:
    """How long the contents of a session of its own take while something else goes on."""
    over, times = threading.Event(), list[float]()
    name = b"beside-%d" % time.monotonic_ns()
    friend = threading.Thread(target=lambda: times.extend(behave(running.endpoint, name, over)))
    friend.start()
    try:
        meanwhile()
    finally:
        over.set()
        friend.join(PATIENCE_S)
    assert times, "one who behaves was not answered"
    return times


@dataclass
class Careless:
    """What those cost the others who never confirm, and who never read.

    Attributes:
        unconfirmed: Contents that a reader with a window of 1000 was given, who confirmed none.
        unread: Commands and contents of one who read none of the answers.
    """

    unconfirmed: int
    others: int
    unread: int
    p99_ms_without: float
    p99_ms: float
    rss_mib_without: float
    rss_mib_unconfirmed: float
    rss_mib_unread: float
    dropped: dict[str, int]


def careless(contents: int, commands: int, idle_s: float) -> Careless:
    """A reader that never confirms beside one that does, then peers that never read a word."""
    with serving("--max-queue", "1000000") as running:
        without = beside(running, lambda: time.sleep(idle_s))
        rss_without = running.rss_mib
        seen: list[int] = []
        times = beside(running, lambda: seen.extend(unconfirmed(running, contents)))
        rss_unconfirmed = running.rss_mib
        times += beside(running, lambda: unread(running, commands))
        return Careless(
            seen[0],
            seen[1],
            commands,
            percentile(without, 0.99),
            percentile(times, 0.99),
            rss_without,
            rss_unconfirmed,
            running.rss_mib,
            running.stats["dropped"],
        )


def unconfirmed(running: RoleProcess, contents: int) -> tuple[int, int]:
    """How many contents of a queue one gets who never confirms, and how many the other, who does."""
    with dealers(running.endpoint, [b"uc", b"uw", b"deaf", b"good"]) as (control, writer, deaf, good):
        enter(control)
        redeem(writer, leased(control, "Writer", "jobs"))
        redeem(deaf, leased(control, "Reader", "jobs", window=1000), "jobs")
        redeem(good, leased(control, "Reader", "jobs", window=1000), "jobs")
        for number in range(1, contents + 1):
            writer.send_multipart(content(number, b"x" * 100))
        had, kept = 0, 0
        end = time.monotonic() + PATIENCE_S
        while had + kept < contents:
            assert time.monotonic() < end, (had, kept, contents)
            for socket in (good, deaf, writer):
                with contextlib.suppress(zmq.Again):
                    while True:
                        header, _ = socket.recv_multipart(zmq.NOBLOCK)
                        if header == PING[0]:
                            socket.send_multipart(PONG)
                        elif header[0] == 5 and socket is good:
                            had += 1
                            good.send_multipart(confirm(sequence_of(header)))
                        elif header[0] == 5:
                            kept += 1
        return kept, had


def unread(running: RoleProcess, commands: int) -> None:
    """Pings and contents without end from some who read nothing; a queue that is full answers each content."""
    with dealers(running.endpoint, [b"xc", b"x-ping", b"x-write"], rcvhwm=1, rcvbuf=4096) as (
        control,
        pinging,
        writing,
    ):
        enter(control)
        redeem(pinging, leased(control, "Writer", "jobs"))
        redeem(writing, leased(control, "Writer", "jobs"))
        running.until(lambda stats: stats["leases"] >= 2)
        before = running.stats["received"]
        for number in range(2, commands // 2 + 2):
            pinging.send_multipart(PING)
            # To another's queue: each is refused.
            writing.send_multipart(content(number, b"x" * 100, "nobody's"))
        running.until(lambda stats: stats["received"] >= before + commands)


def report(
    bad: Storm, odd: Monsters, guessed: Guesses, gone: Vanished, big: Large, lazy: Careless, ended: Endings
) -> list[str]:
    """The results for people."""
    return [
        "## Bad messages",
        "",
        *table(
            [
                (
                    "random and mutated commands and data",
                    f"{bad.messages:,} from {bad.peers:,} peers in {bad.seconds:.0f} s",
                ),
                ("contents of those who behave", f"{bad.passed:,}, all confirmed and read; p99 {bad.p99_ms:.1f} ms"),
                (
                    "memory, after a tenth of them and at the end",
                    f"{bad.rss_mib[0]:.0f} MiB and {bad.rss_mib[-1]:.0f} MiB; most {max(bad.rss_mib):.0f} MiB",
                ),
                ("dropped", kinds(bad.dropped)),
                (
                    "JSON of 100,000 levels, numbers of 10,000 digits, names 10,000 times",
                    f"{odd.texts:,}, {odd.answered:,} of them answered; the slowest took {odd.slowest_ms:.1f} ms",
                ),
            ]
        ),
        "## Leases of nobody's",
        "",
        *table(
            [
                (
                    "guessed, half of them a character off from a good one",
                    f"{guessed.guessed:,} beside {guessed.live:,} good ones",
                ),
                ("used before", f"{guessed.reused:,}"),
                ("expired", f"{guessed.expired:,}"),
                ("let in", f"{guessed.let_in:,}"),
            ]
        ),
        "## Clients that vanish",
        "",
        *table(
            [
                ("clients, with contents in hand and leases unused", f"{gone.clients:,} in {gone.seconds:.0f} s"),
                ("memory after each tenth of them", ", ".join(f"{one:.0f}" for one in gone.rss_mib) + " MiB"),
            ]
        ),
        "## Large contents",
        "",
        *table(
            [
                (f"contents of {big.size >> 20} MiB through a queue", f"{big.contents:,} in {big.seconds:.1f} s"),
                ("p99 of a session beside, without them", f"{big.p99_ms_without:.1f} ms"),
                ("p99 of it with them", f"{big.p99_ms:.1f} ms, at most {big.slowest_ms:.0f} ms"),
                ("memory", f"{big.rss_mib_most:.0f} MiB at most, {big.rss_mib_after:.0f} MiB after"),
            ]
        ),
        "## Peers that never confirm, and that never read",
        "",
        *table(
            [
                (
                    "a reader that never confirms, with a window of 1,000",
                    f"was given {lazy.unconfirmed:,}; the other reader {lazy.others:,}",
                ),
                ("commands and contents whose answers nobody reads", f"{lazy.unread:,}"),
                ("p99 of a session beside", f"{lazy.p99_ms_without:.1f} ms without and {lazy.p99_ms:.1f} ms with them"),
                ("memory without them", f"{lazy.rss_mib_without:.0f} MiB"),
                ("memory after the reader", f"{lazy.rss_mib_unconfirmed:.0f} MiB"),
                ("memory after those who read nothing", f"{lazy.rss_mib_unread:.0f} MiB"),
                ("dropped", kinds(lazy.dropped)),
            ]
        ),
        "## Kills and stops",
        "",
        *table(
            [
                (
                    "durable server, under load",
                    f"{ended.kills} times killed, {ended.stops} times stopped and continued",
                ),
                (
                    "writers and readers",
                    f"{ended.peer_kills} times killed, {ended.peer_stops} times stopped and continued",
                ),
                ("contents confirmed to their writers", f"{ended.confirmed:,}; {ended.lost:,} lost"),
                ("contents read", f"{ended.delivered:,}"),
                (
                    "of them again",
                    f"{ended.again:,} deliveries marked as `redelivered`, {ended.unmarked:,} that are not",
                ),
            ]
        ),
    ]


def main(*, fast: bool) -> None:
    """Runs all of it, and writes what came out."""
    head = machine()
    with tempfile.TemporaryDirectory() as folder:
        file = str(users(Path(folder)))
        parts = (
            storm(2_000 if fast else 1_000_000, file),
            monsters(1 if fast else 20),
            guesses(2_000 if fast else 1_000_000),
            vanished(50 if fast else 10_000),
            large(1 if fast else 20, 1 << 20 if fast else 64 << 20, 0.5 if fast else 5.0),
            careless(1000 if fast else 100_000, 5_000 if fast else 1_000_000, 0.5 if fast else 5.0),
            endings(2 if fast else 90),
        )
    lines = ["# MTL: what a server stands", "", head, "", (__doc__ or "").partition("\n\n")[2].strip(), ""]
    lines += report(*parts)
    if not fast:
        names = ("storm", "monsters", "guesses", "vanished", "large", "careless", "endings")
        save("mtl-soak", lines, {"machine": head, **{n: asdict(one) for n, one in zip(names, parts, strict=True)}})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
