"""Waits for what another thread or process does, where it announces nothing that could be awaited."""

import time
from collections.abc import Callable

PATIENCE_S = 20.0


def until(ready: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Returns once `ready` does not give false any more; fails when that takes too long."""
    end = time.monotonic() + patience_s
    while not ready():
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.01)
