"""`trunkline capture` as a process of its own."""

import subprocess
import sys


def command(*arguments):
    """Runs a command that is to come back, whatever it says."""
    return subprocess.run(
        [sys.executable, "-m", "trunkline", "capture", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
