"""Processes that send and exit at once by `os._exit`, or as a child of `fork`: how many of so many runs lost something.

Run: python -m benches.exits [--runs N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEST = "tests/test_leaving.py::test_a_process_that_leaves_at_once_loses_nothing"


def main() -> None:
    """Runs what the test does so many times, with bodies of up to 10 MB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    environment = {**os.environ, "LEAVING_RUNS": str(runs), "LEAVING_BYTES": "10000000"}
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q", TEST], cwd=ROOT, env=environment, check=False)
    print(f"{runs} runs each: {'nothing lost' if ran.returncode == 0 else 'something was lost'}")
    sys.exit(ran.returncode)


if __name__ == "__main__":
    main()
