"""Every role with a capture records all it receives and sends, bit for bit."""

import asyncio
import os

import pytest
import zmq

from peers.dcp import ANY, HEAD, PING, PONG, answer, register, reply, request
from peers.waiting import until
from trunkline import capture, cdtp, dcp
from trunkline.errors import LocalProtocolError


def rows(path):
    """What was recorded: direction, peer, topic, error and the whole message."""
    shown = []
    for row in capture.open(path).rows():
        frames = [*row["envelope"], *([] if row["header"] is None else [row["header"]]), *row["payload"]]
        assert row["protocol"] == "dcp"
        shown.append((row["direction"], row["peer"], row["topic"], row["error"], frames))
    return shown


@pytest.fixture
def dial(open_socket):
    def dial(endpoint, name):
        return open_socket(zmq.DEALER, connect=endpoint, routing_id=name)

    return dial


def test_a_broker_records_both_sides(dial, tmp_path):
    with dcp.Broker(bind=ANY, capture=tmp_path / "c") as broker:
        worker = dial(broker.endpoints[0], b"W")
        worker.send_multipart(register(b"echo"))
        worker.recv_multipart()
        client = dial(broker.endpoints[0], b"C")
        client.send_multipart([b"bad", b""])
        client.send_multipart(request(b"echo", b"x", b"", metadata=[b"m"]))
        asked = worker.recv_multipart()
        worker.send_multipart(answer(asked, b"y"))
        client.recv_multipart()
        endpoint = broker.endpoints[0]
        assert broker.stats.capture_lost == 0
    got = request(b"echo", b"x", b"", client=b"C", metadata=[b"m"])
    assert rows(tmp_path / "c") == [
        ("in", b"W", "echo", None, register(b"echo")),
        ("out", b"W", "echo", None, register(b"echo")),
        ("in", b"C", None, "bad_delimiter", [b"bad", b""]),
        ("in", b"C", "echo", None, request(b"echo", b"x", b"", metadata=[b"m"])),
        ("out", b"W", "echo", None, got),
        ("in", b"W", None, None, reply(b"C", b"y", metadata=[b"m"])),
        ("out", b"C", None, None, reply(b"C", b"y", metadata=[b"m"])),
    ]
    recorded = capture.open(tmp_path / "c")
    assert {row["endpoint"] for row in recorded.rows()} == {endpoint}
    (row, *_) = recorded.rows()
    assert (row["envelope"], row["header"], row["payload"]) == ([b""], b"DGBX\x01", [b"\x01", b"echo"])
    messages = list(recorded)
    assert [message.type for message in messages] == ["register", "register", "request", "request", "reply", "reply"]
    assert messages[3] == dcp.decode(got)
    assert recorded.skipped == 1
    assert recorded.info().errors == {"bad_delimiter": 1}


def test_a_broker_of_several_endpoints_names_none(dial, tmp_path):
    with dcp.Broker(bind=[ANY, ANY], capture=tmp_path / "c") as broker:
        peer = dial(broker.endpoints[1], b"W")
        peer.send_multipart(register(b"\xff"))
        peer.recv_multipart()
    assert [row["endpoint"] for row in capture.open(tmp_path / "c").rows()] == [None, None]


def test_a_worker_and_a_client_record_theirs(open_socket, tmp_path):
    router = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*")
    endpoint = router.last_endpoint.decode()
    options = {"concurrency": 2, "heartbeat_interval_s": 60}
    with dcp.Worker(b"echo", connect=endpoint, capture=tmp_path / "w", **options) as worker:
        peer, *frames = router.recv_multipart()
        assert frames == register(b"echo")
        router.send_multipart([peer, *request(b"echo", b"x", client=b"C")])
        worker.receive(timeout_s=20).reply(b"y")
        assert router.recv_multipart()[1:] == PING
        assert router.recv_multipart()[1:] == reply(b"C", b"y")
        router.send_multipart([peer, *PONG])
        until(lambda: worker.stats.received == 2)
        worker.close(drain_s=0)
    assert rows(tmp_path / "w") == [
        ("out", None, "echo", None, register(b"echo")),
        ("in", None, "echo", None, request(b"echo", b"x", client=b"C")),
        ("out", None, None, None, PING),
        ("out", None, None, None, reply(b"C", b"y")),
        ("in", None, None, None, PONG),
    ]
    with dcp.Client(connect=endpoint, capture=tmp_path / "c") as client:
        future = client.submit(b"echo", b"x")
        peer, *frames = router.recv_multipart()
        router.send_multipart([peer, *HEAD, b"\x05"])
        router.send_multipart([peer, *reply(b"C", b"y", metadata=[frames[5]])])
        assert future.result(20).data == (b"y",)
    assert rows(tmp_path / "c") == [
        ("out", None, "echo", None, frames),
        ("in", None, None, "missing_client", [*HEAD, b"\x05"]),
        ("in", None, None, None, reply(b"C", b"y", metadata=[frames[5]])),
    ]


@pytest.mark.parametrize("overflow", ["count", "block"])
def test_a_capture_that_cannot_keep_up_loses_rows_or_makes_the_role_wait(dial, tmp_path, overflow):
    count, part = 200, os.urandom(1 << 20)
    with dcp.Broker(bind=ANY, capture=tmp_path, capture_overflow=overflow, max_queue_bytes=1 << 30) as broker:
        client = dial(broker.endpoints[0], b"C")
        for _ in range(count):
            client.send_multipart(request(b"nobody", part), copy=False)
        until(lambda: broker.stats.received == count)
        lost = broker.stats.capture_lost
    assert capture.open(tmp_path).info().messages == count - lost
    if overflow == "block":
        assert lost == 0


def test_the_capture_of_any_role_is_cut_and_kept_as_it_is_told(dial, tmp_path):
    with dcp.Broker(bind=ANY, capture=tmp_path, segment_bytes=100, keep_bytes=1) as broker:
        client = dial(broker.endpoints[0], b"C")
        for _ in range(5):
            client.send_multipart(request(b"nobody", bytes(90)))
        until(lambda: broker.stats.received == 5)
    assert capture.open(tmp_path).info().segments == 1


def test_a_capture_option_there_is_not_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'count' or 'block', not 'end'"):
        dcp.Broker(bind=ANY, capture=tmp_path, capture_overflow="end")
    with pytest.raises(LocalProtocolError, match="waits for its disk"):
        cdtp.Recorder(tmp_path, bind=ANY, capture_overflow="count")


async def test_asyncio_takes_them_as_well(open_socket, tmp_path):
    router = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*")
    endpoint = router.last_endpoint.decode()
    async with dcp.AsyncClient(connect=endpoint, capture=tmp_path, capture_overflow="block", segment_s=60) as client:
        await client.submit(b"a", b"x")
        await asyncio.to_thread(router.recv_multipart)
        await client.close(drain_s=0)
    assert capture.open(tmp_path).info().messages == 1
