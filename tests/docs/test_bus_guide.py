"""The commands that the guide to the bus prints, as a user types them."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import zmq

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "bus.md"
BLOCK = re.compile(r"^```(console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def commands(tmp_path):
    """The commands of the page in their order, at a port of the test's own; its policy is written."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as probe:
        port = probe.bind_to_random_port("tcp://127.0.0.1")
    blocks = BLOCK.findall(PAGE.read_text())
    (policy,) = (text for kind, text in blocks if kind == "toml")
    (tmp_path / "policy.toml").write_text(policy)
    printed = "".join(text for kind, text in blocks if kind == "console").replace(":61616", f":{port}")
    return [shlex.split(line.removeprefix("$ ")) for line in printed.splitlines()]


@pytest.fixture
def start(tmp_path):
    """Starts a command; it is over with the test."""
    running = []

    def start(command):
        if command[0] == "trunkline":
            command = [sys.executable, "-m", *command]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def said(process):
    """The next line on standard error."""
    line = process.stderr.readline()
    assert line, "it has ended"
    return line


def test_the_commands_do_what_the_guide_says(commands, start):
    *preparing, middleware, subscribe, publish, forbidden, ping = commands
    for command in preparing:
        assert start(command).wait(timeout=60) == 0, command
    bus = start(middleware)
    assert "middleware listening on" in said(bus)
    subscriber = start(subscribe)
    assert "subscribed to 1 topic at" in said(subscriber)
    assert start(publish).wait(timeout=60) == 0
    assert subscriber.communicate(timeout=60)[0] == "run 1 begins\n"
    refused = start(forbidden)
    out, err = refused.communicate(timeout=60)
    assert refused.returncode == 1
    assert "may not" in err
    assert out == ""
    assert start(ping).communicate(timeout=60)[0].endswith(" ms\n")
