"""Field tables and JSON that take more than they weigh, between good ones, through a real server."""

import json
import struct
import threading

import pytest

from peers.mtl import ANY, Peers, Playing, confirm, content
from peers.waiting import until
from trunkline import mtl
from trunkline.errors import TrunklineError

MILLIONS = 2_000_000


def table(*fields):
    body = b"".join(fields)
    return struct.pack(">I", len(body)) + body


def array(items):
    return b"\x01aA" + struct.pack(">I", len(items)) + items


def nested(depth):
    inner = b""
    for _ in range(depth):
        inner = b"\x01aF" + struct.pack(">I", len(inner)) + inner
    return inner


HOSTILE = {
    "millions of empty tables": table(array(b"F\0\0\0\0" * MILLIONS)),
    "millions of nulls": table(array(b"V" * MILLIONS)),
    "millions of fields": table(b"\x01aV" * MILLIONS),
    "a hundred thousand levels": table(nested(100_000)),
    "an array that ends nowhere": table(b"\x01aA\xff\xff\xff\xff"),
    "an unknown type": table(b"\x01a?"),
}


@pytest.fixture
def server():
    with mtl.Server(bind=ANY, anonymous=True, resources=["jobs"]) as server:
        yield server


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("twin", ["blocking", "asyncio"])
async def test_a_reader_has_the_good_contents_around_a_hostile_one(server, open_socket, name, twin):
    writer = Peers(open_socket, server).writer(confirm="full")
    for sequence, body in enumerate([b"first", b"hostile", b"last"], 1):
        hostile = {"table": HOSTILE[name]} if body == b"hostile" else {}
        writer.send_multipart(content(sequence, "jobs", body, **hostile))
    options = {"connect": server.endpoints[0], "profile": "queue"}
    if twin == "blocking":
        with mtl.Client(**options) as client, client.reader("jobs") as reader:
            reader.summon("jobs")
            found = [reader.receive(timeout_s=20) for _ in range(2)]
    else:
        async with mtl.AsyncClient(**options) as client, client.reader("jobs") as reader:
            await reader.summon("jobs")
            found = [await reader.receive(timeout_s=20) for _ in range(2)]
    assert [one.body for one in found] == [b"first", b"last"]
    assert server.stats.dropped == {"bad_field_table": 1}
    # No content of a number stands for another: the hostile one is never confirmed.
    settled = writer.recv_multipart()
    confirmed = {1, 3} if settled == confirm(3, multiple=True) else {1}
    if confirmed == {1}:
        assert (settled, writer.recv_multipart()) == (confirm(1), confirm(3))


JSON = {
    "millions of lists": ('{"name": "jobs", "x": [' + "[]," * 300_000 + "0]}").encode(),
    "more than a megabyte": json.dumps({"name": "jobs", "x": "x" * (1 << 20)}).encode(),
    "a hundred thousand levels": b'{"name": "jobs", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "no object": b"[]",
    "an end too early": b'{"name": "jobs"',
    "text that is none": b'{"name": "\xff\xfe"}',
}


@pytest.mark.parametrize("name", JSON)
def test_a_server_answers_good_commands_around_a_hostile_one(server, open_socket, name):
    hostile, good = (Peers(open_socket, server).control("queue") for _ in range(2))
    hostile.socket.send_multipart([b"Queue.Info", JSON[name]])
    status, _ = good.ask("Queue.Info", {"name": "jobs"})
    assert status == 200
    until(lambda: server.stats.dropped or hostile.socket.poll(0))
    if not server.stats.dropped:
        assert int(hostile.socket.recv_multipart()[0]) in ((200, 400) if name == "millions of lists" else (400,))
    assert set(server.stats.dropped) <= {"bad_json"}
    assert good.ask("Queue.Info", {"name": "jobs"})[0] == 200


@pytest.mark.parametrize("name", ["millions of lists", "a hundred thousand levels", "an end too early"])
def test_a_client_lets_a_hostile_reply_be_and_asks_on(context, name):
    body = {"millions of lists": b'{"status": "OK", "x": [' + b"[]," * MILLIONS + b"0]}"}.get(name, JSON[name])

    def say(router, peer):
        router.send_multipart([peer, b"", b"200", body])

    playing = Playing(context, (201, {"profiles": ["queue"]}), (200, {}), say, (200, {"queues": ["jobs"]}))
    drops, came = [], threading.Event()

    def on_drop(dropped):
        drops.append(dropped.kind)
        came.set()

    try:
        with mtl.Client(connect=playing.endpoint, profile="queue", on_drop=on_drop) as client:
            with pytest.raises(TrunklineError):
                client.command("Queue.List", timeout_s=2)
            assert came.wait(20)
            assert client.command("Queue.List", timeout_s=20).body["queues"] == ["jobs"]
        assert drops == ["bad_json"]
    finally:
        playing.stop()
