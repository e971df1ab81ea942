"""The commands that the guide to queues prints, as a user types them: in a shell."""

import re
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


def test_the_commands_do_what_the_guide_says(commands, shell):
    adding, limiting, server, ada, send, info, bob, receive, forbidden = commands
    for line in (adding, limiting):
        assert shell(line).wait(timeout=60) == 0, line
    serving = shell(server)
    assert "server listening on" in serving.stderr.readline()
    environment = dict([ada.removeprefix("export ").split("=")])
    out, err = shell(send, **environment).communicate(timeout=60)
    assert (out, "2 confirmed" in err) == ("", True)
    out, _ = shell(info, **environment).communicate(timeout=60)
    assert out.startswith('200 {"status": "OK", "name": "jobs", "messages": 2')
    environment = dict([bob.removeprefix("export ").split("=")])
    assert shell(receive, **environment).communicate(timeout=60)[0] == "build 7\nbuild 8\n"
    refused = shell(forbidden, **environment)
    out, err = refused.communicate(timeout=60)
    assert (refused.returncode, out) == (1, "")
    assert "403" in err
