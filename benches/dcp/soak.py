"""What a broker stands: bad messages, crowds, peers that do not read, large requests: `python -m benches.dcp.soak [--fast]`.

The peers are bare sockets in processes of their own; the broker is `trunkline dcp broker`, looked at from outside.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Barrier

import zmq

from benches.harness import attack_with, dealers, kinds, listening, percentile, processes, table, withstand
from benches.measure import cpu_s, machine, save
from benches.processes import PATIENCE_S

HEAD = [b"", b"DGBX\x01"]
REGISTER, PING, PONG, REQUEST, REPLY = (bytes([number]) for number in range(1, 6))
ECHO = b"echo"


@contextlib.contextmanager
def workers(endpoint: str, count: int = 2) -> Iterator[None]:
    """Worker processes that echo."""
    command = [sys.executable, "-m", "trunkline", "dcp", "worker", ECHO.decode(), "--connect", endpoint, "--echo"]
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(
                subprocess.Popen([*command, "--concurrency", "4", "--json"], stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
        yield


def request(service: bytes, number: int, data: bytes) -> list[bytes]:
    """A request; its number comes back with the reply."""
    return [*HEAD, REQUEST, service, b"", b"%d" % number, b"", data]


def answered(socket: zmq.Socket[bytes]) -> int:
    """The number of the request of the next reply."""
    while (frames := socket.recv_multipart())[2] != REPLY:
        pass
    return int(frames[5])


# Bad messages.


def good(chance: random.Random, peers: Sequence[bytes]) -> list[bytes]:
    """A valid message. Well-behaved peers have a service of their own, for which no attacker registers."""
    service = b"s%d" % chance.randrange(50)
    data = [chance.randbytes(chance.randrange(64)) for _ in range(chance.randrange(4))]
    client = [chance.choice(peers)] if chance.random() < 0.5 else []
    kind = chance.randrange(6)
    if kind == 0:
        return [*HEAD, REGISTER, service]
    if kind == 1:
        return [*HEAD, chance.choice([PING, PONG])]
    if kind in (2, 3):
        service = ECHO if chance.random() < 0.2 else service
        return [*HEAD, REQUEST, service, *client, b"", b"m", b"", *data]
    return [*HEAD, REPLY, chance.choice(peers), b"", b"m", b"", *data]


def mutated(chance: random.Random, frames: list[bytes]) -> list[bytes]:
    """A message with something done to it, or nothing."""
    at = chance.randrange(len(frames))
    kind = chance.randrange(10)
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
        frames[at:at] = [b""] * chance.choice([100, 1000])
    elif kind == 8 and chance.random() < 0.2:
        frames = [chance.randbytes(chance.randrange(20)) for _ in range(chance.randrange(1, 12))]
    return frames


def attack(endpoint: str, seed: int, count: int) -> int:
    """Sends so many messages, good and bad, from ever new peers; gives the number of peers."""
    chance = random.Random(seed)
    return attack_with(
        endpoint,
        count,
        lambda lives: [b"a%d-%d-%d" % (seed, lives, number) for number in range(50)],
        lambda names: mutated(chance, good(chance, names)),
        [*HEAD, PING],
        lambda frames: frames[:3] in ([*HEAD, PONG], [*HEAD, b"\x06"]),
        chance,
    )


def behave(endpoint: str, name: bytes, over: threading.Event) -> list[float]:
    """One request after the other; how long each took. It fails when a reply does not come."""
    times = []
    with dealers(endpoint, [name]) as (socket,):
        for number in itertools.count():
            if over.is_set():
                return times
            start = time.perf_counter()
            socket.send_multipart(request(ECHO, number, b"x" * (number % 1000)))
            assert answered(socket) == number
            times.append(time.perf_counter() - start)
    return times


@dataclass
class Storm:
    """What became of a broker under bad messages."""

    messages: int
    peers: int
    seconds: float
    answered: int
    p99_ms: float
    rss_mib: list[float]
    dropped: dict[str, int]


def storm(count: int, attackers: int = 2) -> Storm:
    """So many bad and good messages, while clients and workers go on."""
    limits = ("--max-queue", "1000", "--max-queue-bytes", str(16 << 20), "--queue-ttl", "2")
    with listening("dcp", "broker", *limits) as running, workers(running.endpoint):
        seen = withstand(running, attack, behave, count, attackers)
        # Counters are reported at intervals.
        running.until(lambda stats: stats["received"] >= count)
    p99_ms = percentile(seen.times, 0.99)
    return Storm(count, seen.peers, seen.seconds, len(seen.times), p99_ms, seen.rss_mib, running.stats["dropped"])


# Crowds.


def serve_crowd(endpoint: str, count: int, requests: int, there: Barrier) -> None:
    """So many workers, who answer at once, until so many requests are done."""
    done = 0
    with dealers(endpoint, [b"w%d" % number for number in range(count)]) as sockets:
        poller = zmq.Poller()
        for socket in sockets:
            socket.send_multipart([*HEAD, REGISTER, ECHO])
            poller.register(socket, zmq.POLLIN)
        for socket in sockets:
            assert socket.recv_multipart() == [*HEAD, REGISTER, ECHO]
        there.wait(PATIENCE_S * 2)
        beat = time.monotonic()
        while done < requests:
            for socket, _ in poller.poll(1000):
                _, _, kind, *parts = socket.recv_multipart()
                if kind == REQUEST:
                    socket.send_multipart([*HEAD, REPLY, *parts[1:]])
                    done += 1
            if time.monotonic() > beat + 2:
                beat = time.monotonic()
                for socket in sockets:
                    socket.send_multipart([*HEAD, PONG])


def ask_crowd(endpoint: str, first: int, count: int, rounds: int, there: Barrier) -> float:
    """So many clients, who all ask at one time, and again; gives the seconds it took."""
    with dealers(endpoint, [b"c%d" % (first + number) for number in range(count)]) as sockets:
        there.wait(PATIENCE_S * 2)
        start = time.monotonic()
        for number in range(rounds):
            for socket in sockets:
                socket.send_multipart(request(ECHO, number, b"x"))
            for socket in sockets:
                assert answered(socket) == number
        return time.monotonic() - start


@dataclass
class Crowd:
    """What became of a broker with many peers."""

    clients: int
    workers: int
    peers_at_once: int
    requests: int
    seconds: float
    rss_mib: float
    cpu_us: float
    dropped: dict[str, int]


def crowd(clients: int, working: int, rounds: int, parts: int = 4) -> Crowd:
    """So many clients and workers, connected at one time, each asking and answering."""
    share = clients // parts
    requests = share * parts * rounds
    # Workers that are there wait in silence until all are.
    with (
        listening("dcp", "broker", "--heartbeat-interval", "60") as running,
        multiprocessing.get_context("spawn").Manager() as manager,
        processes(parts + 1) as pool,
    ):
        there = manager.Barrier(parts + 2)
        serving = pool.submit(serve_crowd, running.endpoint, working, requests, there)
        asking = [pool.submit(ask_crowd, running.endpoint, part * share, share, rounds, there) for part in range(parts)]
        running.until(lambda stats: stats["peers"] == share * parts + working)
        there.wait(PATIENCE_S)
        peers, cpu = running.stats["peers"], cpu_s(running.pid)
        took = max(one.result() for one in asking)
        cpu = cpu_s(running.pid) - cpu
        serving.result()
        rss = running.rss_mib
    return Crowd(share * parts, working, peers, requests, took, rss, cpu / requests * 1e6, running.stats["dropped"])


# Peers that do not read.


@dataclass
class Stalled:
    """What one that does not read costs the others."""

    peers: int
    p99_ms_without: list[float]
    p99_ms_with: list[float]
    rss_mib_without: float
    rss_mib_with: float
    idle_cpu_percent: float
    dropped: dict[str, int]


def ask_in_turn(sockets: Sequence[zmq.Socket[bytes]], count: int) -> float:
    """Each peer in turn asks and is answered; the slowest hundredth, in milliseconds."""
    times = []
    for number, socket in zip(range(count), itertools.cycle(sockets), strict=False):
        start = time.perf_counter()
        socket.send_multipart(request(ECHO, number, b"x" * 100))
        assert answered(socket) == number
        times.append(time.perf_counter() - start)
    return percentile(times, 0.99)


def stalled(peers: int, count: int, rounds: int, idle_s: float) -> Stalled:
    """One among so many does not read while its replies pile up; the others ask in turn."""
    names = [b"p%d" % number for number in range(peers - 1)]
    without, with_it = [], []
    with listening("dcp", "broker") as running, workers(running.endpoint), dealers(running.endpoint, names) as sockets:
        ask_in_turn(sockets, len(sockets))
        rss_without = running.rss_mib
        # In turn, since the machine is never quite quiet.
        for turn in range(rounds):
            without.append(ask_in_turn(sockets, count))
            with dealers(running.endpoint, [b"stalled-%d" % turn], rcvhwm=1) as (deaf,):
                full = running.stats["dropped"].get("peer_full", 0)
                for number in range(3000):
                    deaf.send_multipart(request(ECHO, number, bytes(32 << 10)))
                running.until(lambda stats, full=full: stats["dropped"].get("peer_full", 0) > full)
                running.until(lambda stats: all(one["free"] == one["workers"] for one in stats["services"]))
                with_it.append(ask_in_turn(sockets, count))
                rss_with, cpu = running.rss_mib, cpu_s(running.pid)
                time.sleep(idle_s)
                idle = (cpu_s(running.pid) - cpu) / idle_s * 100
    return Stalled(peers, without, with_it, rss_without, rss_with, idle, running.stats["dropped"])


# Large requests.


@dataclass
class Large:
    """What large requests cost."""

    size_mib: int
    requests: int
    seconds_each: float
    rss_mib: list[float]


def large(size_mib: int, count: int) -> Large:
    """Requests of this size, one after the other, and as large replies."""
    with (
        listening("dcp", "broker") as running,
        workers(running.endpoint, 1),
        dealers(running.endpoint, [b"large"]) as (socket,),
    ):
        data, rss = bytes(size_mib << 20), []
        start = time.monotonic()
        for number in range(count):
            socket.send_multipart(request(ECHO, number, data), copy=False)
            assert answered(socket) == number
            rss.append(running.rss_mib)
        seconds = (time.monotonic() - start) / count
        assert running.stats["dropped"] == {}
    return Large(size_mib, count, seconds, rss)


def report(bad: Storm, many: Crowd, deaf: Stalled, big: Large) -> list[str]:
    """The results for people."""
    before, after = map(statistics.median, (deaf.p99_ms_without, deaf.p99_ms_with))
    return [
        "## Bad messages",
        "",
        *table(
            [
                ("random and mutated messages", f"{bad.messages:,} from {bad.peers:,} peers in {bad.seconds:.0f} s"),
                ("requests of those who behave", f"{bad.answered:,}, all answered; p99 {bad.p99_ms:.1f} ms"),
                (
                    "memory, after a tenth of them and at the end",
                    f"{bad.rss_mib[0]:.0f} MiB and {bad.rss_mib[-1]:.0f} MiB; most {max(bad.rss_mib):.0f} MiB",
                ),
                ("dropped", kinds(bad.dropped)),
            ]
        ),
        "## A crowd",
        "",
        *table(
            [
                ("connected at one time", f"{many.clients:,} clients and {many.workers:,} workers"),
                ("requests, all answered", f"{many.requests:,} in {many.seconds:.1f} s"),
                ("CPU of the broker", f"{many.cpu_us:.0f} µs a request"),
                ("memory", f"{many.rss_mib:.0f} MiB"),
                ("dropped", kinds(many.dropped)),
            ]
        ),
        "## One that does not read",
        "",
        *table(
            [
                ("p99 of the others, without it", f"{before:.3f} ms"),
                ("p99 of the others, with it", f"{after:.3f} ms: {after / before - 1:+.0%}"),
                ("memory without and with it", f"{deaf.rss_mib_without:.0f} MiB and {deaf.rss_mib_with:.0f} MiB"),
                ("CPU of the idle broker with it", f"{deaf.idle_cpu_percent:.1f} %"),
                ("dropped", kinds(deaf.dropped)),
            ]
        ),
        "## Large requests",
        "",
        *table(
            [
                (f"requests of {big.size_mib} MiB", f"{big.requests}, {big.seconds_each:.2f} s each, there and back"),
                ("memory after the first and the last", f"{big.rss_mib[0]:.0f} MiB and {big.rss_mib[-1]:.0f} MiB"),
            ]
        ),
    ]


def main(*, fast: bool) -> None:
    """Runs all of it, and writes what came out."""
    head = machine()
    if fast:
        parts = storm(2_000), crowd(50, 10, 2, parts=2), stalled(20, 200, 1, 0.5), large(8, 1)
    else:
        parts = storm(1_000_000), crowd(10_000, 1000, 5), stalled(1000, 20_000, 5, 5.0), large(64, 20)
    lines = ["# DCP: what a broker stands", "", head, "", (__doc__ or "").partition("\n\n")[2].strip(), ""]
    lines += report(*parts)
    if not fast:
        save("dcp-soak", lines, {"machine": head, **{type(part).__name__.lower(): asdict(part) for part in parts}})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
