"""Requests of a stream beside those of a batch: `python -m benches.spark.together [--rows N] [--fast]`.

CPU of the JVM and of Python together, of the same rows, all of what is given taken and nothing written. After a shuffle there are as
many tasks as cores: each keeps a state that Spark writes with every micro-batch, whatever is in it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benches.measure import machine, save
from benches.spark.report import dcp
from benches.spark.source import drained, measured
from trunkline import capture, spark
from trunkline._native.capture import Import

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AIM = 2.0
# Into how many micro-batches a stream is cut.
CUTS = (1, 8)


def captured(directory: Path, rows: int) -> None:
    """A capture of so many rows of a broker of DCP, a millisecond apart, of segments of 2 MiB."""
    writing = Import(directory, segment_bytes=2 << 20)
    for at, (protocol, direction, peer, _, frames) in enumerate(itertools.islice(dcp(), rows)):
        moment = 1_700_000_000_000_000_000 + at * 1_000_000
        writing.append(moment, frames, protocol=protocol, direction=direction, peer=peer)
    writing.commit()


def queries(session: SparkSession, path: Path, scratch: Path) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    numbers = itertools.count()
    segments = len(capture.open(path).segments)

    def stream(cuts: int) -> None:
        options = {"maxSegmentsPerTrigger": math.ceil(segments / cuts)}
        rows = session.readStream.format("trunkline").options(**options).load(str(path))
        writer = spark.pair_requests(rows).writeStream.format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", str(scratch / f"c{next(numbers)}"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def batch() -> None:
        drained(spark.pair_requests(session.read.format("trunkline").load(str(path))))

    return {"batch": batch, **{named(cuts): functools.partial(stream, cuts) for cuts in CUTS}}


def named(cuts: int) -> str:
    """What a stream is called."""
    return "stream, 1 micro-batch" if cuts == 1 else f"stream, {cuts} micro-batches"


def main() -> None:
    """Measures in turns, and writes the medians down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    options = parser.parse_args()
    if options.fast:
        options.rows, options.rounds = 1000, 1
    with tempfile.TemporaryDirectory(prefix="trunkline-together-") as directory:
        path = Path(directory)
        captured(path / "capture", options.rows)
        session = spark.session(master="local[2]")
        session.sparkContext.setLogLevel("OFF")
        cases = queries(session, path / "capture", path)
        for query in () if options.fast else cases.values():
            query()
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(options.rounds):
            for name, query in cases.items():
                taken[name].append(measured(query))
        session.stop()
    medians = {
        name: [statistics.median(column) for column in zip(*times, strict=True)] for name, times in taken.items()
    }
    batch_cpu = medians["batch"][0]
    lines = [
        "# Requests of a stream beside those of a batch",
        "",
        f"`python -m benches.spark.together --rows {options.rows} --rounds {options.rounds}`, {machine()}",
        "",
        __doc__.partition("\n\n")[2].strip(),
        "",
        "| query | CPU, s | of the batch | wall, s |",
        "|---|---|---|---|",
        *(f"| {name} | {cpu:.2f} | {cpu / batch_cpu:.2f} | {wall:.2f} |" for name, (cpu, wall) in medians.items()),
        "",
        f"Aim of a stream of what is available: at most {AIM:g} times the CPU of the batch.",
    ]
    if not options.fast:
        save("together", lines, {"rows": options.rows, "medians": medians})


if __name__ == "__main__":
    main()
