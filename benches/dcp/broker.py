"""The broker beside a bare proxy and brokers in Python, under the same native load: `python -m benches.dcp.broker [--fast]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import zmq

from benches.measure import Measured, cpu_s, environment, free_endpoint, machine, native, proxy, save

PROXY = "zmq.proxy"
# Over each transport that has limits.
OURS = {f"trunkline dcp broker, {transport}": transport for transport in ("zmtp", "libzmq")}
LEAST = "the least on libzmq"
PLAIN = "100 lines of pyzmq"
MAJORTOMO = "majortomo"
CREDIT = 64


@dataclass(frozen=True)
class Load:
    """What clients and workers do: so many requests on their way at one time."""

    window: int
    workers: int = 1
    clients: int = 1
    size: int = 32
    curve: bool = False

    @property
    def credit(self) -> int:
        """Requests a worker asks for at one time: half of them wait in the broker."""
        return max(1, min(CREDIT, self.window // (2 * self.workers)))

    def __str__(self) -> str:
        """For a row of a table."""
        security = ", CURVE" if self.curve else ""
        return f"window {self.window}, workers {self.workers}, clients {self.clients}, {self.size} B{security}"

    @property
    def rivals(self) -> list[str]:
        """Who is put under this load: brokers in Python where one worker and one client show what they can do."""
        is_plain = self.workers == 1 and self.size <= 1024 and not self.curve
        return [PROXY, *OURS, *([] if self.curve else [LEAST]), *([PLAIN, MAJORTOMO] if is_plain else [])]


LOADS = [
    Load(1),
    Load(16),
    Load(256),
    Load(1000),
    Load(256, workers=10, clients=10),
    Load(1000, workers=100, clients=100),
    Load(1000, workers=500, clients=500),
    Load(256, size=1024),
    Load(64, size=65536),
    Load(256, curve=True),
    Load(256, size=1024, curve=True),
]


@contextmanager
def running(name: str, secret: bytes | None = None) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A broker in a process of its own: that, and where clients and workers dial."""
    front = free_endpoint()
    back = free_endpoint() if name == PROXY else front
    with tempfile.NamedTemporaryFile(suffix=".key_secret") as key:
        key.write(secret or b"")
        key.flush()
        ours = [sys.executable, "-m", "trunkline", "dcp", "broker", "--bind", front, "--json"]
        ours += ["--transport", OURS.get(name, "auto"), *(["--curve-secret", key.name] if secret else [])]
        commands = {
            PROXY: proxy("ROUTER DEALER", front, back, secret),
            PLAIN: [sys.executable, "-m", "benches.dcp.plain_broker", front],
            MAJORTOMO: [sys.executable, "-m", "majortomo.broker", "--bind-url", front],
        }
        command = [str(native("least_broker")), front] if name == LEAST else commands.get(name, ours)
        with _started(name, command) as process:
            yield process, front, back


@contextmanager
def _started(name: str, command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(), text=True
    ) as process:
        if name in OURS:
            assert process.stdout is not None
            process.stdout.readline()
        else:
            time.sleep(1)
        try:
            yield process
        finally:
            process.kill()


def measure(name: str, load: Load, count: int, into: Measured) -> None:
    """One round."""
    public, secret = zmq.curve_keypair() if load.curve else (b"", None)
    with running(name, secret) as (process, front, back):
        numbers = (load.workers, load.credit, load.clients, load.window, count, load.size)
        protocol = {PROXY: "proxy", MAJORTOMO: "mdp"}.get(name, "dcp")
        before = cpu_s(process.pid)
        key = [public.decode()] if load.curve else []
        command = [native("service"), protocol, front, back, *map(str, numbers), *key]
        ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(), timeout=300)
        rate, p50, p99, _ = map(float, ran.stdout.split())
        into.rates.append(rate)
        into.cpu_us.append((cpu_s(process.pid) - before) / count * 1e6)
        into.p50_us.append(p50)
        into.p99_us.append(p99)


def requests(name: str, load: Load) -> int:
    """So many that a round takes a few seconds."""
    is_slow = load.window < 256 or load.workers > 100 or load.curve
    count = 10_000 if load.window == 1 else 30_000 if load.size > 1024 else 60_000 if is_slow else 200_000
    return count // 10 if name in {PLAIN, MAJORTOMO} else count


def main(*, fast: bool) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    head = machine()
    loads, rounds = ([Load(16)], 1) if fast else (LOADS, 3)
    results = {load: {name: Measured() for name in load.rivals} for load in loads}
    for load in loads:
        for _ in range(rounds):
            for name in load.rivals:
                measure(name, load, 1000 if fast else requests(name, load), results[load][name])
    method = (
        "Native clients and workers of one service in one process, over loopback TCP; workers answer at once and all "
        f"together take up to half the window at one time, {CREDIT} each at most (of majortomo one); the proxy passes the "
        "same frames on; the least on libzmq is a broker of one service in a hundred lines of native code, without limits, "
        f"liveness or any account of what a worker has. {rounds} rounds, the cases in turn; medians."
    )
    lines = ["# DCP: the broker", "", head, "", method, ""]
    lines += [
        "| load | broker | requests/s | to the proxy | CPU µs a request | p50 µs | p99 µs |",
        "|---|---|---|---|---|---|---|",
    ]
    data = {}
    for load, by_name in results.items():
        base = by_name[PROXY].medians()[0]
        for name, measured in by_name.items():
            rate, cpu, p50, p99 = measured.medians()
            lines.append(f"| {load} | {name} | {rate:,.0f} | {rate / base:.2f} | {cpu:.1f} | {p50:,.0f} | {p99:,.0f} |")
        data[str(load)] = {name: vars(measured) for name, measured in by_name.items()}
    if not fast:
        save("dcp", lines, {"machine": head, "loads": data})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
