"""Coroutines that wait for one role at a time, many together, and what becomes of them."""

import asyncio
import copy
import pickle

import pytest
import zmq

import wire
from trunkline import cdtp, chirp, dcp
from trunkline.errors import ClosedError, TimeoutError

ANY = "tcp://127.0.0.1:*"

ROLES = {
    "Sender": lambda _path: cdtp.AsyncSender("Det", bind=ANY, linger_s=0),
    "Receiver": lambda _path: cdtp.AsyncReceiver(bind=ANY),
    "Recorder": lambda path: cdtp.AsyncRecorder(path / "capture", bind=ANY),
    "Broker": lambda _path: dcp.AsyncBroker(bind=ANY),
    "Worker": lambda _path: dcp.AsyncWorker(b"echo", connect="tcp://127.0.0.1:9"),
    "Client": lambda _path: dcp.AsyncClient(connect="tcp://127.0.0.1:9"),
    "Beacon": lambda _path: chirp.AsyncBeacon("group", "host", port=0),
}

# What is waited for that does not come before the end.
WAITS = {
    "Sender.send": lambda sender: asyncio.gather(*(sender.send(b"x") for _ in range(5)), return_exceptions=True),
    "Sender.flush": lambda sender: sender.flush(),
    "Receiver.receive": lambda receiver: receiver.receive(),
    "Recorder.wait": lambda recorder: recorder.wait(count=5),
    "Broker.wait": lambda broker: broker.wait(),
    "Worker.receive": lambda worker: worker.receive(),
    "Worker.request": lambda worker: worker.request(b"other", b"x"),
    "Client.request": lambda client: client.request(b"echo", b"x"),
    "Beacon.receive": lambda beacon: beacon.receive(),
}


@pytest.mark.parametrize("what", WAITS)
async def test_waits_end_with_the_role(what, tmp_path):
    role = ROLES[what.partition(".")[0]](tmp_path)
    if what.startswith("Sender"):
        role = cdtp.AsyncSender("Det", bind=ANY, linger_s=0, queue_messages=1)
    async with role:
        if what == "Sender.flush":
            await role.send(b"x")
        waits = [asyncio.ensure_future(WAITS[what](role)) for _ in range(3)]
        done, _ = await asyncio.wait(waits, timeout=0.05)
        assert not done
        if what.startswith("Sender"):
            with pytest.raises(TimeoutError):
                await role.close()
        else:
            await role.close()
        ends = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 20)
    if what == "Broker.wait":
        assert ends == [None] * 3
    elif what == "Sender.send":
        # One found room in the queue.
        flat = [end for each in ends for end in each]
        assert flat.count(None) == 1
        assert sum(isinstance(end, ClosedError) for end in flat) == 14
    else:
        assert {type(end) for end in ends} == {ClosedError}


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
    assert [message.sequence for message in got] == list(range(5))


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
    assert [message.sequence for message in got] == [0, 1]
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
@pytest.mark.parametrize("role", ROLES)
async def test_an_opening_that_is_cut_off_leaves_nothing_open(role, turns, tmp_path):
    opened = ROLES[role](tmp_path)

    async def use():
        async with opened:
            await asyncio.Event().wait()

    using = asyncio.ensure_future(use())
    for _ in range(turns):
        await asyncio.sleep(0)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert opened.closed or "not open" in repr(opened)
    if role == "Recorder":
        cdtp.Recorder(tmp_path / "capture", bind=ANY).close()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("double", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda double: double.__qualname__)
async def test_a_role_has_no_double(role, double, tmp_path):
    async with ROLES[role](tmp_path) as opened:
        with pytest.raises(TypeError, match="runs here"):
            double(opened)
        assert not opened.closed
