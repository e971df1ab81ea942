"""Writing a capture beside Spark's own Parquet sink: `python -m benches.spark.writing [--rows N] [--rounds N]`.

Both write the same rows of a capture, as they are read and divided by ranges: what is measured is the CPU of the JVM and of all
of Spark's workers, reading and shuffling included, and how long the commit takes on the driver.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benches.measure import arguments, machine, save
from benches.spark.source import captured, measured
from trunkline import spark
from trunkline._native import capture as _native

# The ranges that rows are divided into.
RANGES = 8

# The most CPU of a capture, in that of Spark's Parquet.
AIM = 1.2


def queries(session: SparkSession, path: str, scratch: Path) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""

    def rows() -> DataFrame:
        return session.read.format("trunkline").load(path)

    def ranges() -> DataFrame:
        return rows().repartitionByRange(RANGES, "capture_id", "seq")

    def capture(frame: DataFrame) -> None:
        frame.write.format("trunkline").mode("overwrite").save(str(scratch / "written"))

    def parquet(frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(str(scratch / "table"))

    return {
        "as read, capture": lambda: capture(rows()),
        "as read, Parquet": lambda: parquet(rows()),
        "by ranges, capture": lambda: capture(ranges()),
        "by ranges, Parquet": lambda: parquet(ranges().sortWithinPartitions("capture_id", "seq")),
    }


def commit_us(path: str, scratch: Path, rows: int) -> float:
    """What numbering and naming staged segments takes, in microseconds a row."""
    (scratch / "staging").mkdir()
    stager = _native.Stager(scratch / "staging")
    for batch in _native.Capture(path, 1 << 30).reader():
        stager.append(batch)
    staged = stager.finish()
    start = time.perf_counter()
    _native.publish(scratch / "published", scratch / "staging", staged)
    return (time.perf_counter() - start) / rows * 1e6


def main() -> None:
    """Measures in turns, and writes the medians down."""
    options = arguments(10_000_000, fast_rows=1000)
    session = spark.session(master="local[2]")
    session.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory(prefix="trunkline-writing-") as directory:
        scratch = Path(directory)
        path = str(scratch / "capture")
        captured(Path(path), options.rows)
        named = queries(session, path, scratch)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in named}
        warm = 0 if options.fast else 1
        for number in range(warm + options.rounds):
            for name, query in named.items():
                cpu_and_wall = measured(query)
                if number >= warm:
                    taken[name].append(cpu_and_wall)
        commit = commit_us(path, scratch, options.rows)
    session.stop()
    medians = {
        name: (statistics.median(cpu for cpu, _ in times), statistics.median(wall for _, wall in times))
        for name, times in taken.items()
    }
    named_so = f"python -m benches.spark.writing --rows {options.rows} --rounds {options.rounds}"
    lines = ["# Writing a capture beside Spark's Parquet", "", f"`{named_so}`, {machine()}", ""]
    lines += ["| query | CPU, s | wall, s | CPU, µs a row |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {cpu:.2f} | {wall:.2f} | {cpu / options.rows * 1e6:.2f} |" for name, (cpu, wall) in medians.items()
    ]
    ratios = {way: medians[f"{way}, capture"][0] / medians[f"{way}, Parquet"][0] for way in ("as read", "by ranges")}
    lines.append("")
    lines += [f"- {way}: {ratio:.2f} times the CPU of Spark's Parquet (aim {AIM})" for way, ratio in ratios.items()]
    lines.append(f"- the commit on the driver, its merges apart: {commit:.3f} µs a row")
    if options.fast:
        print("\n".join(lines))
    else:
        save("writing", lines, {"rows": options.rows, "medians": medians, "ratios": ratios, "commit_us": commit})


if __name__ == "__main__":
    main()
