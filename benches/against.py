"""Two builds side by side, round by round: `python -m benches.against OTHER [--rounds N]`, with OTHER another checkout that is built.

What both do is the same code of this checkout; what does it is the package of one or of the other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benches.cdtp.live import receiver, recorder
from benches.dcp.broker import OURS, Load, measure
from benches.measure import ROOT, Measured, machine, save
from trunkline import _native, cdtp, dcp

ANY = "tcp://127.0.0.1:*"


def sender(count: int) -> tuple[float, float]:
    """`Sender.send` to a `Receiver` that hands nothing out but counts."""
    with cdtp.Receiver(bind=ANY) as receiver, cdtp.Sender("Det", connect=receiver.endpoints) as sender:
        reading = threading.Thread(target=lambda: [None for _ in zip(range(count), receiver, strict=False)])
        reading.start()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            sender.send(b"x" * 100)
        reading.join()
        return time.perf_counter() - wall, time.process_time() - cpu


def submitted(count: int) -> tuple[float, float]:
    """Requests by `Client.submit`, all of them at a time, and a worker in the same process."""
    with (
        dcp.Broker(bind=ANY, max_queue=count + 1) as broker,
        dcp.Worker(b"echo", connect=broker.endpoints, concurrency=64) as worker,
        dcp.Client(connect=broker.endpoints) as client,
    ):
        working = threading.Thread(target=lambda: [request.reply(request.data) for request in worker])
        working.start()
        client.request(b"echo", b"x")
        wall, cpu = time.perf_counter(), time.process_time()
        for future in [client.submit(b"echo", b"x" * 32) for _ in range(count)]:
            future.result(60)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        worker.stop()
        working.join()
        return wall, cpu


def brokered(count: int) -> tuple[float, float]:
    """Requests of native clients through `trunkline dcp broker`, 256 on their way: seconds, and its CPU."""
    into = Measured()
    measure(next(iter(OURS)), Load(256), count, into)
    return count / into.rates[0], into.cpu_us[0] * count / 1e6


CASES: dict[str, tuple[Callable[[int], tuple[float, float]], int]] = {
    "for message in Receiver": (receiver, 1_000_000),
    "Recorder, socket to durable Parquet": (recorder, 1_000_000),
    "Sender.send to a Receiver": (sender, 200_000),
    "Client.submit through a Broker to a Worker": (submitted, 20_000),
    "native clients through a broker": (brokered, 100_000),
}


def one(package: Path, case: str) -> tuple[float, float]:
    """A round of one build: messages a second, and CPU microseconds a message."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(ROOT)])}
    command = [sys.executable, "-m", "benches.against", "--case", case]
    ran = subprocess.run(command, env=env, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    wall, cpu = json.loads(ran.stdout.splitlines()[-1])
    count = CASES[case][1]
    return count / wall, cpu / count * 1e6


def main(other: Path, *, rounds: int) -> None:
    """Runs the cases of both in turn, and writes what came out."""
    head = machine()
    builds = {"before": other / "python", "after": ROOT / "python"}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=other, capture_output=True, text=True, check=True
    )
    measured: dict[str, dict[str, list[tuple[float, float]]]] = {case: {name: [] for name in builds} for case in CASES}
    for number in range(rounds):
        for case in CASES:
            # The first one may find a cooler machine.
            for name in list(builds)[:: 1 if number % 2 else -1]:
                measured[case][name].append(one(builds[name], case))

    def median(results: Sequence[tuple[float, float]], at: int) -> float:
        return statistics.median(result[at] for result in results)

    lines = [
        "# Before and after",
        "",
        head,
        "",
        f"Before is commit {commit.stdout.strip()}. {rounds} rounds, both builds in turn; medians.",
        "",
        "| case | messages/s before | after | ratio | CPU µs a message before | after | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, both in measured.items():
        rates = [median(both[name], 0) for name in builds]
        cpus = [median(both[name], 1) for name in builds]
        lines.append(
            f"| {case} | {rates[0]:,.0f} | {rates[1]:,.0f} | {rates[1] / rates[0]:.2f} "
            f"| {cpus[0]:.2f} | {cpus[1]:.2f} | {cpus[1] / cpus[0]:.2f} |"
        )
    save("against", lines, {"machine": head, "before": commit.stdout.strip(), "rounds": measured})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("other", nargs="?", type=Path, help="another checkout, built")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", choices=[*CASES], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        assert _native.build_profile == "release", "a debug build says nothing of how fast it is"
        measured_case, messages = CASES[given.case]
        sys.stdout.write(f"{json.dumps(measured_case(messages))}\n")
    else:
        main(given.other, rounds=given.rounds)
