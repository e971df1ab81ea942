"""`--metrics` of the commands that run on."""

import signal
import socket
from urllib.parse import urlsplit

import pytest
from tools import commands

from peers import nats
from peers.commands import release
from peers.recorded import write
from peers.scraping import asked, health, scraped, value
from peers.waiting import until
from trunkline import capture, cdtp, dcp, mc0, mtl

ANY = "tcp://127.0.0.1:*"


def options():
    """The options of every command, by its words."""
    found = {}
    for page in commands.pages():
        for path, command, context in page.commands:
            found[path] = {name for each in commands.parameters(command, context) for name in each.opts}
    return found


def test_every_command_that_tells_its_counters_serves_them_too():
    found = options()
    with_stats = [path for path, names in found.items() if "--stats-interval" in names]
    assert len(with_stats) >= 14
    assert [path for path in with_stats if "--metrics" not in found[path]] == []
    # These report batch by batch.
    others = [path for path, names in found.items() if "--metrics" in names and path not in with_stats]
    assert sorted(others) == ["trunkline capture ship", "trunkline spark stream"]


@pytest.fixture
def broker():
    with dcp.Broker(bind=ANY) as broker:
        yield broker.endpoints[0]


@pytest.fixture
def bus():
    with mc0.Middleware(bind=ANY) as bus:
        yield bus.endpoints[0]


@pytest.fixture
def server():
    with mtl.Server(bind=ANY, anonymous=True, resources=["jobs"]) as server:
        yield server.endpoints[0]


@pytest.fixture
def configurations(tmp_path):
    with nats.server(tmp_path) as running:
        yield running.url


COMMANDS = {
    "cdtp.sender": lambda _: ["cdtp", "send", "--name", "Det", "--bind", ANY, "-"],
    "cdtp.receiver": lambda _: ["cdtp", "receive", "--bind", ANY],
    "cdtp.recorder": lambda _: ["cdtp", "record", "--bind", ANY, "--capture", "capture"],
    "chirp.beacon": lambda _: ["chirp", "watch", "--group", "lab"],
    "dcp.broker": lambda _: ["dcp", "broker", "--bind", ANY],
    "dcp.worker": lambda of: ["dcp", "worker", "echo", "--connect", of("broker"), "--echo"],
    "mc0.middleware": lambda _: ["mc0", "middleware", "--bind", ANY],
    "mc0.connector": lambda of: ["mc0", "subscribe", "topic", "--connect", of("bus")],
    "mtl.server": lambda _: ["mtl", "server", "--bind", ANY, "--anonymous"],
    "mtl.client": lambda of: ["mtl", "receive", "jobs", "--connect", of("server")],
    "cdt.target": lambda of: ["cdt", "target", "cdp", "--store", "configs.db", "--nats", of("configurations")],
    "cdt.source": lambda of: ["cdt", "watch", "--nats", of("configurations")],
    "cdt.recorder": lambda of: ["cdt", "record", "--capture", "capture", "--nats", of("configurations")],
}


@pytest.mark.parametrize("role", COMMANDS)
def test_a_command_serves_what_it_says_and_stops(role, start, request):
    command = start(*COMMANDS[role](request.getfixturevalue), "--metrics", "0", "--json")
    ready = command.ready()
    assert ready["role"] == role
    url = ready["metrics_url"]
    assert urlsplit(url).hostname == "127.0.0.1"
    assert health(url) == (200, "serving")
    assert value(scraped(url), "trunkline_role_up", role=role) == 1
    command.signal(signal.SIGTERM)
    command.end()
    with pytest.raises(ConnectionRefusedError):
        asked(url)


@pytest.fixture
def recorded(tmp_path):
    """A capture of three segments."""
    for number in (1, 2, 3):
        lines = write(tmp_path / "lines.jsonl", [release("Det", 0, number, b"x" * 100)])
        capture.import_(lines, tmp_path / "capture")
    return tmp_path / "capture"


def test_what_is_shipped_is_counted(start, tmp_path, recorded):
    command = start("capture", "ship", "capture", "copy", "--watch", "--metrics", "0", "--json")
    url = command.ready()["metrics_url"]
    until(lambda: value(scraped(url), "trunkline_capture_ship_segments_total") == 3)
    size = sum(path.stat().st_size for path in (tmp_path / "copy").glob("*.parquet"))
    assert value(scraped(url), "trunkline_capture_ship_bytes_total") == size
    assert value(scraped(url), "trunkline_capture_ship_segments_behind") == 0
    assert health(url) == (200, "serving")
    # Where it is copied to goes away, and all of it is left.
    (tmp_path / "copy").rename(tmp_path / "gone")
    (tmp_path / "copy").touch()
    capture.import_(tmp_path / "lines.jsonl", recorded)
    until(lambda: health(url) == (503, "disconnected"))
    assert value(scraped(url), "trunkline_capture_ship_segments_behind") == 4
    command.signal(signal.SIGTERM)
    command.end()


def test_what_ends_by_itself_has_no_metrics(run, recorded):
    _, err = run("capture", "ship", "capture", "copy", "--metrics", "0", returncode=2)
    assert "give --watch as well" in err
    assert recorded.exists()


def test_people_are_told_where_they_are(start):
    command = start("dcp", "broker", "--bind", ANY, "--metrics", ":0")
    assert ", metrics at http://127.0.0.1:" in command.logged("broker listening on")
    command.signal(signal.SIGTERM)
    command.end()


def test_without_it_nothing_is_said(start):
    command = start("dcp", "broker", "--bind", ANY, "--json")
    assert "metrics_url" not in command.ready()


def test_others_are_warned_of(start):
    command = start("dcp", "broker", "--bind", ANY, "--metrics", "0.0.0.0:0")
    assert "/metrics: whoever can connect reads the counters" in command.logged("whoever")
    command.signal(signal.SIGTERM)
    command.end()


def test_a_port_that_is_taken_is_an_error_in_a_line(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, err = run("dcp", "broker", "--bind", ANY, "--metrics", str(port), returncode=1)
    expected = f"metrics at 127.0.0.1:{port}: Address already in use: choose another port, or 0 for a free one"
    assert err.splitlines() == [f"trunkline: error: {expected}"]


def test_what_is_no_address_is_wrong_usage(run):
    _, err = run("dcp", "broker", "--bind", ANY, "--metrics", "nowhere", returncode=2)
    assert "'nowhere' is not HOST:PORT" in " ".join(err.split())


def test_a_check_takes_no_port(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run("mc0", "middleware", "--bind", ANY, "--metrics", str(taken.getsockname()[1]), "--check")


def test_a_recorder_counts_as_it_records(start):
    command = start("cdtp", "record", "--bind", ANY, "--capture", "capture", "--metrics", "0", "--json")
    ready = command.ready()
    with cdtp.Sender("Det", connect=ready["endpoints"]) as sender:
        for _ in range(5):
            sender.send(b"x")
    name = "trunkline_cdtp_recorder_sender_messages_total"
    until(lambda: value(scraped(ready["metrics_url"]), name, sender="Det") == 5)
    command.signal(signal.SIGTERM)
    command.end()
