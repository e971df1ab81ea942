"""`trunkline mtl server`, `send`, `receive` and `call`, as processes."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import zmq

from peers.mtl import Control, Playing, confirm, lease, response, summon
from peers.waiting import until
from trunkline import capture, mtl

SERVER = ("mtl", "server", "--bind", "tcp://127.0.0.1:*", "--json")


@pytest.fixture
def users(run, tmp_path):
    """A users file with ada in it."""
    run("mtl", "users", "add", "ada", "--file", "users.toml", stdin="sesame\n")
    return tmp_path / "users.toml"


@pytest.fixture
def server(start, users):
    command = start(*SERVER, "--users", users, "--resource", "jobs", "--resource", "logs")
    return command, command.ready()["endpoints"][0]


@pytest.fixture
def as_ada(server):
    """How a client goes there."""
    return "--connect", server[1], "--user", "ada"


PASSWORD = {"TRUNKLINE_PASSWORD": "sesame"}


def last(out: str) -> dict[str, Any]:
    event = json.loads(out.splitlines()[-1])
    assert event["event"] == "stopped"
    return event


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_contents_go_from_command_to_command(server, as_ada, run, start, number):
    command, _ = server
    receiving = start("mtl", "receive", "jobs", *as_ada, "--json", env=PASSWORD)
    assert receiving.ready()["role"] == "mtl.client"
    out, _ = run(
        "mtl",
        "send",
        "jobs",
        "a",
        "b",
        *as_ada,
        "--property",
        "priority=3",
        "--property",
        "k=v",
        "--json",
        env=PASSWORD,
    )
    stats = last(out)["stats"]
    assert (stats["sent"], stats["confirmed"], stats["rejected"]) == (2, 2, 0)
    assert set(stats) == {"sent", "confirmed", "rejected", "rate", "latency_ms"}
    for sequence, body in enumerate(("a", "b"), 1):
        assert receiving.event("content") == {
            "event": "content",
            "resource": "jobs",
            "sequence": sequence,
            "properties": {"priority": 3, "k": "v"},
            "redelivered": False,
            "body": body,
        }
    receiving.signal(number)
    stopped = receiving.event("stopped")
    assert (stopped["reason"], stopped["stats"]["contents"], stopped["stats"]["confirmed"]) == ("signal", 2, 2)
    receiving.end()
    command.signal(number)
    stopped = command.event("stopped")
    [jobs] = [one for one in stopped["stats"]["resources"] if one["resource"] == "jobs"]
    assert (jobs["in"], jobs["out"], jobs["confirmed"], jobs["queued"]) == (2, 2, 2, 0)
    command.end()


def test_counts_and_standard_input(as_ada, run):
    run("mtl", "send", "jobs", "x", *as_ada, "--count", "5", env=PASSWORD)
    run("mtl", "send", "jobs", "-", *as_ada, stdin="one\ntwo\n", env=PASSWORD)
    out, _ = run("mtl", "receive", "jobs", *as_ada, "--count", "7", env=PASSWORD)
    assert out.splitlines() == ["x"] * 5 + ["one", "two"]
    out, _ = run("mtl", "receive", "jobs", *as_ada, "--idle", "0.2", "--json", env=PASSWORD)
    assert last(out)["reason"] == "idle"


def test_properties_that_no_json_has_are_text(server, as_ada, run):
    due = datetime(2026, 1, 1, tzinfo=UTC)
    with (
        mtl.Client(connect=server[1], user="ada", password="sesame") as client,
        client.writer("jobs") as writer,
    ):
        writer.send(b"x", properties={"due": due, "prices": [Decimal("1.50")], "raw": b"\xff"})
    out, _ = run("mtl", "receive", "jobs", *as_ada, "--count", "1", "--json", env=PASSWORD)
    [content] = [event for event in map(json.loads, out.splitlines()) if event["event"] == "content"]
    assert content["properties"] == {"due": "2026-01-01T00:00:00Z", "prices": ["1.50"], "raw": {"base64": "/w=="}}


def test_commands_are_asked(as_ada, run):
    out, _ = run("mtl", "call", "Queue.Info", '{"name": "jobs"}', *as_ada, "--json", env=PASSWORD)
    reply = json.loads(out)
    assert (reply["event"], reply["status"], reply["body"]["name"]) == ("reply", 200, "jobs")
    out, _ = run("mtl", "call", "Queue.Info", '{"name": "none"}', *as_ada, "--json", env=PASSWORD, returncode=1)
    assert json.loads(out)["status"] == 404
    out, _ = run("mtl", "call", "Queue.List", *as_ada, env=PASSWORD)
    assert out.startswith("200 {")
    _, err = run("mtl", "call", "Queue.List", "[1]", *as_ada, env=PASSWORD, returncode=2)
    assert "not a JSON object" in err


def test_clients_record_what_they_say(as_ada, run, tmp_path):
    recording = ("--capture", "capture", "--capture-overflow", "block")
    run("mtl", "send", "jobs", "a", *as_ada, *recording, env=PASSWORD)
    run("mtl", "receive", "jobs", "--count", "1", *as_ada, *recording, env=PASSWORD)
    run("mtl", "call", "Queue.List", *as_ada, *recording, env=PASSWORD)
    rows = capture.open(tmp_path / "capture").decode("mtl").read_all().to_pylist()
    assert {row["segment"] for row in rows} == {0, 1, 2}
    assert [(row["direction"], row["resource"]) for row in rows if row["type"] == "content"] == [
        ("out", "jobs"),
        ("in", "jobs"),
    ]
    cat = ("capture", "cat", "capture", "--where", "type = 'content'", "--format", "{direction} {resource} {body}")
    assert run(*cat)[0] == "out jobs a\nin jobs a\n"
    asked = [row["name"] for row in rows if row["type"] == "command"]
    assert asked[-1] == "Queue.List"
    assert asked.count("Connection.Open") == 3


def test_the_password_comes_from_a_file_first(as_ada, run, tmp_path):
    (tmp_path / "password").write_text("sesame\nmore\n")
    run("mtl", "call", "Queue.List", *as_ada, "--password-file", "password", env={"TRUNKLINE_PASSWORD": "wrong"})
    _, err = run("mtl", "call", "Queue.List", *as_ada, env={"TRUNKLINE_PASSWORD": "wrong"}, returncode=1)
    assert "the server refused the login" in err


def test_the_password_of_a_variable_ends_as_that_of_a_file(as_ada, run):
    for text in ("sesame\n", "sesame\r\n"):
        run("mtl", "call", "Queue.List", *as_ada, env={"TRUNKLINE_PASSWORD": text})
    _, err = run("mtl", "call", "Queue.List", *as_ada, env={"TRUNKLINE_PASSWORD": "ses\tame"}, returncode=1)
    assert err == "trunkline: error: password: U+0009 is not allowed\n"


def test_errors_name_options_as_the_shell_does(as_ada, run):
    _, err = run("mtl", "call", "Queue.List", *as_ada, env={"TRUNKLINE_PASSWORD": ""}, returncode=1)
    assert "give --user and --password-file (or TRUNKLINE_PASSWORD)" in err


def test_what_is_rejected_is_said(start, run):
    command = start(*SERVER, "--anonymous", "--resource", "jobs", "--max-queue", "2")
    endpoint = command.ready()["endpoints"][0]
    out, _ = run("mtl", "send", "jobs", "x", "--count", "4", "--connect", endpoint, "--json", returncode=1)
    assert [json.loads(line)["index"] for line in out.splitlines()[:-1]] == [2, 3]
    assert (last(out)["stats"]["confirmed"], last(out)["stats"]["rejected"]) == (2, 2)


@pytest.mark.req("MTL-50")
@pytest.mark.parametrize("count", [1, 5, 2000])
def test_refusals_of_what_is_not_confirmed_are_reported_each_time(start, run, count):
    command = start(*SERVER, "--anonymous", "--resource", "jobs", "--max-queue", "2")
    endpoint = command.ready()["endpoints"][0]
    run("mtl", "send", "jobs", "x", "--count", "2", "--connect", endpoint)
    at = ("--count", str(count), "--confirm", "none", "--connect", endpoint)
    out, err = run("mtl", "send", "jobs", "x", *at, "--json", returncode=1)
    assert last(out)["stats"]["rejected"] == count
    assert "refused" in err
    _, err = run("mtl", "send", "jobs", "x", *at, returncode=1)
    assert f"{count:,} refused" in err


def depth(endpoint: str) -> int:
    """How many contents of jobs are in its queue, those that readers have too."""
    with mtl.Client(connect=endpoint, user="ada", password="sesame") as client:
        info = client.command("Queue.Info", {"name": "jobs"}).body
        assert info["unconfirmed"] == 0
        return int(info["messages"])


def fill(endpoint: str, count: int) -> None:
    with mtl.Client(connect=endpoint, user="ada", password="sesame") as client, client.writer("jobs") as writer:
        for number in range(count):
            writer.send(b"%d" % number)


@pytest.mark.req("MTL-50", "MTL-51")
@pytest.mark.parametrize("confirm", ["none", "full"])
@pytest.mark.parametrize("window", ["1", "7", "1000"])
def test_no_more_is_taken_than_is_printed(server, as_ada, run, confirm, window):
    fill(server[1], 100)
    how = ("--confirm", confirm, "--window", window)
    for count, left in ((0, 100), (1, 99), (25, 74)):
        out, _ = run("mtl", "receive", "jobs", *as_ada, *how, "--count", str(count), env=PASSWORD)
        assert out.splitlines() == [str(number) for number in range(100 - left - count, 100 - left)]
        until(lambda left=left: depth(server[1]) == left)
    # What was not taken was not delivered either.
    with mtl.Client(connect=server[1], user="ada", password="sesame") as client, client.reader("jobs") as reader:
        reader.summon("jobs")
        assert not any(reader.receive(timeout_s=20).redelivered for _ in range(74))


@pytest.mark.req("MTL-51")
def test_what_is_printed_is_confirmed_when_a_signal_comes_before_the_last(server, as_ada, start):
    fill(server[1], 3)
    receiving = start("mtl", "receive", "jobs", *as_ada, "--count", "4", "--json", env=PASSWORD)
    receiving.ready()
    for _ in range(3):
        receiving.event("content")
    receiving.signal(signal.SIGTERM)
    assert receiving.event("stopped")["reason"] == "signal"
    receiving.end()
    assert depth(server[1]) == 0


@pytest.mark.req("MTL-45")
@pytest.mark.parametrize("window", ["2", "10"])
def test_what_nobody_confirms_in_time_is_counted_and_said(context, open_socket, start, window):
    data = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*")
    port = int(data.last_endpoint.rpartition(b":")[2])
    playing = Playing(context, (201, {}), (200, {}), (202, {"port": port, "lease": "one"}))
    at = ("--connect", playing.endpoint, "--timeout", "0.5", "--window", window, "--json")
    sending = start("mtl", "send", "jobs", "x", "--count", "5", *at)
    peer, shown, _ = data.recv_multipart()
    data.send_multipart([peer, *response(int.from_bytes(shown[1:9], "big"), 200)])
    peer, first, _ = data.recv_multipart()
    data.send_multipart([peer, *confirm(int.from_bytes(first[1:9], "big"))])
    stopped = sending.event("stopped")
    out, err = sending.end(1)
    assert (stopped["reason"], stopped["stats"]["confirmed"], out) == ("timeout", 1, "")
    assert stopped["stats"]["sent"] >= 3
    (line,) = err.splitlines()
    assert line.startswith("trunkline: error: ")
    playing.stop()


def test_nobody_there(run):
    _, err = run("mtl", "send", "jobs", "x", "--connect", "tcp://127.0.0.1:1", "--timeout", "0.2", returncode=1)
    assert "0.2 s" in err


def test_users_are_read_again_with_sighup(server, users, run, as_ada):
    command, _ = server
    run("mtl", "users", "add", "ada", "--file", str(users), stdin="another\n")
    command.signal(signal.SIGHUP)
    again = {"TRUNKLINE_PASSWORD": "another"}

    def gets_in() -> bool:
        try:
            run("mtl", "call", "Queue.List", *as_ada, env=again)
        except AssertionError:
            return False
        return True

    until(gets_in)
    users.write_text("[users.ada]\nread = 5\n")
    command.signal(signal.SIGHUP)
    assert "ada" in command.logged("stay in effect")
    run("mtl", "call", "Queue.List", *as_ada, env=again)


@pytest.mark.req("MTL-01", "MTL-26", "MTL-31")
def test_takes_every_setting(start, dial, tmp_path):
    command = start(
        *SERVER,
        *("--data-bind", "tcp://127.0.0.1:*", "--anonymous", "--virtual-host", "a", "--virtual-host", "b"),
        *(
            "--profile",
            "queue",
            "--resource",
            "jobs",
            "--durable",
            "store",
            "--max-queue",
            "1",
            "--max-queue-bytes",
            "500",
        ),
        *(
            "--queue-ttl",
            "100",
            "--max-recycle",
            "1",
            "--ping-interval",
            "1",
            "--liveness",
            "4",
            "--session-idle",
            "100",
        ),
        *("--lease-idle", "10", "--stats-interval", "0.05", "--capture", "capture"),
    )
    ready = command.ready()
    (endpoint,), (data_endpoint,) = ready["endpoints"], ready["data_endpoints"]
    control = Control(dial(zmq.REQ, endpoint))
    control.enter(host="b")
    said = control.ask("Queue.Info", {"name": "jobs"})[1]
    assert (said["max-messages"], said["max-bytes"], said["ttl-ms"]) == (1, 500, 100_000)
    leased = control.lease("Reader", ["jobs"])
    assert data_endpoint == f"tcp://127.0.0.1:{leased['port']}" != endpoint
    data = dial(zmq.DEALER, data_endpoint)
    data.send_multipart(lease(1, leased["lease"]))
    assert data.recv_multipart() == response(1, 200)
    data.send_multipart(summon(2, "jobs"))
    assert data.recv_multipart() == response(2, 200)
    while command.event("stats")["stats"]["leases"] != 1:
        pass
    command.signal(signal.SIGTERM)
    while command.event()["event"] != "stopped":
        pass
    command.end()
    assert {"capture", "store"} <= {path.name for path in tmp_path.iterdir()}


def test_contents_survive_kill_9(start, run, tmp_path):
    options = ("--anonymous", "--resource", "jobs", "--durable", "store")
    command = start(*SERVER, *options)
    endpoint = command.ready()["endpoints"][0]
    out, _ = run(
        "mtl", "send", "jobs", "-", "--connect", endpoint, "--json", stdin="".join(f"{n}\n" for n in range(500))
    )
    assert last(out)["stats"]["confirmed"] == 500
    command.signal(signal.SIGKILL)
    command.process.wait()
    again = start(*SERVER, *options)
    endpoint = again.ready()["endpoints"][0]
    out, _ = run("mtl", "receive", "jobs", "--connect", endpoint, "--count", "500", "--json")
    contents = [json.loads(line) for line in out.splitlines()[1:-1]]
    assert [content["body"] for content in contents] == [str(number) for number in range(500)]
    assert all(content["redelivered"] for content in contents)
    taken = start(*SERVER, *options)
    _, err = taken.end(1)
    assert "store" in err
    assert tmp_path.joinpath("store").is_dir()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (SERVER, "needs --users, a --curve-secret with --curve-allow, or --anonymous"),
        ((*SERVER, "--anonymous", "--profile", "nothing"), "unknown profile"),
        ((*SERVER, "--users", "missing.toml"), "missing.toml"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(run, arguments, words):
    _, err = run(*arguments, returncode=1)
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "jobs", "-", "x"),
        ("send", "jobs", "-", "--count", "2"),
        ("send", "jobs", "x", "--property", "novalue"),
        ("send", "jobs", "x", "--property", "big=99999999999999999999"),
        ("send", "jobs", "x", "--confirm", "maybe"),
        ("receive", "jobs", "--confirm", "maybe"),
        ("call", "Queue.List", "{"),
        ("call", "Queue.List", '{"a": NaN}'),
        ("call", "Queue.List", '{"a": [-Infinity]}'),
        ("call", "Queue.List", '{"a": 1e999}'),
        ("call", "Queue.List", "--capture-secrets"),
        ("receive", "jobs", "--capture-secrets"),
        ("send", "jobs", "x", "--capture-secrets"),
    ],
)
def test_wrong_options_are_refused(run, arguments):
    run("mtl", *arguments, "--connect", "tcp://127.0.0.1:1", returncode=2)


def test_says_which_queues_there_are_however_many(server, as_ada, run):
    with mtl.Client(connect=server[1], user="ada", password="sesame") as client:
        for number in range(600):
            assert client.command("Queue.Create", {"name": f"q{number:03}" + "x" * 150}).status == 200
        assert client.command("Queue.List").body["more"] is True
    out, _ = run("mtl", "queues", *as_ada, "--json", env=PASSWORD)
    names = [json.loads(line)["name"][:4] for line in out.splitlines()]
    assert [name for name in names if name.startswith("q")] == [f"q{number:03}" for number in range(600)]


def test_says_which_queues_there_are(as_ada, run):
    run("mtl", "send", "jobs", "a", "bc", *as_ada, env=PASSWORD)
    out, _ = run("mtl", "queues", *as_ada, env=PASSWORD)
    heads, jobs, logs = (line.split() for line in out.splitlines())
    assert heads == ["name", "messages", "unconfirmed", "bytes", "readers", "writers"]
    assert (jobs[:3], logs[:2]) == (["jobs", "2", "0"], ["logs", "0"])
    out, _ = run("mtl", "queues", *as_ada, "--json", env=PASSWORD)
    events = [json.loads(line) for line in out.splitlines()]
    assert [(event["event"], event["name"], event["messages"]) for event in events] == [
        ("queue", "jobs", 2),
        ("queue", "logs", 0),
    ]


def test_a_server_is_backed_up_and_defined_anew(start, run, tmp_path):
    run("mtl", "users", "add", "ada", "--file", "users.toml", stdin="sesame\n")
    options = ("--anonymous", "--users", "users.toml", "--resource", "jobs", "--durable", "store")
    endpoint = start(*SERVER, *options).ready()["endpoints"][0]
    run("mtl", "send", "jobs", "x", "--count", "3", "--connect", endpoint)
    copied = json.loads(run("mtl", "backup", "store", "copy", "--json")[0])
    assert copied == {"event": "copied", "path": "copy", "queues": 1, "contents": 3, "bytes": copied["bytes"]}
    assert "copy already exists" in run("mtl", "backup", "store", "copy", returncode=1)[1]
    assert "is not the store" in run("mtl", "backup", ".", "other", returncode=1)[1]
    _, err = run("mtl", "export", "all.json", "--users", "users.toml", "--durable", "store")
    assert "exported 1 user and 1 queue to all.json" in err
    assert (tmp_path / "all.json").stat().st_mode & 0o777 == 0o600
    _, err = run("mtl", "import", "all.json", "--users", "new.toml", "--durable", "new")
    assert "imported 1 user and 1 queue from all.json" in err
    assert (tmp_path / "new.toml").read_text() == (tmp_path / "users.toml").read_text()
    assert "new.toml already exists" in run("mtl", "import", "all.json", "--users", "new.toml", returncode=1)[1]
    assert "--durable" in run("mtl", "export", "other.json", returncode=2)[1]
    assert not (tmp_path / "other").exists()
    # The server uses its store: nothing is imported.
    _, err = run("mtl", "import", "all.json", "--users", "half.toml", "--durable", "store", returncode=1)
    assert "in use by another server" in err
    assert not (tmp_path / "half.toml").exists()
    assert "none/copy: No such file or directory" in run("mtl", "backup", "store", "none/copy", returncode=1)[1]
    assert "store/copy would be inside the store" in run("mtl", "backup", "store", "store/copy", returncode=1)[1]
    (tmp_path / "all.json").write_text((tmp_path / "all.json").read_text().replace('"queue"', '"bank"'))
    _, err = run("mtl", "import", "all.json", "--durable", "other", returncode=1)
    assert "queue 1 ('jobs'): profile: expected 'queue', not 'bank'" in err
    assert not (tmp_path / "other").exists()
    assert (
        "imported 0 users and 1 queue"
        in run(*("mtl", "import", "all.json", "--durable", "other", "--profile", "bank"))[1]
    )
