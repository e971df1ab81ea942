"""What it costs to plan a micro-batch, and a batch, of captures of 10² to 10⁶ segments: `python -m benches.spark.planning`.

The segments are empty files: planning opens none of those that are not read.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benches.measure import machine, save
from trunkline.spark.source.captures import published
from trunkline.spark.source.options import Settings
from trunkline.spark.source.planning import parts
from trunkline.spark.source.stream import ReadAllAvailable, StreamReader

SEGMENTS = (100, 10_000, 1_000_000)
BEHIND = 50


def made_up(directory: Path, segments: int) -> None:
    """A directory that looks like a capture of so many segments."""
    directory.mkdir()
    for number in range(segments):
        (directory / f"{number:010}.parquet").touch()
    said = {"version": 1, "capture_id": "made-up", "next_segment": segments, "next_seq": segments}
    (directory / "_capture.json").write_text(json.dumps(said))


def median_s(work: Callable[[], object], rounds: int) -> float:
    """The seconds that something takes."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main(*, fast: bool) -> None:
    """Measures each, and writes it down."""
    lines = ["# Planning of captures with many segments", "", machine(), ""]
    lines += [
        "| segments | a micro-batch of 10, 50 behind, ms | the same, all behind, ms | a batch of all, s | tasks of that |",
        "|---|---|---|---|---|",
    ]
    data = {}
    for segments in SEGMENTS[:1] if fast else SEGMENTS:
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch, "capture")
            made_up(directory, segments)
            options = {"path": str(directory), "protocol": "cdtp", "decode": "true", "maxSegmentsPerTrigger": "10"}
            reader = StreamReader(Settings.of(options))

            def micro_batch(first: int, reader: StreamReader = reader) -> None:
                start = reader.initialOffset() | {"made-up": first}
                end = reader.latestOffset(start, ReadAllAvailable())
                reader.reportLatestOffset()
                reader.partitions(start, end)

            def batch(directory: Path = directory) -> int:
                return len(parts({directory: published(directory)}))

            near = median_s(functools.partial(micro_batch, segments - BEHIND), 50) * 1e3
            far = median_s(functools.partial(micro_batch, 0), 50) * 1e3
            seconds = median_s(batch, 3)
            lines.append(f"| {segments:,} | {near:.2f} | {far:.2f} | {seconds:.2f} | {batch():,} |")
            data[str(segments)] = {"micro_batch_ms": near, "all_behind_ms": far, "batch_s": seconds}
    if not fast:
        save("planning", lines, data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
