"""The sending role, read by raw PULL sockets."""

import asyncio
import builtins
import gc
import logging
import queue
import threading
import time

import msgpack
import numpy as np
import pytest
import zmq

from peers import cdtp as wire
from peers.waiting import until
from trunkline import cdtp
from trunkline._roles import notices
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError

ANY = "tcp://127.0.0.1:*"


@pytest.fixture
def pull(open_socket):
    return open_socket(zmq.PULL, bind="tcp://127.0.0.1:*")


@pytest.fixture
def endpoint(pull):
    return pull.last_endpoint.decode()


@pytest.mark.req("CDTP-02", "CDTP-03", "CDTP-04", "CDTP-05")
@pytest.mark.parametrize(
    ("timestamp_ns", "packed"),
    [
        (1_700_000_000_000_000_000, "d6ff6553f100"),
        (1_700_000_000_123_456_789, "d7ff1d6f34546553f100"),
        (-500_000_000, "c70cff1dcd6500ffffffffffffffff"),
    ],
)
def test_writes_header_s(pull, endpoint, timestamp_ns, packed):
    with cdtp.Sender("Det.one", connect=endpoint) as sender:
        sender.send(b"payload", tags={"dtype": "u1"}, timestamp_ns=timestamp_ns)
        header, payload = pull.recv_multipart()
    assert header.hex() == f"a54344545001a74465742e6f6e65{packed}81a56474797065a27531"
    assert payload == b"payload"


@pytest.mark.req("CDTP-06")
def test_stamps_with_the_time_of_sending(pull, endpoint):
    with cdtp.Sender("Det", connect=endpoint) as sender:
        before = time.time_ns()
        sender.send(b"x")
        after = time.time_ns()
        _, _, stamp, _ = wire.unpack(pull.recv_multipart()[0])
    assert before <= stamp.to_unix_nano() <= after


@pytest.mark.req("CDTP-01", "CDTP-14")
@pytest.mark.parametrize("payload", [[], [b""], [b"one", b"", b"two"], [bytearray(b"x"), memoryview(b"y")]], ids=len)
def test_sends_frames_as_they_are(pull, endpoint, payload):
    with cdtp.Sender("Det", connect=endpoint, header="B") as sender:
        sender.send(payload)
        pull.recv_multipart()
        assert pull.recv_multipart()[1:] == [bytes(frame) for frame in payload]


@pytest.mark.req("CDTP-07", "CDTP-08")
@pytest.mark.parametrize(
    "tags",
    [{}, {"a": [1, -1, 2**64 - 1, -(2**63)], "b": b"\x00\xff", "c": {"d": None, "e": [True, 1.5, "ü"]}}],
    ids=["empty", "all"],
)
def test_sends_tags_of_any_type(pull, endpoint, tags):
    with cdtp.Sender("Det", connect=endpoint) as sender:
        sender.send(b"x", tags=tags)
        assert wire.unpack(pull.recv_multipart()[0])[3] == tags


@pytest.mark.req("CDTP-13", "CDTP-21")
@pytest.mark.parametrize("header", ["A", "B"])
def test_works_in_runs(pull, endpoint, header):
    with cdtp.Sender("Det", connect=endpoint, header=header) as sender:
        sender.begin_run({"voltage": 1.5})
        sender.send(b"one")
        sender.send(b"two")
        sender.end_run({"stop": True})
        sender.send(b"three")
    messages = [pull.recv_multipart() for _ in range(7)]
    # Without the identifier and the name, and header A's timestamp: type, sequence, tags.
    assert [wire.unpack(frames[0])[-3:] for frames in messages] == [
        [wire.BOR, 0, {}],
        [wire.DAT, 1, {}],
        [wire.DAT, 2, {}],
        [wire.EOR, 2, {}],
        [wire.BOR, 0, {}],
        [wire.DAT, 1, {}],
        [wire.EOR, 1, {}],
    ]
    assert msgpack.unpackb(messages[0][1]) == {"voltage": 1.5}
    assert msgpack.unpackb(messages[3][1]) == {"stop": True}
    assert messages[4][1] == b"\x80"


INTERRUPTED = {"condition_code": 4, "condition": "INTERRUPTED"}


def last_metadata(pull, header):
    """The metadata of the EOR that ends a run of a BOR and a DAT."""
    *_, eor = (pull.recv_multipart() for _ in range(3))
    if header == "2":
        return wire.unpack(*eor)[3][1][1]
    return msgpack.unpackb(eor[1])


@pytest.mark.req("CDTP-21")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("header", ["A", "B", "2"])
def test_a_with_that_an_exception_leaves_ends_its_run_as_interrupted(pull, endpoint, header, error):
    with pytest.raises(error), cdtp.Sender("Det", connect=endpoint, header=header) as sender:
        sender.send(b"x")
        raise error
    assert last_metadata(pull, header) == INTERRUPTED


@pytest.mark.req("CDTP-21")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
async def test_asyncio_ends_an_interrupted_run_as_blocking_does(pull, endpoint, error):
    with pytest.raises(error):
        async with cdtp.AsyncSender("Det", connect=endpoint, header="B") as sender:
            await sender.send(b"x")
            raise error
    assert last_metadata(pull, "B") == INTERRUPTED


@pytest.mark.req("CDTP-21")
@pytest.mark.parametrize(("interrupted", "metadata"), [(False, {}), (True, INTERRUPTED)])
def test_closing_ends_the_run(pull, endpoint, interrupted, metadata):
    sender = cdtp.Sender("Det", connect=endpoint, header="B")
    sender.send(b"x")
    sender.close(interrupted=interrupted)
    assert last_metadata(pull, "B") == metadata


@pytest.mark.req("CDTP-21")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_run_of_a_sender_that_is_collected_was_interrupted(pull, endpoint):
    sender = cdtp.Sender("Det", connect=endpoint, header="B")
    sender.send(b"x")
    del sender
    gc.collect()
    assert last_metadata(pull, "B") == INTERRUPTED


@pytest.mark.parametrize(
    ("linger_s", "is_read", "is_said"), [(30, False, True), (30, True, False), (0.1, False, False)]
)
def test_an_interrupted_sender_says_what_it_waits_for_once_that_lasts(open_socket, caplog, linger_s, is_read, is_said):
    said = "Det: still sends 1 message, for at most 29 s: an interrupt ends that at once"

    def interrupted():
        with cdtp.Sender("Det", bind=ANY, linger_s=linger_s) as sender:
            sender.send(b"x")
            endpoints.put(sender.endpoints[0])
            raise SystemExit

    def read():
        endpoint = endpoints.get()
        if is_said:
            until(lambda: said in caplog.text)
        open_socket(zmq.PULL, connect=endpoint).recv_multipart()

    endpoints = queue.SimpleQueue()
    reading = threading.Thread(target=read)
    if is_read or is_said:
        reading.start()
    with pytest.raises(SystemExit):
        interrupted()
    if is_read or is_said:
        reading.join()
    assert (said in caplog.text) == is_said
    assert ("still sends" in caplog.text) == is_said


def test_a_run_that_was_ended_stays_as_it_ended(pull, endpoint):
    with pytest.raises(KeyError), cdtp.Sender("Det", connect=endpoint, header="B") as sender:
        sender.send(b"x")
        sender.end_run({"run_id": "r"})
        raise KeyError
    assert last_metadata(pull, "B") == {"run_id": "r"}


def test_a_bool_of_numpy_is_one(pull, endpoint):
    good = np.float64(2) > 1
    with cdtp.Sender("Det", connect=endpoint, header="A") as sender:
        sender.begin_run({"good": good})
        sender.send(b"", tags={"good": good, "all": [good]})
        sender.end_run({"good": good})
    bor, dat, eor = (pull.recv_multipart() for _ in range(3))
    maps = [msgpack.unpackb(bor[1]), wire.unpack(dat[0])[-1], msgpack.unpackb(eor[1])]
    assert maps == [{"good": True}, {"good": True, "all": [True]}, {"good": True}]
    assert all(isinstance(each["good"], bool) for each in maps)


@pytest.mark.req("CDTP-22")
def test_writes_cdtp2(pull, endpoint):
    with cdtp.Sender("Det", connect=endpoint, header="2") as sender:
        sender.begin_run({"voltage": 1.5})
        sender.send([b"one", b"two"], tags={"n": 1})
        sender.end_run({"stop": True})
    assert [wire.unpack(*pull.recv_multipart())[2:] for _ in range(3)] == [
        [wire.BOR, [[0, {}, []], [1, {"voltage": 1.5}, []]]],
        [wire.DAT, [[1, {"n": 1}, [b"one", b"two"]]]],
        [wire.EOR, [[0, {}, []], [1, {"stop": True}, []]]],
    ]


def records(frames):
    """The numbers of the records of a CDTP2 message, or its type where that is not DAT."""
    kind, records = wire.unpack(*frames)[2:]
    return [record[0] for record in records] if kind == wire.DAT else kind


@pytest.mark.req("CDTP-22")
def test_small_messages_go_together(pull, endpoint):
    with cdtp.Sender("Det", connect=endpoint, header="2", batch_bytes=10_000, batch_s=60) as sender:
        for _ in range(100):
            sender.send(bytes(1000))
        seen = [records(pull.recv_multipart()) for _ in range(12)]
        assert sender.stats.queued == 1
        sender.end_run()
        seen += [records(pull.recv_multipart()) for _ in range(2)]
    bor, *batches, eor = seen
    assert (bor, eor) == (wire.BOR, wire.EOR)
    assert [len(batch) for batch in batches] == [9] * 11 + [1]
    assert [number for batch in batches for number in batch] == list(range(1, 101))
    # A BOR and an EOR of CDTP2 have two records each.
    assert sender.stats.sent == 104


@pytest.mark.req("CDTP-22")
def test_a_lone_message_waits_no_longer_than_its_time(pull, endpoint):
    with cdtp.Sender("Det", connect=endpoint, header="2", batch_s=1) as sender:
        sender.begin_run()
        assert records(pull.recv_multipart()) == wire.BOR
        sent = time.monotonic()
        sender.send(b"x")
        assert records(pull.recv_multipart()) == [1]
        # Half a second is what it would be without.
        assert time.monotonic() - sent > 0.9


@pytest.mark.req("CDTP-22")
@pytest.mark.parametrize("bounds", [{"batch_bytes": 0}, {"batch_s": 0}])
def test_batching_can_be_turned_off(pull, endpoint, bounds):
    with cdtp.Sender("Det", connect=endpoint, header="2", **bounds) as sender:
        for _ in range(3):
            sender.send(b"x")
        assert [records(pull.recv_multipart()) for _ in range(4)] == [wire.BOR, [1], [2], [3]]


def test_flush_sends_what_waits(pull, endpoint, open_socket):
    with cdtp.Sender("Det", connect=endpoint, header="2", batch_s=60) as sender:
        sender.send(b"x")
        sender.send(b"y")
        sender.flush(timeout_s=20)
        assert (sender.stats.sent, sender.stats.queued) == (4, 0)
        assert [records(pull.recv_multipart()) for _ in range(2)] == [wire.BOR, [1, 2]]
    with pytest.raises(ClosedError):
        sender.flush()
    with cdtp.Sender("Det", bind=ANY, header="2", batch_s=60) as lonely:
        lonely.send(b"x")
        with pytest.raises(TimeoutError, match="3 messages were not sent") as raised:
            lonely.flush(timeout_s=0.05)
        assert raised.value.unsent == 3
        open_socket(zmq.PULL, connect=lonely.endpoints[0])
        lonely.flush(timeout_s=20)


async def test_flush_of_asyncio(pull, endpoint):
    async with cdtp.AsyncSender("Det", connect=endpoint, header="2", batch_s=60) as sender:
        await sender.send(b"x")
        await sender.flush(timeout_s=20)
        assert [records(pull.recv_multipart()) for _ in range(2)] == [wire.BOR, [1]]
        assert sender.stats.queued == 0


@pytest.mark.req("CDTP-18")
def test_keeps_what_nobody_takes_yet(open_socket):
    total = 10_000
    with cdtp.Sender("Det", bind=ANY, header="B", linger_s=20) as sender:
        for _ in range(total):
            sender.send(b"x")
        assert sender.stats.queued == total + 1
        assert sender.stats.sent == 0
        pull = open_socket(zmq.PULL, connect=sender.endpoints[0])
        sequences = [wire.unpack(pull.recv_multipart()[0])[3] for _ in range(total + 1)]
        assert sequences == list(range(total + 1))


@pytest.mark.req("CDTP-19")
async def test_whoever_closes_may_say_for_how_long_to_go_on():
    said = "1 message was not sent within 0.1 s"
    sender = cdtp.Sender("Det", bind=ANY, linger_s=1000)
    sender.send(b"x")
    with pytest.raises(TimeoutError, match=said):
        sender.close(linger_s=0.1)
    async with cdtp.AsyncSender("Det", bind=ANY, linger_s=1000) as coroutines:
        await coroutines.send(b"x")
        with pytest.raises(TimeoutError, match=said):
            await coroutines.close(linger_s=0.1)


@pytest.mark.slow
@pytest.mark.req("CDTP-18")
@pytest.mark.needs("bounds")
def test_a_receiver_that_stalls_loses_nothing(open_socket):
    rate, stall_s, total = 10_000, 5, 60_000
    with cdtp.Sender("Det", bind=ANY, header="B", linger_s=20) as sender:
        pull = open_socket(zmq.PULL, connect=sender.endpoints[0], rcvhwm=100)

        def send():
            start = time.monotonic()
            for number in range(total):
                sender.send(bytes(1000))
                if number % 100 == 0:
                    time.sleep(max(0, start + number / rate - time.monotonic()))

        sending = threading.Thread(target=send)
        sending.start()
        end = time.monotonic() + stall_s
        while time.monotonic() < end or sender.stats.queued < rate * stall_s / 2:
            time.sleep(0.1)
        assert [wire.unpack(pull.recv_multipart()[0])[3] for _ in range(total + 1)] == list(range(total + 1))
        sending.join()


@pytest.mark.req("CDTP-18")
@pytest.mark.parametrize("bounds", [{"queue_messages": 10}, {"queue_bytes": 10 * 229}], ids=["messages", "bytes"])
def test_a_full_queue_blocks_times_out_or_raises(open_socket, bounds):
    with cdtp.Sender("Det", bind=ANY, **bounds) as sender:
        queued = 0
        with pytest.raises(TimeoutError):
            while True:
                sender.send(bytes(100), timeout_s=0.01)
                queued += 1
        # Each costs 100 bytes and one of tags, 64 a frame, and little more once its header is written.
        assert queued == 10
        assert sender.stats.queued == queued
        blocked = threading.Thread(target=sender.send, args=(b"last",))
        blocked.start()
        pull = open_socket(zmq.PULL, connect=sender.endpoints[0])
        assert [pull.recv_multipart()[1] for _ in range(queued + 1)] == [bytes(100)] * queued + [b"last"]
        blocked.join()
    options = {"overflow": "raise", "linger_s": 0.1}
    with pytest.raises(TimeoutError) as raised, cdtp.Sender("Det", bind=ANY, **options, **bounds) as sender:
        for _ in range(11):
            sender.send(bytes(100))
    assert "room" in str(raised.value)
    sender.close()


def test_one_message_larger_than_the_queue_is_taken_when_it_is_empty(pull, endpoint):
    with cdtp.Sender("Det", connect=endpoint, queue_bytes=10) as sender:
        sender.send(bytes(1000))
        assert len(pull.recv_multipart()[1]) == 1000


@pytest.mark.req("CDTP-18")
@pytest.mark.needs("leaving")
def test_counts_what_was_at_risk_when_a_receiver_went(open_socket, caplog):
    with caplog.at_level(logging.WARNING, "trunkline.cdtp"):
        with cdtp.Sender("Det", bind=ANY, header="B", linger_s=20) as sender:
            pull = open_socket(zmq.PULL, connect=sender.endpoints[0])
            for _ in range(10):
                sender.send(b"x")
            for _ in range(11):
                pull.recv_multipart()
            pull.close(linger=0)
            deadline = time.monotonic() + 20
            while sender.stats.at_risk == 0:
                assert time.monotonic() < deadline
            assert sender.stats.at_risk == 11
            # Later messages wait for the next receiver. libzmq reports the end before it removes the pipe, and what is sent
            # in between is lost with the pipe.
            sender.send(b"y")
            again = open_socket(zmq.PULL, connect=sender.endpoints[0])
            while not again.poll(500):
                assert time.monotonic() < deadline + 20
                sender.send(b"y")
            assert again.recv_multipart()[1] == b"y"
    until(lambda: any("at least 11 messages" in record.message for record in caplog.records))


@pytest.mark.req("CDTP-19")
def test_closing_sends_what_is_queued(open_socket):
    pulls = []
    with cdtp.Sender("Det", bind=ANY, header="B", linger_s=20) as sender:
        for _ in range(1000):
            sender.send(b"x")
        endpoint = sender.endpoints[0]

        def listen():
            pull = open_socket(zmq.PULL, connect=endpoint)
            pulls.extend(wire.unpack(pull.recv_multipart()[0])[2] for _ in range(1002))

        listening = threading.Thread(target=listen)
        listening.start()
    listening.join()
    assert pulls == [wire.BOR, *[wire.DAT] * 1000, wire.EOR]


@pytest.mark.req("CDTP-19")
def test_closing_says_how_much_was_not_sent():
    sender = cdtp.Sender("Det", bind=ANY, linger_s=0.1)
    for _ in range(1000):
        sender.send(b"x")
    with pytest.raises(TimeoutError) as raised:
        sender.close()
    assert raised.value.unsent == 1000
    sender.close()
    with pytest.raises(ClosedError):
        sender.send(b"x")


def unsent(caplog):
    return [record.getMessage() for record in caplog.records if "not sent" in record.getMessage()]


@pytest.mark.req("CDTP-18", "CDTP-19")
def test_an_exception_does_not_hide_what_was_not_sent(caplog):
    with pytest.raises(ZeroDivisionError), cdtp.Sender("Det", bind=ANY, linger_s=0.1) as sender:
        for _ in range(3):
            sender.send(b"x")
        raise ZeroDivisionError
    until(lambda: unsent(caplog))
    assert unsent(caplog) == ["Det: 3 messages were not sent"]


@pytest.mark.req("CDTP-18", "CDTP-19")
async def test_an_exception_does_not_hide_what_was_not_sent_in_asyncio(caplog):
    with pytest.raises(ZeroDivisionError):
        async with cdtp.AsyncSender("Det", bind=ANY, linger_s=0.1) as sender:
            await sender.send(b"x")
            raise ZeroDivisionError
    until(lambda: unsent(caplog))
    assert unsent(caplog) == ["Det: 1 message was not sent"]


@pytest.mark.req("CDTP-18", "CDTP-19")
@pytest.mark.filterwarnings("ignore:unclosed Sender:ResourceWarning")
def test_a_sender_that_is_collected_logs_what_was_not_sent(caplog):
    sender = cdtp.Sender("Det", bind=ANY, linger_s=0.1)
    sender.send(b"x")
    del sender
    gc.collect()
    until(lambda: unsent(caplog))
    assert unsent(caplog) == ["Det: 1 message was not sent"]


@pytest.mark.req("CDTP-19")
async def test_a_close_that_is_cancelled_waits_for_nothing_more(caplog):
    sender = await cdtp.AsyncSender("Det", bind=ANY, linger_s=50).__aenter__()
    await sender.send(b"x")
    with pytest.raises(builtins.TimeoutError):
        await asyncio.wait_for(sender.close(), 0.1)
    assert sender.closed
    until(lambda: unsent(caplog))
    assert unsent(caplog) == ["Det: 1 message was not sent"]
    await sender.close()


@pytest.mark.req("CDTP-20")
def test_receivers_share_a_stream_and_the_sender_warns_once(open_socket, caplog, monkeypatch):
    # Otherwise the log would pass over a second warning within a second.
    monkeypatch.setattr(notices, "_INTERVAL_S", 0)
    total = 2000
    with caplog.at_level(logging.WARNING, "trunkline.cdtp"):
        with cdtp.Sender("Det", bind=ANY, header="B", linger_s=20) as sender:
            pulls = [open_socket(zmq.PULL, connect=sender.endpoints[0]) for _ in range(3)]
            sequences = [set() for _ in pulls]
            poller = zmq.Poller()
            for pull in pulls:
                poller.register(pull, zmq.POLLIN)
            for _ in range(total):
                sender.send(b"x")
            while sum(map(len, sequences)) < total + 1:
                for pull, _ in poller.poll(20_000):
                    seen = sequences[pulls.index(pull)]
                    seen.add(wire.unpack(pull.recv_multipart()[0])[3])
    assert set.union(*sequences) == set(range(total + 1))

    def warned():
        return [record for record in caplog.records if "share the stream" in record.message]

    until(warned)
    assert len(warned()) == 1


def test_refuses_what_no_message_can_be(endpoint):
    with cdtp.Sender("Det", connect=endpoint, max_message_bytes=1000, linger_s=0) as sender:
        with pytest.raises(LocalProtocolError, match="1001 bytes"):
            sender.send(bytes(1001))
        with pytest.raises(TypeError, match="strings as keys"):
            sender.send(b"x", tags={1: 2})
        with pytest.raises(LocalProtocolError, match="does not support runs"):
            sender.begin_run()
        with pytest.raises(TypeError):
            sender.send("text")
        for send in (sender.send, sender.send_frames):
            with pytest.raises(LocalProtocolError, match="missing_payload"):
                send([])
        assert sender.stats.queued == 0
    with cdtp.Sender("Det", connect=endpoint, header="B", linger_s=0) as sender:
        with pytest.raises(LocalProtocolError, match="no run"):
            sender.end_run()


@pytest.mark.req("CDTP-06")
@pytest.mark.parametrize("header", ["B", "2"])
def test_refuses_a_timestamp_that_the_header_does_not_have(endpoint, header):
    with cdtp.Sender("Det", connect=endpoint, header=header, linger_s=0) as sender:
        with pytest.raises(LocalProtocolError, match="no timestamp"):
            sender.send(b"x", timestamp_ns=1)
        assert sender.stats.queued == 0


def test_refuses_a_header_that_is_none(endpoint):
    with pytest.raises(ValueError, match="header"):
        cdtp.Sender("Det", connect=endpoint, header="C")


async def test_asyncio_sends_as_blocking_does(pull, endpoint):
    async with cdtp.AsyncSender("Det", connect=endpoint, header="B", queue_messages=10) as sender:
        await sender.begin_run({"a": 1})
        for _ in range(1000):
            await sender.send(b"x", timeout_s=20)
        await sender.end_run()
        assert [wire.unpack(pull.recv_multipart()[0])[2] for _ in range(1002)] == [
            wire.BOR,
            *[wire.DAT] * 1000,
            wire.EOR,
        ]
    assert sender.stats.sent == 1002
