"""Our own transport: what strangers may make it hold, who may have which routing id, and the endpoints there are."""

import contextlib
import os
import socket
import struct
import threading
import time

import pytest
import zmq

from peers import cdtp as cdtp_wire
from peers import dcp as wire
from peers import mc0 as mc0_wire
from peers.roles import ANY, opened
from peers.waiting import PATIENCE_S, until
from peers.zmtp import GREETING, Stranger, ready
from trunkline import Curve, cdtp, dcp, mc0
from trunkline.errors import LocalProtocolError, TrunklineError

LISTENING = {"cdtp.Recorder": b"PUSH", "dcp.Broker": b"DEALER", "mc0.Middleware": b"DEALER", "mtl.Server": b"DEALER"}


@pytest.fixture(params=sorted(LISTENING))
def role(request, tmp_path):
    name = request.param
    with opened(name, tmp_path, transport="zmtp", max_message_bytes=1 << 20) as role:
        assert role.transport == "zmtp"
        yield role


@pytest.fixture
def kind(request):
    """The type of socket that goes with the role's."""
    return LISTENING[request.node.callspec.params["role"]]


@pytest.fixture
def failures(role):
    return lambda: role.stats.connection_failures


def frames(count, flags=1):
    return bytes([flags, 0]) * count


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("not_zmtp", b"GET / HTTP/1.1\r\n\r\n"),
        ("zmtp_1", b"\x01\0"),
        ("bad_socket_type", b"\xff" + bytes(8) + b"\x7f\x01\x01\0\0"),
        ("other_mechanism", GREETING.replace(b"NULL\0", b"CURVE")),
        ("bad_mechanism", GREETING.replace(b"NULL\0", b"PLAIN")),
        ("unexpected_message", GREETING + b"\0\x01x"),
        ("handshake_too_large", GREETING + b"\x06" + struct.pack(">Q", 1 << 30)),
        ("bad_socket_type", GREETING + ready(b"XPUB")),
        ("bad_identity", GREETING + ready(b"DEALER", b"\0\x6b\x8b\x45\x67")),
        ("bad_flags", GREETING + b"\x80\0"),
    ],
)
def test_who_breaks_the_handshake_is_refused_with_a_reason(role, kind, failures, reason, said):
    if reason == "bad_identity" and kind == b"PUSH":
        pytest.skip("a PUSH has no routing id")
    with Stranger(role.endpoints[0]) as stranger:
        stranger.send(said)
        assert stranger.ends()
        until(lambda: failures() == {reason: 1})
    with Stranger(role.endpoints[0]) as other:
        other.shake(kind)


def test_a_peer_of_zmtp_2_is_served(role, kind, failures):
    code = {b"PUSH": b"\x08", b"DEALER": b"\x05"}[kind]
    with Stranger(role.endpoints[0]) as old:
        old.send(GREETING[:10] + b"\x01" + code + b"\0\0")
        ours = {b"PUSH": b"\x07", b"DEALER": b"\x06"}[kind]
        assert old.take(14) == GREETING[:11] + ours + b"\0\0"
        if kind == b"PUSH":
            header, payload = cdtp_wire.header_b(1), b"payload"
            old.send(bytes([1, len(header)]) + header + bytes([0, len(payload)]) + payload)
            role.wait(count=1, timeout_s=PATIENCE_S)
    assert failures() == {}


def test_no_peer_of_zmtp_2_is_taken_for_an_encrypted_one():
    with cdtp.Receiver(bind=ANY, transport="zmtp", curve=Curve(zmq.curve_keypair())) as receiver:
        with Stranger(receiver.endpoints[0]) as old:
            old.send(GREETING[:10] + b"\x01\x08\0\0")
            assert old.ends()
            until(lambda: receiver.stats.connection_failures == {"zmtp_2": 1})


def test_handshakes_that_do_not_end_cost_none_but_themselves(role, kind, failures):
    begun = b"\x06" + struct.pack(">Q", 65_000) + bytes(60_000)
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(Stranger(role.endpoints[0])).shake(kind)
        large = b"\x03" + struct.pack(">Q", 900_000)
        honest.send(large + bytes(500_000))
        strangers = [stack.enter_context(Stranger(role.endpoints[0])) for _ in range(300)]
        for stranger in strangers:
            stranger.send(GREETING + begun)
        assert strangers[0].ends(), "the oldest goes first"
        honest.send(bytes(399_999))
        until(lambda: set(failures()) == {"crowded"})
        assert failures()["crowded"] < 100
        assert honest.send(b"x")


@pytest.mark.parametrize(
    "host",
    [
        "/127.0.0.1",
        "a b",
        "user@127.0.0.1",
        "127.0.0.1/",
        "host,other",
        "-x",
        "http://h",
        "localhost ",
        "höst",
        "[::1",
        "[]",
        "a..b",
    ],
)
def test_what_cannot_be_a_host_is_refused_at_once(host):
    with pytest.raises(LocalProtocolError, match="endpoint"):
        cdtp.Sender("Det", connect=f"tcp://{host}:5555")


@pytest.mark.parametrize("scheme", ["udp", "tipc", "http"])
def test_other_kinds_of_endpoints_are_refused(scheme):
    with pytest.raises(LocalProtocolError, match="endpoint"):
        cdtp.Sender("Det", connect=f"{scheme}://127.0.0.1:5555")


def test_heartbeats_without_a_time_out_end_no_connection():
    options = {zmq.HEARTBEAT_IVL: 50, zmq.HEARTBEAT_TIMEOUT: 0}
    with mc0.Middleware(bind=ANY, transport="zmtp", options=options) as bus:
        silent = Stranger(bus.endpoints[0]).shake(b"DEALER")
        for _ in range(3):
            assert silent.take(9)[3:7] == b"PING"
        assert bus.stats.connection_failures == {}
        silent.stream.close()


def test_a_peer_that_has_closed_loses_nothing_by_its_heartbeats():
    ping = b"\x04\x07\x04PING\0\0"
    header = cdtp_wire.header_b(1)
    message = bytes([1, len(header)]) + header + b"\x02" + struct.pack(">Q", 1000) + bytes(1000)
    part = message * 450 + ping
    with cdtp.Receiver(bind=ANY, transport="zmtp", queue_messages=10) as receiver:
        with Stranger(receiver.endpoints[0]).shake(b"PUSH") as stranger:
            stranger.stream.settimeout(0)
            # As much as the systems take, as nothing is received before it has closed.
            sent = stranger.stream.send(part * 20)
        assert sent > len(part) + (256 << 10), "a PING is answered before all is read"
        parts, rest = divmod(sent, len(part))
        for _ in range(parts * 450 + min(rest // len(message), 450)):
            receiver.receive(timeout_s=PATIENCE_S)


def test_a_message_without_an_end_is_refused_at_the_frame_that_passes_the_limit(role, kind, failures):
    with Stranger(role.endpoints[0]) as stranger:
        stranger.shake(kind)
        # Each is empty, and the last one would be one too many.
        stranger.send(frames(10_001))
        stranger.send(frames(1))
        assert stranger.ends()
        until(lambda: failures() == {"too_many_frames": 1})
    assert role.stats.received == 0


def test_bytes_count_over_the_frames_of_a_message_and_before_they_come(role, kind, failures):
    half = b"\x03" + struct.pack(">Q", 600_000)
    with Stranger(role.endpoints[0]) as stranger:
        stranger.shake(kind)
        stranger.send(half + bytes(600_000))
        assert stranger.send(half[:1])
        assert failures() == {}
        # Not one byte of it was sent.
        stranger.send(half[1:])
        assert stranger.ends()
        until(lambda: failures() == {"message_too_large": 1})


def test_who_is_slow_to_say_who_it_is_is_hung_up_on_and_others_are_not_kept_waiting():
    with dcp.Broker(bind=ANY, transport="zmtp", options={zmq.HANDSHAKE_IVL: 300}) as broker:
        silent = [Stranger(broker.endpoints[0]) for _ in range(50)]
        slow = Stranger(broker.endpoints[0])
        with Stranger(broker.endpoints[0]) as honest:
            honest.shake(b"DEALER")
            for byte in GREETING[:20]:
                if not slow.send(bytes([byte])):
                    break
                time.sleep(0.03)
            until(lambda: broker.stats.connection_failures == {"handshake_timeout": 51})
            assert broker.stats.peers == 1
        for stranger in [*silent, slow]:
            assert stranger.ends()
            stranger.stream.close()


def test_heartbeats_are_answered_under_a_flood(open_socket, tmp_path):
    with cdtp.Recorder(tmp_path / "capture", bind=ANY, transport="zmtp") as recorder:
        push = open_socket(zmq.PUSH, heartbeat_ivl=50, heartbeat_timeout=400, heartbeat_ttl=400)
        monitor = push.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        push.connect(recorder.endpoints[0])
        end, sent = time.monotonic() + 1.5, 0
        while time.monotonic() < end:
            push.send_multipart([cdtp_wire.header_b(sent), bytes(32 << 10)])
            sent += 1
        recorder.wait(count=sent, timeout_s=PATIENCE_S)
        assert monitor.poll(0) == 0
        push.disable_monitor()
        monitor.close()
        assert (recorder.stats.received, recorder.stats.connection_failures) == (sent, {})


def test_a_role_closes_in_time_whatever_its_peers_send(role, kind):
    with Stranger(role.endpoints[0]) as stranger:
        stranger.shake(kind)
        is_over = threading.Event()

        def flood():
            while not is_over.is_set() and stranger.send(bytes([1, 0]) * 1000 + bytes([0, 0])):
                pass

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            until(lambda: role.stats.received > 0 or role.stats.dropped)
            began = time.monotonic()
            role.close()
            # A recorder goes on for up to 5 s with what still comes.
            assert time.monotonic() - began < 8
        finally:
            is_over.set()
            flooding.join()


@pytest.mark.req("DCP-03")
def test_a_routing_id_that_is_taken_is_refused(open_socket):
    with dcp.Broker(bind=ANY, transport="zmtp") as broker:
        worker = open_socket(zmq.DEALER, connect=broker.endpoints[0], routing_id=b"W")
        worker.send_multipart(wire.register(b"echo"))
        until(lambda: broker.stats.peers == 1)
        with Stranger(broker.endpoints[0]) as stranger:
            stranger.send(GREETING + ready(b"DEALER", b"W"))
            assert stranger.ends()
        until(lambda: broker.stats.connection_failures == {"identity_taken": 1})
        client = open_socket(zmq.DEALER, connect=broker.endpoints[0])
        client.send_multipart(wire.request(b"echo", b"1"))
        until(lambda: b"1" in worker.recv_multipart())
        broker.close(drain_s=0)


@pytest.mark.parametrize("is_same", [True, False])
def test_who_takes_over_a_routing_id_has_what_it_was_for_only_as_the_same_user(open_socket, is_same):
    server, first, second = (zmq.curve_keypair() for _ in range(3))

    def dial(keys, **options):
        own = {"curve_publickey": keys[0], "curve_secretkey": keys[1], "curve_serverkey": server[0]}
        return open_socket(zmq.DEALER, connect=broker.endpoints[0], **own, **options)

    with dcp.Broker(bind=ANY, transport="zmtp", curve=Curve(server, allow=[first, second])) as broker:
        worker = dial(first, routing_id=b"W")
        worker.send_multipart(wire.register(b"pay"))
        until(lambda: [service.workers for service in broker.stats.services] == [1])
        worker.close(linger=0)
        until(lambda: broker.stats.peers == 0)
        heir = dial(first if is_same else second, routing_id=b"W")
        until(lambda: broker.stats.peers == 1)
        dial(first).send_multipart(wire.request(b"pay", b"card 4712"))
        until(lambda: broker.stats.received == 2)
        if is_same:
            assert heir.recv_multipart()[-1] == b"card 4712"
        else:
            heir.rcvtimeo = 300
            with pytest.raises(zmq.Again):
                heir.recv_multipart()
        broker.close(drain_s=0)


@pytest.mark.parametrize("handover", [0, 1])
def test_a_routing_id_does_not_move_to_another_host(open_socket, handover):
    """What a role keeps for it stays where it was, and with it the routing id, also of a user who is known by a key."""
    server, keys = zmq.curve_keypair(), zmq.curve_keypair()
    options = {zmq.ROUTER_HANDOVER: handover}

    def dial(host):
        port = broker.endpoints[0].rsplit(":", 1)[1]
        own = {"curve_publickey": keys[0], "curve_secretkey": keys[1], "curve_serverkey": server[0]}
        return open_socket(zmq.DEALER, connect=f"tcp://{host}:0;127.0.0.1:{port}", **own, routing_id=b"W")

    with dcp.Broker(bind=ANY, transport="zmtp", curve=Curve(server, allow=[keys]), options=options) as broker:
        worker = dial("127.0.0.1")
        worker.send_multipart(wire.register(b"pay"))
        until(lambda: broker.stats.peers == 1)
        dial("127.0.0.2")
        until(lambda: broker.stats.connection_failures.get("identity_taken"))
        assert broker.stats.connection_failures.keys() == {"identity_taken"}
        assert [service.workers for service in broker.stats.services] == [1]
        dial("127.0.0.1")
        reason = "handed_over" if handover else "identity_taken"
        until(lambda: broker.stats.connection_failures.get(reason, 0) > 1 - handover)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_subscription_goes_on_for_the_same_host_alone(open_socket, host):
    def dial(host, **options):
        port = middleware.endpoints[0].rsplit(":", 1)[1]
        return open_socket(zmq.DEALER, connect=f"tcp://{host}:0;127.0.0.1:{port}", **options)

    with mc0.Middleware(bind=ANY, transport="zmtp") as middleware:
        subscriber = dial("127.0.0.1", routing_id=b"S")
        subscriber.send_multipart(mc0_wire.sub(b"topic", id_=b"1"))
        subscriber.recv_multipart()
        subscriber.close(linger=0)
        until(lambda: middleware.stats.peers == 0)
        subscriber = dial(host, routing_id=b"S")
        until(lambda: middleware.stats.peers == 1)
        dial("127.0.0.1").send_multipart(mc0_wire.put(b"topic", b"content"))
        until(lambda: middleware.stats.received == 2)
        if host == "127.0.0.1":
            assert b"content" in subscriber.recv_multipart()
        else:
            subscriber.rcvtimeo = 300
            with pytest.raises(zmq.Again):
                subscriber.recv_multipart()


HUGE = b"\x02" + struct.pack(">Q", 1 << 40)


class Server:
    """A ROUTER that says this on every connection, and then reads until its peer hangs up; it does not hang up itself."""

    def __init__(self, said):
        self.said = GREETING + ready(b"ROUTER") + said
        self.streams = []

    def __enter__(self):
        self.connections = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listening.getsockname()[1]}"
        self.serving = threading.Thread(target=self.serve)
        self.serving.start()
        return self

    def __exit__(self, *_):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.serving.join()
        self.listening.close()
        for stream in self.streams:
            stream.close()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                stream, _ = self.listening.accept()
                self.connections += 1
                self.streams.append(stream)
                with contextlib.suppress(OSError):
                    stream.sendall(self.said)
                    while stream.recv(1 << 16):
                        pass


@pytest.mark.parametrize("name", ["dcp.Client", "dcp.Worker", "mc0.Connector"])
def test_those_that_dial_count_the_connections_they_give_up(name, tmp_path):
    with Server(HUGE) as server, opened(name, tmp_path, connect=server.endpoint, transport="zmtp") as role:
        until(lambda: role.stats.connection_failures.get("message_too_large"))


def test_what_the_system_of_a_peer_has_is_sent(tmp_path):
    """Also where the peer does not hang up."""
    with Server(b"") as server:
        connector = opened("mc0.Connector", tmp_path, connect=server.endpoint, transport="zmtp")
        until(lambda: connector.stats.sent > 0)
        connector.close(drain_s=0)


@pytest.mark.parametrize("transport", ["zmtp", "libzmq"])
def test_a_server_that_hangs_up_without_a_word_is_not_dialled_on_and_on(transport, tmp_path):
    with Server(HUGE) as server, pytest.raises(TrunklineError, match="no session"):
        opened("mtl.Client", tmp_path, connect=server.endpoint, transport=transport, timeout_s=1)
    # At once, and after 0.1, 0.2, 0.4 and 0.8 s; each time our own transport dials again itself.
    assert 1 < server.connections < 12


@pytest.mark.parametrize(
    ("option", "said", "reason"),
    [
        ({"max_message_frames": 3}, frames(4), "too_many_frames"),
        ({"max_handshake_bytes": 1024}, b"\x06" + struct.pack(">Q", 2000), "command_too_large"),
        ({"max_message_bytes": 1000}, b"\x02" + struct.pack(">Q", 1001), "message_too_large"),
    ],
)
def test_limits_are_options(option, said, reason):
    with dcp.Broker(bind=ANY, transport="zmtp", **option) as broker:
        with Stranger(broker.endpoints[0]).shake(b"DEALER") as stranger:
            stranger.send(said)
            assert stranger.ends()
        until(lambda: broker.stats.connection_failures == {reason: 1})


@pytest.mark.parametrize("transport", ["zmtp", "libzmq"])
def test_the_time_of_a_handshake_is_an_option(transport):
    with dcp.Broker(bind=ANY, transport=transport, handshake_timeout_s=0.1) as broker:
        began = time.monotonic()
        with Stranger(broker.endpoints[0]) as stranger:
            assert stranger.ends()
        assert time.monotonic() - began < 4


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"max_message_frames": 10_001}, "max_message_frames must be"),
        ({"max_handshake_bytes": 1023}, "max_handshake_bytes must be at least 1024"),
        ({"handshake_timeout_s": 0}, "handshake_timeout_s must be a number of seconds, 0.001 or more, not 0"),
    ],
)
def test_limits_out_of_range_are_refused(option, words):
    with pytest.raises(ValueError, match=words):
        dcp.Broker(bind=ANY, **option)


def test_endpoints_are_interfaces_addresses_and_paths(tmp_path):
    path = f"ipc://{tmp_path}/socket"
    binds = ["tcp://lo:*", "tcp://[::1]:*", path, f"ipc://@trunkline-{os.getpid()}", "ipc://*"]
    with cdtp.Receiver(bind=binds, transport="zmtp") as receiver:
        assert receiver.endpoints[0].startswith("tcp://127.0.0.1:")
        assert receiver.endpoints[1].startswith("tcp://[::1]:")
        assert receiver.endpoints[2:4] == tuple(binds[2:4])
        for endpoint in receiver.endpoints:
            with cdtp.Sender("Det", connect=endpoint, transport="zmtp", header="A") as sender:
                sender.begin_run()
                sender.end_run()
            run = [receiver.receive(timeout_s=PATIENCE_S) for _ in range(2)]
            assert [message.type for message in run] == ["BOR", "EOR"]
        assert (tmp_path / "socket").is_socket()
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize("transport", ["zmtp", "libzmq"])
def test_a_name_is_listened_at(transport):
    with dcp.Broker(bind="tcp://localhost:*", transport=transport) as broker:
        assert broker.endpoints[0].startswith("tcp://127.0.0.1:")
        with dcp.Worker(b"echo", connect=broker.endpoints) as worker, dcp.Client(connect=broker.endpoints) as client:
            future = client.submit(b"echo", [b"hello"])
            worker.receive(timeout_s=PATIENCE_S).reply([b"there"])
            assert future.result(PATIENCE_S).data == (b"there",)


def test_the_socket_of_one_that_was_killed_is_taken_over_and_that_of_one_that_lives_is_not(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with dcp.Broker(bind=f"ipc://{path}", transport="zmtp"):
        with pytest.raises(OSError, match="Address already in use"):
            dcp.Broker(bind=f"ipc://{path}", transport="zmtp")
        assert path.exists()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"context": True}, "context="),
        ({"bind": "inproc://here"}, "inproc://here"),
        ({"options": {9999: 1}}, "option"),
        ({"bind": "tcp://nosuchcard:*"}, "No such device"),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(given, named):
    if "context" in given:
        given = {"context": zmq.Context.instance()}
    with pytest.raises((LocalProtocolError, OSError), match=named):
        dcp.Broker(**{"bind": ANY, **given}, transport="zmtp")


def test_a_host_that_comes_later_by_name_is_found(open_socket):
    """A name is looked up each time it is dialled."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with dcp.Client(connect=f"tcp://localhost:{port}", transport="zmtp") as client:
        router = open_socket(zmq.ROUTER, bind=f"tcp://127.0.0.1:{port}")
        with pytest.raises(TrunklineError):
            client.request(b"echo", [b"x"], timeout_s=1)
        assert router.recv_multipart()[-1] == b"x"


@pytest.mark.parametrize("transport", ["zmtp", "libzmq"])
def test_a_sender_that_closes_leaves_its_last_messages_with_a_slow_receiver_that_sends_heartbeats(transport):
    """A PING at a system that has closed would have it throw away what it has not sent yet."""
    options = {zmq.HEARTBEAT_IVL: 100}
    with cdtp.Receiver(bind=ANY, queue_bytes=1000, options=options, transport="zmtp") as receiver:
        received = []
        with cdtp.Sender("Det", connect=receiver.endpoints[0], transport=transport) as sender:
            for number in range(200):
                sender.send([b"%d" % number, bytes(20_000)])
            closing = threading.Thread(target=sender.close, kwargs={"linger_s": PATIENCE_S})
            closing.start()
            while len(received) < 200:
                received.append(int(bytes(receiver.receive(timeout_s=PATIENCE_S).payload[0])))
                # Slowly, for a part of them: heartbeats go meanwhile.
                time.sleep(0.02 if len(received) < 50 else 0)
            closing.join()
        assert received == list(range(200))


def test_what_waits_for_its_turn_when_a_role_closes_goes_out_at_once(open_socket):
    """More than fits into the system, so that its last piece is written while nothing else comes up."""
    for _ in range(20):
        pull = open_socket(zmq.PULL, bind=ANY)
        sender = cdtp.Sender("Det", connect=pull.last_endpoint.decode(), transport="zmtp")
        for _ in range(4):
            sender.send(bytes(3_000_000))
        closing = threading.Thread(target=sender.close, kwargs={"linger_s": 10 * PATIENCE_S})
        closing.start()
        assert [len(pull.recv_multipart()[1]) for _ in range(4)] == [3_000_000] * 4
        closing.join(PATIENCE_S)
        assert not closing.is_alive()
