"""The commands that the guide to queues prints, as a user types them: in a shell."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import zmq

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "queue.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def commands():
    """The commands of the page in their order, at a port of the test's own."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as probe:
        port = probe.bind_to_random_port("tcp://127.0.0.1")
    printed = "".join(BLOCK.findall(PAGE.read_text())).replace(":5975", f":{port}")
    return [line.removeprefix("$ ") for line in printed.splitlines()]


@pytest.fixture
def start(tmp_path):
    """Starts a line of a shell; it is over with the test."""
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


def test_the_commands_do_what_the_guide_says(commands, start):
    adding, limiting, server, ada, send, info, bob, receive, forbidden = commands
    for line in (adding, limiting):
        assert start(line).wait(timeout=60) == 0, line
    serving = start(server)
    assert "serving at" in serving.stderr.readline()
    environment = dict([ada.removeprefix("export ").split("=")])
    out, err = start(send, **environment).communicate(timeout=60)
    assert (out, "2 confirmed" in err) == ("", True)
    out, _ = start(info, **environment).communicate(timeout=60)
    assert out.startswith('200 {"status": "OK", "name": "jobs", "messages": 2')
    environment = dict([bob.removeprefix("export ").split("=")])
    assert start(receive, **environment).communicate(timeout=60)[0] == "build 7\nbuild 8\n"
    refused = start(forbidden, **environment)
    out, err = refused.communicate(timeout=60)
    assert (refused.returncode, out) == (1, "")
    assert "403" in err
