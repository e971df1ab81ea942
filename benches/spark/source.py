"""The data source beside reading Parquet and decoding: `python -m benches.spark.source [--rows N ...] [--fast]`.

CPU of the JVM and of Python together, of queries that take every row and write nothing, by the size of the capture.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benches.measure import machine, save
from benches.spark.processes import below, stat
from benches.spark.report import cdtp
from trunkline import spark
from trunkline._native.capture import Import

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TAGS = "none"
FIVE = "received_at_ns, sender, type, sequence, payload_bytes"
_ROWS_IN_ALL = 40_000_000
AIMS = {"all columns": 0.85, "five columns": 0.9}

# The CPU of Spark's workers, those that have ended too: their parents do not wait for them, and so have it not in theirs.
_workers: dict[int, float] = {}


def captured(directory: Path, rows: int, segment_bytes: int = 8 << 20) -> None:
    """A capture of so many rows of CDTP."""
    writing = Import(directory, segment_bytes=segment_bytes)
    for at, (protocol, direction, _, _, frames) in enumerate(itertools.islice(cdtp(), rows)):
        writing.append(1_700_000_000_000_000_000 + at * 1000, frames, protocol=protocol, direction=direction)
    writing.commit()


def cpu_s() -> float:
    """The CPU that this process and all that it has started have used."""
    total = 0.0
    for pid in (os.getpid(), *below(os.getpid())):
        if fields := stat(pid):
            # Its own and that of the children that have ended.
            used = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            if _is_daemon(int(fields[1])):
                _workers[pid] = max(used, _workers.get(pid, 0.0))
            else:
                total += used
    return total + sum(_workers.values())


def _is_daemon(pid: int) -> bool:
    """Whether Spark's workers are forked from this process."""
    try:
        return b"daemon\0pyspark." in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def measured(query: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds."""
    before, start = cpu_s(), time.perf_counter()
    query()
    return cpu_s() - before, time.perf_counter() - start


def drained(frame: DataFrame) -> None:
    """Takes every row of a table."""
    frame.write.format("noop").mode("overwrite").save()


def queries(session: SparkSession, path: str, scratch: Path) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    numbers = itertools.count()

    def source(**more: str) -> DataFrame:
        return session.read.format("trunkline").options(protocol="cdtp", decode="true", tags=TAGS, **more).load(path)

    def rows() -> DataFrame:
        return session.read.parquet(path)

    def stream() -> None:
        options = {"protocol": "cdtp", "decode": "true", "tags": TAGS}
        frame = session.readStream.format("trunkline").options(**options).load(path)
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(scratch / f"c{next(numbers)}"))
        writer.trigger(availableNow=True).start().awaitTermination()

    five = [name.strip() for name in FIVE.split(",")]
    return {
        "all columns, source": lambda: drained(source()),
        "all columns, read.parquet + decode": lambda: drained(spark.decode(rows(), "cdtp", tags=None)),
        "five columns, source": lambda: drained(source(columns=FIVE)),
        "five columns, read.parquet + decode": lambda: drained(spark.decode(rows(), "cdtp", tags=None, columns=five)),
        "all columns, stream of what is available": stream,
    }


def medians(session: SparkSession, rows: int, rounds: int, *, warm: bool) -> dict[str, tuple[float, float]]:
    """CPU and wall seconds of each query of a capture of so many rows, in turns; if `warm` after one to warm up."""
    with tempfile.TemporaryDirectory(prefix="trunkline-source-") as directory:
        path = Path(directory)
        captured(path / "capture", rows)
        named = queries(session, str(path / "capture"), path)
        for query in named.values() if warm else ():
            query()
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in named}
        for _ in range(rounds):
            for name, query in named.items():
                taken[name].append(measured(query))
    return {
        name: (statistics.median(cpu for cpu, _ in times), statistics.median(wall for _, wall in times))
        for name, times in taken.items()
    }


def described(rows: int, taken: dict[str, tuple[float, float]]) -> tuple[list[str], dict[str, float]]:
    """The lines about one size, and its ratios."""
    lines = ["", f"## {rows:,} rows", "", "| query | CPU, s | wall, s | CPU, µs a row |", "|---|---|---|---|"]
    lines += [f"| {name} | {cpu:.2f} | {wall:.2f} | {cpu / rows * 1e6:.2f} |" for name, (cpu, wall) in taken.items()]
    ratios = {name: taken[f"{name}, source"][0] / taken[f"{name}, read.parquet + decode"][0] for name in AIMS}
    ratios["stream"] = taken["all columns, stream of what is available"][0] / taken["all columns, source"][0]
    lines.append("")
    lines += [
        f"- {name}: {ratios[name]:.2f} times the CPU of reading and decoding (aim {aim})" for name, aim in AIMS.items()
    ]
    lines.append(f"- stream: {ratios['stream']:.2f} times the CPU of the batch")
    return lines, ratios


def main() -> None:
    """Measures in turns, and writes the medians down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 2_000_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=4, help="of a size; fewer of those above ten million rows")
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    options = parser.parse_args()
    if options.fast:
        options.rows, options.rounds = [1000], 1
    session = spark.session(master="local[2]")
    session.sparkContext.setLogLevel("OFF")
    named = "python -m benches.spark.source --rows " + " ".join(map(str, options.rows))
    lines = ["# The data source beside reading Parquet and decoding", "", f"`{named}`, {machine()}"]
    results = []
    for rows in options.rows:
        taken = medians(session, rows, max(1, min(options.rounds, _ROWS_IN_ALL // rows)), warm=not options.fast)
        said, ratios = described(rows, taken)
        lines += said
        results.append({"rows": rows, "medians": taken, "ratios": ratios})
    session.stop()
    if not options.fast:
        save("source", lines, {"sizes": results})


if __name__ == "__main__":
    main()
