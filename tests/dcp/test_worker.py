"""The worker, at a raw ROUTER that plays the broker."""

import asyncio
import contextlib
import gc
import signal
import threading
import time

import pytest
import zmq

from peers.dcp import HEAD, LEAVING, PING, PONG, RECONNECT, bound_again, register, reply, request
from peers.waiting import PATIENCE_S, until
from trunkline import Curve, dcp
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError

SERVER = zmq.curve_keypair()


class Router:
    """The broker's side of one worker, which it knows from its first registration on."""

    def __init__(self, socket):
        self.socket = socket
        self.endpoint = socket.last_endpoint.decode()
        self.peer = None

    def receive(self):
        self.peer, *frames = self.socket.recv_multipart()
        return frames

    def meet(self, service=b"echo"):
        """Takes the registration and confirms it."""
        assert self.receive() == register(service)
        self.send(register(service))

    def send(self, *messages):
        for frames in messages:
            self.socket.send_multipart([self.peer, *frames])

    def next(self, *types):
        """The next message of these types; heartbeats in between are answered."""
        while True:
            frames = self.receive()
            if frames[2] in types:
                return frames
            assert frames in (PING, PONG)
            if frames == PING:
                self.send(PONG)

    def reply(self):
        return self.next(b"\x05")

    def let_go(self):
        """Confirms that a worker leaves."""
        assert self.next(b"\x01") == register(LEAVING)
        self.send(register(LEAVING))

    def is_silent(self):
        return not self.socket.poll(200)


@pytest.fixture
def router(open_socket):
    return Router(open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*"))


@pytest.fixture
def work(router):
    """Opens workers, which have registered; what they still hold at the end is given up."""
    workers = []

    def work(**options):
        # By default they send nothing because of the time alone: a machine may be slow.
        options = {"connect": router.endpoint, "heartbeat_interval_s": 60, **options}
        workers.append(dcp.Worker(b"echo", **options))
        router.meet()
        return workers[-1]

    yield work
    for worker in workers:
        worker.close(drain_s=0)


@pytest.fixture
def background():
    """Runs functions in threads, which are joined and must not have raised."""
    threads, errors = [], []

    def background(function, *arguments, **options):
        def run():
            try:
                function(*arguments, **options)
            except Exception as error:  # noqa: BLE001 - shown at the end
                errors.append(error)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return threads[-1]

    yield background
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert errors == []


@pytest.mark.req("DCP-05", "DCP-12", "DCP-13")
@pytest.mark.parametrize("service", [b"echo", b"", b"\x00", b"\xff\xfe", bytes(1 << 20)], ids=len)
def test_registers_with_a_dealer_first_of_all(router, service):
    with dcp.Worker(service, connect=router.endpoint) as worker:
        *_, head, name = router.socket.recv_multipart(copy=False)
        assert (head.bytes, name.bytes) == (b"\x01", service)
        assert name.get("Socket-Type") == "DEALER"
        worker.close(drain_s=0)


@pytest.mark.req("DCP-02", "DCP-22", "DCP-23", "DCP-25", "DCP-26")
@pytest.mark.parametrize("metadata", [[], [b"m"], [b"%d" % n for n in range(100)], [b"\x00\xff"]], ids=len)
@pytest.mark.parametrize("data", [[], [b""], [b"a", b"", b"c"], [b"", b""]], ids=str)
def test_answers_what_it_is_asked(router, work, metadata, data):
    worker = work()
    router.send(request(b"echo", *data, client=b"C", metadata=metadata))
    got = worker.receive(timeout_s=20)
    assert (got.service, got.client, got.metadata, got.data) == (b"echo", b"C", tuple(metadata), tuple(data))
    assert not got.answered
    got.reply(got.data)
    assert got.answered
    assert router.reply() == reply(b"C", *data, metadata=metadata)


def test_iteration_ends_when_another_thread_closes(router, work, background):
    worker = work()

    def loop():
        for got in worker:
            got.reply([b"one", memoryview(b"two"), bytearray(b"three")])

    thread = background(loop)
    router.send(request(b"echo", client=b"C"))
    assert router.reply() == reply(b"C", b"one", b"two", b"three")
    closing = background(worker.close)
    router.let_go()
    closing.join(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert worker.stats.replies == 1


def test_serves_with_a_function(router, work, background):
    worker = work(concurrency=4)
    gate = threading.Barrier(4)

    def handle(got):
        # Passes only with four at a time.
        gate.wait(PATIENCE_S)
        return got.data[0].upper()

    background(worker.serve, handle)
    clients = {b"C%d" % n for n in range(8)}
    for client in clients:
        router.send(request(b"echo", b"x", client=client, metadata=[client]))
    for _ in clients.copy():
        frames = router.reply()
        clients.remove(frames[3])
        assert frames == reply(frames[3], b"X", metadata=[frames[3]])
    worker.stop()
    router.let_go()


def test_a_handler_may_answer_by_itself(router, work, background):
    worker = work(concurrency=2)
    kept = []
    background(worker.serve, kept.append)
    router.send(request(b"echo", client=b"A"), request(b"echo", client=b"B"))
    until(lambda: len(kept) == 2)
    answering = threading.Thread(target=kept[1].reply, args=(b"later",))
    answering.start()
    assert router.reply() == reply(b"B", b"later")
    kept[0].reply(b"last")
    assert router.reply() == reply(b"A", b"last")
    answering.join()
    worker.stop()
    router.let_go()


def fail(got):
    raise ValueError(got.data[0])


@pytest.mark.req("DCP-23")
@pytest.mark.parametrize(
    ("handler", "on_error", "data"),
    [
        (fail, None, []),
        (fail, lambda _, error: [b"failed", error.args[0]], [b"failed", b"x"]),
        (fail, lambda *_: None, []),
        (fail, fail, []),
        (lambda _: "text", None, []),
        (lambda _: 7, None, []),
    ],
    ids=["raises", "on_error", "on_error-gives-none", "on_error-raises", "str", "int"],
)
def test_a_failed_handler_still_answers_with_the_metadata(router, work, background, caplog, handler, on_error, data):
    worker = work()
    background(worker.serve, handler, on_error=on_error)
    for _ in range(2):
        router.send(request(b"echo", b"x", client=b"C", metadata=[b"m"]))
        assert router.reply() == reply(b"C", *data, metadata=[b"m"])
    until(lambda: worker.stats.failed == 2)
    until(lambda: any("the handler failed" in record.message for record in caplog.records))
    worker.stop()
    router.let_go()


def test_the_end_of_something_else_is_a_failure_too(router, work, background, caplog):
    worker = work()
    other = dcp.Client(connect=router.endpoint)
    other.close()
    background(worker.serve, lambda _: other.request(b"another", b"x"))
    router.send(request(b"echo", b"x", client=b"C", metadata=[b"m"]))
    assert router.reply() == reply(b"C", metadata=[b"m"])
    until(lambda: any("the handler failed: ClosedError" in record.message for record in caplog.records))
    worker.stop()
    router.let_go()


@pytest.mark.req("DCP-15", "DCP-33")
@pytest.mark.parametrize("busy_ping_grants", [True, False])
def test_requests_that_nobody_answers_cost_the_worker_nothing(open_socket, busy_ping_grants):
    with (
        dcp.Broker(bind="tcp://127.0.0.1:*", busy_ping_grants=busy_ping_grants) as broker,
        dcp.Worker(b"echo", connect=broker.endpoints) as worker,
    ):
        client = open_socket(zmq.DEALER, connect=broker.endpoints[0])
        for number in range(1100):
            client.send_multipart(request(b"echo", b"%d" % number))
        for number in range(1100):
            got = worker.receive(timeout_s=20)
            assert got.data == (b"%d" % number,)
            del got
        until(lambda: broker.stats.lost == 1100)
        # Nothing is in hand that it would wait for.
        broker.close(drain_s=1000)


@pytest.mark.req("DCP-42")
def test_brokers_are_dialled_one_at_a_time(open_socket):
    router, other = (Router(open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*")) for _ in range(2))
    with dcp.Worker(b"echo", connect=[router.endpoint, other.endpoint]) as worker:
        router.meet()
        for _ in range(3):
            for number in range(10):
                router.send(request(b"echo", b"%d" % number, client=b"C"))
                worker.receive(timeout_s=20).reply(b"y")
                assert router.reply() == reply(b"C", b"y")
            assert other.is_silent()
            router.socket.close()
            # The next one is dialled. Only then this one comes back, for when that is gone: sooner, it might be found again.
            other.meet()
            router, other = other, Router(bound_again(open_socket, zmq.ROUTER, router.endpoint))
        worker.close(drain_s=0)


@pytest.mark.req("DCP-34")
def test_hands_a_request_on(router, work):
    worker = work()
    router.send(request(b"echo", b"x", client=b"C", metadata=[b"m", b"n"]))
    got = worker.receive(timeout_s=20)
    got.forward(b"next", [b"y", b""])
    assert router.next(b"\x04") == request(b"next", b"y", b"", client=b"C", metadata=[b"m", b"n"])
    with pytest.raises(LocalProtocolError, match="answered"):
        got.reply(b"z")
    until(lambda: worker.stats.forwards == 1)


class Clock:
    """Ticks at an interval, as well as the machine allows."""

    def __init__(self, interval_s):
        self.interval_s = interval_s
        self.ticks = 0
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(self.interval_s):
            self.ticks += 1

    def stop(self):
        self.over.set()
        return self.ticks


@pytest.mark.req("DCP-37")
def test_heartbeats_go_on_while_a_handler_blocks(router, work, background):
    # What it asks before it has something in hand is not answered here.
    worker = work(heartbeat_interval_s=0.2, liveness=200)
    release = threading.Event()
    background(worker.serve, lambda _: release.wait(PATIENCE_S) and b"")
    router.send(request(b"echo", client=b"C"))
    clock = Clock(0.2)
    background(clock.run)
    for _ in range(15):
        # At its limit it asks for nothing more: pongs.
        assert router.receive() in (PING, PONG)
    # A machine that is slow is slow for both.
    assert clock.stop() <= 20
    release.set()
    assert router.reply() == reply(b"C", b"")
    worker.stop()
    router.let_go()


@pytest.mark.req("DCP-33")
def test_asks_for_as_much_as_it_can_take(router, work):
    worker = work(concurrency=3)
    for number in range(3):
        router.send(request(b"echo", client=b"C%d" % number))
        if number < 2:
            assert router.receive() == PING
            router.send(PONG)
    held = [worker.receive(timeout_s=20) for _ in range(3)]
    assert router.is_silent()
    assert worker.stats.held == 3
    for got in held:
        got.reply(b"")
        router.reply()
    assert worker.stats.held == 0


@pytest.mark.req("DCP-41")
def test_registers_again_when_told_to_and_answers_what_it_has_in_hand(router, work):
    worker = work()
    router.send(request(b"echo", b"x", client=b"C"))
    got = worker.receive(timeout_s=20)
    router.send(RECONNECT)
    assert router.next(b"\x01") == register(b"echo")
    got.reply(b"y")
    assert router.reply() == reply(b"C", b"y")


@pytest.mark.req("DCP-42")
def test_dials_a_silent_broker_again(router, work, caplog):
    worker = work(heartbeat_interval_s=1, liveness=2)
    first = router.peer
    router.send(request(b"echo", b"x", client=b"C"))
    got = worker.receive(timeout_s=20)
    got.reply(b"y")
    # Nothing is said to it from here on.
    while router.receive() != register(b"echo") or router.peer == first:
        pass
    router.send(register(b"echo"), request(b"echo", client=b"D"))
    worker.receive(timeout_s=20).reply(b"z")
    assert router.reply() == reply(b"D", b"z")
    until(lambda: any("broker is silent" in record.message for record in caplog.records))


@pytest.mark.req("DCP-41", "DCP-42")
def test_a_reply_outlives_its_broker(router, work, open_socket, caplog):
    caplog.set_level("INFO", "trunkline.dcp")
    worker = work()
    router.send(request(b"echo", b"x", client=b"C", metadata=[b"m"]))
    got = worker.receive(timeout_s=20)
    router.socket.close(linger=0)
    # What the transport has taken goes with the connection: only once that is known to be gone is a reply kept.
    while not any("disconnected" in record.message for record in caplog.records):
        with pytest.raises(TimeoutError):
            worker.receive(timeout_s=0.01)
    got.reply(b"y")
    again = Router(bound_again(open_socket, zmq.ROUTER, router.endpoint))
    assert again.receive() == register(b"echo")
    again.send(register(b"echo"))
    assert again.reply() == reply(b"C", b"y", metadata=[b"m"])


def test_warns_where_the_exit_codes_of_programs_are_lost(router, caplog):
    with dcp.Worker(b"work", connect=router.endpoint) as worker:
        worker.stop(drain_s=0)
    assert "SIGCHLD" not in caplog.text
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with dcp.Worker(b"work", connect=router.endpoint) as worker:
            worker.stop(drain_s=0)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert "never learns of its failure" in caplog.text


def test_a_request_nobody_answers_frees_its_place(router, work, caplog):
    worker = work()
    router.send(request(b"echo", client=b"A"), request(b"echo", client=b"B"))
    worker.receive(timeout_s=20)
    gc.collect()
    got = worker.receive(timeout_s=20)
    assert got.client == b"B"
    assert worker.stats.failed == 1
    until(lambda: any("unanswered" in record.message for record in caplog.records))


def test_one_answer_a_request(router, work):
    worker = work(max_message_bytes=1000)
    router.send(request(b"echo", client=b"C"))
    got = worker.receive(timeout_s=20)
    with pytest.raises(LocalProtocolError, match="1001 bytes"):
        got.reply(bytes(1001))
    with pytest.raises(TypeError):
        got.reply("text")
    got.fail(b"sorry")
    assert router.reply() == reply(b"C", b"sorry")
    for again in (lambda: got.reply(b""), got.fail, lambda: got.forward(b"next", b"")):
        with pytest.raises(LocalProtocolError, match="answered"):
            again()
    assert router.is_silent()
    assert (worker.stats.replies, worker.stats.failed) == (1, 1)


@pytest.mark.req("DCP-10", "DCP-39", "DCP-44")
def test_what_is_no_message_is_told_and_the_next_one_arrives(router, work):
    drops = []
    worker = work(on_drop=drops.append)
    bad = {
        "bad_protocol": [b"", b"XXXX", b"\x04"],
        "bad_frame_count": [*PONG, b"x"],
        "unexpected_type": PING,
        "missing_client": request(b"echo", b"x"),
        "missing_delimiter": [*HEAD, b"\x04", b"echo", b"C"],
    }
    router.send(*bad.values(), request(b"echo", b"good", client=b"C"))
    assert worker.receive(timeout_s=20).data == (b"good",)
    assert [(drop.kind, list(drop.frames)) for drop in drops] == list(bad.items())
    assert worker.stats.dropped == dict.fromkeys(bad, 1)
    assert worker.stats.requests == 1


def test_a_coroutine_function_is_for_the_twin(work):
    async def handle(_):
        return b""

    with pytest.raises(TypeError, match="AsyncWorker"):
        work().serve(handle)


def test_waits_only_so_long(work):
    worker = work()
    for timeout_s in (0, 0.05):
        with pytest.raises(TimeoutError, match="no request"):
            worker.receive(timeout_s=timeout_s)


def test_stopping_leaves_the_service_and_answers_what_is_in_hand_or_comes_until_the_broker_knows(router, work):
    worker = work()
    router.send(request(b"echo", b"1", client=b"A", metadata=[b"m"]))
    held = worker.receive(timeout_s=20)
    worker.stop(drain_s=20)
    # Before the reply that would make it free.
    assert router.receive() == register(LEAVING)
    router.send(request(b"echo", b"2", client=b"B", metadata=[b"n"]))
    # No hand is free: another worker may do it.
    assert router.next(b"\x04") == request(b"echo", b"2", client=b"B", metadata=[b"n"])
    held.reply(b"one")
    assert router.reply() == reply(b"A", b"one", metadata=[b"m"])
    router.send(request(b"echo", b"3", client=b"C"), register(LEAVING))
    got = worker.receive(timeout_s=20)
    assert got.data == (b"3",)
    got.reply(b"three")
    assert router.reply() == reply(b"C", b"three")
    assert list(worker) == []
    assert (worker.stats.requests, worker.stats.replies, worker.stats.forwards) == (3, 2, 1)


@pytest.mark.req("DCP-15")
def test_stopping_waits_for_the_broker_for_so_long(work, router):
    worker = work()
    start = time.monotonic()
    worker.stop(drain_s=0.3)
    assert list(worker) == []
    assert 0.25 < time.monotonic() - start < 5
    assert router.receive() == register(LEAVING)


@pytest.mark.req("DCP-15")
@pytest.mark.parametrize("concurrency", [1, 4])
def test_one_of_two_workers_stops_under_load_and_every_request_is_answered(open_socket, background, concurrency):
    with dcp.Broker(bind="tcp://127.0.0.1:*") as broker, contextlib.ExitStack() as workers:
        clients = [open_socket(zmq.DEALER, connect=broker.endpoints[0]) for _ in range(3)]

        def work():
            worker = dcp.Worker(b"echo", connect=broker.endpoints, concurrency=concurrency)
            workers.enter_context(worker)
            background(worker.serve, lambda got: got.data)
            return worker

        running = [work(), work()]
        for number in range(10):
            for client in clients:
                for asked in range(100):
                    client.send_multipart(request(b"echo", b"%d" % asked))
            until(lambda: running[0].stats.requests > 0)
            # In the middle of it, and another one comes.
            running.pop(0).stop()
            running.append(work())
            for client in clients:
                seen = sorted(int(client.recv_multipart()[-1]) for _ in range(100))
                assert seen == list(range(100)), number
        assert broker.stats.lost == 0
        for worker in running:
            worker.stop()
        until(lambda: all(worker.closed for worker in running))
        assert broker.stats.dropped == {}


def test_closing_gives_back_what_nobody_has_begun(router, work, background):
    worker = work(concurrency=3)
    router.send(*(request(b"echo", client=b"C%d" % number) for number in range(3)))
    got = worker.receive(timeout_s=20)
    until(lambda: worker.stats.held == 3)
    del got
    closing = background(worker.close, drain_s=20)
    sent = sorted(router.next(b"\x01", b"\x04") for _ in range(3))
    assert sent == [register(LEAVING), request(b"echo", client=b"C1"), request(b"echo", client=b"C2")]
    router.send(register(LEAVING))
    closing.join(PATIENCE_S)
    with pytest.raises(ClosedError):
        worker.receive()
    worker.close()


def test_an_answer_given_before_the_end_is_sent(router, background):
    with dcp.Worker(b"echo", connect=router.endpoint) as worker:
        router.meet()
        router.send(request(b"echo", client=b"C"))
        got = worker.receive(timeout_s=20)
        got.reply(bytes(1 << 20))
        closing = background(worker.close)
        sent = sorted(router.next(b"\x01", b"\x05") for _ in range(2))
        assert sent == [register(LEAVING), reply(b"C", bytes(1 << 20))]
        router.send(register(LEAVING))
        closing.join(PATIENCE_S)
    with pytest.raises((LocalProtocolError, ClosedError)):
        got.reply(b"")


def test_closing_does_not_wait_for_a_broker_that_is_not_there():
    start = time.monotonic()
    with dcp.Worker(b"echo", connect="tcp://127.0.0.1:9"):
        pass
    assert time.monotonic() - start < 4


@pytest.mark.req("DCP-43")
def test_proves_itself_to_a_raw_broker(open_socket):
    socket = open_socket(zmq.ROUTER, curve_server=1, curve_secretkey=SERVER[1])
    socket.bind("tcp://127.0.0.1:0")
    router = Router(socket)
    with dcp.Worker(b"echo", connect=router.endpoint, curve=Curve(server_key=SERVER[0])) as worker:
        router.meet()
        router.send(request(b"echo", client=b"C"))
        worker.receive(timeout_s=20).reply(b"x")
        assert router.reply() == reply(b"C", b"x")
        worker.stop()
        router.let_go()


@pytest.mark.req("DCP-04")
@pytest.mark.parametrize("transport", ["ipc", "inproc"])
def test_works_over_any_transport(open_socket, context, tmp_path, transport):
    endpoint = f"ipc://{tmp_path}/broker" if transport == "ipc" else "inproc://broker"
    router = Router(open_socket(zmq.ROUTER, bind=endpoint))
    with dcp.Worker(b"echo", connect=endpoint, context=context) as worker:
        router.meet()
        router.send(request(b"echo", client=b"C"))
        worker.receive(timeout_s=20).reply(b"x")
        assert router.reply() == reply(b"C", b"x")
        worker.stop()
        router.let_go()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"concurrency": 0}, LocalProtocolError),
        ({"liveness": 0}, ValueError),
        ({"bind": "tcp://127.0.0.1:*"}, LocalProtocolError),
        ({"connect": ()}, LocalProtocolError),
        ({"service": "text"}, TypeError),
        ({"service": LEAVING}, LocalProtocolError),
    ],
    ids=str,
)
def test_refuses_settings_that_are_none(wrong, error):
    with pytest.raises(error):
        dcp.Worker(**{"service": b"echo", "connect": "tcp://127.0.0.1:9", **wrong})


async def receive(router):
    return await asyncio.to_thread(router.reply)


async def test_asyncio_iterates_as_blocking_does(router):
    async with dcp.AsyncWorker(b"echo", connect=router.endpoint) as worker:
        router.meet()
        with pytest.raises(TimeoutError):
            await worker.receive(timeout_s=0.01)
        router.send(request(b"echo", b"x", client=b"C"))
        async for got in worker:
            got.reply(got.data)
            assert await receive(router) == reply(b"C", b"x")
            worker.stop()
            await asyncio.to_thread(router.let_go)
    assert worker.stats.replies == 1


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_asyncio_serves(router, kind):
    seen = []

    async def handle(got):
        seen.append(threading.current_thread())
        await asyncio.sleep(0)
        return fail(got) if got.data == (b"bad",) else got.data

    def handle_plainly(got):
        seen.append(threading.current_thread())
        return fail(got) if got.data == (b"bad",) else got.data

    handler = handle if kind == "coroutine" else handle_plainly
    async with dcp.AsyncWorker(b"echo", connect=router.endpoint, concurrency=3) as worker:
        router.meet()
        serving = asyncio.create_task(worker.serve(handler, on_error=lambda *_: b"failed"))
        for number in range(20):
            router.send(request(b"echo", b"%d" % number, client=b"C", metadata=[b"%d" % number]))
        replies = [await receive(router) for _ in range(20)]
        assert {frames[-1] for frames in replies} == {b"%d" % number for number in range(20)}
        router.send(request(b"echo", b"bad", client=b"C"))
        assert await receive(router) == reply(b"C", b"failed")
        worker.stop()
        await asyncio.to_thread(router.let_go)
        await serving
    is_main = [thread is threading.main_thread() for thread in seen]
    assert all(is_main) if kind == "coroutine" else not any(is_main)


async def test_asyncio_closing_gives_back_what_nobody_has_begun(router):
    async with dcp.AsyncWorker(b"echo", connect=router.endpoint) as worker:
        router.meet()
        router.send(request(b"echo", client=b"C"))
        await asyncio.to_thread(until, lambda: worker.stats.held == 1)
        closing = asyncio.create_task(worker.close())
        sent = [await asyncio.to_thread(router.next, b"\x01", b"\x04") for _ in range(2)]
        assert sorted(sent) == [register(LEAVING), request(b"echo", client=b"C")]
        router.send(register(LEAVING))
        await closing
    with pytest.raises(ClosedError):
        await worker.receive()


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_asyncio_serving_ends_with_the_worker(router, kind):
    async def handle(got):
        return got.data

    async with dcp.AsyncWorker(b"echo", connect=router.endpoint) as worker:
        router.meet()
        serving = asyncio.ensure_future(worker.serve(handle if kind == "coroutine" else lambda got: got.data))
        router.send(request(b"echo", b"x", client=b"C"))
        assert await receive(router) == reply(b"C", b"x")
        closing = asyncio.ensure_future(worker.close())
        await asyncio.to_thread(router.let_go)
        await asyncio.wait_for(asyncio.gather(closing, serving), 20)


async def test_a_close_that_is_cancelled_waits_for_nothing_more(router):
    worker = await dcp.AsyncWorker(b"echo", connect=router.endpoint).__aenter__()
    router.meet()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(worker.close(drain_s=50), 0.1)
    assert worker.closed
    await worker.close()


def sub(frames, *data):
    """The broker's reply to a request of the worker's own, which has no client part."""
    metadata = frames[5 : frames.index(b"", 5)]
    return reply(b"W", *data, metadata=metadata)


@pytest.mark.req("DCP-07", "DCP-17", "DCP-35")
def test_asks_on_its_own_connection_while_it_has_a_request_in_hand(router, work, background):
    worker = work()
    router.send(request(b"echo", b"x", client=b"C", metadata=[b"m"]))
    got = worker.receive(timeout_s=20)
    replies = []
    thread = background(lambda: replies.append(worker.request(b"other", [b"a", b""], metadata=[b"n"], timeout_s=20)))
    asked = router.next(b"\x04")
    correlation = asked[5]
    assert asked == request(b"other", b"a", b"", metadata=[correlation, b"n"])
    # Another reply, and one to another client's request, are not taken for it.
    router.send(reply(b"W", metadata=[b"n"]), sub(asked, b"y", b""))
    thread.join(PATIENCE_S)
    assert replies == [dcp.Reply([b"y", b""], [b"n"])]
    assert (worker.stats.held, worker.stats.asked, worker.stats.late) == (1, 1, 1)
    got.reply(b"done")
    assert router.reply() == reply(b"C", b"done", metadata=[b"m"])


@pytest.mark.req("DCP-35")
def test_asks_in_the_thread_that_iterates_and_in_handlers(router, work, background):
    worker = work(concurrency=2)

    def loop():
        for got in worker:
            got.reply(worker.request(b"other", got.data, timeout_s=20).data)
            break
        worker.serve(lambda got: worker.request(b"other", got.data, timeout_s=20).data)

    thread = background(loop)
    for number in range(3):
        router.send(request(b"echo", b"%d" % number, client=b"C"))
        asked = router.next(b"\x04")
        assert asked[asked.index(b"", 5) + 1 :] == [b"%d" % number]
        router.send(sub(asked, b"r%d" % number))
        assert router.reply() == reply(b"C", b"r%d" % number)
    worker.stop()
    router.let_go()
    thread.join(PATIENCE_S)


@pytest.mark.req("DCP-30", "DCP-35")
def test_what_it_asks_ends_with_its_time_or_with_the_worker(router, work, background):
    worker = work()
    with pytest.raises(TimeoutError, match=r"within 1 s"):
        worker.request(b"other", b"", timeout_s=1)
    router.send(sub(router.next(b"\x04")))
    until(lambda: worker.stats.late == 1)
    with pytest.raises(LocalProtocolError):
        worker.request(b"other", b"", metadata=[b""])
    raised = []

    def ask():
        try:
            worker.request(b"other", b"")
        except ClosedError as error:
            raised.append(error)

    thread = background(ask)
    router.next(b"\x04")
    worker.close(drain_s=0)
    thread.join(PATIENCE_S)
    assert len(raised) == 1
    with pytest.raises(ClosedError):
        worker.request(b"other", b"")


@pytest.mark.req("DCP-35")
async def test_asks_in_asyncio(router):
    async with dcp.AsyncWorker(b"echo", connect=router.endpoint, concurrency=3) as worker:
        await asyncio.to_thread(router.meet)

        async def handler(got):
            return (await worker.request(b"other", got.data, timeout_s=20)).data

        serving = asyncio.ensure_future(worker.serve(handler))
        numbers = [b"%d" % number for number in range(3)]
        router.send(*(request(b"echo", number, client=b"C") for number in numbers))
        asked = [await asyncio.to_thread(router.next, b"\x04") for _ in numbers]
        router.send(*(sub(frames, frames[-1]) for frames in reversed(asked)))
        replies = [await asyncio.to_thread(router.reply) for _ in numbers]
        assert sorted(replies) == [reply(b"C", number) for number in numbers]
        with pytest.raises(TimeoutError):
            await worker.request(b"other", b"", timeout_s=0.1)
        left = asyncio.ensure_future(worker.request(b"other", b""))
        await asyncio.sleep(0)
        worker.stop(drain_s=0)
        await serving
    with pytest.raises(ClosedError):
        await left


@pytest.mark.req("DCP-32", "DCP-35")
def test_a_worker_that_waits_for_a_reply_of_another_gets_nothing_else_meanwhile(background):
    with (
        dcp.Broker(bind="tcp://127.0.0.1:*") as broker,
        dcp.Worker(b"front", connect=broker.endpoints) as front,
        dcp.Worker(b"back", connect=broker.endpoints) as back,
        dcp.Client(connect=broker.endpoints) as client,
    ):
        held = []

        def handler(got):
            held.append(front.stats.held)
            answer = front.request(b"back", got.data, timeout_s=20)
            held.append(front.stats.held)
            return answer.data

        serving = background(front.serve, handler)
        futures = [client.submit(b"front", b"%d" % number) for number in range(3)]
        for number in range(3):
            got = back.receive(timeout_s=20)
            assert got.data == (b"%d" % number,)
            # Nothing else was given to the one that waits.
            assert front.stats.requests == number + 1
            got.reply([*got.data, b"back"])
        assert [future.result(20).data for future in futures] == [(b"%d" % number, b"back") for number in range(3)]
        assert held == [1] * 6
        front.stop()
        serving.join(PATIENCE_S)
