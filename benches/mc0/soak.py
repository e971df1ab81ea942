"""What a bus stands: bad messages, crowds, subscribers that do not read, kills and stops: `python -m benches.mc0.soak [--fast]`.

The peers are bare sockets in processes of their own; the middleware is `trunkline mc0 middleware`, looked at from outside.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import zmq

from benches.harness import attack_with, dealers, kinds, listening, percentile, processes, table, withstand
from benches.mc0.endings import Endings, endings
from benches.mc0.peers import answers, noop, put, sub, unsub
from benches.measure import cpu_s, machine, save
from benches.processes import PATIENCE_S, RoleProcess


def idle_percent(running: RoleProcess, seconds: float) -> float:
    """The CPU of an idle middleware over so many seconds; most of it is for reporting its counters."""
    before = cpu_s(running.pid)
    time.sleep(seconds)
    return (cpu_s(running.pid) - before) / seconds * 100


# Bad messages.

VERBS = [b"CONNECT", b"DISCONNECT", b"SUB", b"UNSUB", b"PUT", b"NOOP", b"MESSAGE", b"OK", b"ERROR"]
TOPICS = [b"t%d" % number for number in range(40)] + [b"\xff\xfe%d" % number for number in range(10)]


def good(chance: random.Random) -> list[bytes]:
    """A message there may be. Those who mean well have topics of their own."""
    verb = chance.choices(VERBS, [2, 1, 8, 4, 20, 4, 1, 1, 1])[0]
    headers = [b"ID", chance.randbytes(chance.randrange(40))] if chance.random() < 0.4 else []
    topics = chance.sample(TOPICS, chance.randrange(4))
    body: list[bytes] = []
    if verb == b"CONNECT":
        headers += [b"VERSION", b"0.3", b"TTL", b"%d" % chance.choice([0, 20, 1000, 60_000])]
    elif verb in (b"SUB", b"UNSUB"):
        body = topics
    elif verb in (b"PUT", b"MESSAGE"):
        headers += [b"TOPIC", chance.choice(TOPICS), b"X-\xff", chance.randbytes(5)]
        body = [chance.randbytes(chance.randrange(64)) for _ in range(chance.randrange(4))]
    lead = [b""] if chance.random() < 0.7 else []
    return [*lead, verb, *headers, *([b"", *body] if body else [])]


def mutated(chance: random.Random, frames: list[bytes]) -> list[bytes]:
    """A message with something done to it, or nothing."""
    at = chance.randrange(len(frames))
    kind = chance.randrange(11)
    if kind == 0:
        return frames[:at] or [b""]
    if kind == 1:
        frames[at] = frames[at][: chance.randrange(len(frames[at]) + 1)]
    elif kind == 2 and frames[at]:
        bit = chance.randrange(len(frames[at]) * 8)
        frames[at] = (int.from_bytes(frames[at]) ^ 1 << bit).to_bytes(len(frames[at]))
    elif kind == 3:
        frames.insert(at, chance.choice([b"", chance.randbytes(chance.randrange(9))]))
    elif kind == 4:
        frames.insert(at, frames[at])
    elif kind == 5 and len(frames) > 1:
        frames.pop(at)
    elif kind == 6 and chance.random() < 0.003:
        frames[at] = bytes(chance.choice([1 << 16, 1 << 20, 4 << 20]))
    elif kind == 7 and chance.random() < 0.003:
        frames[at:at] = [b""] * chance.choice([100, 9990, 10_000])
    elif kind == 8 and chance.random() < 0.2:
        frames = [chance.randbytes(chance.randrange(20)) for _ in range(chance.randrange(1, 12))]
    return frames


def attack(endpoint: str, seed: int, count: int) -> int:
    """Sends so many messages, good and bad, from ever new peers; gives the number of peers."""
    chance = random.Random(seed)
    return attack_with(
        endpoint,
        count,
        lambda lives: [(b"a%d-%d-%d" % (seed, lives, number)).ljust(255, b"\xff") for number in range(50)],
        lambda _names: mutated(chance, good(chance)),
        noop(b"last of all"),
        lambda frames: answers(frames, b"last of all"),
        chance,
    )


def behave(endpoint: str, name: bytes, over: threading.Event) -> list[float]:
    """One message after the other, through the bus and back; how long each took. It fails when one does not come."""
    times: list[float] = []
    with dealers(endpoint, [name]) as (socket,):
        socket.send_multipart(sub(name, id_=b"sub"))
        assert answers(socket.recv_multipart(), b"sub")
        for number in itertools.count():
            if over.is_set():
                return times
            times.append(through(socket, name, number, b"x" * (number % 1000)))
    return times


def through(socket: zmq.Socket[bytes], topic: bytes, number: int, body: bytes) -> float:
    """The seconds that a message took to the only subscriber, which is who put it."""
    start = time.perf_counter()
    socket.send_multipart(put(topic, b"%d" % number, body))
    frames = socket.recv_multipart()
    took = time.perf_counter() - start
    assert frames[1:] == [b"MESSAGE", b"TOPIC", topic, b"", b"%d" % number, body], frames[:6]
    return took


@dataclass
class Storm:
    """What became of a middleware under bad messages."""

    messages: int
    peers: int
    seconds: float
    passed: int
    p99_ms: float
    rss_mib: list[float]
    dropped: dict[str, int]


def storm(count: int, attackers: int = 2) -> Storm:
    """So many bad and good messages, while others go on."""
    with listening("mc0", "middleware") as running:
        seen = withstand(running, attack, behave, count, attackers)
    assert running.stats["received"] >= count
    p99_ms = percentile(seen.times, 0.99)
    return Storm(count, seen.peers, seen.seconds, len(seen.times), p99_ms, seen.rss_mib, running.stats["dropped"])


# Crowds.


def subscribe_crowd(
    endpoint: str, part: int, clients: int, topics: int, each: int, rounds: int, there: threading.Barrier
) -> None:
    """So many clients, each subscribed to so many of the topics; all of it taken back and made anew, some rounds."""
    names = [b"c%d-%d" % (part, number) for number in range(clients)]
    with dealers(endpoint, names) as sockets:
        for _ in range(rounds):
            for verb in (sub, unsub):
                for at, socket in enumerate(sockets):
                    first = (part * clients + at) * each
                    socket.send_multipart(
                        verb(*(b"topic-%06d" % ((first + n) % topics) for n in range(each)), id_=b"1")
                    )
                for socket in sockets:
                    assert answers(socket.recv_multipart(), b"1")
                there.wait(PATIENCE_S * 5)
                there.wait(PATIENCE_S * 5)


@dataclass
class Crowd:
    """What became of a middleware with so many subscribers. Memory is with all subscribed, after each round."""

    clients: int
    topics: int
    subscriptions: int
    rss_mib: list[float]
    rss_mib_unsubscribed: float
    cpu_us: float
    idle_cpu_percent: float


def crowd(clients: int, topics: int, each: int, rounds: int = 3, parts: int = 4, idle_s: float = 2.0) -> Crowd:
    """So many clients with as many subscriptions each, to topics that they share."""
    share = clients // parts
    with (
        listening("mc0", "middleware", interval_s=1.0) as running,
        multiprocessing.get_context("spawn").Manager() as manager,
        processes(parts) as pool,
    ):
        there = manager.Barrier(parts + 1)
        crowds = [
            pool.submit(subscribe_crowd, running.endpoint, part, share, topics, each, rounds, there)
            for part in range(parts)
        ]
        rss, rss_without, idle, cpu = [], 0.0, 0.0, 0.0
        subscriptions = share * parts * each
        try:
            for turn in range(rounds):
                start = cpu_s(running.pid)
                there.wait(PATIENCE_S * 5)
                running.until(lambda stats: stats["subscriptions"] == subscriptions)
                rss.append(running.rss_mib)
                if turn == 0:
                    cpu = (cpu_s(running.pid) - start) / subscriptions
                    idle = idle_percent(running, idle_s)
                there.wait(PATIENCE_S)
                there.wait(PATIENCE_S * 5)
                running.until(lambda stats: stats["subscriptions"] == 0)
                rss_without = running.rss_mib
                there.wait(PATIENCE_S)
        except BaseException:
            # Release the threads that wait at the barrier.
            there.abort()
            raise
        for one in crowds:
            one.result()
    return Crowd(share * parts, topics, subscriptions, rss, rss_without, cpu * 1e6, idle)


# Subscribers that do not read.


@dataclass
class Stalled:
    """What one that does not read costs the others, and what many of them cost an idle bus."""

    peers: int
    p99_ms_without: list[float]
    p99_ms_with: list[float]
    rss_mib_without: float
    rss_mib_with: float
    many: int
    rss_mib_many: float
    idle_cpu_percent_without: float
    idle_cpu_percent: float
    dropped: dict[str, int]


def in_turn(sockets: Sequence[zmq.Socket[bytes]], count: int) -> float:
    """A message by each in turn, to itself; the slowest hundredth, in milliseconds."""
    turns = zip(range(count), itertools.cycle(enumerate(sockets)), strict=False)
    return percentile([through(socket, b"p%d" % at, number, b"x" * 100) for number, (at, socket) in turns], 0.99)


def stalled(peers: int, count: int, rounds: int, idle_s: float) -> Stalled:
    """One among so many is subscribed to the topics of all, and never reads; then so many are, without publishers."""
    topics = [b"p%d" % number for number in range(peers - 1)]
    without, with_it = [], []
    with listening("mc0", "middleware") as running, dealers(running.endpoint, topics) as sockets:
        for topic, socket in zip(topics, sockets, strict=True):
            socket.send_multipart(sub(topic, id_=b"1"))
            assert answers(socket.recv_multipart(), b"1")
        in_turn(sockets, len(sockets))
        rss_without, idle_without = running.rss_mib, idle_percent(running, idle_s)
        # In turn, since the machine is never quite quiet.
        for turn in range(rounds):
            without.append(in_turn(sockets, count))
            with dealers(running.endpoint, [b"deaf-%d" % turn], rcvhwm=1) as (deaf,):
                deaf.send_multipart(sub(*topics, b"flood", id_=b"1"))
                assert answers(deaf.recv_multipart(), b"1")
                flood(running, sockets[0], 32 << 10)
                with_it.append(in_turn(sockets, count))
                rss_with = running.rss_mib
            # Its end is noticed with what cannot be sent to it.
            sockets[0].send_multipart(put(b"flood"))
            running.until(lambda stats: stats["clients"] == peers - 1)
        with dealers(running.endpoint, [b"many-%d" % number for number in range(peers)], rcvhwm=1) as crowd_:
            for deaf in crowd_:
                deaf.send_multipart(sub(b"flood", id_=b"1"))
                assert answers(deaf.recv_multipart(), b"1")
            flood(running, sockets[0], 256 << 10)
            # Until the kernel has what it takes.
            time.sleep(1.0)
            rss_many, idle = running.rss_mib, idle_percent(running, idle_s)
            in_turn(sockets, len(sockets))
    return Stalled(
        peers,
        without,
        with_it,
        rss_without,
        rss_with,
        peers,
        rss_many,
        idle_without,
        idle,
        running.stats["dropped"],
    )


def flood(running: RoleProcess, socket: zmq.Socket[bytes], size: int) -> None:
    """Puts messages until those who do not read lose some."""
    running.until(lambda stats: stats)
    full = running.stats["dropped"].get("peer_full", 0)
    while running.stats["dropped"].get("peer_full", 0) == full:
        for _ in range(100):
            socket.send_multipart(put(b"flood", bytes(size)))
        socket.send_multipart(noop(b"flooded"))
        assert answers(socket.recv_multipart(), b"flooded")


def report(bad: Storm, crowds: Sequence[Crowd], deaf: Stalled, ended: Endings) -> list[str]:
    """The results for people."""
    before, after = (
        f"{statistics.median(rounds):.2f} ms, the least {min(rounds):.2f} ms"
        for rounds in (deaf.p99_ms_without, deaf.p99_ms_with)
    )
    sizes = [
        f"| {one.clients:,} | {one.topics:,} | {one.subscriptions:,} | {one.rss_mib[0]:.0f} | {one.rss_mib[-1]:.0f} "
        f"| {one.rss_mib_unsubscribed:.0f} | {one.cpu_us:.1f} | {one.idle_cpu_percent:.1f} |"
        for one in crowds
    ]
    return [
        "## Bad messages",
        "",
        *table(
            [
                ("random and mutated messages", f"{bad.messages:,} from {bad.peers:,} peers in {bad.seconds:.0f} s"),
                ("messages of those who behave", f"{bad.passed:,}, all passed on; p99 {bad.p99_ms:.1f} ms"),
                (
                    "memory, after a tenth of them and at the end",
                    f"{bad.rss_mib[0]:.0f} MiB and {bad.rss_mib[-1]:.0f} MiB; most {max(bad.rss_mib):.0f} MiB",
                ),
                ("dropped", kinds(bad.dropped)),
            ]
        ),
        "## Crowds",
        "",
        f"All subscribed, taken back and subscribed anew, {len(crowds[0].rss_mib)} rounds: memory with all of them, and with none.",
        "",
        "| clients | topics | subscriptions | MiB at first | MiB at last | MiB, none | CPU µs a subscription | CPU % idle |",
        "|---|---|---|---|---|---|---|---|",
        *sizes,
        "",
        "## Subscribers that do not read",
        "",
        *table(
            [
                ("subscribers, each of a topic of its own", f"{deaf.peers - 1:,}"),
                ("p99 of them, without one of all topics that does not read, median of rounds", before),
                ("p99 of them, with it", after),
                ("memory without and with it", f"{deaf.rss_mib_without:.0f} MiB and {deaf.rss_mib_with:.0f} MiB"),
                (f"memory with {deaf.many:,} that do not read", f"{deaf.rss_mib_many:.0f} MiB"),
                (
                    f"CPU of the idle bus, without and with {deaf.many:,} that do not read",
                    f"{deaf.idle_cpu_percent_without:.1f} % and {deaf.idle_cpu_percent:.1f} %",
                ),
                ("dropped", kinds(deaf.dropped)),
            ]
        ),
        "## Kills and stops",
        "",
        *table(
            [
                ("middleware, under load", f"{ended.kills} times killed, {ended.stops} times stopped and continued"),
                ("subscribers", f"{ended.peer_kills} times killed, {ended.peer_stops} times stopped and continued"),
                ("bare subscribers", f"{ended.messages:,} messages: each once and in order, none after UNSUB's OK"),
                ("UNSUB and SUB", f"{ended.unsubscribed:,} times"),
                ("`submit`", f"{ended.submitted:,}, all confirmed; {ended.reconnects} reconnects"),
            ]
        ),
    ]


def main(*, fast: bool) -> None:
    """Runs all of it, and writes what came out."""
    head = machine()
    if fast:
        parts = storm(2_000), [crowd(50, 200, 10, 2, parts=2, idle_s=0.5)], stalled(20, 200, 1, 0.5), endings(3)
    else:
        sizes = (1000, 1000, 10), (10_000, 10_000, 10), (1000, 100_000, 1000), (10_000, 100_000, 100)
        parts = storm(1_000_000), [crowd(*size) for size in sizes], stalled(1000, 4000, 15, 5.0), endings(60)
    lines = ["# mc0: what a bus stands", "", head, "", (__doc__ or "").partition("\n\n")[2].strip(), ""]
    lines += report(*parts)
    if not fast:
        bad, crowds, deaf, ended = parts
        data = {"storm": asdict(bad), "crowds": [asdict(one) for one in crowds], "stalled": asdict(deaf)}
        save("mc0-soak", lines, {"machine": head, **data, "endings": asdict(ended)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
