"""MTL's server beside a proxy, RabbitMQ and JetStream under native load, and its logins: `python -m benches.mtl.flow [--fast]`."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zmq

from benches.harness import processes
from benches.measure import Measured, cpu_s, environment, machine, native, save
from benches.mtl.logins import ITERATIONS, log_in, users
from benches.mtl.rivals import (
    ADDRESSED,
    CLASSIC,
    JETSTREAM,
    OURS,
    PROGRAMS,
    PROXY,
    QUORUM,
    Rabbit,
    Server,
    jetstream,
    ours,
    passing,
)

SIZES = [32, 1 << 10, 64 << 10]
WINDOW = 1000


def _bytes(size: int) -> str:
    return f"{size >> 10} KiB" if size >= 1024 else f"{size} B"


@dataclass(frozen=True)
class Fan:
    """One writer of the test profile and some readers, which each get every content."""

    readers: int
    size: int
    curve: bool = False

    def __str__(self) -> str:
        """For a row of a table."""
        return f"1 → {self.readers}, {_bytes(self.size)}{', CURVE' if self.curve else ''}"

    @property
    def count(self) -> int:
        """Deliveries, so many that a round takes a second or two."""
        large = 20_000 if self.size > 1024 else 600_000 if self.readers > 1 else 300_000
        return large // 4 if self.curve else large

    @property
    def rivals(self) -> list[str]:
        """Who is put under this load."""
        return [PROXY, *([ADDRESSED] if self.readers == 1 else []), *OURS]

    @contextlib.contextmanager
    def running(self, name: str, _rabbit: Rabbit | None) -> Iterator[tuple[Server, list[str]]]:
        """One of them, and the load."""
        public, secret = zmq.curve_keypair() if self.curve else (b"", None)
        kinds = {PROXY: "XSUB XPUB", ADDRESSED: "ROUTER DEALER"}.get(name)
        running = passing(kinds, secret) if kinds else _ours(name, "test", secret=secret)
        window = max(WINDOW if self.size <= 1024 else 100, 2 * self.readers)
        numbers = map(str, (1, self.readers, window, self.count, self.size))
        with running as server:
            protocol = {PROXY: "contents", ADDRESSED: "addressed"}.get(name, "mtl")
            yield server, [str(native("topics")), protocol, server.front, server.back, *numbers, *_key(public)]


@dataclass(frozen=True)
class Queue:
    """A writer and a reader of one queue, who confirm every content."""

    size: int
    durable: bool = False
    curve: bool = False

    def __str__(self) -> str:
        """For a row of a table."""
        return f"{'durable' if self.durable else 'memory'}, {_bytes(self.size)}{', CURVE' if self.curve else ''}"

    @property
    def count(self) -> int:
        """Contents, so many that a round of ours takes a second or two."""
        large = 10_000 if self.size > 1024 else 100_000 if self.durable else 200_000
        return large // 4 if self.curve else large

    @property
    def rivals(self) -> list[str]:
        """Who is put under this load; the others have no CURVE."""
        others = [CLASSIC, *([QUORUM] if self.durable else []), JETSTREAM]
        return [*OURS, *(name for name in others if not self.curve and PROGRAMS[name][0]())]

    @contextlib.contextmanager
    def running(self, name: str, rabbit: Rabbit | None) -> Iterator[tuple[Server, list[str]]]:
        """One of them, and the load."""
        public, secret = zmq.curve_keypair() if self.curve else (b"", None)
        protocol = {CLASSIC: "classic", QUORUM: "quorum", JETSTREAM: "nats"}.get(name, "mtl")
        # Those who take ten times as long have a fifth of it to do.
        count = self.count if name in OURS else self.count // 5
        if name in OURS:
            running = _ours(name, "queue", "--resource", "bench", durable=self.durable, secret=secret)
        elif name == JETSTREAM:
            running = jetstream()
        else:
            assert rabbit is not None
            running = rabbit.turn()
        with running as server:
            keeping = "durable" if self.durable else "memory"
            numbers = map(str, (WINDOW, count, self.size))
            yield server, [str(native("queues")), protocol, server.front, keeping, *numbers, *_key(public)]


def _ours(
    name: str, profile: str, *options: str, durable: bool = False, secret: bytes | None = None
) -> contextlib.AbstractContextManager[Server]:
    settings = ("--anonymous", "--profile", profile, *options)
    return ours(*settings, transport=OURS[name], durable=durable, secret=secret)


def _key(public: bytes) -> list[str]:
    return [public.decode()] if public else []


AIMS: list[Fan | Queue] = [
    *(Fan(readers, size) for readers in (1, 10) for size in SIZES),
    *(Queue(size, durable) for durable in (False, True) for size in SIZES),
]
LOADS: list[Fan | Queue] = [
    *AIMS,
    *(Fan(readers, size, curve=True) for readers in (1, 10) for size in SIZES),
    *(Queue(size, durable, curve=True) for durable in (False, True) for size in SIZES),
]


def measure(name: str, load: Fan | Queue, rabbit: Rabbit | None, into: Measured) -> None:
    """One round."""
    with load.running(name, rabbit) as (server, command):
        before = cpu_s(server.pid)
        ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(), timeout=120)
        count = int(command[7 if isinstance(load, Fan) else 5])
        into.cpu_us.append((cpu_s(server.pid) - before) / count * 1e6)
    rate, p50, p99, _ = map(float, ran.stdout.split())
    into.rates.append(rate)
    into.p50_us.append(p50)
    into.p99_us.append(p99)


def measure_logins(count: int, into: Measured) -> None:
    """One round of logins by SCRAM-SHA-256."""
    with tempfile.TemporaryDirectory() as folder, processes(1) as pool:
        with ours("--users", str(users(Path(folder)))) as server:
            before = cpu_s(server.pid)
            seconds, times = pool.submit(log_in, server.front, count).result()
            into.cpu_us.append((cpu_s(server.pid) - before) / count * 1e6)
    into.rates.append(count / seconds)
    into.p50_us.append(statistics.median(times) * 1e6)
    into.p99_us.append(sorted(times)[len(times) * 99 // 100] * 1e6)


def rows(results: dict[Fan | Queue, dict[str, Measured]], to: list[str]) -> list[str]:
    """A table of loads, with rates held to the best of those in `to`."""
    lines = []
    for load, by_name in results.items():
        base = max((by_name[name].medians()[0] for name in to if name in by_name), default=0.0)
        for name, measured in by_name.items():
            rate, cpu, p50, p99 = measured.medians()
            ratio = f"{rate / base:.2f}" if base else ""
            lines.append(f"| {load} | {name} | {rate:,.0f} | {ratio} | {cpu:.2f} | {p50:,.0f} | {p99:,.0f} |")
    return lines


def report(results: dict[Fan | Queue, dict[str, Measured]], logins: Measured) -> list[str]:
    """The results for people."""
    fans = {load: by_name for load, by_name in results.items() if isinstance(load, Fan)}
    queues = {load: by_name for load, by_name in results.items() if isinstance(load, Queue)}
    rate, cpu, p50, p99 = logins.medians()
    head = "| load | server | {0}/s | to {1} | CPU µs a {2} | p50 µs | p99 µs |"
    return [
        "## The test profile",
        "",
        head.format("deliveries", "the proxy", "delivery"),
        "|---|---|---|---|---|---|---|",
        *rows(fans, [PROXY]),
        "",
        "## Queues, p50 and p99 up to the confirm",
        "",
        head.format("contents", "the better RabbitMQ", "content"),
        "|---|---|---|---|---|---|---|",
        *rows(queues, [CLASSIC, QUORUM]),
        "",
        "## Logins",
        "",
        (
            f"SCRAM-SHA-256 of {ITERATIONS} iterations, with Connection.Open four commands each, 16 at a time: {rate:,.0f} logins/s at "
            f"{cpu:,.0f} CPU µs each; p50 {p50:,.0f} µs, p99 {p99:,.0f} µs."
        ),
    ]


def main(*, fast: bool, aims_alone: bool, rounds: int) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    head = machine()
    loads = [Fan(2, 32), Queue(32)] if fast else AIMS if aims_alone else LOADS
    results: dict[Fan | Queue, dict[str, Measured]] = {
        load: {name: Measured() for name in load.rivals} for load in loads
    }
    logins = Measured()
    with contextlib.ExitStack() as stack:
        rabbit = Rabbit(stack) if PROGRAMS[CLASSIC][0]() else None
        for _, load in itertools.product(range(1 if fast else rounds), loads):
            for name, measured in results[load].items():
                measure(name, load, rabbit, measured)
    for _ in range(1 if fast else rounds):
        measure_logins(100 if fast else 2000, logins)
    missing = {f"{name} ({how})" for name, (is_here, how) in PROGRAMS.items() if not is_here()}
    method = (
        "A native writer and native readers on raw sockets in one process, over loopback TCP. Test profile: a delivery is one content to "
        "one reader, 1000 on their way at one time, 100 of 64 KiB; the proxy passes the same two frames on, from PUB to SUB, or three with an address, "
        "from DEALER to DEALER. Queues: "
        "1000 contents unconfirmed at one time, a reader who confirms all he has read at once; a content counts when it is confirmed "
        "and read. AMQP 0-9-1 and NATS are spoken by the least of clients: RabbitMQ with publisher confirms, persistent messages and a durable or "
        "quorum queue where durable; JetStream with acknowledged publishes, a consumer that acknowledges all up to one, in memory or in "
        f"a file with `sync_interval: always`. CPU is that of the server. {rounds} rounds, the cases in turn; medians."
        + (f" Not here: {', '.join(sorted(missing))}." if missing else "")
    )
    lines = ["# MTL: the server", "", head, "", method, "", *report(results, logins)]
    if aims_alone:
        print("\n".join(lines))
    elif not fast:
        data = {str(load): {name: vars(one) for name, one in by_name.items()} for load, by_name in results.items()}
        save("mtl", lines, {"machine": head, "loads": data, "logins": vars(logins)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--aims", action="store_true", help="without CURVE; writes nothing")
    given = parser.parse_args()
    main(fast=given.fast, aims_alone=given.aims, rounds=given.rounds)
