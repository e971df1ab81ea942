"""`trunkline dcp broker`, between raw sockets."""

from __future__ import annotations

import json
import signal

import pytest
import zmq
import zmq.auth

HEAD = [b"", b"DGBX\x01"]
BROKER = ("dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--json")


def register(service):
    return [*HEAD, b"\x01", service]


def request(service, *data):
    return [*HEAD, b"\x04", service, b"", b"", *data]


@pytest.fixture
def peers(dial):
    """A worker that has registered, and a client."""

    def peers(endpoint):
        worker, client = dial(zmq.DEALER, endpoint), dial(zmq.DEALER, endpoint)
        worker.send_multipart(register(b"echo"))
        assert worker.recv_multipart() == register(b"echo")
        return worker, client

    return peers


def test_brokers_until_it_is_stopped(start, peers):
    command = start(*BROKER, "--heartbeat-interval", "60")
    ready = command.ready()
    assert ready["role"] == "dcp.broker"
    assert ready["pid"] == command.process.pid
    worker, client = peers(ready["endpoints"][0])
    client.send_multipart(request(b"echo", b"x"))
    asked = worker.recv_multipart()
    worker.send_multipart([*HEAD, b"\x05", asked[4], b"", b"", b"y"])
    assert client.recv_multipart()[-1] == b"y"
    command.signal(signal.SIGTERM)
    stopped = command.event("stopped")
    assert stopped["reason"] == "signal"
    stats = stopped["stats"]
    assert stats.pop("bytes") > len(b"echo")
    assert sum(stats.pop("latency")["counts"]) == 1
    assert stats == {
        "received": 3,
        "sent": 3,
        "dropped": {},
        "peers": 2,
        "queued": 0,
        "lost": 0,
        "services": [
            {"service": "echo", "queued": 0, "workers": 1, "free": 1, "requests": 1, "replies": 1, "expired": 0}
        ],
        "capture_lost": 0,
        "refused": 0,
        "turned_away": 0,
        "connection_failures": {},
        "transport": "zmtp",
    }
    assert command.quietly() == ("", "")


def test_a_signal_lets_workers_finish_and_drops_what_is_queued(start, dial, peers):
    command = start(*BROKER, "--stats-interval", "0.05", "--drain-seconds", "50", "--heartbeat-interval", "60")
    (endpoint,) = command.ready()["endpoints"]
    worker, client = peers(endpoint)
    for number in range(4):
        client.send_multipart(request(b"echo", b"%d" % number))
    asked = worker.recv_multipart()
    while command.event("stats")["stats"]["queued"] < 3:
        pass
    command.signal(signal.SIGINT)
    # It has seen the signal once it gives out nothing more.
    idle = dial(zmq.DEALER, endpoint)
    idle.send_multipart(register(b"idle"))
    idle.recv_multipart()
    pong = [*HEAD, b"\x03"]
    while True:
        idle.send_multipart(request(b"idle"))
        idle.send_multipart([*HEAD, b"\x02"])
        given = idle.recv_multipart()
        if given == pong:
            break
        assert idle.recv_multipart() == pong
        idle.send_multipart([*HEAD, b"\x05", given[4], b"", b""])
        assert idle.recv_multipart()[2] == b"\x05"
    worker.send_multipart([*HEAD, b"\x05", asked[4], b"", b"", b"y"])
    assert client.recv_multipart()[-1] == b"y"
    out, _ = command.end()
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["reason"], last["stats"]["queued"]) == ("stopped", "signal", 4)


def test_takes_every_setting(start, peers):
    command = start(
        *BROKER,
        *("--bind", "tcp://127.0.0.1:*", "--max-queue", "1", "--max-queue-bytes", "100000", "--queue-ttl", "60"),
        *("--overflow", "drop-oldest", "--heartbeat-interval", "50", "--liveness", "2", "--requeue"),
        *("--no-busy-ping-grants", "--client-address", "workers-only", "--compat-dagbox", "--stats-interval", "0.05"),
    )
    endpoints = command.ready()["endpoints"]
    assert len(endpoints) == 2
    worker, client = peers(endpoints[1])
    worker.send_multipart([*HEAD, b"\x02\0\0\0"])
    assert worker.recv_multipart() == [*HEAD, b"\x03\0\0\0"]
    for number in range(4):
        client.send_multipart(request(b"echo", b"%d" % number))
    worker.recv_multipart()
    while command.event("stats")["stats"]["dropped"] != {"queue_full": 2}:
        pass
    client.send_multipart([*HEAD, b"\x05", b"victim", b"", b"", b"forged"])
    while "spoofed" not in command.event("stats")["stats"]["dropped"]:
        pass


def test_only_services_that_are_allowed_are_registered(start, peers, dial):
    command = start(*BROKER, "--allow-service", "echo", "--allow-service", "more")
    (endpoint,) = command.ready()["endpoints"]
    peers(endpoint)
    dial(zmq.DEALER, endpoint).send_multipart(register(b"other"))
    command.logged("may not offer other")
    command.signal(signal.SIGTERM)
    assert [service["service"] for service in command.event("stopped")["stats"]["services"]] == ["echo"]


def test_only_those_on_the_list_are_let_in(start, context, tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "allowed").mkdir()
    zmq.auth.create_certificates(tmp_path / "keys", "server")
    server_key = zmq.auth.load_certificate(tmp_path / "keys/server.key")[0]
    friend, stranger = zmq.curve_keypair(), zmq.curve_keypair()
    (tmp_path / "allowed/friend.key").write_bytes(friend[0])
    command = start(*BROKER, "--curve-secret", "keys/server.key_secret", "--curve-allow", "allowed")
    (endpoint,) = command.ready()["endpoints"]
    sockets = []
    for public, secret in (stranger, friend):
        socket = context.socket(zmq.DEALER)
        sockets.append(socket)
        socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = public, secret, server_key
        socket.connect(endpoint)
        socket.send_multipart(register(b"echo"))
        if public == stranger[0]:
            command.logged(public.decode())
    assert socket.recv_multipart() == register(b"echo")
    command.signal(signal.SIGTERM)
    assert command.event("stopped")["stats"]["refused"] == 1
    for socket in sockets:
        socket.close(linger=0)


def test_people_read_what_it_does(start):
    command = start("dcp", "broker", "--bind", "tcp://127.0.0.1:*")
    assert "broker listening on tcp://127.0.0.1:" in command.logged("listening")
    command.signal(signal.SIGINT)
    out, err = command.end()
    assert out == ""
    assert err == "trunkline: stopped (signal): received 0\n"


def test_a_broken_pipe_ends_it_quietly(start):
    command = start(*BROKER, "--stats-interval", "0.05")
    command.ready()
    command.process.stdout.close()
    assert command.process.wait() == 0
    assert command.process.stderr.read() == ""
    command.process.stdout = None


def test_an_endpoint_that_is_taken_is_one_line(start, run):
    (endpoint,) = start(*BROKER).ready()["endpoints"]
    out, err = run("dcp", "broker", "--bind", endpoint, returncode=1)
    assert out == ""
    (line,) = err.splitlines()
    assert "choose another port" in line


def test_says_which_services_it_has(start, run):
    command = start("dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--json")
    (endpoint,) = command.ready()["endpoints"]
    worker = start("dcp", "worker", "upper", "--connect", endpoint, "--concurrency", "3", "--echo", "--json")
    worker.ready()
    run("dcp", "request", "upper", "x", "--connect", endpoint)
    out, err = run("dcp", "services", "--connect", endpoint)
    heads, service = (line.split() for line in out.splitlines())
    assert heads == ["service", "workers", "free", "queued", "requests", "replies", "expired"]
    assert service[:2] == ["upper", "1"]
    assert service[3:] == ["0", "1", "1", "0"]
    assert "peers; " in err
    out, _ = run("dcp", "services", "--connect", endpoint, "--json")
    assert json.loads(out)["event"] == "service"
    assert json.loads(out)["service"] == "upper"


def test_services_whose_names_are_not_text_are_told_apart(start, run, dial):
    command = start("dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--json")
    (endpoint,) = command.ready()["endpoints"]
    for name in (b"svc\xfe", b"svc\xff"):
        worker = dial(zmq.DEALER, endpoint)
        worker.send_multipart(register(name))
        assert worker.recv_multipart() == register(name)
    names = [{"base64": "c3Zj/g=="}, {"base64": "c3Zj/w=="}]
    out, _ = run("dcp", "services", "--connect", endpoint, "--json")
    assert sorted((json.loads(line)["service"] for line in out.splitlines()), key=str) == names
    out, _ = run("dcp", "services", "--connect", endpoint)
    assert sorted(line.split()[0] for line in out.splitlines()[1:]) == ["svc\\xfe", "svc\\xff"]


def test_says_nothing_when_told_not_to(start, run):
    command = start("dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--no-status", "--json")
    (endpoint,) = command.ready()["endpoints"]
    _, err = run("dcp", "services", "--connect", endpoint, "--timeout", "0.3", returncode=1)
    assert (
        f"no broker answers at {endpoint}, or it is encrypted, or was started with --no-status: waited for 0.3 s" in err
    )


def test_who_is_not_replied_to_is_told_why(start, run, dial):
    command = start("dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--json")
    (endpoint,) = command.ready()["endpoints"]
    ask = ("dcp", "request", "upper", "x", "--timeout", "0.3")
    _, err = run(*ask, "--connect", endpoint, returncode=1)
    assert "the broker answers: it has no worker for upper" in err
    worker = dial(zmq.DEALER, endpoint)
    worker.send_multipart(register(b"upper"))
    assert worker.recv_multipart() == register(b"upper")
    _, err = run(*ask, "--connect", endpoint, returncode=1)
    assert "the broker answers: 1 worker of upper took too long" in err
    _, err = run(*ask, "--connect", "tcp://127.0.0.1:1", returncode=1)
    assert "no broker answers at tcp://127.0.0.1:1" in err
