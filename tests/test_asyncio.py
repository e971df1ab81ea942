"""Coroutines that wait for one role at a time, many together, and what becomes of them."""

import asyncio
import contextlib
import copy
import inspect
import pickle
import threading

import pytest
import zmq

from peers import cdtp as wire
from peers import dcp as packed
from peers.roles import ANY, KINDS, opened
from peers.waiting import PATIENCE_S
from trunkline import cdtp, chirp, dcp, mtl
from trunkline.errors import ClosedError, TimeoutError

# What is waited for that does not come before the end.
WAITS = {
    "cdtp.Sender.send": lambda sender: asyncio.gather(*(sender.send(b"x") for _ in range(5)), return_exceptions=True),
    "cdtp.Sender.flush": lambda sender: sender.flush(),
    "cdtp.Receiver.receive": lambda receiver: receiver.receive(),
    "cdtp.Recorder.wait": lambda recorder: recorder.wait(count=5),
    "dcp.Broker.wait": lambda broker: broker.wait(),
    "dcp.Worker.receive": lambda worker: worker.receive(),
    "dcp.Worker.request": lambda worker: worker.request(b"other", b"x"),
    "dcp.Client.request": lambda client: client.request(b"echo", b"x"),
    "mc0.Connector.receive": lambda connector: connector.receive(),
    "mc0.Connector.subscribe": lambda connector: connector.subscribe("a"),
    "mc0.Connector.put": lambda connector: connector.put("runs", b"x", confirm=True),
    "mc0.Connector.submit": lambda connector: connector.submit("runs", b"x"),
    "mc0.Connector.ping": lambda connector: connector.ping(),
    "mc0.Middleware.wait": lambda middleware: middleware.wait(),
    "mtl.Server.wait": lambda server: server.wait(),
    "chirp.Beacon.receive": lambda beacon: beacon.receive(),
    "cdt.Recorder.wait": lambda recorder: recorder.wait(),
    "cdt.Target.wait": lambda target: target.wait(),
}


@pytest.mark.parametrize("what", WAITS)
async def test_waits_end_with_the_role(what, tmp_path):
    given = {"queue_messages": 1} if what.startswith("cdtp.Sender") else {}
    async with opened(what.rpartition(".")[0], tmp_path, "Async", **given) as role:
        if what == "cdtp.Sender.flush":
            await role.send(b"x")
        waits = [asyncio.ensure_future(WAITS[what](role)) for _ in range(3)]
        done, _ = await asyncio.wait(waits, timeout=0.05)
        assert not done
        if what.startswith("cdtp.Sender"):
            with pytest.raises(TimeoutError):
                await role.close()
        elif "drain_s" in inspect.signature(role.close).parameters:
            await role.close(drain_s=0.05)
        else:
            await role.close()
        ends = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 20)
    if what in ("dcp.Broker.wait", "mc0.Middleware.wait", "mtl.Server.wait", "cdt.Target.wait"):
        assert ends == [None] * 3
    elif what == "cdtp.Sender.send":
        # One found room in the queue.
        flat = [end for each in ends for end in each]
        assert flat.count(None) == 1
        assert sum(isinstance(end, ClosedError) for end in flat) == 14
    else:
        assert {type(end) for end in ends} == {ClosedError}


class Waiting:
    """A role of either façade, what is waited for, and what makes it come."""

    def __init__(self, prefix, open_socket, path):
        self.prefix = prefix
        self.open_socket = open_socket
        self.path = path

    def role(self, room, name, *args, **options):
        return getattr(room, self.prefix + name)(*args, **options)

    def sender(self, wait):
        role = self.role(cdtp, "Sender", "Det", bind=ANY, queue_messages=1, linger_s=20)

        def come():
            self.pull = self.open_socket(zmq.PULL, connect=role.endpoints[0])
            for _ in range(2 if wait == "send" else 1):
                self.pull.recv_multipart()

        return role, [("send", b"x")], (wait, b"x") if wait == "send" else (wait,), come

    def receiver(self):
        role = self.role(cdtp, "Receiver", bind=ANY)
        return role, [], ("receive",), lambda: self.push(role, 1)

    def recorder(self, wait):
        role = self.role(cdtp, "Recorder", self.path / "capture", bind=ANY)
        return role, [], (wait,), lambda: self.push(role, 3)

    def push(self, role, count):
        push = self.open_socket(zmq.PUSH, connect=role.endpoints[0])
        for sequence in range(count):
            push.send_multipart([wire.header_b(sequence), b"x"])

    def dcp(self, name, *args):
        router = self.open_socket(zmq.ROUTER, bind=ANY)
        role = self.role(dcp, name, *args, connect=router.last_endpoint.decode())
        return role, router

    def client(self):
        role, router = self.dcp("Client")

        def come():
            peer, *asked = router.recv_multipart()
            router.send_multipart([peer, *packed.reply(b"C", b"y", metadata=asked[5 : asked.index(b"", 5)])])

        return role, [], ("request", b"echo", b"x"), come

    def worker(self):
        role, router = self.dcp("Worker", b"echo")

        def come():
            peer, *_ = router.recv_multipart()
            for frames in (packed.register(b"echo"), packed.request(b"echo", b"x", client=b"c")):
                router.send_multipart([peer, *frames])

        return role, [], ("receive",), come

    def broker(self):
        role = self.role(dcp, "Broker", bind=ANY)
        return role, [], ("wait",), role.close

    def beacon(self):
        role = self.role(chirp, "Beacon", "group", "host", port=0)
        return role, [], ("receive",), role.close


COMING = {
    "Sender.send": lambda waiting: waiting.sender("send"),
    "Sender.flush": lambda waiting: waiting.sender("flush"),
    "Receiver.receive": Waiting.receiver,
    "Recorder.wait": lambda waiting: waiting.recorder("wait"),
    "Client.request": Waiting.client,
    "Worker.receive": Waiting.worker,
    "Broker.wait": Waiting.broker,
    "Beacon.receive": Waiting.beacon,
}


@pytest.mark.parametrize("what", COMING)
async def test_no_other_call_takes_the_news_from_one_who_waits(what, open_socket, tmp_path):
    role, first, (wait, *args), come = COMING[what](Waiting("Async", open_socket, tmp_path))
    options = {"count": 3} if what == "Recorder.wait" else {}
    async with role:
        for call, *first_args in first:
            await getattr(role, call)(*first_args)
        waits = [asyncio.ensure_future(getattr(role, wait)(*args, **options))]
        looks, looked = 0, asyncio.Event()

        async def look():
            nonlocal looks
            while not waits[0].done():
                _ = (role.stats, role.endpoints, role.closed, repr(role))
                if hasattr(role, "flush"):
                    with contextlib.suppress(TimeoutError):
                        await role.flush(timeout_s=0.001)
                await asyncio.sleep(0.001)
                looks += 1
                if looks == 20:
                    looked.set()

        looking = asyncio.ensure_future(look())
        await looked.wait()
        if what in ("Broker.wait", "Beacon.receive"):
            await come()
        else:
            await asyncio.to_thread(come)
        done, _ = await asyncio.wait(waits, timeout=PATIENCE_S)
        assert done, "it waits for what has come long ago"
        await looking
        if what == "Beacon.receive":
            assert type(waits[0].exception()) is ClosedError
        else:
            assert waits[0].exception() is None
        if what == "Worker.receive":
            # It has not replied.
            await role.close(drain_s=0)


@pytest.mark.parametrize("what", COMING)
def test_no_other_thread_takes_the_news_from_one_who_waits(what, open_socket, tmp_path):
    role, first, (wait, *args), come = COMING[what](Waiting("", open_socket, tmp_path))
    options = {"count": 3} if what == "Recorder.wait" else {}
    ends = []

    def waits():
        try:
            ends.append(getattr(role, wait)(*args, **options))
        except ClosedError as error:
            ends.append(error)

    with role:
        for call, *first_args in first:
            getattr(role, call)(*first_args)
        waiting = threading.Thread(target=waits)
        waiting.start()
        for _ in range(20):
            assert role.stats is not None
            if hasattr(role, "flush"):
                with contextlib.suppress(TimeoutError):
                    role.flush(timeout_s=0.001)
        coming = threading.Thread(target=come)
        coming.start()
        while waiting.is_alive():
            assert role.stats is not None
            waiting.join(0.001)
        coming.join()
        if what == "Worker.receive":
            role.close(drain_s=0)
    assert len(ends) == 1
    assert isinstance(ends[0], ClosedError) == (what == "Beacon.receive")


async def test_each_who_waits_for_a_count_is_woken_by_it(open_socket, tmp_path):
    async with cdtp.AsyncRecorder(tmp_path / "capture", bind=ANY) as recorder:
        waits = [asyncio.ensure_future(recorder.wait(count=count)) for count in (4, 2, 3)]
        await asyncio.sleep(0)
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for sequence, number in enumerate((1, 2, 0)):
            for _ in range(2 if sequence == 0 else 1):
                push.send_multipart([wire.header_b(sequence), b"x"])
            assert await asyncio.wait_for(waits[number], PATIENCE_S) == "count"


async def test_all_who_wait_for_room_get_it(open_socket):
    async with cdtp.AsyncSender("Det", bind=ANY, queue_messages=2, linger_s=20) as sender:
        sends = [asyncio.ensure_future(sender.send(b"%d" % number)) for number in range(300)]
        pull = open_socket(zmq.PULL, connect=sender.endpoints[0])
        got = [await asyncio.to_thread(pull.recv_multipart) for _ in sends]
        await asyncio.wait_for(asyncio.gather(*sends), 20)
    assert {payload for _, payload in got} == {b"%d" % number for number in range(300)}


async def test_a_wait_for_room_ends_with_its_time_whatever_others_take():
    async with cdtp.AsyncSender("Det", bind=ANY, queue_messages=1, linger_s=0) as sender:
        await sender.send(b"x")
        waits = [sender.send(b"x", timeout_s=0.01 * number) for number in range(1, 20)]
        ends = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(end) for end in ends} == {TimeoutError}
        with pytest.raises(TimeoutError):
            await sender.close()


async def test_each_of_several_readers_gets_a_message(open_socket):
    async with cdtp.AsyncReceiver(bind=ANY) as receiver:
        reads = [asyncio.ensure_future(receiver.receive()) for _ in range(5)]
        await asyncio.sleep(0)
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        for sequence in range(5):
            push.send_multipart([wire.header_b(sequence), b"x"])
        got = await asyncio.wait_for(asyncio.gather(*reads), 20)
    assert sorted(message.sequence for message in got) == list(range(5))


async def test_one_who_goes_leaves_the_others_waiting(open_socket):
    async with cdtp.AsyncReceiver(bind=ANY) as receiver:
        first, second, third = (asyncio.ensure_future(receiver.receive()) for _ in range(3))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(TimeoutError):
            await receiver.receive(timeout_s=0.01)
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        push.send_multipart([wire.header_b(0), b"x"])
        push.send_multipart([wire.header_b(1), b"x"])
        got = await asyncio.wait_for(asyncio.gather(first, third), 20)
    assert sorted(message.sequence for message in got) == [0, 1]
    assert second.cancelled()


async def test_a_recorder_is_waited_for_and_flushed_at_a_time(open_socket, tmp_path):
    async with cdtp.AsyncRecorder(tmp_path / "capture", bind=ANY) as recorder:
        waiting = asyncio.ensure_future(recorder.wait(count=3))
        await asyncio.sleep(0)
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for sequence in range(3):
            push.send_multipart([wire.header_b(sequence), b"x"])
            await asyncio.wait_for(asyncio.gather(recorder.flush(), recorder.publish(), recorder.flush()), 20)
        assert await asyncio.wait_for(waiting, 20) == "count"
        await recorder.flush()
        assert recorder.stats.durable == 3


async def test_iteration_goes_on_after_a_wait_that_was_cut_off(open_socket):
    async with cdtp.AsyncReceiver(bind=ANY) as receiver:
        messages = aiter(receiver)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(messages), 0.05)
        open_socket(zmq.PUSH, connect=receiver.endpoints[0]).send_multipart([wire.header_b(7), b"x"])
        assert (await asyncio.wait_for(anext(messages), 20)).sequence == 7
        await receiver.close()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("name", KINDS)
async def test_an_opening_that_is_cut_off_leaves_nothing_open(name, turns, tmp_path):
    role = opened(name, tmp_path, "Async")

    async def use():
        async with role:
            await asyncio.Event().wait()

    using = asyncio.ensure_future(use())
    for _ in range(turns):
        await asyncio.sleep(0)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert role.closed or "not open" in repr(role)
    if name.endswith(".Recorder"):
        opened(name, tmp_path).close()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("double", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda double: double.__qualname__)
async def test_a_role_has_no_double(name, double, tmp_path):
    with mtl.Server(bind=ANY, anonymous=True) as server:
        given = {"connect": server.endpoints} if name == "mtl.Client" else {}
        async with opened(name, tmp_path, "Async", **given) as role:
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                double(role)
            assert not role.closed
