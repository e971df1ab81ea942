import contextlib
import os
import shlex
import subprocess
import sys

import pytest


@pytest.fixture
def shell(tmp_path):
    """Starts a line of a shell that has `trunkline`; it is over with the test."""
    running = []
    trunkline = f'trunkline() {{ {shlex.quote(sys.executable)} -m trunkline "$@"; }}; '

    def start(line, **environment):
        process = subprocess.Popen(
            ["bash", "-c", trunkline + line],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()
