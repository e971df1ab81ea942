"""Each example runs as it is, in a process and a directory of its own, and prints what it is about."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SPARK = [pytest.mark.spark, pytest.mark.timeout(600)]
PRINTED = {
    "record_run": "Calorimeter.one run_1 GOOD 250 messages, 0 missed {'threshold_mv': 12}\n"
    "Tracker.one run_1 GOOD 500 messages, 0 missed {'threshold_mv': 12}\n",
    "service": "168 primes below 1000, the largest is 997\n1000 replies by 2 workers\n",
    "topic_bus": "runs.1 b'run 1 begins'\nrefused: ",
    "job_queue": "fit done\ncalibrate failed\ncalibrate done\nplot done\n",
    "fleet": "device-0 had dc697a61 and has 65ee573c\n",
    "tables": "Polars: 2106 data messages\nDuckDB: 2106 data messages\npandas: 2106 data messages, timestamps: int64[pyarrow]\n",
    "spark_decode": "0 messages did not decode\n",
    "simulated": "b'HELLO' after 12.54 simulated seconds\n1 reply by the second worker\n",
}


def run(name, directory, *arguments):
    script = [sys.executable, "-W", "error", EXAMPLES / f"{name}.py", *arguments]
    return subprocess.run(script, check=False, cwd=directory, capture_output=True, text=True, timeout=500)


def test_every_example_is_tested_and_on_the_page():
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == set(PRINTED)
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert all(f'--8<-- "examples/{name}.py"' in page for name in names)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SPARK if name == "spark_decode" else [], id=name) for name in PRINTED]
)
def test_an_example_runs_as_it_is(name, tmp_path):
    ran = run(name, tmp_path)
    assert (ran.returncode, PRINTED[name] in ran.stdout) == (0, True), ran.stdout + ran.stderr
    # Spark warns of much.
    assert ran.stderr == "" or name == "spark_decode"
    assert not list(tmp_path.iterdir())


def test_the_recorded_run_is_plotted(tmp_path):
    ran = run("record_run", tmp_path, "rate.png")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "rate.png").stat().st_size > 5000
