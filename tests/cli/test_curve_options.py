"""CURVE on the command line."""

import json
import re
import signal

import pytest
import zmq
import zmq.auth
from zmq.utils.monitor import recv_monitor_message

from peers.commands import spec
from peers.recorded import write


@pytest.fixture
def files(tmp_path):
    """Folders of certificates: one with the server's, one with those of admitted clients."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "allowed").mkdir()
    zmq.auth.create_certificates(tmp_path / "keys", "server")
    return tmp_path


@pytest.fixture
def dial(context):
    """Opens a raw client of a CURVE server; returns it, and whether it was admitted."""
    sockets = []
    outcomes = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH

    def dial(endpoint, keys, server_key):
        socket = context.socket(zmq.PUSH)
        sockets.append(socket)
        socket.curve_publickey, socket.curve_secretkey = keys
        socket.curve_serverkey = server_key
        monitor = socket.get_monitor_socket(outcomes)
        monitor.rcvtimeo = 20_000
        socket.connect(endpoint)
        outcome = recv_monitor_message(monitor)["event"]
        socket.disable_monitor()
        monitor.close()
        return socket, outcome == zmq.EVENT_HANDSHAKE_SUCCEEDED

    yield dial
    for socket in sockets:
        socket.close(linger=0)


def test_a_recorder_lets_in_those_on_its_list_and_reads_it_again(start, dial, files):
    recorder = start(
        *("cdtp", "record", "--capture", "capture", "--bind", "tcp://127.0.0.1:*", "--json", "--count", "1"),
        *("--curve-secret", files / "keys/server.key_secret", "--curve-allow", files / "allowed"),
    )
    endpoint = recorder.ready()["endpoints"][0]
    keys = zmq.curve_keypair()
    server_key = zmq.auth.load_certificate(files / "keys/server.key")[0]
    assert not dial(endpoint, keys, server_key)[1]
    recorder.logged(keys[0].decode())

    (files / "allowed/friend.key").write_text("no key")
    recorder.signal(signal.SIGHUP)
    assert "not reloaded, the old allow-list stays in effect" in recorder.logged("not reloaded")
    (files / "allowed").rename(files / "away")
    recorder.signal(signal.SIGHUP)
    assert f"{files / 'allowed'} cannot be read: No such file or directory" in recorder.logged("cannot be read")
    (files / "away").rename(files / "allowed")
    (files / "allowed/friend.key").write_bytes(keys[0])
    recorder.signal(signal.SIGHUP)
    assert f"reloaded {files / 'allowed'}: 1 key (added: friend)" in recorder.logged("reloaded")
    refused = 1
    while not (dialled := dial(endpoint, keys, server_key))[1]:
        refused += 1
    dialled[0].send_multipart(spec("D"))
    stopped = recorder.event("stopped")
    assert stopped["reason"] == "count"
    assert stopped["stats"]["refused"] == refused
    recorder.end()


def test_signals_that_come_while_the_list_is_read_are_all_heeded(start, dial, files):
    (files / "allowed/friend.key").write_bytes((friend := zmq.curve_keypair())[0])
    other = files / "allowed/other.key"
    recorder = start(
        *("cdtp", "record", "--capture", "capture", "--bind", "tcp://127.0.0.1:*", "--json", "--count", "1"),
        *("--curve-secret", files / "keys/server.key_secret", "--curve-allow", files / "allowed"),
    )
    endpoint = recorder.ready()["endpoints"][0]
    server_key = zmq.auth.load_certificate(files / "keys/server.key")[0]
    for _ in range(300):
        other.write_bytes((keys := zmq.curve_keypair())[0])
        recorder.signal(signal.SIGHUP)
        other.unlink()
        recorder.signal(signal.SIGHUP)
    other.write_bytes(keys[0])
    recorder.signal(signal.SIGHUP)
    while not (dialled := dial(endpoint, keys, server_key))[1]:
        pass
    assert dial(endpoint, friend, server_key)[1]
    dialled[0].send_multipart(spec("D"))
    assert recorder.event("stopped")["reason"] == "count"
    recorder.end()


def test_a_sender_knows_its_server(run, pull, files):
    server = zmq.curve_keypair()
    (files / "server.key").write_bytes(server[0])
    pull.socket.curve_server, pull.socket.curve_secretkey = True, server[1]
    endpoint = f"tcp://127.0.0.1:{pull.socket.bind_to_random_port('tcp://127.0.0.1')}"
    arguments = ("cdtp", "send", "--name", "D", "--connect", endpoint, "--curve-server-key", "server.key", "-")
    run(*arguments, stdin="hello\n")
    assert pull.receive()[1] == b"hello"


def test_a_list_without_a_key_is_wrong_usage(run, files):
    arguments = ("cdtp", "receive", "--bind", "tcp://127.0.0.1:*", "--curve-allow", files / "allowed")
    _, err = run(*arguments, returncode=2)
    assert "--curve-secret" in err
    _, err = run(*arguments, "--curve-secret", files / "keys/server.key", returncode=1)
    assert "public half" in err


def test_a_capture_is_replayed_to_an_encrypted_recorder(run, context, files, tmp_path):
    write(tmp_path / "one.jsonl", [[b"\0"]])
    run("capture", "import", "one.jsonl", "--capture", "capture")
    pull = context.socket(zmq.PULL)
    pull.curve_publickey, pull.curve_secretkey = zmq.auth.load_certificate(files / "keys/server.key_secret")
    pull.curve_server = True
    pull.rcvtimeo = 20_000
    pull.bind("tcp://127.0.0.1:*")
    key = files / "keys/server.key"
    run("capture", "replay", "capture", "--connect", pull.last_endpoint.decode(), "--curve-server-key", key)
    assert pull.recv_multipart() == [b"\0"]
    pull.close()


@pytest.mark.parametrize(
    ("keys", "why", "what_the_server_says"),
    [
        (
            ["ops", "eve.key"],
            "is the server key the one of this server",
            "the keys of the two sides do not fit together",
        ),
        (["eve", "server.key"], "the peer does not allow this key", "its key is not allowed"),
        ([], "only one side", "only one side"),
    ],
    ids=["wrong server key", "not allowed", "not encrypted"],
)
def test_why_nobody_answers_is_said(start, run, files, keys, why, what_the_server_says):
    for name in ("ops", "eve"):
        zmq.auth.create_certificates(files / "keys", name)
    (files / "allowed/ops.key").write_bytes((files / "keys/ops.key").read_bytes())
    bus = start(
        *("mc0", "middleware", "--bind", "tcp://127.0.0.1:*", "--json"),
        *("--curve-secret", files / "keys/server.key_secret", "--curve-allow", files / "allowed"),
    )
    curve = (
        [*("--curve-secret", f"keys/{keys[0]}.key_secret"), *("--curve-server-key", f"keys/{keys[1]}")] if keys else []
    )
    # Nothing is waited for: it answers, and refuses.
    at = ("--connect", bus.ready()["endpoints"][0], "--timeout", "600")
    _, err = run("mc0", "ping", *at, *curve, returncode=1)
    last = err.splitlines()[-1]
    assert "no middleware answers at tcp://127.0.0.1:" in last
    assert why in last
    # With the address of the peer, unless it was gone before it could be asked for.
    said = bus.logged(what_the_server_says)
    assert re.search(rf"middleware: tcp://127\.0\.0\.1:\d+: (tcp://127\.0\.0\.1:\d+: )?.*{what_the_server_says}", said)


@pytest.mark.parametrize(
    "command",
    [
        ["mc0", "topics"],
        ["mc0", "publish", "runs", "x"],
        ["mc0", "publish", "runs", "x", "--no-confirm"],
        ["dcp", "services"],
        ["dcp", "request", "echo", "x"],
        ["mtl", "queues"],
        ["mtl", "call", "Queue.List"],
        ["mtl", "send", "jobs", "x"],
        ["mtl", "receive", "jobs"],
    ],
    ids=" ".join,
)
def test_no_answer_is_waited_for_where_the_key_is_refused(start, run, files, command):
    zmq.auth.create_certificates(files / "keys", "eve")
    role = {"dcp": ["broker"], "mc0": ["middleware"], "mtl": ["server", "--anonymous"]}[command[0]]
    server = start(
        *(command[0], *role, "--bind", "tcp://127.0.0.1:*", "--json"),
        *("--curve-secret", files / "keys/server.key_secret", "--curve-allow", files / "allowed"),
    )
    at = ("--connect", server.ready()["endpoints"][0], "--timeout", "600")
    curve = ("--curve-secret", files / "keys/eve.key_secret", "--curve-server-key", files / "keys/server.key")
    _, err = run(*command, *at, *curve, returncode=1)
    assert "the peer does not allow this key" in err.splitlines()[-1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_role_that_runs_on_is_let_in_once_its_key_is_allowed(start, run, files, host):
    for name in ("ops", "late"):
        zmq.auth.create_certificates(files / "keys", name)
    (files / "allowed/ops.key").write_bytes((files / "keys/ops.key").read_bytes())
    broker = start(
        *("dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--json"),
        *("--curve-secret", files / "keys/server.key_secret", "--curve-allow", files / "allowed"),
    )
    at = ("--connect", broker.ready()["endpoints"][0].replace("127.0.0.1", host))
    key = ("--curve-server-key", files / "keys/server.key")
    worker = start("dcp", "worker", "echo", "--echo", *at, "--curve-secret", files / "keys/late.key_secret", *key)
    worker.logged("the peer does not allow this key")
    (files / "allowed/late.key").write_bytes((files / "keys/late.key").read_bytes())
    broker.signal(signal.SIGHUP)
    worker.logged("connected")
    out, _ = run("dcp", "request", "echo", "hello", *at, "--curve-secret", files / "keys/ops.key_secret", *key)
    assert out == "hello\n"


def test_what_is_refused_is_said_to_programs(start, run, files):
    zmq.auth.create_certificates(files / "keys", "eve")
    server = start(
        *("mc0", "middleware", "--bind", "tcp://127.0.0.1:*", "--json"),
        *("--curve-secret", files / "keys/server.key_secret", "--curve-allow", files / "allowed"),
    )
    at = ("--connect", server.ready()["endpoints"][0], "--timeout", "600", "--json")
    curve = ("--curve-secret", files / "keys/eve.key_secret", "--curve-server-key", files / "keys/server.key")
    out, _ = run("mc0", "ping", *at, *curve, returncode=1)
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["why"], last["stats"]["replies"]) == ("stopped", "refused", 0)


def test_what_can_be_known_without_a_handshake_is_said(run):
    _, err = run("mc0", "ping", "--connect", "tcp://127.0.0.1:1", "--timeout", "0.3", returncode=1)
    assert "no middleware answers at tcp://127.0.0.1:1 (nothing listens there)" in err
    _, err = run(
        "dcp", "request", "echo", "x", "--connect", "tcp://nosuchhost.invalid:99", "--timeout", "0.3", returncode=1
    )
    assert "(nosuchhost.invalid does not resolve)" in err
    _, err = run("mtl", "call", "Queue.List", "--connect", "tcp://127.0.0.1:1", "--timeout", "0.3", returncode=1)
    assert "(nothing listens there)" in err


@pytest.mark.parametrize(
    "command",
    [
        ["mc0", "ping"],
        ["mc0", "topics"],
        ["dcp", "services"],
        ["dcp", "worker", "echo", "--echo"],
        ["mtl", "call", "Queue.List"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("files")
def test_a_client_needs_the_key_of_its_server(run, command):
    curve = ("--connect", "tcp://127.0.0.1:9", "--curve-secret", "keys/server.key_secret")
    assert "--curve-server-key" in run(*command, *curve, returncode=2)[1]
