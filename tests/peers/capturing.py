"""`trunkline capture` as a process of its own."""

import subprocess

from peers.forked import started


def command(*arguments):
    """Runs a command that is to come back, whatever it says."""
    words = ["capture", *map(str, arguments)]
    process = started(words)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return subprocess.CompletedProcess(words, process.returncode, out, err)
