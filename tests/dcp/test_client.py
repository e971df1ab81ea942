"""The client, at a raw ROUTER that plays broker and workers."""

import asyncio
import concurrent.futures
import random
import threading
import time

import pytest
import zmq

from peers.dcp import HEAD, PING, RECONNECT, bound_again, register, reply, request
from peers.waiting import PATIENCE_S, until
from trunkline import Curve, dcp
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError

SERVER = zmq.curve_keypair()


class Router:
    """The broker's side."""

    def __init__(self, socket):
        self.socket = socket
        self.endpoint = socket.last_endpoint.decode()

    def receive(self):
        """Who asked, and the request."""
        peer, *frames = self.socket.recv_multipart()
        assert frames[:3] == [*HEAD, b"\x04"]
        return peer, frames

    def send(self, peer, *messages):
        for frames in messages:
            self.socket.send_multipart([peer, *frames])

    def answer(self, asked, *data):
        """Replies as a worker would."""
        peer, frames = asked
        metadata = frames[5 : frames.index(b"", 5)]
        self.send(peer, reply(peer, *data, metadata=metadata))

    def is_silent(self):
        return not self.socket.poll(200)


def data_of(asked):
    frames = asked[1]
    return frames[frames.index(b"", 5) + 1 :]


@pytest.fixture
def router(open_socket):
    return Router(open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*"))


@pytest.fixture
def client(router):
    with dcp.Client(connect=router.endpoint) as client:
        yield client
        client.close(drain_s=0)


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield pool


@pytest.mark.req("DCP-05", "DCP-06", "DCP-36")
def test_says_nothing_until_it_asks(router):
    with dcp.Client(connect=router.endpoint, heartbeat_interval_s=0.02) as client:
        # Ten intervals.
        assert router.is_silent()
        client.submit(b"echo", b"x")
        *_, data = router.socket.recv_multipart(copy=False)
        assert data.bytes == b"x"
        assert data.get("Socket-Type") == "DEALER"
        assert router.is_silent()
        client.close(drain_s=0)


@pytest.mark.req("DCP-02", "DCP-18", "DCP-24", "DCP-25")
@pytest.mark.parametrize("metadata", [[], [b"m"], [b"%d" % n for n in range(100)]], ids=len)
@pytest.mark.parametrize(
    "data",
    [b"one", [], [b""], [b"a", b"", memoryview(b"c")], [b"", b""]],
    ids=["bytes", "none", "empty", "three", "two-empty"],
)
def test_asks_and_is_answered(router, client, pool, metadata, data):
    future = pool.submit(client.request, b"echo", data, metadata=metadata, timeout_s=20)
    asked = router.receive()
    frames = asked[1]
    parts = [data] if isinstance(data, bytes) else [bytes(part) for part in data]
    # The first part of the metadata is the client's correlation id.
    assert frames == request(b"echo", *parts, metadata=[frames[5], *metadata])
    assert len(frames[5]) == 16
    router.answer(asked, *parts, b"more")
    got = future.result(PATIENCE_S)
    assert got == dcp.Reply([*parts, b"more"], metadata)
    assert (got.data, got.metadata) == ((*parts, b"more"), tuple(metadata))


@pytest.mark.req("DCP-28")
def test_each_of_a_thousand_gets_its_own_reply(router, client):
    total = 1000
    futures = [client.submit(b"echo", b"%d" % number, metadata=[b"m%d" % number]) for number in range(total)]
    asked = [router.receive() for _ in range(total)]
    assert client.stats.in_flight == total
    random.Random(5).shuffle(asked)
    for one in asked:
        router.answer(one, *data_of(one))
    for number, future in enumerate(futures):
        assert future.result(PATIENCE_S) == dcp.Reply([b"%d" % number], [b"m%d" % number])
    stats = client.stats
    assert (stats.requests, stats.replies, stats.in_flight) == (total, total, 0)


@pytest.mark.req("DCP-28")
async def test_each_of_a_thousand_coroutines_gets_its_own_reply(router):
    total = 1000
    async with dcp.AsyncClient(connect=router.endpoint) as client:
        coroutines = [client.request(b"echo", b"%d" % number, timeout_s=PATIENCE_S) for number in range(total)]
        gathered = asyncio.gather(*coroutines)

        def answer():
            asked = [router.receive() for _ in range(total)]
            random.Random(5).shuffle(asked)
            for one in asked:
                router.answer(one, *data_of(one))

        await asyncio.to_thread(answer)
        assert await gathered == [dcp.Reply(b"%d" % number) for number in range(total)]


def test_many_threads_ask_at_a_time(router, client, pool):
    def ask(number):
        return [client.request(b"echo", b"%d-%d" % (number, n), timeout_s=PATIENCE_S).data[0] for n in range(100)]

    futures = [pool.submit(ask, number) for number in range(5)]
    for _ in range(500):
        asked = router.receive()
        router.answer(asked, *data_of(asked))
    for number, future in enumerate(futures):
        assert future.result(PATIENCE_S) == [b"%d-%d" % (number, n) for n in range(100)]


@pytest.mark.parametrize("timeout_s", [0, 0.05])
def test_a_wait_that_runs_out(client, timeout_s):
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="no reply"):
        client.request(b"echo", b"x", timeout_s=timeout_s)
    assert timeout_s <= time.monotonic() - start < PATIENCE_S
    with pytest.raises(TimeoutError, match="no reply"):
        client.submit(b"echo", b"x", timeout_s=timeout_s).result(PATIENCE_S)
    assert client.stats.timeouts == 2


@pytest.mark.req("DCP-30")
def test_asks_again_and_takes_no_notice_of_what_comes_late(router, client, pool):
    future = pool.submit(client.request, b"echo", b"x", timeout_s=1, retries=99)
    asked = [router.receive() for _ in range(3)]
    assert asked[0] == asked[1] == asked[2]
    router.answer(asked[2], b"y")
    assert future.result(PATIENCE_S).data == (b"y",)
    router.answer(asked[0], b"late")
    until(lambda: client.stats.late == 1)
    # More often where the answer to the third try took its time.
    assert client.stats.retries >= 2
    assert client.stats.timeouts == 0
    with pytest.raises(TimeoutError):
        client.request(b"echo", b"x", timeout_s=1)
    router.answer(router.receive(), b"late")
    until(lambda: client.stats.late == 2)
    assert router.is_silent()


@pytest.mark.req("DCP-30", "DCP-31")
def test_a_retry_reaches_a_broker_that_was_started_again(router, client, pool, open_socket):
    future = pool.submit(client.request, b"echo", b"x", timeout_s=0.5, retries=99)
    router.receive()
    router.socket.close(linger=0)
    again = Router(bound_again(open_socket, zmq.ROUTER, router.endpoint))
    again.answer(again.receive(), b"y")
    assert future.result(PATIENCE_S).data == (b"y",)


def test_what_is_cancelled_is_waited_for_no_more(router, client):
    with dcp.Client(connect="tcp://127.0.0.1:9") as lonely:
        future = lonely.submit(b"echo", b"x")
        assert future.cancel()
        assert future.cancelled()
        until(lambda: lonely.stats.in_flight == 0)
    future = client.submit(b"echo", b"x")
    asked = router.receive()
    assert future.cancel()
    router.answer(asked, b"y")
    until(lambda: client.stats.late == 1)
    done = client.submit(b"echo", b"x")
    router.answer(router.receive(), b"y")
    assert done.result(PATIENCE_S).data == (b"y",)
    assert not done.cancel()


def test_what_is_cancelled_before_it_left_is_never_sent(open_socket):
    socket = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*")
    endpoint = socket.last_endpoint.decode()
    socket.close()
    with dcp.Client(connect=endpoint) as client:
        futures = [client.submit(b"echo", b"%d" % number) for number in range(200)]
        until(lambda: client.stats.requests == 200)
        assert all(future.cancel() for future in futures)
        until(lambda: client.stats.in_flight == 0)
        router = Router(bound_again(open_socket, zmq.ROUTER, endpoint))
        client.submit(b"echo", b"last")
        assert data_of(router.receive()) == [b"last"]
        client.close(drain_s=0)


async def test_a_cancelled_task_waits_no_more(router):
    async with dcp.AsyncClient(connect=router.endpoint) as client:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.request(b"echo", b"x"), 0.05)
        await asyncio.to_thread(until, lambda: client.stats.in_flight == 0)


def test_the_thread_of_the_futures_cannot_wait_for_one(router, client):
    outcomes = []
    waits = threading.Event()
    never = client.submit(b"echo", b"never")
    first = client.submit(b"echo", b"first")

    def wait(_):
        for look in (never.result, never.exception):
            try:
                look()
            except LocalProtocolError as error:
                outcomes.append(str(error))
        # A future that is done does not wait, and a new request waits for the engine only.
        outcomes.append(first.result().data)
        outcomes.append(client.request(b"echo", b"inside", timeout_s=PATIENCE_S).data)
        waits.set()

    first.add_done_callback(wait)
    router.receive()
    router.answer(router.receive(), b"y")
    router.answer(router.receive(), b"z")
    assert waits.wait(PATIENCE_S)
    assert ["cannot wait" in outcomes[0], "cannot wait" in outcomes[1], *outcomes[2:]] == [True, True, (b"y",), (b"z",)]


def test_futures_are_those_of_the_standard_library(router, client):
    futures = [client.submit(b"echo", b"%d" % number) for number in range(10)]
    for _ in futures:
        asked = router.receive()
        router.answer(asked, *data_of(asked))
    done = concurrent.futures.as_completed(futures, timeout=PATIENCE_S)
    assert {future.result().data[0] for future in done} == {b"%d" % number for number in range(10)}


@pytest.mark.parametrize(
    ("bounds", "fit"), [({"queue_messages": 5}, 5), ({"queue_bytes": 1500}, 3)], ids=["messages", "bytes"]
)
def test_a_full_queue_waits_or_raises(open_socket, bounds, fit, pool):
    with dcp.Client(connect="tcp://127.0.0.1:9", **bounds) as client:
        for _ in range(fit):
            client.submit(b"echo", bytes(100))
            # What a request costs is known with its header, once that is written.
            _ = client.stats
        with pytest.raises(TimeoutError, match="room"):
            client.submit(b"echo", bytes(100), timeout_s=0.05)
        client.close(drain_s=0)
    with dcp.Client(connect="tcp://127.0.0.1:9", overflow="raise", **bounds) as client:
        with pytest.raises(TimeoutError, match="room"):
            for _ in range(10):
                client.submit(b"echo", bytes(100))
        client.close(drain_s=0)
    router = Router(open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*"))
    with dcp.Client(connect=router.endpoint, **bounds) as client:
        asking = pool.submit(lambda: [client.submit(b"echo", bytes(100)) for _ in range(100)])
        for _ in range(100):
            router.answer(router.receive(), b"y")
        assert all(future.result(PATIENCE_S).data == (b"y",) for future in asking.result(PATIENCE_S))


def test_replies_nobody_fetches_stop_the_reading(router):
    blocked = threading.Event()
    with dcp.Client(connect=router.endpoint, queue_bytes=1 << 20) as client:
        futures = [client.submit(b"echo", b"x") for _ in range(100)]
        futures[0].add_done_callback(lambda _: blocked.wait(PATIENCE_S))
        for _ in futures:
            router.answer(router.receive(), bytes(100_000))
        until(lambda: futures[0].done() and client.stats.replies > 5)
        assert client.stats.replies < 50
        blocked.set()
        assert all(len(future.result(PATIENCE_S).data[0]) == 100_000 for future in futures)


@pytest.mark.req("DCP-36", "DCP-44")
def test_what_is_no_reply_is_told_and_the_next_one_arrives(router):
    drops = []
    bad = {
        "bad_protocol": [b"", b"XXXX", b"\x05"],
        "unexpected_type": register(b"echo"),
        "bad_type": [*HEAD, b"\x09"],
        "missing_client": reply(b"", b"x"),
        "missing_delimiter": [*HEAD, b"\x05", b"C", b""],
    }
    with dcp.Client(connect=router.endpoint, on_drop=drops.append) as client:
        future = client.submit(b"echo", b"x")
        asked = router.receive()
        router.send(asked[0], *bad.values(), reply(asked[0], b"of nobody", metadata=[b"m"]), PING, RECONNECT)
        router.answer(asked, b"y")
        assert future.result(PATIENCE_S).data == (b"y",)
        until(lambda: len(drops) == 7)
        assert client.stats.dropped == {**dict.fromkeys(bad, 1), "unexpected_type": 3}
        assert client.stats.late == 1
    assert [(drop.kind, list(drop.frames)) for drop in drops[:5]] == list(bad.items())


def test_closing_ends_what_waits(router, pool):
    client = dcp.Client(connect=router.endpoint)
    asking = pool.submit(client.request, b"echo", b"x")
    future = client.submit(b"echo", b"x")
    router.receive()
    router.receive()
    client.close(drain_s=0.05)
    for ended in (asking, future):
        with pytest.raises(ClosedError):
            ended.result(PATIENCE_S)
    for late in (client.request, client.submit):
        with pytest.raises(ClosedError):
            late(b"echo", b"x")
    client.close()


def test_closing_waits_for_replies_if_you_say_so(router, pool):
    client = dcp.Client(connect=router.endpoint)
    future = client.submit(b"echo", b"x")
    asked = router.receive()
    closing = pool.submit(client.close, drain_s=PATIENCE_S)
    router.answer(asked, b"y")
    closing.result(PATIENCE_S)
    assert future.result(0).data == (b"y",)


def test_the_end_of_a_with_waits_for_replies_that_are_under_way(router, pool):
    def ask():
        with dcp.Client(connect=router.endpoint) as client:
            futures = [client.submit(b"echo", b"x") for _ in range(3)]
        return [future.result(0).data for future in futures]

    asking = pool.submit(ask)
    for _ in range(3):
        router.answer(router.receive(), b"y")
    assert asking.result(PATIENCE_S) == [(b"y",)] * 3


def test_who_is_closed_sends_what_waits_to_be_sent_and_tries_nothing_again(open_socket, pool):
    socket = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*")
    endpoint = socket.last_endpoint.decode()
    socket.unbind(endpoint)
    client = dcp.Client(connect=endpoint)
    waiting = client.submit(b"echo", b"x")
    given_up = client.submit(b"echo", b"x", timeout_s=2, retries=99)
    closing = pool.submit(client.close, drain_s=PATIENCE_S)
    with pytest.raises(TimeoutError):
        given_up.result(PATIENCE_S)
    router = Router(bound_again(open_socket, zmq.ROUTER, endpoint))
    router.answer(router.receive(), b"y")
    assert waiting.result(PATIENCE_S).data == (b"y",)
    closing.result(PATIENCE_S)
    assert client.stats.retries == 0


def test_a_with_that_fails_or_has_nothing_under_way_does_not_wait(router):
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError), dcp.Client(connect=router.endpoint) as client:
        future = client.submit(b"echo", b"x")
        router.receive()
        1 / 0  # noqa: B018 - it raises
    with pytest.raises(ClosedError):
        future.result(0)
    with dcp.Client(connect=router.endpoint):
        pass
    assert time.monotonic() - start < 4


def test_letting_go_of_a_client_ends_it(router):
    client = dcp.Client(connect=router.endpoint)
    future = client.submit(b"echo", b"x")
    router.receive()
    with pytest.warns(ResourceWarning, match="unclosed Client"):
        del client
    with pytest.raises(ClosedError):
        future.result(PATIENCE_S)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((b"echo", bytes(1001)), {}, LocalProtocolError),
        ((bytes(1001), b"x"), {}, LocalProtocolError),
        ((b"echo", b"x"), {"metadata": [b""]}, LocalProtocolError),
        ((b"echo", b"x"), {"metadata": [bytes(1001)]}, LocalProtocolError),
        (("echo", b"x"), {}, TypeError),
        ((b"echo", "x"), {}, TypeError),
        ((b"echo", b"x"), {"timeout_s": -1}, ValueError),
        ((b"echo", b"x"), {"retries": -1}, OverflowError),
    ],
    ids=lambda value: str(value)[:20],
)
def test_refuses_what_no_request_can_be(router, arguments, options, error):
    with dcp.Client(connect=router.endpoint, max_message_bytes=1000) as client:
        for ask in (client.request, client.submit):
            with pytest.raises(error):
                ask(*arguments, **options)
        assert client.stats.requests == 0


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"overflow": "drop"}, ValueError),
        ({"liveness": 0}, ValueError),
        ({"bind": "tcp://127.0.0.1:*"}, LocalProtocolError),
        ({"connect": ()}, LocalProtocolError),
    ],
    ids=str,
)
def test_refuses_settings_that_are_none(wrong, error):
    with pytest.raises(error):
        dcp.Client(**{"connect": "tcp://127.0.0.1:9", **wrong})


@pytest.mark.req("DCP-04", "DCP-43")
@pytest.mark.parametrize("transport", ["ipc", "inproc", "curve"])
def test_asks_over_any_transport(open_socket, context, tmp_path, pool, transport):
    bind = {"ipc": f"ipc://{tmp_path}/broker", "inproc": "inproc://broker"}.get(transport, "tcp://127.0.0.1:*")
    options, more = {}, {}
    if transport == "curve":
        options = {"curve_server": 1, "curve_secretkey": SERVER[1]}
        more = {"curve": Curve(server_key=SERVER[0])}
    if transport == "inproc":
        more = {"context": context}
    socket = open_socket(zmq.ROUTER, **options)
    socket.bind(bind)
    router = Router(socket)
    with dcp.Client(connect=router.endpoint, **more) as client:
        future = pool.submit(client.request, b"echo", b"x", timeout_s=PATIENCE_S)
        router.answer(router.receive(), b"y")
        assert future.result(PATIENCE_S).data == (b"y",)


async def test_asyncio_asks_as_blocking_does(router):
    async with dcp.AsyncClient(connect=router.endpoint, queue_messages=3) as client:
        future = await client.submit(b"echo", [b"a", b""], metadata=[b"m"])
        asked = await asyncio.to_thread(router.receive)
        router.answer(asked, b"y")
        assert await future == dcp.Reply(b"y", [b"m"])
        # It is connected by now: each try is sent at once.
        with pytest.raises(TimeoutError, match="no reply"):
            await client.request(b"echo", b"x", timeout_s=1, retries=1)
        assert (client.stats.timeouts, client.stats.retries) == (1, 1)
        router.receive()
        router.receive()
        futures = [await client.submit(b"echo", b"x") for _ in range(20)]
        draining = asyncio.create_task(client.close(drain_s=PATIENCE_S))
        for _ in range(19):
            router.answer(await asyncio.to_thread(router.receive), b"y")
        assert {(await future).data for future in futures[:19]} == {(b"y",)}
        router.answer(await asyncio.to_thread(router.receive), b"z")
        await draining
        assert (await futures[19]).data == (b"z",)
        with pytest.raises(ClosedError):
            await client.request(b"echo", b"x")


async def test_asyncio_closing_ends_what_waits(router):
    client = await dcp.AsyncClient(connect=router.endpoint).__aenter__()
    asking = asyncio.create_task(client.request(b"echo", b"x"))
    await asyncio.to_thread(router.receive)
    await client.close(drain_s=0.05)
    with pytest.raises(ClosedError):
        await asking


async def test_asyncio_waits_for_replies_at_the_end_but_not_after_an_error(router):
    async def ask():
        async with dcp.AsyncClient(connect=router.endpoint) as client:
            future = await client.submit(b"echo", b"x")
        return future.result()

    asking = asyncio.create_task(ask())
    router.answer(await asyncio.to_thread(router.receive), b"y")
    assert (await asking).data == (b"y",)
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        async with dcp.AsyncClient(connect=router.endpoint) as client:
            future = await client.submit(b"echo", b"x")
            await asyncio.to_thread(router.receive)
            1 / 0  # noqa: B018 - it raises
    with pytest.raises(ClosedError):
        await future
    assert time.monotonic() - start < 4
