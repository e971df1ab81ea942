"""A stream has every message once after kills of its driver and workers; `benches/spark/kills.py` does it a hundred times."""

import pytest
from benches.spark.kills import run


# Each driver is a JVM of its own.
@pytest.mark.timeout(900)
@pytest.mark.slow
def test_killed_drivers_and_workers_lose_and_double_nothing(tmp_path):
    found = run(tmp_path, kills=5, seed=1)
    assert found["drivers"] >= 1
    assert found["drivers"] + found["workers"] == 5
    assert found["messages"] > 1000
    assert found["merges"] > 1
    assert (found["n"], found["unique"], found["sent"]) == (found["messages"],) * 3
