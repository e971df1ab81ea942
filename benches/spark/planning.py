"""What it costs to plan a micro-batch, and a batch, of captures of 10² to 10⁶ segments: `python -m benches.spark.planning`.

The segments are empty files: planning opens none of those that are not read. And of a store that takes 30 ms for each request.
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
from typing import Any

from benches.measure import machine, save
from benches.spark.slow_store import serving
from benches.spark.source import captured
from trunkline.spark.source.captures import published
from trunkline.spark.source.options import Settings
from trunkline.spark.source.planning import parts
from trunkline.spark.source.stream import ReadAllAvailable, StreamReader

SEGMENTS = (100, 10_000, 1_000_000)
BEHIND = 50

# Segments in a store, and how many a micro-batch may have; the aim is seconds for all of them.
STORED, LIMITS, AIM_S = 10_000, (10, 10_000), 3.0


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


def planned(reader: StreamReader, start: dict[str, Any]) -> None:
    """Plans a micro-batch."""
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.reportLatestOffset()
    reader.partitions(start, end)


def stored(segments: int) -> tuple[list[str], dict[str, Any]]:
    """Planning from a store: the first micro-batch of a query."""
    lines = [f"## In a store, {segments:,} segments, 30 ms a request", ""]
    lines += ["| the first micro-batch has | seconds | requests |", "|---|---|---|"]
    data = {}
    with tempfile.TemporaryDirectory() as scratch:
        captured(Path(scratch, "capture"), segments, segment_bytes=1)
        with serving(Path(scratch)) as store:
            for limit in LIMITS:
                options = {"path": store.url("capture"), "protocol": "cdtp", "decode": "true"}
                before, start = store.requests, time.perf_counter()
                reader = StreamReader(Settings.of(options | {"maxSegmentsPerTrigger": str(limit)}))
                planned(reader, reader.initialOffset())
                seconds, requests = time.perf_counter() - start, store.requests - before
                lines.append(f"| {min(limit, segments):,} | {seconds:.2f} | {requests} |")
                data[str(limit)] = {"seconds": seconds, "requests": requests}
    return [*lines, "", f"Aim of all of them: {AIM_S:g} s."], data


def main(*, fast: bool) -> None:
    """Measures each, and writes it down."""
    lines = ["# Planning of captures with many segments", "", machine(), ""]
    lines += [
        "| segments | a micro-batch of 10, 50 behind, ms | the same, all behind, ms | a batch of all, s | tasks of that |",
        "|---|---|---|---|---|",
    ]
    data: dict[str, Any] = {}
    for segments in SEGMENTS[:1] if fast else SEGMENTS:
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch, "capture")
            made_up(directory, segments)
            options = {"path": str(directory), "protocol": "cdtp", "decode": "true", "maxSegmentsPerTrigger": "10"}
            reader = StreamReader(Settings.of(options))

            def micro_batch(first: int, reader: StreamReader = reader) -> None:
                planned(reader, reader.initialOffset() | {"made-up": first})

            def batch(directory: Path = directory) -> int:
                return len(parts({directory: published(directory)}))

            near = median_s(functools.partial(micro_batch, segments - BEHIND), 50) * 1e3
            far = median_s(functools.partial(micro_batch, 0), 50) * 1e3
            seconds = median_s(batch, 3)
            lines.append(f"| {segments:,} | {near:.2f} | {far:.2f} | {seconds:.2f} | {batch():,} |")
            data[str(segments)] = {"micro_batch_ms": near, "all_behind_ms": far, "batch_s": seconds}
    in_store, data["store"] = stored(100 if fast else STORED)
    if not fast:
        save("planning", [*lines, "", *in_store], data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
