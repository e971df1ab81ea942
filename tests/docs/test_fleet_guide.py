"""The commands that the guide to fleets prints, as a user types them: in a shell."""

import functools
import os
import re
import socket
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "fleet.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def commands(port):
    """The commands of the page in their order, at a port of the test's own."""
    printed = "".join(BLOCK.findall(PAGE.read_text())).replace("--port 4222", f"--port {port}")
    return [line.removeprefix("$ ") for line in printed.splitlines()]


@pytest.fixture
def start(shell, port):
    """Starts a line of the guide, where NATS is at this port."""
    return functools.partial(shell, NATS_URL=f"nats://127.0.0.1:{port}")


def test_the_commands_do_what_the_guide_says(commands, start, tmp_path):
    nats, target, watch, making, put, pull, applied, status, history, record = commands
    for line in (nats, target):
        words = start(line).stderr.readline()
        assert "Ctrl-C stops" in words, words
    watching = start(watch)
    assert "watching for events at" in watching.stderr.readline()
    recording = start(record.replace("--idle 2", "--count 10"))
    assert "recording to deployment" in recording.stderr.readline()
    assert start(making).wait(60) == 0
    out, err = start(put).communicate(timeout=60)
    config_id = out.strip()
    assert (len(config_id), err) == (32, "trunkline: stored\n")
    assert start(pull).communicate(timeout=60)[0] == '{"interval": 5}\n'
    assert start(applied).communicate(timeout=60) == ("", "trunkline: sent\n")
    out, _ = watching.communicate(timeout=60)
    assert out.splitlines() == [
        f"new_available app-1 endpoint-7 {config_id} by cdp",
        f"updated app-1 endpoint-7 {config_id} by trunkline",
    ]
    # The target stores reports asynchronously.
    while (shown := start(status).communicate(timeout=60)[0].splitlines())[1].split()[2] == "-":
        pass
    assert shown[0].split() == ["endpoint_id", "current", "applied", "since"]
    assert shown[1].split()[:3] == ["endpoint-7", config_id, config_id]
    rows = start(history).communicate(timeout=60)[0].splitlines()
    assert rows[1].split()[:3] == [config_id, "application/json", "16"]
    os.killpg(recording.pid, 15)
    assert "recorded" in recording.communicate(timeout=60)[1]
    assert list((tmp_path / "deployment").glob("*.parquet"))
