"""Commands in surroundings that are against them: processes that freeze, no memory, strange environments, requests that look like commands."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from peers import nats
from peers.commands import release, spec
from peers.mtl import confirm, content, flow, session
from peers.waiting import until
from trunkline import capture

ANY = "tcp://127.0.0.1:*"
HEAD = [b"", b"DGBX\x01"]


def freeze(command):
    """Stops a process, and waits until it has."""
    command.signal(signal.SIGSTOP)
    status = Path(f"/proc/{command.process.pid}/status")
    until(lambda: "State:\tT" in status.read_text())


def test_a_frozen_recorder_takes_up_where_it_was(start, push):
    command = start("cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--count", "2000", "--json")
    command.ready()
    push.send(*[spec("D", b"%d" % number) for number in range(1000)])
    freeze(command)
    push.send(*[spec("D", b"%d" % number) for number in range(1000, 1500)])
    command.signal(signal.SIGCONT)
    push.send(*[spec("D", b"%d" % number) for number in range(1500, 2000)])
    stats = command.event("stopped")["stats"]
    assert (stats["recorded"], stats["durable"], stats["dropped"]) == (2000, 2000, {})


def test_a_frozen_sender_loses_nothing(start, pull):
    command = start("cdtp", "send", "--connect", pull.endpoint, "--name", "D", "--json", "-")
    command.ready()

    def give(first):
        command.process.stdin.writelines(f"{number}\n" for number in range(first, first + 100))
        command.process.stdin.flush()

    give(0)
    freeze(command)
    give(100)
    command.signal(signal.SIGCONT)
    command.process.stdin.close()
    command.process.stdin = None
    payloads = []
    while len(payloads) < 200:
        # Between its BOR and its EOR, if it sends any.
        payloads += [frame for frame in pull.receive()[1:] if frame.isdigit()]
    assert payloads == [b"%d" % number for number in range(200)]


def test_a_frozen_server_confirms_what_waited(start, dial):
    server = start("mtl", "server", "--bind", ANY, "--anonymous", "--resource", "jobs", "--durable", "store", "--json")
    endpoint = server.ready()["endpoints"][0]
    writer = flow(dial, endpoint, session(dial, endpoint), "Writer")
    freeze(server)
    for number in range(2, 102):
        writer.send_multipart(content(number, "jobs", b"x"))
    server.signal(signal.SIGCONT)
    # At once, or one by one.
    last = None
    while last not in (confirm(101), confirm(101, multiple=True)):
        last = writer.recv_multipart()


def test_a_frozen_target_answers_when_it_goes_on(start, run, tmp_path):
    with nats.server(tmp_path) as server:
        where = ("--target", "fleet", "--nats", server.url)
        target = start("cdt", "target", "fleet", "--store", "configs.db", *where[2:], "--json")
        target.ready()
        (tmp_path / "config.json").write_text('{"rate": 1}')
        run("cdt", "put", "app", "one", "config.json", *where)
        freeze(target)
        # No command waits longer than its timeout.
        _, err = run("cdt", "pull", "app", "one", *where, "--timeout", "0.3", returncode=1)
        assert "0.3 s" in err
        asking = start("cdt", "pull", "app", "one", *where, "--timeout", "30")
        target.signal(signal.SIGCONT)
        assert asking.end()[0] == '{"rate": 1}'


def test_a_recorder_without_memory_keeps_what_is_durable(start, run, push):
    command = start(
        "cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--json", "--stats-interval", "0.05"
    )
    command.ready()
    push.send(spec("D"))
    until(lambda: command.event("stats")["stats"]["durable"] == 1)
    process = command.process
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
    before = resource.prlimit(process.pid, resource.RLIMIT_AS)
    resource.prlimit(process.pid, resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20), before[1]))
    push.socket.sndtimeo = 100
    large = spec("D", bytes(4 << 20))
    end = time.monotonic() + 5
    while process.poll() is None and time.monotonic() < end:
        # It may be gone, or have disconnected this sender with its queue full.
        with suppress(zmq.Again):
            push.socket.send_multipart(large)
    # Who is out of memory itself ends as if it were killed; who only had none for a message lives on.
    if process.poll() is None:
        resource.prlimit(process.pid, resource.RLIMIT_AS, before)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode in (0, -signal.SIGABRT), err
    assert "Traceback" not in err
    durable = max([1, *(json.loads(line)["stats"]["durable"] for line in out.splitlines())])
    run("capture", "recover", "c")
    out, _ = run("capture", "info", "c", "--json")
    assert json.loads(out)["messages"] >= durable


@pytest.mark.parametrize(
    "data", [b"; touch pwned", b"$(touch pwned)", b"`touch pwned`", b"--help", b"-e\0\n", b"| touch pwned\n", b""]
)
def test_no_request_is_a_command(start, dial, tmp_path, data):
    broker = start("dcp", "broker", "--bind", ANY, "--json")
    endpoint = broker.ready()["endpoints"][0]
    start("dcp", "worker", "cat", "--connect", endpoint, "--exec", "cat", "--json").ready()
    client = dial(zmq.DEALER, endpoint)
    client.rcvtimeo = 20_000
    client.send_multipart([*HEAD, b"\x04", b"cat", b"", b"1", b"", data])
    assert client.recv_multipart()[7] == data
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("program", ["true", "head -c 1"])
def test_a_program_need_not_read_its_request(start, dial, program):
    broker = start("dcp", "broker", "--bind", ANY, "--json")
    endpoint = broker.ready()["endpoints"][0]
    start("dcp", "worker", "deaf", "--connect", endpoint, "--exec", program, "--json").ready()
    client = dial(zmq.DEALER, endpoint)
    client.rcvtimeo = 20_000
    client.send_multipart([*HEAD, b"\x04", b"deaf", b"", b"1", b"", bytes(8 << 20)])
    assert client.recv_multipart()[5] == b"1"


def captured(folder, count):
    """A capture of so many runs of fifty senders."""
    from trunkline import cdtp

    context = zmq.Context()
    push = context.socket(zmq.PUSH)
    with cdtp.Recorder(folder, bind=ANY) as recorder:
        push.connect(recorder.endpoints[0])
        for number in range(count):
            name, first = f"Détecteur.{number % 50}", number // 50 * 3
            identity = b"\x81\xa6run_id\xa5%05d" % number
            for kind, at, payload in [(1, 0, identity), (0, 1, b"data"), (2, 2, b"\x80")]:
                push.send_multipart(release(name, kind, first + at, payload))
        recorder.wait(count=3 * count, timeout_s=60)
    context.destroy(linger=0)
    return folder


def test_ten_thousand_runs_are_all_there(run, tmp_path):
    folder = captured(tmp_path / "c", 10_000)
    out, _ = run("capture", "runs", folder, "--json")
    runs = [json.loads(line) for line in out.splitlines()]
    assert len({one["run_id"] for one in runs}) == len(runs) == 10_000
    assert {one["condition"] for one in runs} == {"GOOD"}
    assert len(capture.open(folder).runs()) == 10_000
    out, _ = run("capture", "cat", folder, "--run", "00042", "--json")
    assert len(out.splitlines()) == 3


@pytest.fixture(scope="module")
def some_runs(tmp_path_factory):
    return captured(tmp_path_factory.mktemp("runs") / "c", 100)


ENVIRONMENTS = [
    {},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"COLUMNS": "0", "LINES": "0"},
    {"COLUMNS": "-5"},
    {"COLUMNS": "lots"},
    {"TERM": "\x1b[31m"},
    {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"},
    {"TZ": "Nowhere/Here"},
    {"PYTHONOPTIMIZE": "2"},
    {"PYTHONWARNINGS": "error"},
    {"JAVA_HOME": "/nonexistent"},
]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda environment: " ".join(environment) or "empty")
@pytest.mark.parametrize("command", ["info", "cat", "runs"])
def test_an_environment_that_is_strange(some_runs, environment, command):
    more = ["--head", "3"] if command == "cat" else []
    done = subprocess.run(
        [sys.executable, "-m", "trunkline", "capture", command, some_runs, *more],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout
