"""Runs every bench, one after the other: `python -m benches`."""

from __future__ import annotations

import subprocess
import sys

BENCHES = [
    "benches.cdtp.decode",
    "benches.cdtp.live",
    "benches.cdtp.constellation",
    "benches.columns.payload",
    "benches.dcp.broker",
    "benches.dcp.soak",
    "benches.extremes",
    "benches.mc0.bus",
    "benches.mc0.soak",
    "benches.mtl.tables",
    "benches.mtl.flow",
    "benches.mtl.soak",
    "benches.cdt.codec",
    "benches.cdt.pulls",
    "benches.cdt.soak",
    "benches.spark.decode",
    "benches.spark.memory",
    "benches.spark.payload",
    "benches.spark.planning",
    "benches.spark.report",
    "benches.spark.selective",
    "benches.spark.source",
    "benches.spark.together",
    "benches.spark.writing",
]


def main() -> None:
    """Each in a process of its own, so that none warms up another."""
    for bench in BENCHES:
        subprocess.run([sys.executable, "-m", bench], check=True)


if __name__ == "__main__":
    main()
