"""The broker, between raw DEALER sockets that speak packed bytes."""

import os
import random
import re
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
import zmq

from peers.dcp import ANY, PING, PONG, RECONNECT, answer, data_of, register, reply, request
from peers.waiting import until
from trunkline import Curve, dcp
from trunkline.errors import ClosedError, LocalProtocolError

SERVER = zmq.curve_keypair()
CLIENT = zmq.curve_keypair()


def as_client(pair):
    return {"curve_serverkey": SERVER[0], "curve_publickey": pair[0], "curve_secretkey": pair[1]}


@contextmanager
def brokering(**options):
    """A broker that does not wait for its workers at the end, and by default tolerates slow ones."""
    broker = dcp.Broker(**{"bind": ANY, "heartbeat_interval_s": 60, **options})
    try:
        yield broker
    finally:
        broker.close(drain_s=0)


@pytest.fixture
def dial(open_socket):
    """A DEALER of a name, at a broker."""

    def dial(broker, name, *, endpoint=None, **options):
        return open_socket(zmq.DEALER, connect=endpoint or broker.endpoints[0], routing_id=name, **options)

    return dial


@pytest.fixture
def work(dial):
    """A worker that has registered."""

    def work(broker, name, service=b"echo", **options):
        worker = dial(broker, name, **options)
        worker.send_multipart(register(service))
        assert worker.recv_multipart() == register(service)
        return worker

    return work


def is_silent(socket):
    return not socket.poll(200)


@pytest.mark.req("DCP-02", "DCP-04", "DCP-08", "DCP-09", "DCP-26", "DCP-43")
@pytest.mark.parametrize("transport", ["tcp", "ipc", "inproc", "curve"])
def test_a_request_goes_to_a_worker_and_the_reply_comes_back(dial, work, context, tmp_path, transport):
    options = {}
    bind = {"ipc": f"ipc://{tmp_path}/broker", "inproc": "inproc://broker"}.get(transport, ANY)
    more = {"context": context} if transport == "inproc" else {}
    if transport == "curve":
        more, options = {"curve": Curve(SERVER)}, as_client(CLIENT)
    with dcp.Broker(bind=bind, **more) as broker:
        worker, client = work(broker, b"W", **options), dial(broker, b"C", **options)
        client.send_multipart(request(b"echo", b"one", b"", b"two", metadata=[b"m", b"\x00"]))
        asked = worker.recv_multipart()
        assert asked == request(b"echo", b"one", b"", b"two", client=b"C", metadata=[b"m", b"\x00"])
        worker.send_multipart(answer(asked, b"three"))
        assert client.recv_multipart() == reply(b"C", b"three", metadata=[b"m", b"\x00"])


@pytest.mark.req("DCP-03")
def test_peers_meet_across_the_endpoints_of_one_router(dial, work, context, tmp_path):
    with dcp.Broker(bind=[ANY, f"ipc://{tmp_path}/broker", "inproc://broker"], context=context) as broker:
        assert len(broker.endpoints) == 3
        worker = work(broker, b"W", endpoint=broker.endpoints[1])
        for name, endpoint in zip([b"A", b"B", b"C"], broker.endpoints, strict=True):
            client = dial(broker, name, endpoint=endpoint)
            client.send_multipart(request(b"echo", b"x"))
            worker.send_multipart(answer(worker.recv_multipart(), b"y"))
            assert client.recv_multipart() == reply(name, b"y")


@pytest.mark.req("DCP-01", "DCP-19", "DCP-32")
def test_many_clients_and_workers_on_one_broker(dial, work):
    with brokering() as broker:
        workers = [work(broker, f"W{n}".encode(), f"service-{n % 10}".encode()) for n in range(50)]
        clients = [dial(broker, f"C{n}".encode()) for n in range(50)]
        for number, client in enumerate(clients):
            client.send_multipart(request(f"service-{number % 10}".encode(), str(number).encode()))
        for number, worker in enumerate(workers):
            asked = worker.recv_multipart()
            assert int(data_of(asked)[0]) % 10 == number % 10
            worker.send_multipart(answer(asked, *data_of(asked)))
        for number, client in enumerate(clients):
            assert client.recv_multipart() == reply(f"C{number}".encode(), str(number).encode())
        assert broker.stats.peers == 100


@pytest.mark.req("DCP-03")
@pytest.mark.parametrize("is_curved", [pytest.param(False, marks=pytest.mark.needs("identities")), True])
def test_no_other_peer_takes_the_routing_id_of_a_live_worker(dial, work, is_curved):
    curve, options, others = {}, {}, {}
    if is_curved:
        mallory = zmq.curve_keypair()
        curve = {"curve": Curve(SERVER, allow=[CLIENT, mallory])}
        options, others = as_client(CLIENT), as_client(mallory)
    with brokering(**curve) as broker:
        worker, client = work(broker, b"W", **options), dial(broker, b"C", **options)
        for _ in range(3):
            dial(broker, b"W", **others).send_multipart(register(b"other"))
        # libzmq keeps them and hears none of them; our own transport refuses them.
        until(lambda: broker.stats.peers == 5 or broker.stats.connection_failures.get("identity_taken", 0) >= 3)
        for number in [b"1", b"2"]:
            client.send_multipart(request(b"echo", number))
            worker.send_multipart(answer(worker.recv_multipart(), number))
            assert client.recv_multipart() == reply(b"C", number)


@pytest.mark.req("DCP-43")
def test_only_those_on_the_list_are_let_in(open_socket, dial, work, caplog):
    other = zmq.curve_keypair()
    with brokering(curve=Curve(SERVER, allow=[CLIENT])) as broker:
        worker = work(broker, b"W", **as_client(CLIENT))
        stranger = open_socket(zmq.DEALER, **as_client(other))
        monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        stranger.connect(broker.endpoints[0])
        assert monitor.poll(20_000)
        stranger.disable_monitor()
        monitor.close()
        assert broker.stats.refused == 1
        client = dial(broker, b"C", **as_client(CLIENT))
        client.send_multipart(request(b"echo", b"x"))
        assert data_of(worker.recv_multipart()) == [b"x"]
    until(lambda: any(other[0].decode() in record.getMessage() for record in caplog.records))


@pytest.mark.req("DCP-10", "DCP-11", "DCP-16", "DCP-18", "DCP-39", "DCP-44")
def test_what_is_no_message_is_told_and_the_next_one_arrives(dial, work, caplog):
    drops = []
    bad = {
        "bad_delimiter": [b"x", b"DGBX\x01", b"\x02"],
        "bad_protocol": [b"", b"XXXX\x01", b"\x02"],
        "unsupported_version": [b"", b"DGBX\x02", b"\x02"],
        "bad_type": [b"", b"DGBX\x01", b"\x07"],
        "unexpected_type": RECONNECT,
        "bad_frame_count": [*PING, b"x"],
        "missing_client": [*reply(b"", b"x")],
        "missing_delimiter": [*PING[:2], b"\x04", b"echo", b"C"],
    }
    with brokering(on_drop=drops.append) as broker:
        worker, client = work(broker, b"W"), dial(broker, b"C")
        for frames in bad.values():
            client.send_multipart(frames)
        client.send_multipart(request(b"echo", b"good"))
        assert data_of(worker.recv_multipart()) == [b"good"]
        assert broker.stats.dropped == dict.fromkeys(bad, 1)
        assert broker.stats.received == len(bad) + 2
    assert [(drop.kind, list(drop.frames), drop.peer) for drop in drops] == [
        (kind, frames, b"C") for kind, frames in bad.items()
    ]
    assert all(drop.error.kind == drop.kind and drop.error.protocol == "dcp" for drop in drops)
    until(lambda: any("bad_delimiter in frame 0" in record.message for record in caplog.records))


def test_a_callback_that_raises_harms_nobody(dial, work, caplog):
    def fail(_):
        raise ZeroDivisionError

    with brokering(on_drop=fail) as broker:
        worker, client = work(broker, b"W"), dial(broker, b"C")
        client.send_multipart([b"bad"])
        client.send_multipart(request(b"echo", b"good"))
        assert data_of(worker.recv_multipart()) == [b"good"]
        until(lambda: any("on_drop raised" in record.message for record in caplog.records))


@pytest.mark.req("DCP-29")
@pytest.mark.parametrize(("overflow", "kept"), [("reject-newest", [0, 1, 2]), ("drop-oldest", [2, 3, 4])])
def test_a_full_queue_drops_what_it_is_told_to(dial, work, overflow, kept):
    drops = []
    with brokering(max_queue=3, overflow=overflow, on_drop=drops.append) as broker:
        client = dial(broker, b"C")
        for number in range(5):
            client.send_multipart(request(b"echo", b"%d" % number))
        until(lambda: broker.stats.dropped == {"queue_full": 2})
        assert broker.stats.queued == 3
        assert is_silent(client)
        worker = work(broker, b"W")
        for number in kept:
            asked = worker.recv_multipart()
            assert data_of(asked) == [b"%d" % number]
            worker.send_multipart(answer(asked))
    assert [(drop.kind, drop.error, drop.peer) for drop in drops] == [("queue_full", None, b"C")] * 2


@pytest.mark.req("DCP-29")
def test_the_bytes_of_all_queues_are_bounded(dial):
    with brokering(max_queue_bytes=100_000) as broker:
        client = dial(broker, b"C")
        for number in range(20):
            client.send_multipart(request(b"service %d" % number, bytes(10_000)))
        until(lambda: broker.stats.received == 20)
        stats = broker.stats
        assert 5 < stats.queued < 10
        assert stats.dropped == {"queue_full": 20 - stats.queued}


@pytest.mark.req("DCP-29")
def test_a_request_waits_only_so_long(dial, work):
    drops = []
    with brokering(queue_ttl_s=0.1, on_drop=drops.append) as broker:
        client = dial(broker, b"C")
        client.send_multipart(request(b"echo", b"old"))
        until(lambda: broker.stats.dropped == {"queue_expired": 1})
        assert broker.services()[0].expired == 1
        worker = work(broker, b"W")
        client.send_multipart(request(b"echo", b"new"))
        assert data_of(worker.recv_multipart()) == [b"new"]
        assert is_silent(client)
    assert [(drop.kind, drop.frames[-1]) for drop in drops] == [("queue_expired", b"old")]


@pytest.mark.req("DCP-42")
@pytest.mark.parametrize("requeue", [False, True])
def test_a_silent_worker_is_given_up(dial, work, requeue, caplog):
    with brokering(heartbeat_interval_s=0.1, liveness=2, requeue=requeue) as broker:
        client = dial(broker, b"C")
        for number in range(2):
            client.send_multipart(request(b"echo", b"%d" % number))
        until(lambda: broker.stats.queued == 2)
        silent = work(broker, b"W1")
        asked = silent.recv_multipart()
        assert data_of(asked) == [b"0"]
        until(lambda: broker.services()[0].workers == 0)
        assert broker.stats.lost == (0 if requeue else 1)
        other = work(broker, b"W2")
        assert data_of(other.recv_multipart()) == ([b"0"] if requeue else [b"1"])
        # What the first one has to say after all is delivered, and it is asked to register.
        silent.send_multipart(answer(asked, b"late"))
        assert client.recv_multipart() == reply(b"C", b"late")
        assert silent.recv_multipart() == RECONNECT
    if not requeue:
        until(lambda: any("1 request lost" in record.message for record in caplog.records))


@pytest.mark.req("DCP-33")
@pytest.mark.parametrize("grants", [True, False])
def test_a_busy_worker_may_ask_for_more(dial, work, grants):
    with brokering(busy_ping_grants=grants) as broker:
        worker, client = work(broker, b"W"), dial(broker, b"C")
        for number in range(3):
            client.send_multipart(request(b"echo", b"%d" % number))
        assert data_of(worker.recv_multipart()) == [b"0"]
        worker.send_multipart(PING)
        assert worker.recv_multipart() == PONG
        if grants:
            assert data_of(worker.recv_multipart()) == [b"1"]
        assert is_silent(worker)


@pytest.mark.req("DCP-20")
def test_addresses_of_strangers_are_not_believed_if_you_say_so(dial, work):
    drops = []
    with brokering(client_address="workers-only", on_drop=drops.append) as broker:
        worker, client, victim = work(broker, b"W"), dial(broker, b"C"), dial(broker, b"V")
        client.send_multipart(request(b"echo", b"x", client=b"V"))
        asked = worker.recv_multipart()
        assert asked[4] == b"C"
        worker.send_multipart(answer(asked, b"y"))
        assert client.recv_multipart() == reply(b"C", b"y")
        victim.send_multipart(request(b"echo", b"x"))
        client.send_multipart(reply(b"V", b"forged"))
        until(lambda: broker.stats.dropped == {"spoofed": 1})
        worker.send_multipart(answer(worker.recv_multipart(), b"true"))
        assert victim.recv_multipart() == reply(b"V", b"true")
    assert drops[0].kind == "spoofed"


@pytest.mark.req("DCP-11")
@pytest.mark.parametrize("compat", [True, False])
def test_the_types_of_the_original_are_an_option(dial, compat):
    def wide(frames):
        return [*frames[:2], frames[2] + bytes(3), *frames[3:]]

    with brokering(compat_dagbox=compat) as broker:
        worker = dial(broker, b"W")
        worker.send_multipart(wide(register(b"echo")))
        if not compat:
            until(lambda: broker.stats.dropped == {"bad_type": 1})
            assert is_silent(worker)
            return
        assert worker.recv_multipart() == wide(register(b"echo"))
        client = dial(broker, b"C")
        client.send_multipart(request(b"echo", b"x"))
        assert worker.recv_multipart() == wide(request(b"echo", b"x", client=b"C"))
        worker.send_multipart(wide(reply(b"C", b"y")))
        assert client.recv_multipart() == reply(b"C", b"y")


@pytest.mark.req("DCP-14")
def test_a_service_that_is_not_allowed_is_not_confirmed(dial, work, caplog):
    with brokering(allowed_services=[b"echo"]) as broker:
        stranger = dial(broker, b"S")
        stranger.send_multipart(register(b"other"))
        work(broker, b"W")
        assert is_silent(stranger)
        assert [service.service for service in broker.services()] == [b"echo"]
    until(lambda: any("may not offer other" in record.message for record in caplog.records))


def test_the_log_says_what_a_drop_was_about(dial, caplog):
    with brokering(max_queue=0, allowed_services=[b"echo"]) as broker:
        client = dial(broker, b"C\x01")
        client.send_multipart(request(b"nobody" + bytes(1000), b"x"))
        client.send_multipart([*PING[:2], b"\x09"])
        client.send_multipart(reply(b"gone", b"x"))
        until(lambda: len(broker.stats.dropped) == 3)
        where = rf", from 4301 \(127\.0\.0\.1:\d+\), at {re.escape(broker.endpoints[0])}"
    service = re.escape("nobody" + r"\x00" * 94)
    for line in (
        rf"broker: queue_full \(the queue of the service is full\), of {service}{where}",
        f"broker: bad_type.*{where}",
        r"broker: unroutable \(no peer has this address any longer\), to 676f6e65",
    ):
        until(lambda line=line: any(re.fullmatch(line, message) for message in caplog.messages))


@pytest.mark.req("DCP-27")
def test_a_reply_to_nobody_is_counted(work):
    drops = []
    with brokering(on_drop=drops.append) as broker:
        worker = work(broker, b"W")
        worker.send_multipart(reply(b"gone", b"x"))
        until(lambda: broker.stats.dropped == {"unroutable": 1})
        worker.send_multipart(PING)
        assert worker.recv_multipart() == PONG
    assert [(drop.kind, drop.peer) for drop in drops] == [("unroutable", b"gone")]


def test_a_client_that_does_not_read_costs_nobody_else_anything(dial, work):
    with brokering() as broker:
        worker = work(broker, b"W")
        deaf = dial(broker, b"D", rcvhwm=1, rcvbuf=4096)
        client = dial(broker, b"C")
        deaf.send_multipart(request(b"echo", b"x"))
        worker.recv_multipart()
        while "peer_full" not in broker.stats.dropped:
            for _ in range(20):
                worker.send_multipart(reply(b"D", bytes(1 << 20)))
            client.send_multipart(request(b"echo", b"x"))
            worker.send_multipart(answer(worker.recv_multipart(), b"y"))
            assert client.recv_multipart() == reply(b"C", b"y")
        assert set(broker.stats.dropped) == {"peer_full"}


@pytest.mark.req("DCP-44")
def test_no_bytes_end_it(dial, work):
    chance = random.Random(7)
    pieces = [b"", b"DGBX\x01", *(bytes([number]) for number in range(8)), b"echo", b"C", bytes(70_000)]
    with brokering(max_queue=100) as broker:
        noisy = [dial(broker, f"N{number}".encode()) for number in range(5)]
        total = 5000
        for _ in range(total):
            start = pieces[:2] if chance.random() < 0.8 else []
            frames = [*start, *chance.choices(pieces, k=chance.randrange(1, 7))]
            chance.choice(noisy).send_multipart(frames)
        until(lambda: broker.stats.received == total)
        worker, client = work(broker, b"W", b"quiet"), dial(broker, b"C2")
        client.send_multipart(request(b"quiet", b"x"))
        worker.send_multipart(answer(worker.recv_multipart(), b"y"))
        assert client.recv_multipart() == reply(b"C2", b"y")


@pytest.mark.req("DCP-31")
def test_closing_waits_for_what_is_in_hand_and_drops_what_is_queued(dial, work):
    broker = dcp.Broker(bind=ANY)
    worker, idle, client = work(broker, b"W"), work(broker, b"I", b"idle"), dial(broker, b"C")
    for number in range(3):
        client.send_multipart(request(b"echo", b"%d" % number))
    asked = worker.recv_multipart()
    until(lambda: broker.stats.queued == 2)
    closing = threading.Thread(target=broker.close, kwargs={"drain_s": 20})
    closing.start()
    # It closes once it gives out nothing more.
    client.send_multipart(request(b"idle"))
    while not is_silent(idle):
        idle.send_multipart(answer(idle.recv_multipart()))
        client.recv_multipart()
        client.send_multipart(request(b"idle"))
    worker.send_multipart(answer(asked, b"done"))
    assert client.recv_multipart() == reply(b"C", b"done")
    closing.join()
    assert broker.stats.queued == 3
    assert broker.closed
    assert is_silent(worker)
    broker.close()


def test_an_exception_does_not_wait_for_workers(dial, work):
    with pytest.raises(ZeroDivisionError), dcp.Broker(bind=ANY) as broker:
        worker, client = work(broker, b"W"), dial(broker, b"C")
        client.send_multipart(request(b"echo", b"x"))
        worker.recv_multipart()
        raise ZeroDivisionError
    assert broker.closed


def test_counts_by_service(dial, work):
    with brokering() as broker:
        worker, client = work(broker, b"W"), dial(broker, b"C")
        for number in range(3):
            client.send_multipart(request(b"echo", b"%d" % number))
        client.send_multipart(request(b"\xff" * 300, b"x"))
        worker.send_multipart(answer(worker.recv_multipart(), b"y"))
        client.recv_multipart()
        worker.recv_multipart()
        until(lambda: broker.stats.received == 6)
        stats = broker.stats
        assert stats.services == broker.services()
        assert stats.services[0] == dcp.ServiceStats(
            service=b"echo", queued=1, workers=1, free=0, requests=3, replies=1, expired=0
        )
        assert (stats.services[1].service, stats.services[1].queued) == (b"\xff" * 200, 1)
        assert (stats.sent, stats.queued, stats.peers, stats.lost, stats.dropped) == (4, 2, 2, 0, {})
    assert broker.stats.peers == 2


def test_uses_a_socket_of_yours(open_socket, dial, work):
    router = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*", router_mandatory=1)
    endpoint = router.last_endpoint.decode()
    with dcp.Broker(socket=router) as broker:
        worker, client = work(broker, b"W", endpoint=endpoint), dial(broker, b"C", endpoint=endpoint)
        client.send_multipart(request(b"echo", b"x"))
        worker.send_multipart(answer(worker.recv_multipart(), b"y"))
        assert client.recv_multipart() == reply(b"C", b"y")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"overflow": "newest"}, ValueError),
        ({"client_address": "nobody"}, ValueError),
        ({"heartbeat_interval_s": 0}, ValueError),
        ({"heartbeat_interval_s": -1}, ValueError),
        ({"liveness": 0}, ValueError),
        ({"queue_ttl_s": -1}, ValueError),
        ({"queue_ttl_s": float("inf")}, ValueError),
        ({"max_queue": -1}, ValueError),
        ({"connect": "tcp://127.0.0.1:1"}, LocalProtocolError),
        ({"bind": ()}, LocalProtocolError),
        ({"nonsense": 1}, TypeError),
    ],
    ids=str,
)
def test_refuses_settings_that_are_none(wrong, error):
    (name,) = wrong
    with pytest.raises(error, match=name if error is ValueError else None):
        dcp.Broker(**{"bind": ANY, **wrong})


def test_an_endpoint_that_is_taken_is_an_os_error():
    with brokering() as broker, pytest.raises(OSError, match="in use"):
        dcp.Broker(bind=broker.endpoints[0])


async def test_asyncio_brokers_as_blocking_does(dial, work):
    async with dcp.AsyncBroker(bind=ANY, max_queue=1) as broker:
        worker, client = work(broker, b"W"), dial(broker, b"C")
        client.send_multipart(request(b"echo", b"x"))
        worker.send_multipart(answer(worker.recv_multipart(), b"y"))
        assert client.recv_multipart() == reply(b"C", b"y")
        assert broker.services()[0].replies == 1
    assert broker.closed
    with pytest.raises(LocalProtocolError, match="async with"):
        _ = dcp.AsyncBroker(bind=ANY).stats


FILES = """
import os, resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
import logging, zmq
from trunkline import dcp
logging.basicConfig(stream=sys.stdout, format="%(message)s")
context = zmq.Context()
with dcp.Broker(bind="tcp://127.0.0.1:*", raise_file_limit=True) as broker:
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (128, 128)
    worker = context.socket(zmq.DEALER)
    worker.connect(broker.endpoints[0])
    worker.send_multipart([b"", b"DGBX\\x01", b"\\x01", b"echo"])
    worker.recv_multipart()
    port = int(broker.endpoints[0].rpartition(":")[2])
    callers = [socket.socket() for _ in range(5)]
    fillers = []
    while True:
        try:
            fillers.append(os.dup(1))
        except OSError:
            break
    for caller in callers:
        caller.connect(("127.0.0.1", port))
    start = time.monotonic()
    for number in range(500):
        worker.send_multipart([b"", b"DGBX\\x01", b"\\x04", b"echo", b"", b"", b"x"])
        asked = worker.recv_multipart()
        worker.send_multipart([b"", b"DGBX\\x01", b"\\x05", asked[4], b"", b"", b"y"])
        assert worker.recv_multipart()[-1] == b"y"
    print("served", flush=True)
    for filler in fillers:
        os.close(filler)
    again = context.socket(zmq.DEALER)
    again.connect(broker.endpoints[0])
    again.send_multipart([b"", b"DGBX\\x01", b"\\x01", b"other"])
    again.recv_multipart()
    print("let in", flush=True)
    context.destroy(linger=0)
"""


def test_goes_on_when_there_are_no_files_left():
    ran = subprocess.run([sys.executable, "-c", FILES], capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert "served" in lines
    assert "let in" in lines
    assert len([line for line in lines if "Too many open files" in line]) == 1


def test_a_child_of_fork_has_none():
    with brokering() as broker:
        child = os.fork()
        if child == 0:
            try:
                broker.wait(timeout_s=0)
            except ClosedError:
                broker.close()
                os._exit(0 if broker.stats.received == 0 else 2)
            os._exit(3)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
