"""What the benches share: loads, clocks, and where results go."""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import zmq

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benches" / "results"


@dataclass(frozen=True)
class Case:
    """One way to do the job, measured several times.

    Attributes:
        name: What it is.
        rates: Messages a second, a round each.
        cpu_us: CPU microseconds a message of the process under test, a round each.
    """

    name: str
    rates: Sequence[float]
    cpu_us: Sequence[float]

    @property
    def rate(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rates)

    @property
    def cpu(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.cpu_us)


@dataclass
class Measured:
    """Rounds of one server under one load."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    p50_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float, float, float]:
        """How many a second, CPU microseconds each, latencies."""
        rate, cpu, p50, p99 = map(statistics.median, (self.rates, self.cpu_us, self.p50_us, self.p99_us))
        return rate, cpu, p50, p99


def calls(cases: Mapping[str, Callable[[], object]], *, count: int, rounds: int) -> list[Case]:
    """Each case called so many times in turn, for so many rounds: on one core, so its time is its CPU."""
    walls: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            start = time.perf_counter()
            for _ in range(count):
                case()
            walls[name].append(time.perf_counter() - start)
    return [
        Case(name, [count / wall for wall in each], [wall / count * 1e6 for wall in each])
        for name, each in walls.items()
    ]


def free_endpoint() -> str:
    """A free endpoint."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as probe:
        return f"tcp://127.0.0.1:{probe.bind_to_random_port('tcp://127.0.0.1')}"


_PROXY = """
import sys, zmq
kinds, front, back, *secret = sys.argv[1:]
context = zmq.Context()
sockets = []
for kind, endpoint in zip(kinds.split(), (front, back)):
    socket = context.socket(getattr(zmq, kind))
    socket.hwm = 0  # else it drops what it has no room for
    if secret:
        socket.curve_secretkey, socket.curve_server = secret[0].encode(), True
    socket.bind(endpoint)
    sockets.append(socket)
zmq.proxy(*sockets)
"""


def proxy(kinds: str, front: str, back: str, secret: bytes | None) -> list[str]:
    """The command of a `zmq.proxy` between sockets of two kinds, as ``"ROUTER DEALER"``."""
    return [sys.executable, "-c", _PROXY, kinds, front, back, *([secret.decode()] if secret else [])]


def cpu_s(process: int) -> float:
    """The CPU seconds that a process has taken so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@functools.cache
def native(name: str = "push") -> Path:
    """A native load generator, built on first use."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "trunkline-bench", "--bin", name]
    subprocess.run(command, check=True, cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / name


@functools.cache
def environment() -> dict[str, str]:
    """The environment of the load generator."""
    command = [sys.executable, str(ROOT / "tools" / "libzmq.py")]
    library = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return {**os.environ, "TRUNKLINE_LIBZMQ": library}


@contextmanager
def sending(endpoint: str, count: int, payload_bytes: int, sender: str = "send") -> Iterator[None]:
    """A native sender in a process of its own, which shares the two cores with what is measured: over libzmq, or the least."""
    command = [native(), sender, endpoint, str(count), str(payload_bytes)]
    with subprocess.Popen(command, env=environment()) as process:
        yield
        subprocess.CompletedProcess(command, process.wait(timeout=60)).check_returncode()


def machine() -> str:
    """Where and with what this was measured."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "",
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {model}, Python {platform.python_version()}, "
        f"pyzmq {version('pyzmq')}, commit {commit.stdout.strip()}, load {os.getloadavg()[0]:.1f} before"
    )


def write(name: str, title: str, method: str, tables: Sequence[tuple[str, Sequence[Case], str]], head: str) -> None:
    """Writes `NAME.md` and `NAME.json`; every ratio is to the case named as baseline of its table."""
    lines = [f"# {title}", "", head, "", method, ""]
    data: dict[str, object] = {"machine": head}
    for caption, cases, baseline in tables:
        base = next(case for case in cases if case.name == baseline)
        lines += [
            f"## {caption}",
            "",
            f"| case | messages/s | ratio to {baseline} | CPU µs a message |",
            "|---|---|---|---|",
        ]
        for case in cases:
            span = f"{case.rate:,.0f} ({min(case.rates):,.0f} - {max(case.rates):,.0f})"
            lines.append(f"| {case.name} | {span} | {case.rate / base.rate:.2f} | {case.cpu:.2f} |")
        lines.append("")
        data[caption] = {case.name: {"rates": case.rates, "cpu_us": case.cpu_us} for case in cases}
    save(name, lines, data)


def arguments(rows: int, fast_rows: int) -> argparse.Namespace:
    """How many rows a bench takes, how many rounds, and whether it is to be fast."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    options = parser.parse_args()
    if options.fast:
        options.rows, options.rounds = fast_rows, 1
    return options


def save(name: str, lines: Sequence[str], data: Mapping[str, object]) -> None:
    """Writes `NAME.md` for people and `NAME.json` for programs."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines).rstrip() + "\n"
    (RESULTS / f"{name}.md").write_text(text)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    print(text)
