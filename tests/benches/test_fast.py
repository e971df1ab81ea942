"""Each bench runs once with small numbers, so that it does not rot."""

import subprocess
import sys

import pytest
from benches.__main__ import BENCHES

# Each may take as long as it is given below.
pytestmark = pytest.mark.timeout(300)

# Their load generators are built on first use, which takes longer than all else.
NATIVE = {"benches.cdtp.live", "benches.dcp.broker", "benches.mc0.bus", "benches.mtl.flow"}


@pytest.mark.parametrize(
    "bench",
    [
        pytest.param(bench, marks=[pytest.mark.slow, *([pytest.mark.spark] if "spark" in bench else [])])
        for bench in [*BENCHES, "benches.endurance"]
        if bench not in NATIVE
    ],
)
def test_runs_through(bench):
    subprocess.run([sys.executable, "-m", bench, "--fast"], check=True, timeout=240, stdout=subprocess.DEVNULL)
