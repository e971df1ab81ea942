"""Roles in processes of their own."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT
from typing import Any

PATIENCE_S = 60


class RoleProcess:
    """The process of a role, and the JSON lines that it prints.

    Attributes:
        pid: Its process id.
        endpoint: Where it listens; empty for a role that follows a group.
        last: The last event with counters.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = process.stdout
        self.pid = process.pid
        self.endpoint: str = next(iter(json.loads(self._lines.readline())["endpoints"]), "")
        self.last: dict[str, Any] = {}
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self._lines:
            if line.startswith(('{"event": "stats"', '{"event": "stopped"')):
                self.last = json.loads(line)

    @property
    def stats(self) -> dict[str, Any]:
        """The last counters; empty before the first ones."""
        return self.last.get("stats", {})

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def rss_mib(self) -> float:
        """Its memory."""
        return int(Path(f"/proc/{self.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def files(self) -> int:
        """Its open descriptors."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def until(self, ready: Callable[[dict[str, Any]], object]) -> None:
        """Waits until its counters are `ready`."""
        end = time.monotonic() + PATIENCE_S
        while not self.stats or not ready(self.stats):
            assert time.monotonic() < end, self.stats
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        self._process.send_signal(number)

    def end(self, number: int = SIGINT) -> int:
        """Ends it by a signal, unless it has ended; returns its exit code."""
        if self.alive:
            self._process.send_signal(number)
        code = self._process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        return code
