"""Bounds of memory, against messages that cost more than their bytes."""

import contextlib
import os
import subprocess
import sys
import tracemalloc

import pytest
import zmq

from peers import cdtp as wire
from peers import dcp as packed
from peers import mc0 as bus
from peers.processes import Child
from peers.waiting import until
from trunkline import capture, cdtp, dcp
from trunkline.errors import DecodeError, LocalProtocolError

ANY = "tcp://127.0.0.1:*"
MAX_FRAMES = 10_000
FRAME_COST = 64


def empty_frames(count, sequence=1):
    return [wire.header_b(sequence), *[b""] * count]


@pytest.mark.req("CDTP-18")
def test_empty_frames_count_towards_a_queue(open_socket):
    each, bound = 2000, 1 << 20
    with cdtp.Receiver(bind=ANY, queue_bytes=bound, options={zmq.RCVHWM: 10}) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        for sequence in range(50):
            push.send_multipart(empty_frames(each, sequence))
        until(lambda: receiver.stats.queued_bytes >= bound)
        stats = receiver.stats
        assert bound <= stats.queued_bytes <= bound + (each + 2) * FRAME_COST
        assert stats.queued == stats.received == -(-bound // ((each + 1) * FRAME_COST + len(wire.header_b(1))))
        assert [receiver.receive(timeout_s=20).sequence for _ in range(50)] == list(range(50))


@pytest.mark.req("DCP-18")
def test_empty_frames_count_towards_the_queues_of_a_broker(open_socket):
    with dcp.Broker(bind=ANY, max_queue_bytes=1 << 20, max_queue=10_000) as broker:
        dealer = open_socket(zmq.DEALER, connect=broker.endpoints[0])
        for _ in range(50):
            dealer.send_multipart(packed.request(b"echo", *[b""] * 2000))
        until(lambda: broker.stats.received == 50)
        assert broker.stats.queued == (1 << 20) // (2007 * FRAME_COST)
        assert broker.stats.dropped == {"queue_full": 50 - broker.stats.queued}


@pytest.mark.req("CDTP-07")
def test_tags_are_no_more_objects_than_there_is_room_for(open_socket):
    def header(maps):
        """Tags of so many empty maps in an array; that, its name and the map of tags are objects too."""
        return wire.header_b(1)[:-1] + b"\x81\xa1x\xdd" + maps.to_bytes(4) + b"\x80" * maps

    most = 1_000_000 - 3
    with cdtp.Receiver(bind=ANY) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        push.send_multipart([header(most), b""])
        push.send_multipart([header(most + 1), b"data"])
        push.send_multipart([header(most + 1), b"data"])
        message, more, same = (receiver.receive(timeout_s=20) for _ in range(3))
    tracemalloc.start()
    try:
        tags = message.tags
        held, _ = tracemalloc.get_traced_memory()
        assert tags == {"x": [{}] * most}
        assert held < 100 << 20
        tracemalloc.reset_peak()
        with pytest.raises(DecodeError) as raised:
            _ = more.tags
        assert (raised.value.protocol, raised.value.kind) == ("cdtp", "too_many_objects")
        assert more.payload == (b"data",)
        assert more == same != message
        assert "tags=<1000006 bytes>" in repr(more)
        assert tracemalloc.get_traced_memory()[1] - held < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("receives", [True, False], ids=["receiver", "recorder"])
def test_a_message_of_too_many_frames_is_dropped_and_recorded_cut(open_socket, tmp_path, receives):
    dropped = []
    # Our own transport hangs up on them.
    options = {"bind": ANY, "on_drop": dropped.append, "transport": "libzmq"}
    role = cdtp.Receiver(**options, capture=tmp_path) if receives else cdtp.Recorder(tmp_path, **options)
    with role:
        push = open_socket(zmq.PUSH, connect=role.endpoints[0])
        push.send_multipart(empty_frames(50_000, 1))
        push.send_multipart(empty_frames(MAX_FRAMES - 1, 2))
        push.send_multipart(empty_frames(MAX_FRAMES, 3))
        push.send_multipart([wire.header_b(4), b"x"])
        if receives:
            assert [role.receive(timeout_s=20).sequence for _ in range(2)] == [2, 4]
        else:
            role.wait(count=4, timeout_s=20)
        until(lambda: len(dropped) == 2)
        assert role.stats.dropped == {"too_many_frames": 2}
    assert [(drop.kind, drop.error.frame, len(drop.frames)) for drop in dropped] == [
        ("too_many_frames", MAX_FRAMES, MAX_FRAMES + 1)
    ] * 2
    rows = capture.open(tmp_path).read_all()
    assert rows["error"].to_pylist() == ["too_many_frames", None, "too_many_frames", None]
    assert rows["n_frames"].to_pylist() == [MAX_FRAMES + 1, MAX_FRAMES, MAX_FRAMES + 1, 2]


def test_messages_of_too_many_frames_are_not_sent():
    with cdtp.Sender("Det", bind=ANY, linger_s=0) as sender:
        with pytest.raises(LocalProtocolError, match="at most 10000 frames"):
            sender.send([b""] * MAX_FRAMES)
    with dcp.Client(connect="tcp://127.0.0.1:9") as client:
        with pytest.raises(LocalProtocolError, match="at most 9992 parts"):
            client.submit(b"echo", [b""] * MAX_FRAMES)
        client.close(drain_s=0)


def test_the_most_parts_pass_a_broker():
    with (
        dcp.Broker(bind=ANY) as broker,
        dcp.Worker(b"echo", connect=broker.endpoints) as worker,
        dcp.Client(connect=broker.endpoints) as client,
    ):
        future = client.submit(b"echo", [b""] * 9_992)
        request = worker.receive(timeout_s=20)
        with pytest.raises(LocalProtocolError, match="at most 9992 parts"):
            request.reply([b""] * 9_993)
        request.reply(request.data[:-1])
        assert len(future.result(20).data) == 9_991


# What a process may take beyond the bounds of its queues: allocators, buffers of libzmq, the system's share of sockets.
SLACK = 48 << 20

GROWTH = """
import os, sys, zmq
from trunkline import cdtp, dcp, mc0

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

role = {role}
print(role.endpoints[0], flush=True)
for line in sys.stdin:
    if line == "measure\\n":
        print(resident(), role.stats, sep="|", flush=True)
    else:
        break
"""


class Measured:
    """A role in a process of its own, with its memory."""

    def __init__(self, role):
        code = GROWTH.format(role=role)
        path = os.pathsep.join(sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.endpoint = self.process.stdout.readline().strip()
        self.before = self.look()[0]

    def look(self):
        self.process.stdin.write("measure\n")
        self.process.stdin.flush()
        resident, _, stats = self.process.stdout.readline().partition("|")
        return int(resident), stats

    def growth(self):
        return self.look()[0] - self.before

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def measure():
    measured = []

    def measure(role):
        measured.append(Measured(role))
        return measured[-1]

    yield measure
    for one in measured:
        one.end()


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_queue_of_empty_frames_takes_no_more_than_it_may(open_socket, measure):
    bound, each, held = 32 << 20, 2000, 10
    options = f"options={{zmq.RCVHWM: {held}, zmq.RCVBUF: 1 << 16}}"
    role = measure(f'cdtp.Receiver(bind="tcp://127.0.0.1:*", queue_bytes={bound}, {options})')
    push = open_socket(zmq.PUSH, connect=role.endpoint, sndhwm=1, sndbuf=1 << 16, sndtimeo=1000)
    frames, sent = empty_frames(each), 0
    with contextlib.suppress(zmq.Again):
        for _ in range(3000):
            push.send_multipart(frames)
            sent += 1
    assert sent < 1000, "the sender never felt that the queue was full"
    assert role.growth() < bound + held * each * FRAME_COST + SLACK


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.req("DCP-44")
def test_peers_that_take_nothing_cost_no_more_than_they_may_together(open_socket, measure):
    bound, clients, replies, size = 32 << 20, 40, 40, 1 << 17
    role = measure(
        f'dcp.Broker(bind="tcp://127.0.0.1:*", outbox_bytes={bound}, max_queue=100_000, '
        "options={zmq.SNDHWM: 2, zmq.SNDBUF: 1 << 16})"
    )
    worker = open_socket(zmq.DEALER, connect=role.endpoint, sndhwm=10)
    worker.send_multipart(packed.register(b"echo"))
    deaf = [open_socket(zmq.DEALER, connect=role.endpoint, rcvhwm=1, rcvbuf=1 << 16) for _ in range(clients)]
    for client in deaf:
        client.send_multipart(packed.request(b"echo", b"x"))
    body = bytes(size)
    answered = 0
    while answered < clients:
        asked = worker.recv_multipart()
        if asked[2] == b"\x04":
            # Many replies where one is due: a broker passes on whatever has an address.
            for _ in range(replies):
                worker.send_multipart(packed.answer(asked, body))
            answered += 1
        elif asked[2] == b"\x02":
            worker.send_multipart(packed.PONG)
    until(lambda: "peer_full" in role.look()[1])
    assert clients * replies * size > 6 * bound
    assert role.growth() < bound + clients * 4 * size + SLACK


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.req("MC0-30", "MC0-34")
def test_subscribers_that_do_not_read_cost_no_more_than_they_may_together(open_socket, measure):
    bound, subscribers, puts, size = 32 << 20, 40, 40, 1 << 17
    role = measure(
        f'mc0.Middleware(bind="tcp://127.0.0.1:*", outbox_bytes={bound}, options={{zmq.SNDHWM: 2, zmq.SNDBUF: 1 << 16}})'
    )
    deaf = [open_socket(zmq.DEALER, connect=role.endpoint, rcvhwm=1, rcvbuf=1 << 16) for _ in range(subscribers)]
    for number, subscriber in enumerate(deaf):
        subscriber.send_multipart(bus.sub(b"%d" % number, id_=b"1"))
        assert subscriber.recv_multipart() == bus.ok(b"1")
    publisher = open_socket(zmq.DEALER, connect=role.endpoint, sndhwm=10)
    body = bytes(size)
    for number in range(puts * subscribers):
        publisher.send_multipart(bus.put(b"%d" % (number % subscribers), body))
    publisher.send_multipart(bus.noop(b"2"))
    assert publisher.recv_multipart() == bus.ok(b"2")
    assert "peer_full" in role.look()[1]
    assert subscribers * puts * size > 6 * bound
    # What waits here, what waits for the transport, and what it holds.
    assert role.growth() < 2 * bound + subscribers * 4 * size + SLACK


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.req("MC0-28")
def test_peers_cost_a_middleware_no_more_than_it_lets_them_have(open_socket, measure):
    role = measure('mc0.Middleware(bind="tcp://127.0.0.1:*", max_topics=2000)')
    peers = [open_socket(zmq.DEALER, connect=role.endpoint, sndhwm=0) for _ in range(20)]
    for peer in peers:
        for topic in range(20_000):
            peer.send_multipart(bus.sub(b"%d" % topic * 20))
        peer.send_multipart(bus.noop(b"last"))
    for peer in peers:
        # Errors come at a rate, and the answer after them.
        while peer.recv_multipart() != bus.ok(b"last"):
            pass
    _, stats = role.look()
    assert "subscriptions=40000" in stats
    assert f"'too_many_topics': {20 * 18_000}" in stats
    assert role.growth() < SLACK


SERVER = """
import pathlib, sys
from trunkline import mtl

def peak():
    return int(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

with mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True) as server:
    print(server.endpoints[0], flush=True)
    before = peak()
    sys.stdin.readline()
    print(peak() - before, server.stats.dropped, flush=True)
"""


@pytest.mark.req("MTL-28")
def test_commands_take_no_more_memory_than_there_is_room_for(open_socket):
    # Each of these bytes could be half a value, which takes 32.
    def command(size):
        return [b"", b"Connection.Open", b'{"a": [' + b"0," * (size // 2 - 8) + b"0]}"]

    with Child(
        [sys.executable, "-W", "ignore", "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        dealer = open_socket(zmq.DEALER, connect=process.stdout.readline().strip())
        for _ in range(4):
            dealer.send_multipart(command(32 << 20))
            # It is answered, and not read.
            assert dealer.recv_multipart()[1] == b"400"
        for _ in range(20):
            dealer.send_multipart(command(1 << 20))
            assert dealer.recv_multipart()[1] == b"400"
        said, _ = process.communicate("\n", timeout=20)
    grown, _, dropped = said.partition(" ")
    assert dropped.strip() == "{}"
    assert int(grown) < 400 << 10
