"""Which transport a role takes; roles over the Rust crate, and what is refused there by name."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import zmq

from peers import cdtp as wire
from peers.dcp import bound_again
from peers.mtl import Playing, answer
from peers.processes import Child
from peers.roles import KINDS, opened
from peers.waiting import PATIENCE_S, until
from trunkline import cdtp, dcp, mtl
from trunkline._roles.notices import settle
from trunkline.curve import Curve
from trunkline.errors import LocalProtocolError

ANY = "tcp://127.0.0.1:*"
HEAD = [b"", b"DGBX\x01"]


@pytest.mark.parametrize(
    ("preferred", "given", "taken"),
    [
        (None, {}, "zmtp"),
        (None, {"transport": "auto"}, "zmtp"),
        (None, {"transport": "libzmq"}, "libzmq"),
        (None, {"bind": "inproc://here", "context": True}, "libzmq"),
        (None, {"context": True}, "libzmq"),
        (None, {"bind": "tcp://[::1%lo]:*"}, "libzmq"),
        (None, {"bind": (), "connect": "tcp://127.0.0.1:0;127.0.0.1:9"}, "libzmq"),
        (None, {"options": {zmq.RCVHWM: 10}}, "zmtp"),
        (None, {"options": {zmq.RATE: 10}}, "libzmq"),
        ("auto", {}, "zmtp"),
        (None, {"options": {zmq.LINGER: 0, zmq.RCVTIMEO: 5, zmq.SNDTIMEO: 5, zmq.AFFINITY: 1}}, "zmtp"),
        ("libzmq", {}, "libzmq"),
        ("zeromq", {}, "zeromq"),
        ("zeromq", {"max_connections": 5}, "zmtp"),
        ("zeromq", {"max_message_bytes": 1000}, "zmtp"),
        ("zeromq", {"handshake_timeout_s": 1}, "zmtp"),
        ("zeromq", {"bind": "ipc://*"}, "zmtp"),
        ("libzmq", {"transport": "zmtp"}, "zmtp"),
        ("zmtp", {"context": True}, "libzmq"),
    ],
)
def test_ours_is_taken_wherever_it_does_what_is_asked_for(preferred, given, taken, monkeypatch):
    monkeypatch.delenv("TRUNKLINE_TRANSPORT", raising=False)
    if preferred is not None:
        monkeypatch.setenv("TRUNKLINE_TRANSPORT", preferred)
    if "context" in given:
        given = {**given, "context": zmq.Context.instance()}
    with cdtp.Receiver(**{"bind": ANY, **given}) as receiver:
        assert receiver.transport == taken


@pytest.mark.parametrize(
    ("given", "missing"),
    [({"options": {zmq.RATE: 10}}, "option RATE"), ({"bind": "tcp://[::1%lo]:*"}, "tcp://[::1%lo]:*"), ({}, None)],
)
def test_what_ours_lacks_is_warned_of_once(given, missing, monkeypatch, caplog):
    monkeypatch.setattr("trunkline._roles.native._warned", set())
    for _ in range(2):
        cdtp.Receiver(**{"bind": ANY, **given}).close()
        cdtp.Receiver(bind="inproc://here", context=zmq.Context.instance()).close()
    settle()
    warned = [record.message for record in caplog.records if "runs over libzmq" in record.message]
    end = f"without the limits of transport='zmtp', which does not support {missing}"
    assert [text.endswith(end) for text in warned] == [True] * (missing is not None)


# The files of libsodium that a process loads for CURVE.
WITH_SODIUM = """
import zmq
from trunkline import Curve, cdtp
with cdtp.Receiver(bind="tcp://127.0.0.1:*", curve=Curve(zmq.curve_keypair()), transport="zmtp"):
    with open("/proc/self/maps") as maps:
        print(*{line.split()[-1] for line in maps if "libsodium" in line})
"""


@pytest.mark.skipif(
    not list(Path(zmq.__file__).parent.parent.glob("pyzmq.libs/libsodium*")), reason="no wheel of pyzmq"
)
def test_curve_takes_the_libsodium_of_pyzmq():
    command = [sys.executable, "-W", "error", "-c", WITH_SODIUM]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [Path(path).parent.name for path in loaded] == ["pyzmq.libs"]


# With a copy of pyzmq's library far from its libsodium.
WITHOUT_SODIUM = """
import logging, pathlib, shutil, sys
logging.basicConfig(format="%(message)s")
import zmq
from zmq.backend.cython import _zmq
from trunkline import Curve, _native, cdtp
from trunkline._roles import native
native._library = shutil.copy(_zmq.__file__, sys.argv[1])
_native.use_libzmq(pathlib.Path(native._library))
curve = Curve(zmq.curve_keypair())
with cdtp.Receiver(bind="tcp://127.0.0.1:*", curve=curve) as receiver:
    print(receiver.transport)
try:
    cdtp.Receiver(bind="tcp://127.0.0.1:*", curve=curve, transport="zmtp")
except Exception as error:
    print(error)
"""


def test_curve_without_libsodium_is_left_to_libzmq(tmp_path):
    copy = tmp_path / "far" / "from" / "there"
    copy.mkdir(parents=True)
    # What the loader finds first is no library.
    for name in ("libsodium.so.23", "libsodium.so.26"):
        (tmp_path / name).write_bytes(b"junk")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, "-c", WITHOUT_SODIUM, str(copy)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    chosen, refused = ran.stdout.splitlines()
    assert chosen == "libzmq"
    assert "no libsodium, which CURVE needs" in refused
    assert "which found no libsodium for CURVE" in ran.stderr


def test_a_transport_that_there_is_not_is_refused(monkeypatch):
    monkeypatch.setenv("TRUNKLINE_TRANSPORT", "zmpt")
    with pytest.raises(ValueError, match=r'TRUNKLINE_TRANSPORT="zmpt" .* use auto, zmtp, libzmq or zeromq'):
        cdtp.Receiver(bind=ANY)


@pytest.mark.parametrize("transport", ["zmtp", "libzmq"])
@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith(("chirp.", "cdt."))])
def test_the_transport_is_among_the_counters(name, transport, tmp_path):
    with contextlib.ExitStack() as server:
        if name == "mtl.Client":
            listening = server.enter_context(opened("mtl.Server", tmp_path))
            role = opened(name, tmp_path, connect=listening.endpoints, timeout_s=PATIENCE_S, transport=transport)
        else:
            role = opened(name, tmp_path, transport=transport)
        with role:
            assert (role.transport, role.stats.transport) == (transport, transport)
        assert role.stats.transport == transport


@pytest.mark.parametrize("ours", ["binds", "connects"])
def test_a_receiver_hears_a_raw_sender(open_socket, ours):
    if ours == "binds":
        receiver = cdtp.Receiver(bind=ANY, transport="zeromq")
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
    else:
        push = open_socket(zmq.PUSH, bind=ANY)
        receiver = cdtp.Receiver(connect=push.last_endpoint.decode(), transport="zeromq")
    with receiver:
        for number in range(100):
            push.send_multipart([wire.header_s(), b"%d" % number])
        came = [receiver.receive(timeout_s=PATIENCE_S).payload for _ in range(100)]
        assert came == [(b"%d" % number,) for number in range(100)]
        assert receiver.stats.received == 100


def test_a_sender_is_heard_by_a_raw_receiver(open_socket, tmp_path):
    with cdtp.Sender("Det", bind=ANY, transport="zeromq", capture=tmp_path / "capture") as sender:
        pull = open_socket(zmq.PULL, connect=sender.endpoints[0])
        for number in range(100):
            sender.send(b"%d" % number)
        assert [pull.recv_multipart()[1] for _ in range(100)] == [b"%d" % number for number in range(100)]
        sender.flush(timeout_s=PATIENCE_S)


def test_the_crate_hears_those_who_are_there_and_those_who_come_back(open_socket):
    there, gone = (open_socket(zmq.PUSH, bind=ANY) for _ in range(2))
    endpoints = [push.last_endpoint.decode() for push in (gone, there)]
    gone.close()
    with cdtp.Receiver(connect=endpoints, transport="zeromq") as receiver:
        there.send_multipart([wire.header_s(), b"there"])
        assert receiver.receive(timeout_s=PATIENCE_S).payload == (b"there",)
        for _ in range(2):
            back = bound_again(open_socket, zmq.PUSH, endpoints[0])
            back.send_multipart([wire.header_s(), b"back"])
            assert receiver.receive(timeout_s=PATIENCE_S).payload == (b"back",)
            back.close()


def test_over_the_crate_a_slow_reader_loses_nothing_of_who_has_left(open_socket):
    push = open_socket(zmq.PUSH, bind=ANY)
    endpoint = push.last_endpoint.decode()
    with cdtp.Receiver(connect=endpoint, transport="zeromq", queue_messages=10) as receiver:
        for number in range(5000):
            push.send_multipart([wire.header_s(), b"%d" % number])
        push.close(linger=20_000)
        back = bound_again(open_socket, zmq.PUSH, endpoint)
        came = [receiver.receive(timeout_s=PATIENCE_S).payload for _ in range(5000)]
        assert came == [(b"%d" % number,) for number in range(5000)]
        back.send_multipart([wire.header_s(), b"back"])
        assert receiver.receive(timeout_s=PATIENCE_S).payload == (b"back",)


def test_over_the_crate_what_nobody_takes_is_not_sent(open_socket):
    with cdtp.Sender("Det", bind=ANY, header="B", transport="zeromq") as sender:
        for number in range(10):
            sender.send(b"%d" % number)
        with pytest.raises(TimeoutError):
            sender.flush(timeout_s=0.1)
        assert (sender.stats.sent, sender.stats.queued) == (0, 11)
        pull = open_socket(zmq.PULL, connect=sender.endpoints[0])
        assert [pull.recv_multipart()[1:] for _ in range(11)][1:] == [[b"%d" % number] for number in range(10)]
        sender.flush(timeout_s=PATIENCE_S)


def test_over_the_crate_a_reply_to_nobody_is_counted(open_socket):
    with dcp.Broker(bind=ANY, transport="zeromq") as broker:
        worker = open_socket(zmq.DEALER, connect=broker.endpoints[0])
        worker.send_multipart([*HEAD, b"\x01", b"echo"])
        assert worker.recv_multipart() == [*HEAD, b"\x01", b"echo"]
        worker.send_multipart([*HEAD, b"\x05", b"gone", b"", b"", b"x"])
        until(lambda: broker.stats.dropped == {"unroutable": 1})


@pytest.mark.parametrize("name", ["@trunkline-{}", "{}/s"])
def test_the_crate_has_sockets_of_unix(name, open_socket):
    with tempfile.TemporaryDirectory() as path:
        endpoint = f"ipc://{name.format(path)}"
        with cdtp.Receiver(bind=endpoint, transport="zeromq") as receiver:
            assert receiver.endpoints == (endpoint,)
            push = open_socket(zmq.PUSH, connect=endpoint)
            push.send_multipart([wire.header_s(), b"x"])
            assert receiver.receive(timeout_s=PATIENCE_S).payload == (b"x",)
    with pytest.raises(LocalProtocolError, match=r"ipc://\*"):
        cdtp.Receiver(bind="ipc://*", transport="zeromq")


@pytest.mark.parametrize(
    "given",
    [
        {"max_message_bytes": 1000},
        {"max_message_frames": 10},
        {"max_handshake_bytes": 2048},
        {"handshake_timeout_s": 1},
        {"max_connections": 5},
        {"max_connections_per_host": 5},
    ],
    ids=lambda given: next(iter(given)),
)
def test_zeromq_refuses_the_limits_that_it_would_not_keep(given):
    (name,) = given
    with pytest.raises(LocalProtocolError, match=f"transport='zeromq' does not support {name}=: leave it out"):
        cdtp.Receiver(bind=ANY, transport="zeromq", **given)


def test_a_broker_serves_raw_peers(open_socket):
    with dcp.Broker(bind=ANY, transport="zeromq") as broker:
        worker, client = (open_socket(zmq.DEALER, connect=broker.endpoints[0]) for _ in range(2))
        worker.send_multipart([*HEAD, b"\x01", b"echo"])
        assert worker.recv_multipart() == [*HEAD, b"\x01", b"echo"]
        client.send_multipart([*HEAD, b"\x04", b"echo", b"", b"", b"hello"])
        address = worker.recv_multipart()[4]
        worker.send_multipart([*HEAD, b"\x05", address, b"", b"", b"HELLO"])
        assert client.recv_multipart() == [*HEAD, b"\x05", address, b"", b"", b"HELLO"]


def test_worker_and_client_speak_to_a_broker_over_another():
    with (
        dcp.Broker(bind=ANY) as broker,
        dcp.Worker(b"echo", connect=broker.endpoints, transport="zeromq") as worker,
        dcp.Client(connect=broker.endpoints, transport="zeromq") as client,
    ):
        thread = threading.Thread(target=worker.serve, args=(lambda request: request.data,))
        thread.start()
        assert client.request(b"echo", b"hello", timeout_s=PATIENCE_S).data == (b"hello",)
        futures = [client.submit(b"echo", b"%d" % number) for number in range(100)]
        assert [future.result(PATIENCE_S).data for future in futures] == [(b"%d" % number,) for number in range(100)]
        worker.stop()
        thread.join()


@pytest.mark.parametrize(
    ("there", "here"),
    [("libzmq", "zmtp"), ("zmtp", "libzmq"), ("zmtp", "zeromq"), ("zeromq", "zmtp"), ("zeromq", "zeromq")],
)
def test_a_client_queues_and_reads_at_a_server(there, here):
    with (
        mtl.Server(bind=ANY, anonymous=True, resources=["jobs"], transport=there) as server,
        mtl.Client(connect=server.endpoints[0], transport=here) as client,
        client.writer("jobs") as writer,
        client.reader("jobs") as reader,
    ):
        for number in range(100):
            writer.send(b"%d" % number)
        writer.flush(timeout_s=PATIENCE_S)
        reader.summon("jobs")
        for number in range(100):
            content = reader.receive(timeout_s=PATIENCE_S)
            assert content.body == b"%d" % number
            content.confirm()
        assert client.command("Queue.Info", {"name": "jobs"}).body["name"] == "jobs"


def test_a_client_takes_no_answer_without_its_delimiter(context):
    def answers(router, peer):
        router.send_multipart([peer, b"500", b'{"status": "no reply at all"}'])
        answer(router, peer, 200, {"is": "one"})

    playing = Playing(context, (201, {"profiles": ["queue"]}), (200, {}), answers)
    with mtl.Client(connect=playing.endpoint, transport="zeromq") as client:
        assert client.command("My.Command").body["is"] == "one"
    playing.stop()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"curve": Curve(zmq.curve_keypair()[1])}, "curve="),
        ({"options": {zmq.TCP_KEEPALIVE: 1}}, "options="),
        ({"bind": "inproc://a"}, "inproc://a"),
    ],
)
def test_what_it_lacks_is_refused_by_name(given, named):
    with pytest.raises(LocalProtocolError, match=named):
        cdtp.Receiver(**{"bind": ANY, "transport": "zeromq", **given})


def test_sockets_and_contexts_of_pyzmq_are_refused(context, open_socket):
    with pytest.raises(LocalProtocolError, match="context="):
        cdtp.Receiver(bind=ANY, transport="zeromq", context=context)
    with pytest.raises(LocalProtocolError, match="socket="):
        cdtp.Receiver(socket=open_socket(zmq.PULL), transport="zeromq")
    with pytest.raises(ValueError, match="transport"):
        cdtp.Receiver(bind=ANY, transport="nanomsg")


def test_it_is_taken_by_itself_where_pyzmq_gives_no_libzmq_away():
    """A process with another implementation of pyzmq."""
    code = f"""
import sys
from trunkline import _native, cdtp
from trunkline._roles import native
native._library = "none"
_native.use_libzmq("/nowhere/libzmq.so")
with cdtp.Receiver(bind={ANY!r}) as receiver, cdtp.Sender("Det", connect=receiver.endpoints) as sender:
    sender.send(b"hello")
    print(receiver.receive(timeout_s={PATIENCE_S}).payload)
try:
    cdtp.Receiver(bind={ANY!r}, transport="libzmq")
except OSError as error:
    print("refused", "libzmq" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "(b'hello',)\nrefused True\n", done.stderr


def test_the_command_line_has_it(open_socket):
    command = [sys.executable, "-m", "trunkline", "cdtp", "receive", "--bind", ANY, "--transport", "zeromq"]
    with Child([*command, "--count", "1", "--json"], stdout=subprocess.PIPE, text=True) as process:
        (endpoint,) = json.loads(process.stdout.readline())["endpoints"]
        open_socket(zmq.PUSH, connect=endpoint).send_multipart([wire.header_s(), b"x"])
        assert '"sender": "Det"' in process.stdout.read()
    assert process.returncode == 0
