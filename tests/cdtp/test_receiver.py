"""The receiving role, against raw PUSH sockets and headers packed by hand."""

import logging
import random
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zmq

from peers import cdtp as wire
from peers.waiting import until
from trunkline import cdtp
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError

ANY = "tcp://127.0.0.1:*"


@pytest.fixture
def receiver():
    with cdtp.Receiver(bind=ANY) as receiver:
        yield receiver


@pytest.fixture
def push(receiver, open_socket):
    return open_socket(zmq.PUSH, connect=receiver.endpoints[0])


def test_hands_out_what_was_sent(receiver, push):
    push.send_multipart([wire.header_s("Detector.one", 1_700_000_000, b"\x81\xa3run\x07"), b"one", b"", b"two"])
    message = receiver.receive(timeout_s=20)
    assert (message.sender, message.variant, message.type, message.sequence) == ("Detector.one", "S", None, None)
    assert message.timestamp_ns == 1_700_000_000_000_000_000
    assert message.tags == {"run": 7}
    assert message.payload == (b"one", b"", b"two")


@pytest.mark.req("CDTP-01")
@pytest.mark.parametrize("frames", [1, 2, 999])
def test_takes_any_number_of_payload_frames(receiver, push, frames):
    payload = [bytes([number % 256]) for number in range(frames)]
    push.send_multipart([wire.header_s(), *payload])
    assert receiver.receive(timeout_s=20).payload == tuple(payload)


@pytest.mark.req("CDTP-14")
@pytest.mark.parametrize(
    "payload", [b"", bytes(range(256)), bytes(1024), random.Random(1).randbytes(64 << 20)], ids=len
)
def test_payload_is_opaque(receiver, push, payload):
    push.send_multipart([wire.header_s(), payload])
    assert receiver.receive(timeout_s=20).payload == (payload,)


@pytest.mark.req("CDTP-17")
def test_tells_of_what_is_no_message_and_goes_on(open_socket, caplog):
    dropped = []
    with caplog.at_level(logging.WARNING, "trunkline.cdtp"):
        with cdtp.Receiver(bind=ANY, on_drop=dropped.append) as receiver:
            push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
            bad = [b"\xa5CDTP\x01\xa3Det\xc0", b"payload"]
            for _ in range(10_000):
                push.send_multipart(bad)
            push.send_multipart([wire.header_s("good"), b"x"])
            assert receiver.receive(timeout_s=20).sender == "good"
            # A drop comes before the message that came after it.
            assert len(dropped) == 10_000
            assert receiver.stats.dropped == {"bad_header": 10_000}
            assert receiver.stats.received == 10_001
    assert dropped[0].frames == tuple(bad)
    assert (dropped[0].kind, dropped[0].error.frame, dropped[0].error.offset) == ("bad_header", 0, 10)


@pytest.mark.req("CDTP-17")
def test_logs_drops_at_a_bounded_rate(open_socket, caplog):
    def lines():
        return [record for record in caplog.records if "bad_header" in record.message]

    start = time.monotonic()
    with cdtp.Receiver(bind=ANY) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        for _ in range(1000):
            push.send_multipart([b"no header", b"x"])
        push.send_multipart([wire.header_s(), b"x"])
        receiver.receive(timeout_s=20)
        until(lines)
    assert len(lines()) <= 1 + (time.monotonic() - start)


def test_a_callback_that_raises_is_logged_and_harms_nobody(open_socket, caplog):
    def on_drop(dropped):
        raise RuntimeError(dropped.kind)

    with cdtp.Receiver(bind=ANY, on_drop=on_drop) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        push.send_multipart([b"no header", b"x"])
        push.send_multipart([wire.header_s(), b"x"])
        assert receiver.receive(timeout_s=20).sender == "Det"
    until(lambda: any("on_drop raised" in record.message for record in caplog.records))


@pytest.mark.req("CDTP-10")
def test_takes_trailing_bytes_when_told_to(open_socket):
    with cdtp.Receiver(bind=ANY, strict=False) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        push.send_multipart([wire.header_s() + b"more", b"x"])
        assert receiver.receive(timeout_s=20).payload == (b"x",)


@pytest.mark.req("CDTP-03", "CDTP-12")
def test_drops_headers_that_are_not_accepted(open_socket):
    with cdtp.Receiver(bind=ANY, accept=["S"]) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        push.send_multipart([wire.header_b(1)])
        push.send_multipart([wire.batch([1])])
        push.send_multipart([wire.header_s(), b"x"])
        assert receiver.receive(timeout_s=20).variant == "S"
        assert receiver.stats.dropped == {"unsupported_version": 2}


@pytest.mark.req("CDTP-07")
def test_counts_keys_that_come_twice(receiver, push):
    push.send_multipart([wire.header_s(tags=b"\x82\xa1k\x01\xa1k\x02"), b"x"])
    assert receiver.receive(timeout_s=20).tags == {"k": 2}
    assert receiver.stats.duplicate_keys == 1


@pytest.mark.req("CDTP-21")
@pytest.mark.parametrize(
    ("stream", "missed"),
    [
        ([(0, wire.BOR), (1, wire.DAT), (2, wire.DAT), (2, wire.EOR)], 0),  # as Python peers end a run
        ([(0, wire.BOR), (1, wire.DAT), (2, wire.DAT), (3, wire.EOR)], 0),  # as C++ peers do
        ([(0, wire.BOR), (1, wire.DAT), (5, wire.DAT), (5, wire.EOR)], 3),
        ([(0, wire.BOR), (1, wire.DAT), (5, wire.EOR)], 3),
        ([(0, wire.BOR), (1, wire.DAT), (1, wire.DAT), (2, wire.DAT)], 0),
        ([(0, wire.BOR), (2, wire.DAT), (0, wire.BOR), (1, wire.DAT)], 1),
        # No counter holds all that these skip.
        ([(0, wire.BOR), (2**64 - 1, wire.DAT)] * 3, 2**64 - 1),
        ([(2**64 - 1, wire.BOR), (0, wire.DAT), (2**64 - 1, wire.EOR)], 0),
    ],
)
def test_counts_gaps_in_a_run(receiver, push, stream, missed):
    for sequence, kind in stream:
        push.send_multipart([wire.header_b(sequence, kind), b"\x80"])
    for sequence, kind in stream:
        message = receiver.receive(timeout_s=20)
        assert (message.sequence, message.type) == (sequence, ["DAT", "BOR", "EOR"][kind])
    assert receiver.stats.senders["Det"].missed == missed
    assert receiver.stats.senders["Det"].messages == len(stream)


@pytest.mark.req("CDTP-21", "CDTP-22")
def test_the_second_record_of_a_bor_takes_no_number(receiver, push):
    stream = [([0, 1], wire.BOR), ([2, 3], wire.DAT), ([6], wire.DAT), ([0, 1], wire.EOR)]
    for sequences, kind in stream:
        push.send_multipart([wire.batch(sequences, kind)])
    for sequences, _ in stream:
        assert [receiver.receive(timeout_s=20).sequence for _ in sequences] == sequences
    assert receiver.stats.senders["Det"].missed == 3


@pytest.mark.req("CDTP-22")
def test_hands_out_one_message_a_record(receiver, push):
    push.send_multipart([wire.batch([1, 2, 3])])
    messages = [receiver.receive(timeout_s=20) for _ in range(3)]
    assert [message.sequence for message in messages] == [1, 2, 3]
    assert all(message.payload == (b"block",) for message in messages)
    assert (receiver.stats.received, receiver.stats.messages) == (1, 3)


def test_reads_all_its_endpoints(open_socket):
    with cdtp.Receiver(bind=[ANY, ANY]) as receiver:
        assert len(receiver.endpoints) == 2
        for name, endpoint in zip("ab", receiver.endpoints, strict=True):
            open_socket(zmq.PUSH, connect=endpoint).send_multipart([wire.header_s(name), b"x"])
        assert {receiver.receive(timeout_s=20).sender for _ in range(2)} == {"a", "b"}


def test_is_fair_among_senders(open_socket):
    with cdtp.Receiver(bind=[ANY, ANY], queue_messages=200) as receiver:
        loud, quiet = (open_socket(zmq.PUSH, connect=endpoint) for endpoint in receiver.endpoints)
        stop = threading.Event()

        def shout():
            while not stop.is_set():
                loud.send_multipart([wire.header_s("loud"), b"x"])

        shouting = threading.Thread(target=shout)
        shouting.start()
        try:
            assert receiver.receive(timeout_s=20).sender == "loud"
            quiet.send_multipart([wire.header_s("quiet"), b"x"])
            senders = (receiver.receive(timeout_s=20).sender for _ in range(100_000))
            assert "quiet" in senders
        finally:
            stop.set()
            shouting.join()


@pytest.mark.req("CDTP-18")
@pytest.mark.parametrize("bounds", [{"queue_messages": 100}, {"queue_bytes": 100_000}], ids=["messages", "bytes"])
def test_a_slow_reader_stops_the_sender_and_loses_nothing(open_socket, bounds):
    total = 5000
    with cdtp.Receiver(bind=ANY, options={zmq.RCVHWM: 10}, **bounds) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0], sndhwm=10)
        sent = threading.Event()

        def send():
            for sequence in range(total):
                push.send_multipart([wire.header_b(sequence), bytes(10_000)])
            sent.set()

        sending = threading.Thread(target=send)
        sending.start()
        # The receiver is not read: the sender stalls long before its end.
        assert not sent.wait(0.5)
        assert receiver.stats.queued <= 101
        assert [receiver.receive(timeout_s=20).sequence for _ in range(total)] == list(range(total))
        sending.join()


def many_records(count):
    return [wire.batch([])[:-1] + b"\xdd" + count.to_bytes(4) + b"\x93\x00\x80\x90" * count]


@pytest.mark.req("CDTP-18", "CDTP-22")
def test_records_count_towards_the_queue_with_what_they_take(open_socket):
    # The system's buffers hold a few of them, and not as many as they may grow to.
    options = {zmq.RCVHWM: 1, zmq.RCVBUF: 1 << 18}
    with cdtp.Receiver(bind=ANY, options=options, queue_bytes=1 << 20) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0], sndhwm=1, sndbuf=1 << 18)
        sent = threading.Event()

        def send():
            for _ in range(20):
                push.send_multipart(many_records(50_000))
            sent.set()

        sending = threading.Thread(target=send)
        sending.start()
        # One takes 200 kB of the wire, and more than 1 MiB of memory.
        until(lambda: receiver.stats.queued)
        assert not sent.wait(0.5)
        assert receiver.stats.queued == 1
        assert sum(1 for _ in range(20 * 50_000) if receiver.receive(timeout_s=20).sequence == 0) == 20 * 50_000
        sending.join()


@pytest.mark.req("CDTP-22")
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory in use")
def test_records_become_messages_when_it_is_their_turn(receiver, push):
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = resident()
    push.send_multipart(many_records(1_000_000))
    assert receiver.receive(timeout_s=20).sequence == 0
    assert resident() - before < 150 << 20


@pytest.mark.req("CDTP-23")
@pytest.mark.parametrize("release", wire.RELEASES)
def test_receives_what_released_peers_send(receiver, push, release):
    messages = wire.recorded(release)
    for frames in messages:
        push.send_multipart(frames)
    for frames in messages:
        decoded = cdtp.decode(frames)
        assert cdtp.encode(decoded) == tuple(frames)
        for expected in decoded if isinstance(decoded, cdtp.Batch) else [decoded]:
            assert receiver.receive(timeout_s=20) == expected
    assert receiver.stats.dropped == {}


def test_waits_run_out(receiver):
    for timeout_s in (0, 0.01):
        with pytest.raises(TimeoutError):
            receiver.receive(timeout_s=timeout_s)


def test_after_close_there_is_nothing_but_the_counters(open_socket):
    receiver = cdtp.Receiver(bind=ANY)
    open_socket(zmq.PUSH, connect=receiver.endpoints[0]).send_multipart([wire.header_s(), b"x"])
    receiver.receive(timeout_s=20)
    receiver.close()
    receiver.close()
    assert list(receiver) == []
    with pytest.raises(ClosedError):
        receiver.receive()
    assert receiver.stats.messages == 1
    assert len(receiver.endpoints) == 1


def test_stop_hands_out_what_has_arrived(receiver):
    wire.send_all(receiver.endpoints[0], ([wire.header_b(sequence)] for sequence in range(1000)))
    messages = iter(receiver)
    assert next(messages).sequence == 0
    receiver.stop(drain_s=20)
    assert [message.sequence for message in messages] == list(range(1, 1000))


def test_reads_no_more_than_the_messages_it_is_to_hand_out(open_socket):
    with cdtp.Receiver(bind=ANY, message_limit=3) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        for frames in ([b"bad"], [wire.batch([1, 2])], [wire.batch([])], [wire.batch([3, 4])], [wire.batch([5])]):
            push.send_multipart(frames)
        assert [receiver.receive(timeout_s=20).sequence for _ in range(4)] == [1, 2, 3, 4]
        with pytest.raises(TimeoutError):
            receiver.receive(timeout_s=0.2)
        assert (receiver.stats.received, receiver.stats.messages) == (4, 4)


def test_says_what_is_wrong_with_its_endpoints():
    with pytest.raises(LocalProtocolError, match="endpoint"):
        cdtp.Receiver()
    with pytest.raises(TypeError, match="quue"):
        cdtp.Receiver(bind=ANY, quue=1)
    with cdtp.Receiver(bind=ANY) as receiver, pytest.raises(OSError, match="in use: choose another port"):
        cdtp.Receiver(bind=receiver.endpoints[0])


async def test_asyncio_receives_as_blocking_does(open_socket):
    async with cdtp.AsyncReceiver(bind=ANY) as receiver:
        push = open_socket(zmq.PUSH, connect=receiver.endpoints[0])
        with pytest.raises(TimeoutError):
            await receiver.receive(timeout_s=0)
        for sequence in range(1000):
            push.send_multipart([wire.header_b(sequence)])
        assert (await receiver.receive(timeout_s=20)).sequence == 0
        async for message in receiver:
            if message.sequence == 999:
                receiver.stop(drain_s=0)
        assert receiver.stats.messages == 1000


@pytest.mark.parametrize("reads", [True, False])
def test_goes_on_without_a_capture_that_failed(tmp_path, reads):
    script = """
import logging, resource, signal, sys, zmq
from trunkline import cdtp
logging.basicConfig(format="%(message)s")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
receiver = cdtp.Receiver(bind="tcp://127.0.0.1:*", capture=sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
header = bytes.fromhex("a54344545001a34465740001" "80")
with zmq.Context() as context, context.socket(zmq.PUSH) as push:
    push.connect(receiver.endpoints[0])
    while not receiver.stats.capture_lost:
        for _ in range(1000):
            push.send_multipart([header, bytes(1000)])
        for _ in range(1000 if sys.argv[2] == "True" else 0):
            receiver.receive(timeout_s=20)
receiver.close()
print(receiver.stats.capture_lost > 0)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "capture"), str(reads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "True\n"
    # Who does not read, or is never done reading, hears of it when the receiver closes.
    assert len([line for line in done.stderr.splitlines() if "continuing without the capture" in line]) == 1
