"""What a stream writes has every message once after kills of its driver and workers; `benches/spark/kills.py` does it a hundred times."""

import pytest
from benches.spark.kills import run


# Each driver is a JVM of its own.
@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize("sink", ["table", "capture"])
def test_killed_drivers_and_workers_lose_and_double_nothing(tmp_path, sink):
    # The driver is killed at the end as well.
    found = run(tmp_path, kills=3, seed=1, sink=sink)
    assert found["workers"] >= 1
    assert found["drivers"] + found["workers"] == 3
    assert found["messages"] > 1000
    assert found["merges"] > 1
    assert (found["n"], found["unique"], found["sent"]) == (found["messages"],) * 3
