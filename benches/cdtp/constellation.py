"""Our recorder beside the writer that released Constellations have, on the same stream: `python -m benches.cdtp.constellation`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.live.satellite import Satellite

from benches.measure import Case, cpu_s, machine, write
from trunkline import cdtp

PAYLOAD = bytes(1024)
NAME = "Bench.one"
HEADERS: dict[str, cdtp.Header] = {"0.5.1": "B", "1.0.2": "2"}


def stream(sender: cdtp.Sender, count: int) -> None:
    """A run of so many messages."""
    sender.begin_run({"voltage": 1.5}, timeout_s=20)
    for number in range(count):
        sender.send(PAYLOAD, tags={"trigger_number": number})
    sender.end_run({"run_id": "run_1"})


def theirs(release: str, count: int, directory: Path) -> tuple[float, float]:
    """Into HDF5, until the run is stopped and its file closed."""
    # A writer that misses the end of a run, as one may on a busy machine, gives it up in time that grows with the run.
    end_s = 30 + count // 40
    writer = Satellite(release, ["SatelliteH5DataWriter"], "writer", directory.name, directory / "writer.log")
    try:
        output = str(directory / "h5")
        old = {"_output_path": output, "_file_name_pattern": "run.h5", "_eor_timeout": end_s}
        writer.launch(old if release == "0.5.1" else {"output_directory": output, "_eor_timeout": end_s})
        with cdtp.Sender(
            NAME,
            header=HEADERS[release],
            bind="tcp://127.0.0.1:*",
            group=directory.name,
            chirp_lower_case=release != "0.5.1",
        ) as sender:
            writer.do("start", "run_1", state="RUN")
            wall, cpu = time.perf_counter(), cpu_s(writer.process.pid)
            stream(sender, count)
            while sender.stats.queued:
                time.sleep(0.01)
            writer.do("stop", state="ORBIT", patience_s=2 * end_s)
            return time.perf_counter() - wall, cpu_s(writer.process.pid) - cpu
    finally:
        writer.close()


def ours(release: str, count: int, directory: Path) -> tuple[float, float]:
    """Into a capture, until it is published as Parquet and closed."""
    with cdtp.Sender(NAME, header=HEADERS[release], bind="tcp://127.0.0.1:*") as sender:
        arguments = ["--capture", str(directory / "capture"), "--connect", sender.endpoints[0], "--json"]
        command = [sys.executable, "-m", "trunkline", "cdtp", "record", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["event"] == "ready"
            wall, cpu = time.perf_counter(), cpu_s(process.pid)
            stream(sender, count)
            while sender.stats.queued:
                time.sleep(0.01)
            process.terminate()
            stopped = json.loads(process.stdout.readline())
            assert stopped["stats"]["durable"] == stopped["stats"]["received"]
            used = cpu_s(process.pid) - cpu
        return time.perf_counter() - wall, used


def main(*, fast: bool) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    count, rounds = (200, 1) if fast else (20_000, 3)
    head = machine()
    tables = []
    for release, header in HEADERS.items():
        cases: dict[str, Callable[[str, int, Path], tuple[float, float]]] = {
            f"H5DataWriter of {release}": theirs,
            "trunkline cdtp record": ours,
        }
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(rounds):
            for name, case in cases.items():
                with tempfile.TemporaryDirectory() as directory:
                    measured[name].append(case(release, count, Path(directory)))
        done = [
            Case(name, [count / wall for wall, _ in results], [cpu / count * 1e6 for _, cpu in results])
            for name, results in measured.items()
        ]
        tables.append((f"Header {header}", done, f"H5DataWriter of {release}"))
    method = (
        f"A run of {count:,} messages of {len(PAYLOAD)} bytes from one sender over loopback TCP, as fast as they are taken, until "
        f"the file is closed: HDF5 there, Parquet here. {rounds} rounds, the cases in turn; medians (min-max)."
    )
    if fast:
        assert all(case.rate > 0 for _, done, _ in tables for case in done)
    else:
        write("constellation", "Recording beside Constellation", method, tables, head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
