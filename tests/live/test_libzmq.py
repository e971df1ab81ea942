"""Our own transport against sockets of older libzmqs, and of the one that pyzmq has: both ways, through the roles."""

import hashlib
import random
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

from peers import cdtp as cdtp_wire
from peers import dcp as dcp_wire
from peers import mc0 as mc0_wire
from peers.libzmq import RUNS_HERE, VERSIONS, Libzmq
from peers.mtl import Peers, Playing, confirm, content
from peers.waiting import PATIENCE_S, until
from trunkline import Curve, capture, cdtp, dcp, mc0, mtl

pytestmark = pytest.mark.skipif(not RUNS_HERE, reason="the wheels with older libzmqs are for x86_64 and glibc")

ANY = "tcp://127.0.0.1:*"
SERVER, CLIENT, OTHER = (zmq.curve_keypair() for _ in range(3))

# Around what changes with size: the heads of frames, what is read at a time, the slabs that it lands in.
SIZES = [0, 1, 255, 256, 8192, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 1 << 20]
BODIES = [random.Random(size).randbytes(size) for size in SIZES]
MANY = [b"%d" % number for number in range(1000)]
PAYLOADS = [*([body] for body in BODIES), MANY, BODIES, [b""] * 10]


def marks(frames):
    """What frames are, in a length that can be shown."""
    return [(len(frame), hashlib.sha256(frame).hexdigest()) for frame in frames]


def as_client(keys, server_key=SERVER[0]):
    return {"curve_publickey": keys[0], "curve_secretkey": keys[1], "curve_serverkey": server_key}


@pytest.fixture(params=VERSIONS)
def start(request):
    """Starts processes with a libzmq of one version; they end with the test."""
    running = []

    def start():
        running.append(Libzmq(request.param))
        return running[-1]

    yield start
    for process in running:
        process.kill()


@pytest.fixture
def old(start):
    return start()


@pytest.fixture
def open_old(old):
    return old.open


@pytest.fixture
def threads():
    """Runs what blocks, while the test plays the other side."""
    with ThreadPoolExecutor(2) as pool:
        yield pool.submit


class Place:
    """Where a connection is made, and what either side has to be given for it."""

    def __init__(self, name, tmp_path):
        self.bind = f"ipc://{tmp_path}/socket" if name == "ipc" else ANY
        self.is_secret = name == "curve"

    def ours(self, side):
        if not self.is_secret:
            return {"transport": "zmtp"}
        curve = Curve(SERVER) if side == "bind" else Curve(CLIENT, server_key=SERVER[0])
        return {"transport": "zmtp", "curve": curve}

    def theirs(self, side):
        if not self.is_secret:
            return {}
        return {"curve_server": 1, "curve_secretkey": SERVER[1]} if side == "bind" else as_client(CLIENT)


EVERYWHERE = pytest.mark.parametrize("place", ["tcp", "ipc", "curve"], indirect=True)


@pytest.fixture(params=["tcp", "curve"])
def place(request, old, tmp_path):
    if request.param == "curve" and not old.has_curve:
        pytest.skip("this libzmq was built without CURVE")
    return Place(request.param, tmp_path)


def beats(old, kind):
    """Heartbeats that a connection has among its messages, where the library knows them: a REQ of 4.2 hangs up on its own."""
    is_able = old.version >= ((4, 3) if kind == zmq.REQ else (4, 2))
    return {"heartbeat_ivl": 20, "heartbeat_timeout": 10_000, "heartbeat_ttl": 10_000} if is_able else {}


def connected(place, old, kind, role, **options):
    """A socket at a role that listens."""
    return old.open(kind, connect=role.endpoints[0], **place.theirs("connect"), **beats(old, kind), **options)


def bound(place, old, kind):
    """A socket that listens."""
    return old.open(kind, bind=place.bind, **place.theirs("bind"), **beats(old, kind))


def joined(place, old, ours, role, kind):
    """A role and a socket, one of which is bound, and the other connected to it."""
    if ours == "bind":
        opened = role(bind=place.bind, **place.ours("bind"))
        return opened, connected(place, old, kind, opened)
    theirs = bound(place, old, kind)
    return role(connect=theirs.last_endpoint.decode(), **place.ours("connect")), theirs


# Messages of every size.


@EVERYWHERE
@pytest.mark.parametrize("ours", ["bind", "connect"])
def test_a_receiver_has_what_a_push_sends(old, place, ours):
    receiver, push = joined(place, old, ours, cdtp.Receiver, zmq.PUSH)
    with receiver:
        assert push.send_all([[cdtp_wire.header_s(), *payload] for payload in PAYLOADS]) == len(PAYLOADS)
        for payload in PAYLOADS:
            assert marks(receiver.receive(timeout_s=PATIENCE_S).payload) == marks(payload)
        assert push.send_all([[cdtp_wire.header_s(), b"%d" % number] for number in range(5000)]) == 5000
        received = [receiver.receive(timeout_s=PATIENCE_S).payload for _ in range(5000)]
        assert received == [(b"%d" % number,) for number in range(5000)]
        assert (receiver.stats.dropped, receiver.stats.connection_failures) == ({}, {})


@EVERYWHERE
@pytest.mark.parametrize("ours", ["bind", "connect"])
def test_a_pull_has_what_a_sender_sends(old, place, ours):
    sender, pull = joined(place, old, ours, lambda **given: cdtp.Sender("Det", **given), zmq.PULL)
    with sender:
        for payload in PAYLOADS:
            sender.send(payload)
        for payload, (_, *received) in zip(PAYLOADS, pull.receive_all(len(PAYLOADS)), strict=True):
            assert marks(received) == marks(payload)
        for number in range(5000):
            sender.send(b"%d" % number)
        assert [frames[1] for frames in pull.receive_all(5000)] == [b"%d" % number for number in range(5000)]
        assert (sender.stats.at_risk, sender.stats.connection_failures) == (0, {})


@EVERYWHERE
def test_a_broker_passes_requests_of_every_kind_of_peer(old, place):
    with dcp.Broker(bind=place.bind, **place.ours("bind")) as broker:
        worker = connected(place, old, zmq.DEALER, broker, routing_id=b"worker")
        dealer, req = (connected(place, old, kind, broker) for kind in (zmq.DEALER, zmq.REQ))
        worker.send_multipart(dcp_wire.register(b"echo"))
        assert worker.recv_multipart() == dcp_wire.register(b"echo")
        for payload in PAYLOADS:
            for client, skipped in ((dealer, 0), (req, 1)):
                # A REQ has the first, empty frame to itself.
                client.send_multipart(dcp_wire.request(b"echo", *payload)[skipped:])
                asked = worker.recv_multipart()
                assert marks(dcp_wire.data_of(asked)) == marks(payload)
                worker.send_multipart(dcp_wire.answer(asked, *payload))
                replied = client.recv_multipart()
                assert replied[: 3 - skipped] == [b"", b"DGBX\x01", b"\x05"][skipped:]
                assert marks(replied[-len(payload) :]) == marks(payload)
        assert (broker.stats.dropped, broker.stats.connection_failures) == ({}, {})
        broker.close(drain_s=0)


def test_a_worker_answers_a_router(old, place, threads):
    router = bound(place, old, zmq.ROUTER)
    with dcp.Worker(b"echo", connect=router.last_endpoint.decode(), **place.ours("connect")) as worker:
        serving = threads(worker.serve, lambda request: request.data)
        peer, *frames = router.recv_multipart()
        assert frames == dcp_wire.register(b"echo")
        router.send_multipart([peer, *frames])
        for payload in PAYLOADS:
            router.send_multipart([peer, *dcp_wire.request(b"echo", *payload, client=b"c")])
            while (frames := router.recv_multipart()[1:]) == dcp_wire.PONG:
                pass
            assert marks(frames) == marks(dcp_wire.reply(b"c", *payload))
        worker.stop()
        # It leaves by a registration, which is confirmed as any is.
        peer, *frames = router.recv_multipart()
        router.send_multipart([peer, *frames])
        serving.result(PATIENCE_S)


def test_a_client_asks_a_router(old, place):
    router = bound(place, old, zmq.ROUTER)
    with dcp.Client(connect=router.last_endpoint.decode(), **place.ours("connect")) as client:
        for payload in PAYLOADS:
            future = client.submit(b"echo", payload)
            peer, *frames = router.recv_multipart()
            end = frames.index(b"", 5)
            assert marks(frames[end + 1 :]) == marks(payload)
            router.send_multipart([peer, *dcp_wire.reply(peer, *payload, metadata=frames[5:end])])
            assert marks(future.result(PATIENCE_S).data) == marks(payload)


def test_a_server_takes_commands_and_contents(old, place):
    with mtl.Server(bind=place.bind, anonymous=True, resources=["jobs"], **place.ours("bind")) as server:
        peers = Peers(old.open, server, **place.theirs("connect"))
        writer, reader = peers.writer(confirm="full"), peers.reader()
        for sequence, body in enumerate(BODIES, 1):
            writer.send_multipart(content(sequence, "", body))
            assert marks(reader.recv_multipart()) == marks(content(sequence, "jobs", body))
            assert writer.recv_multipart() == confirm(sequence)
        server.close(drain_s=0)


def test_a_client_sends_commands_to_a_router(old):
    playing = Playing(old, (201, {"profiles": ["queue"]}), (200, {}), *((200, {"x": "y" * size}) for size in SIZES))
    with mtl.Client(connect=playing.endpoint, transport="zmtp") as client:
        for size in SIZES:
            assert client.command("My.Command", {"size": size}).body["x"] == "y" * size
        assert [said.get("size") for _, said in playing.asked[2:]] == SIZES
    playing.stop()


def test_a_middleware_passes_what_is_put_to_subscribers(old, place):
    with mc0.Middleware(bind=place.bind, **place.ours("bind")) as bus:
        publisher, *subscribers = (connected(place, old, zmq.DEALER, bus) for _ in range(3))
        for subscriber in subscribers:
            subscriber.send_multipart(mc0_wire.sub(b"t", id_=b"1"))
            assert subscriber.recv_multipart() == mc0_wire.ok(b"1")
        for payload in PAYLOADS:
            publisher.send_multipart(mc0_wire.put(b"t", *payload))
            for subscriber in subscribers:
                assert marks(subscriber.recv_multipart()) == marks(mc0_wire.message(b"t", *payload))
        bus.close(drain_s=0)


def test_a_connector_reads_and_puts_at_a_router(old, place, threads):
    bus = mc0_wire.Middleware(bound(place, old, zmq.ROUTER))
    with mc0.Connector(connect=bus.endpoint, **place.ours("connect")) as connector:
        peer = bus.hears(b"CONNECT").peer
        subscribing = threads(connector.subscribe, "t", timeout_s=PATIENCE_S)
        bus.confirms(b"SUB")
        subscribing.result(PATIENCE_S)
        for payload in PAYLOADS:
            connector.put("t", payload)
            assert marks(bus.hears(b"PUT").frames) == marks(mc0_wire.put(b"t", *payload))
            bus.say(peer, mc0_wire.message(b"t", *payload))
            assert marks(connector.receive(timeout_s=PATIENCE_S).body) == marks(payload)
        connector.close(drain_s=0)


def test_a_large_message_goes_there_and_back(open_old):
    body = random.Random(0).randbytes(20 << 20)
    with dcp.Broker(bind=ANY, transport="zmtp") as broker:
        worker, client = (open_old(kind, connect=broker.endpoints[0]) for kind in (zmq.DEALER, zmq.REQ))
        worker.send_multipart(dcp_wire.register(b"echo"))
        assert worker.recv_multipart() == dcp_wire.register(b"echo")
        client.send_multipart(dcp_wire.request(b"echo", body)[1:])
        asked = worker.recv_multipart()
        assert marks(dcp_wire.data_of(asked)) == marks([body])
        worker.send_multipart(dcp_wire.answer(asked, body))
        assert marks(client.recv_multipart()[-1:]) == marks([body])
        broker.close(drain_s=0)


# Who has which routing id.


def test_a_routing_id_is_its_holders_until_that_one_leaves(open_old):
    with dcp.Broker(bind=ANY, transport="zmtp") as broker:
        holder, other = (open_old(zmq.DEALER, routing_id=b"w" * 255) for _ in range(2))
        client = open_old(zmq.DEALER, connect=broker.endpoints[0])
        holder.connect(broker.endpoints[0])
        holder.send_multipart(dcp_wire.register(b"echo"))
        assert holder.recv_multipart() == dcp_wire.register(b"echo")
        other.connect(broker.endpoints[0])
        other.send_multipart(dcp_wire.register(b"other"))
        until(lambda: broker.stats.connection_failures.get("identity_taken"))
        client.send_multipart(dcp_wire.request(b"echo", b"x"))
        assert holder.recv_multipart()[-1] == b"x"
        assert [service.service for service in broker.stats.services] == [b"echo"]
        # It has dialled again and again, and now it is admitted.
        holder.close()
        assert other.recv_multipart() == dcp_wire.register(b"other")
        broker.close(drain_s=0)


def test_a_routing_id_is_handed_over_where_that_is_wanted(open_old):
    options = {zmq.ROUTER_HANDOVER: 1}
    with dcp.Broker(bind=ANY, transport="zmtp", options=options) as broker:
        # Who has lost it must not come back for it.
        first, second = (open_old(zmq.DEALER, routing_id=b"W", reconnect_ivl=-1) for _ in range(2))
        gone = first.monitor(zmq.EVENT_DISCONNECTED)
        for dealer in (first, second):
            dealer.connect(broker.endpoints[0])
            dealer.send_multipart(dcp_wire.register(b"echo"))
            assert dealer.recv_multipart() == dcp_wire.register(b"echo")
        assert gone.recv_multipart()
        assert broker.stats.connection_failures == {"handed_over": 1}
        client = open_old(zmq.DEALER, connect=broker.endpoints[0])
        client.send_multipart(dcp_wire.request(b"echo", b"x"))
        assert second.recv_multipart()[-1] == b"x"
        broker.close(drain_s=0)


# Heartbeats.


def watched(open_old, receiver, **options):
    """A PUSH with its first message received, and the monitor of its disconnect."""
    push = open_old(zmq.PUSH, **options)
    gone = push.monitor(zmq.EVENT_DISCONNECTED)
    push.connect(receiver.endpoints[0])
    push.send_multipart([cdtp_wire.header_s(), b"x"])
    assert receiver.receive(timeout_s=PATIENCE_S).payload == (b"x",)
    return push, gone


def test_heartbeats_of_theirs_are_answered_and_their_ttl_is_kept(old, open_old):
    if old.version < (4, 2):
        pytest.skip("this libzmq has no heartbeats")
    with cdtp.Receiver(bind=ANY, transport="zmtp") as receiver:
        push, gone = watched(open_old, receiver, heartbeat_ivl=50, heartbeat_timeout=500, heartbeat_ttl=500)
        assert not gone.poll(1200)
        assert receiver.stats.connection_failures == {}
        old.process.send_signal(signal.SIGSTOP)
        until(lambda: receiver.stats.connection_failures == {"ttl_expired": 1})
        old.process.send_signal(signal.SIGCONT)
        assert gone.recv_multipart()
        push.send_multipart([cdtp_wire.header_s(), b"y"])
        assert receiver.receive(timeout_s=PATIENCE_S).payload == (b"y",)


def test_heartbeats_of_ours_do_not_drive_anybody_away(old, open_old):
    options = {zmq.HEARTBEAT_IVL: 50, zmq.HEARTBEAT_TIMEOUT: 500}
    with cdtp.Receiver(bind=ANY, transport="zmtp", options=options) as receiver:
        _, gone = watched(open_old, receiver)
        assert not gone.poll(1200)
        assert receiver.stats.connection_failures == {}
        # Only these say that they speak ZMTP 3.1.
        if old.version >= (4, 3, 3):
            old.process.send_signal(signal.SIGSTOP)
            until(lambda: receiver.stats.connection_failures == {"heartbeat_timeout": 1})


def test_who_sends_heartbeats_is_asked_for_them_whatever_version_it_says(old, open_old):
    if old.version < (4, 2):
        pytest.skip("this libzmq has no heartbeats")
    options = {zmq.HEARTBEAT_IVL: 50, zmq.HEARTBEAT_TIMEOUT: 500}
    with cdtp.Receiver(bind=ANY, transport="zmtp", options=options) as receiver:
        _, gone = watched(open_old, receiver, heartbeat_ivl=50, heartbeat_timeout=10_000)
        assert not gone.poll(800)
        old.process.send_signal(signal.SIGSTOP)
        until(lambda: receiver.stats.connection_failures == {"heartbeat_timeout": 1})


# Who goes away, and comes again.


def test_a_push_finds_a_receiver_that_has_restarted(open_old, tmp_path):
    with cdtp.Recorder(tmp_path / "capture", bind=ANY, transport="zmtp") as recorder:
        (endpoint,) = recorder.endpoints
        push = open_old(zmq.PUSH)
        gone = push.monitor(zmq.EVENT_DISCONNECTED)
        push.connect(endpoint)
        push.send_multipart([cdtp_wire.header_s(), b"0"])
        recorder.wait(count=1, timeout_s=PATIENCE_S)
    assert gone.recv_multipart()
    assert push.send_all([[cdtp_wire.header_s(), b"%d" % number] for number in range(1, 4)]) == 3
    with cdtp.Recorder(tmp_path / "capture", bind=endpoint, transport="zmtp") as recorder:
        recorder.wait(count=3, timeout_s=PATIENCE_S)
    recorded = [message.payload for message in capture.open(tmp_path / "capture").messages("cdtp")]
    assert recorded == [(b"%d" % number,) for number in range(4)]


def test_a_sender_finds_a_pull_that_was_killed(start):
    first = start()
    pull = first.open(zmq.PULL, bind=ANY)
    with cdtp.Sender("Det", connect=pull.last_endpoint.decode(), transport="zmtp") as sender:
        sender.send(b"0")
        assert pull.recv_multipart()[1] == b"0"
        first.kill()
        until(lambda: sender.stats.at_risk)
        for number in range(1, 4):
            sender.send(b"%d" % number)
        again = start().open(zmq.PULL, bind=pull.last_endpoint.decode())
        assert [frames[1] for frames in again.receive_all(3)] == [b"1", b"2", b"3"]


def test_a_worker_finds_a_router_that_was_killed(start, threads):
    first = start()
    router = first.open(zmq.ROUTER, bind=ANY)
    with dcp.Worker(b"echo", connect=router.last_endpoint.decode(), transport="zmtp") as worker:
        serving = threads(worker.serve, lambda request: request.data)
        assert router.recv_multipart()[1:] == dcp_wire.register(b"echo")
        first.kill()
        again = start().open(zmq.ROUTER, bind=router.last_endpoint.decode())
        peer, *frames = again.recv_multipart()
        assert frames == dcp_wire.register(b"echo")
        again.send_multipart([peer, *frames])
        again.send_multipart([peer, *dcp_wire.request(b"echo", b"x", client=b"c")])
        while (frames := again.recv_multipart()[1:]) == dcp_wire.PONG:
            pass
        assert frames == dcp_wire.reply(b"c", b"x")
        worker.close(drain_s=0)
        serving.result(PATIENCE_S)


def test_a_dealer_of_one_name_finds_a_broker_that_has_restarted(open_old):
    with dcp.Broker(bind=ANY, transport="zmtp") as broker:
        (endpoint,) = broker.endpoints
        dealer = open_old(zmq.DEALER, routing_id=b"W")
        gone = dealer.monitor(zmq.EVENT_DISCONNECTED)
        dealer.connect(endpoint)
        dealer.send_multipart(dcp_wire.register(b"echo"))
        assert dealer.recv_multipart() == dcp_wire.register(b"echo")
        broker.close(drain_s=0)
    assert gone.recv_multipart()
    while dealer.poll(0):
        # That the broker leaves.
        assert dealer.recv_multipart() == dcp_wire.RECONNECT
    dealer.send_multipart(dcp_wire.register(b"echo"))
    with dcp.Broker(bind=endpoint, transport="zmtp") as broker:
        assert dealer.recv_multipart() == dcp_wire.register(b"echo")
        broker.close(drain_s=0)


# Clients that are not admitted.


def test_who_has_another_key_of_the_server_is_refused_on_both_sides(old, open_old):
    if not old.has_curve:
        pytest.skip("this libzmq was built without CURVE")
    with cdtp.Receiver(bind=ANY, transport="zmtp", curve=Curve(SERVER)) as receiver:
        wrong = open_old(zmq.PUSH, connect=receiver.endpoints[0], **as_client(CLIENT, server_key=OTHER[0]))
        plain = open_old(zmq.PUSH, connect=receiver.endpoints[0])
        for push in (wrong, plain):
            # Who has been refused by then has nobody to send to.
            push.set("sndtimeo", 0)
            push.send_all([[cdtp_wire.header_s(), b"x"]])
        until(lambda: receiver.stats.connection_failures.get("bad_hello"))
        # Who sees the other mechanism first hangs up.
        until(lambda: receiver.stats.connection_failures.keys() & {"other_mechanism", "handshake_cut"})
        right = open_old(zmq.PUSH, connect=receiver.endpoints[0], **as_client(CLIENT))
        right.send_multipart([cdtp_wire.header_s(), b"y"])
        assert receiver.receive(timeout_s=PATIENCE_S).payload == (b"y",)
        assert receiver.stats.received == 1
    pull = open_old(zmq.PULL, bind=ANY, curve_server=1, curve_secretkey=SERVER[1])
    endpoint = pull.last_endpoint.decode()
    with cdtp.Sender("Det", connect=endpoint, transport="zmtp", linger_s=0, curve=Curve(server_key=OTHER[0])) as wrong:
        until(lambda: wrong.stats.connection_failures.get("handshake_cut"))
        with cdtp.Sender("Det", connect=endpoint, transport="zmtp", curve=Curve(server_key=SERVER[0])) as right:
            right.send(b"x")
            assert pull.recv_multipart()[1] == b"x"
        assert wrong.stats.sent == 0


JUNK = [
    b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    b"\xff" + bytes(8) + b"\x7f\x03\x00NULL",
    b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32) + b"\x06" + b"\x7f" * 8,
    b"\x00" * 200,
    random.Random(1).randbytes(1000),
]


def test_junk_beside_a_good_peer_does_not_disturb_it(open_old):
    with cdtp.Receiver(bind=ANY, transport="zmtp") as receiver:
        host, port = receiver.endpoints[0].removeprefix("tcp://").split(":")
        push = open_old(zmq.PUSH, connect=receiver.endpoints[0])
        strangers = []
        for number in range(100):
            stranger = socket.create_connection((host, int(port)))
            stranger.sendall(JUNK[number % len(JUNK)])
            strangers.append(stranger)
            push.send_multipart([cdtp_wire.header_s(), b"%d" % number])
        received = [receiver.receive(timeout_s=PATIENCE_S).payload for _ in range(100)]
        assert received == [(b"%d" % number,) for number in range(100)]
        for stranger in strangers:
            stranger.close()
        until(lambda: sum(receiver.stats.connection_failures.values()) == 100)


def test_junk_that_is_dialled_beside_a_good_peer_does_not_disturb_it(open_old):
    push = open_old(zmq.PUSH, bind=ANY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        endpoints = [f"tcp://127.0.0.1:{server.getsockname()[1]}", push.last_endpoint.decode()]
        soon = {zmq.RECONNECT_IVL: 10, zmq.RECONNECT_IVL_MAX: 10}
        with cdtp.Receiver(connect=endpoints, transport="zmtp", options=soon) as receiver:
            for number in range(len(JUNK)):
                stranger, _ = server.accept()
                with stranger:
                    stranger.sendall(JUNK[number % len(JUNK)])
                push.send_multipart([cdtp_wire.header_s(), b"%d" % number])
                assert receiver.receive(timeout_s=PATIENCE_S).payload == (b"%d" % number,)
            assert receiver.stats.connection_failures


# Who does not keep up.


def test_a_sender_waits_for_a_slow_pull_and_loses_nothing(open_old, threads):
    pull = open_old(zmq.PULL, bind=ANY, rcvhwm=1, rcvbuf=64 << 10)
    body = bytes(32 << 10)
    endpoint, options = pull.last_endpoint.decode(), {zmq.SNDBUF: 64 << 10, zmq.SNDHWM: 4}
    with cdtp.Sender("Det", connect=endpoint, transport="zmtp", queue_messages=10, options=options) as sender:
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 5000:
                sender.send([b"%d" % sent, body], timeout_s=0.5)
                sent += 1
        sending = threads(lambda: [sender.send([b"%d" % (sent + more), body]) for more in range(100)])
        received = [(frames[1], len(frames[2])) for frames in pull.receive_all(sent + 100)]
        sending.result(PATIENCE_S)
        assert received == [(b"%d" % number, len(body)) for number in range(sent + 100)]


def test_a_push_waits_for_a_slow_receiver_and_loses_nothing(open_old):
    with cdtp.Receiver(bind=ANY, transport="zmtp", queue_messages=10, options={zmq.RCVBUF: 64 << 10}) as receiver:
        push = open_old(zmq.PUSH, connect=receiver.endpoints[0], sndhwm=4, sndbuf=64 << 10, sndtimeo=500)
        messages = [[cdtp_wire.header_s(), b"%d" % number, bytes(32 << 10)] for number in range(1000)]
        sent = push.send_all(messages)
        assert 10 <= sent < len(messages)
        assert receiver.stats.queued <= 11
        received = [receiver.receive(timeout_s=PATIENCE_S).payload for _ in range(sent)]
        assert [payload[0] for payload in received] == [b"%d" % number for number in range(sent)]
        assert push.send_all(messages[:1]) == 1
        assert receiver.receive(timeout_s=PATIENCE_S).payload[0] == b"0"
