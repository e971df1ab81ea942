"""Few rows of many, and the source beside a native scan: `python -m benches.spark.selective [--rows N] [--fast]`.

The native scan reads the same columns from the Parquet files that `capture compact --decode` writes, by Spark alone.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benches.measure import arguments, machine
from benches.spark.report import cdtp
from benches.spark.rounds import Rounds, in_turn
from trunkline import capture, spark
from trunkline._native.capture import Import

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = 1001
FIVE = ["received_at_ns", "sender", "type", "sequence", "payload_bytes"]
START_NS, STEP_NS = 1_700_000_000_000_000_000, 1000
RARE = "Detector.rare"

ALL_OURS, FIVE_OURS = "all columns, source", "five columns, source"
ALL_NATIVE, FIVE_NATIVE = "all columns, native scan", "five columns, native scan"
ALL_BESIDE, FIVE_BESIDE = "all columns, decode of decoded files", "five columns, decode of decoded files"
ALL_DECODED, FIVE_DECODED = "all columns, source of decoded files", "five columns, source of decoded files"
SELECTIVE = "{:,} rows by {}"

# The CPU beside that of another case, at most.
AIMS = {
    (ALL_OURS, ALL_NATIVE): 1.5,
    (FIVE_OURS, FIVE_NATIVE): 2.0,
    (ALL_BESIDE, ALL_NATIVE): 1.1,
    (FIVE_BESIDE, FIVE_NATIVE): 1.1,
    (ALL_DECODED, ALL_NATIVE): 1.1,
    (FIVE_DECODED, FIVE_NATIVE): 1.1,
    **{(SELECTIVE.format(FEW, by), ALL_OURS): 0.05 for by in ("seq", "sender", "received_at")},
}


def captured(directory: Path, rows: int) -> None:
    """A capture of so many rows of CDTP in segments of 8 MiB; in the middle a sender speaks that is nowhere else."""
    writing = Import(directory, segment_bytes=8 << 20)
    for at, (protocol, direction, _, _, frames) in enumerate(itertools.islice(cdtp(), rows)):
        if rows // 2 <= at < rows // 2 + FEW:
            # All but the name, whose first byte is its length.
            frames[0] = b"\xa5CDTP\x01" + bytes([0xA0 + len(RARE)]) + RARE.encode() + frames[0][-11:]
        writing.append(START_NS + at * STEP_NS, frames, protocol=protocol, direction=direction)
    writing.commit()


def conditions(rows: int) -> dict[str, str]:
    """Conditions that each a thousand rows or so match."""
    first = rows // 2
    times = [START_NS + (first + at) * STEP_NS for at in (0, FEW - 1)]
    return {
        "seq": f"seq between {first} and {first + FEW - 1}",
        "sender": f"sender = '{RARE}'",
        "received_at": f"received_at_ns between {times[0]} and {times[1]}",
    }


def cases(session: SparkSession, scratch: Path, rows: int) -> Mapping[str, DataFrame]:
    """What is measured, by name."""

    def source(directory: str, **options: str) -> DataFrame:
        reader = session.read.format("trunkline").options(protocol="cdtp", decode="true", tags="none", **options)
        return reader.load(str(scratch / directory))

    native = session.read.parquet(str(scratch / "decoded" / "_decoded" / "cdtp"))
    five = ",".join(FIVE)
    beside = spark.decode(session.read.parquet(str(scratch / "decoded")), "cdtp", tags=None)
    return {
        ALL_OURS: source("recorded"),
        FIVE_OURS: source("recorded", columns=five),
        ALL_NATIVE: native.select(*[name for name in source("recorded").columns if name in native.columns]),
        FIVE_NATIVE: native.select(*FIVE),
        ALL_BESIDE: beside,
        FIVE_BESIDE: beside.select(*FIVE),
        ALL_DECODED: source("decoded"),
        FIVE_DECODED: source("decoded", columns=five),
        **{SELECTIVE.format(FEW, by): source("recorded", where=where) for by, where in conditions(rows).items()},
    }


def described(rounds: Rounds) -> list[str]:
    """The lines about one run."""
    lines = ["| query | CPU, µs a row of the capture | of the JVM | of Python | wall, s |", "|---|---|---|---|---|"]
    for name in rounds:
        cpu, jvm, python, wall = (rounds.median(name, of) for of in ("cpu_us", "jvm_us", "python_us", "wall_s"))
        lines.append(f"| {name} | {cpu:.3f} | {jvm:.3f} | {python:.3f} | {wall:.2f} |")
    lines.append("")
    for (of, to), aim in AIMS.items():
        lines.append(f"- {of}: {rounds.ratio(of, to):.2f} times the CPU of {to} (aim {aim})")
    return lines


def main() -> None:
    """Measures in turn, and writes the medians down."""
    options = arguments(10_000_000, fast_rows=10_000)
    rows, rounds = options.rows, options.rounds
    head = machine()
    with tempfile.TemporaryDirectory(prefix="trunkline-selective-") as directory:
        scratch = Path(directory)
        captured(scratch / "recorded", rows)
        shutil.copytree(scratch / "recorded", scratch / "decoded")
        capture.compact(scratch / "decoded", decode={"cdtp": {"tags": None}})
        session = spark.session(master="local[2]")
        session.sparkContext.setLogLevel("OFF")
        planned = cases(session, scratch, rows)
        for by in conditions(rows):
            assert planned[SELECTIVE.format(FEW, by)].count() == FEW
        jvm = session.sparkContext._gateway.proc.pid  # noqa: SLF001 - pyspark has no other way to know
        measured = in_turn(planned, jvm, rows, rounds, warm=0 if options.fast else 1)
        session.stop()
    lines = ["# Few rows of many, and native scans", "", f"{rows:,} rows, {rounds} rounds in turn, {head}", ""]
    lines += described(measured)
    if options.fast:
        print("\n".join(lines))
    else:
        measured.write("selective", lines, head)


if __name__ == "__main__":
    main()
