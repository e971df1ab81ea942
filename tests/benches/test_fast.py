"""Each bench runs once with small numbers, so that it does not rot."""

import subprocess
import sys

import pytest
from benches.__main__ import BENCHES

# Each may take as long as it is given below.
pytestmark = pytest.mark.timeout(300)

# Their load generators are built on first use, which takes longer than all else.
NATIVE = {"benches.cdtp.live", "benches.dcp.broker", "benches.mc0.bus", "benches.mtl.flow"}

SPARK = [bench for bench in BENCHES if ".spark." in bench]


@pytest.mark.parametrize(
    "bench",
    [
        pytest.param(bench, marks=pytest.mark.slow)
        for bench in [*BENCHES, "benches.endurance"]
        if bench not in NATIVE and bench not in SPARK
    ],
)
def test_runs_through(bench):
    subprocess.run([sys.executable, "-m", bench, "--fast"], check=True, timeout=240, stdout=subprocess.DEVNULL)


# Those of Spark one after the other, with one JVM.
@pytest.mark.slow
@pytest.mark.spark
def test_those_of_spark_run_through():
    program = (
        "import runpy, sys\n"
        "benches, sys.argv[1:] = sys.argv[1:], ['--fast']\n"
        "for bench in benches:\n"
        "    print(bench, file=sys.stderr)\n"
        "    runpy.run_module(bench, run_name='__main__', alter_sys=True)\n"
    )
    subprocess.run([sys.executable, "-c", program, *SPARK], check=True, timeout=240, stdout=subprocess.DEVNULL)
