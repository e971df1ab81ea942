"""Senders that are found by CHIRP, and receivers that find them: against raw UDP, PUSH and PULL sockets."""

import logging
import subprocess
import sys
import time

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from peers import cdtp as wire
from peers.chirp import BROADCAST, CONTROL, DATA, DEPART, MULTICAST, OFFER, REQUEST, pack
from peers.waiting import until
from trunkline import capture, cdtp
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError

ANY = "tcp://127.0.0.1:*"


class RawSender:
    """A PUSH socket that a raw peer of CHIRP speaks for."""

    def __init__(self, open_socket, peer, name="Det", **options):
        self.socket = open_socket(zmq.PUSH, bind=ANY, **options)
        self.endpoint = self.socket.last_endpoint.decode()
        self.port = int(self.endpoint.rpartition(":")[2])
        self.peer, self.name = peer, name

    def offer(self, to=MULTICAST, **more):
        self.peer.send(pack(OFFER, self.name, self.port, **more), to)

    def depart(self):
        self.peer.depart(self.name, self.port)

    def send(self, sequence):
        self.socket.send_multipart([wire.header_b(sequence, name=self.name), b"x"])


@pytest.fixture
def raw_sender(open_socket, peer):
    return lambda name="Det", **options: RawSender(open_socket, peer, name, **options)


@pytest.fixture
def receiver(peer):
    with cdtp.Receiver(group="lab", chirp_port=peer.port) as receiver:
        peer.hears(REQUEST)
        yield receiver


def follows(receiver, *senders):
    """Waits until the receiver dials these senders and no others."""
    until(lambda: set(receiver.endpoints) == {sender.endpoint for sender in senders})


@pytest.mark.req("CDTP-15", "CHIRP-05")
@pytest.mark.parametrize(("mode", "address"), [("multicast", MULTICAST), ("broadcast", BROADCAST)])
def test_a_sender_offers_the_port_it_listens_on(peer, listen, mode, address):
    listener = listen(peer.port, address)
    with cdtp.Sender("Det.One", bind=ANY, group="Lab", chirp=mode, chirp_port=peer.port) as sender:
        port = int(sender.endpoints[0].rpartition(":")[2])
        heard = listener.hears(OFFER, "det.one")
        assert (heard.service, heard.port) == (DATA, port)
        peer.send(pack(REQUEST, "Viewer"))
        assert listener.hears(OFFER, "det.one").port == port
    assert listener.hears(DEPART, "det.one").port == port


@pytest.mark.req("CHIRP-03")
def test_a_sender_offers_names_as_they_are_when_told_to(peer):
    with cdtp.Sender("Det.One", bind=ANY, group="Lab", chirp_lower_case=False, chirp_port=peer.port):
        peer.hears(OFFER, "Det.One")
        assert peer.datagram[7:39] == pack(OFFER, "Det.One", group="Lab")[7:39]


@pytest.mark.req("CDTP-15")
def test_a_sender_of_several_endpoints_offers_the_first(peer, tmp_path):
    bind = [f"ipc://{tmp_path}/data", ANY, ANY]
    with cdtp.Sender("Det", bind=bind, group="lab", chirp_port=peer.port) as sender:
        peer.send(pack(REQUEST, "Viewer"))
        for _ in range(2):
            assert f":{peer.hears(OFFER, 'det').port}" == sender.endpoints[1][-6:]


@pytest.mark.req("CDTP-15", "CDTP-19")
def test_a_sender_departs_when_all_is_sent(peer, open_socket):
    with cdtp.Sender("Det", bind=ANY, group="lab", linger_s=20, chirp_port=peer.port) as sender:
        for _ in range(100):
            sender.send(b"x")
        port = peer.hears(OFFER, "det").port
        # It closes before any receiver has come; one that comes now still finds it.
        sender._native.close(20)
        peer.send(pack(REQUEST, "Viewer"))
        assert peer.hears(OFFER, "det").port == port
        pull = open_socket(zmq.PULL, connect=sender.endpoints[0])
        assert [pull.recv_multipart()[1] for _ in range(100)] == [b"x"] * 100
        peer.hears(DEPART, "det", port=port)


@pytest.mark.req("CDTP-16", "CHIRP-04")
@pytest.mark.parametrize("to", [MULTICAST, BROADCAST])
def test_a_sender_offered_five_times_is_dialled_once(receiver, raw_sender, to):
    sender = raw_sender()
    monitor = sender.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
    for _ in range(5):
        sender.offer(to)
    for sequence in range(100):
        sender.send(sequence)
    assert [receiver.receive(timeout_s=20).sequence for _ in range(100)] == list(range(100))
    assert receiver.endpoints == (sender.endpoint,)
    receiver.close()
    events = [recv_monitor_message(monitor)["event"] for _ in range(2)]
    assert events == [zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED]
    monitor.close(linger=0)


@pytest.mark.req("CDTP-16", "CHIRP-05")
def test_asks_at_its_start(peer, raw_sender):
    sender = raw_sender()
    with cdtp.Receiver(group="Lab", senders=["Det"], chirp_port=peer.port) as receiver:
        groups = {peer.hears(REQUEST).group for _ in range(4)}
        assert groups == {pack(REQUEST, "", group=group)[7:23] for group in ("lab", "Lab")}
        assert receiver.endpoints == ()
        sender.offer()
        sender.send(1)
        assert receiver.receive(timeout_s=20).sequence == 1


@pytest.mark.req("CDTP-16", "CHIRP-06")
def test_a_sender_that_comes_back_on_another_port_is_followed(receiver, raw_sender):
    old, new = raw_sender(), raw_sender()
    old.offer()
    old.send(1)
    assert receiver.receive(timeout_s=20).sequence == 1
    # It was killed, and says nothing.
    old.send(2)
    old.socket.close(linger=1000)
    new.offer()
    new.send(3)
    assert sorted(receiver.receive(timeout_s=20).sequence for _ in range(2)) == [2, 3]
    follows(receiver, new)


@pytest.mark.req("CDTP-16")
def test_what_a_departed_sender_has_sent_is_read(receiver, raw_sender):
    sender = raw_sender()
    monitor = sender.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    sender.offer()
    follows(receiver, sender)
    for sequence in range(1000):
        sender.send(sequence)
    sender.depart()
    assert [receiver.receive(timeout_s=20).sequence for _ in range(1000)] == list(range(1000))
    follows(receiver)
    recv_monitor_message(monitor)
    monitor.close(linger=0)
    # It is back, where it was.
    sender.offer()
    sender.send(1000)
    assert receiver.receive(timeout_s=20).sequence == 1000
    follows(receiver, sender)


@pytest.mark.req("CDTP-16", "CDTP-18")
def test_a_slow_reader_loses_nothing_of_a_departed_sender(peer, raw_sender):
    sender = raw_sender(sndhwm=10)
    with cdtp.Receiver(group="lab", queue_messages=10, options={zmq.RCVHWM: 500}, chirp_port=peer.port) as receiver:
        peer.hears(REQUEST)
        sender.offer()
        for sequence in range(400):
            sender.send(sequence)
        sender.depart()
        # The receiver does not read for longer than a departed sender is given.
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert receiver.endpoints == (sender.endpoint,)
        assert [receiver.receive(timeout_s=20).sequence for _ in range(400)] == list(range(400))
        with pytest.raises(TimeoutError):
            receiver.receive(timeout_s=0)
        follows(receiver)


@pytest.mark.req("CDTP-16")
def test_a_sender_that_starts_later_is_picked_up(receiver, raw_sender):
    early = raw_sender("Early")
    early.offer()
    early.send(1)
    assert receiver.receive(timeout_s=20).sender == "Early"
    late = raw_sender("Late")
    late.offer()
    late.send(1)
    assert receiver.receive(timeout_s=20).sender == "Late"
    follows(receiver, early, late)
    early.depart()
    follows(receiver, late)


@pytest.mark.req("CDTP-16", "CHIRP-03")
def test_chooses_senders_by_their_names(peer, raw_sender):
    names = ["Det.One", "Det.Two"]
    with cdtp.Receiver(group="lab", senders=names, chirp_port=peer.port) as receiver:
        peer.hears(REQUEST)
        stranger, one, two = raw_sender("Det.Three"), raw_sender("Det.One"), raw_sender("det.two")
        for sender in (stranger, one, two):
            sender.offer()
        follows(receiver, one, two)
    with cdtp.Receiver(group="lab", senders="Det.One", chirp_port=peer.port) as receiver:
        peer.hears(REQUEST)
        for sender in (stranger, two, one):
            sender.offer()
        follows(receiver, one)


@pytest.mark.req("CDTP-16", "CHIRP-06")
def test_other_groups_and_services_are_not_followed(peer, receiver, raw_sender):
    other, control, good = raw_sender("Other"), raw_sender("Control"), raw_sender()
    other.offer(group="other")
    control.offer(service=CONTROL)
    peer.send(b"no datagram of CHIRP")
    good.offer()
    good.send(1)
    assert receiver.receive(timeout_s=20).sender == "Det"
    assert receiver.endpoints == (good.endpoint,)
    assert receiver.stats.chirp_dropped == 1


def test_one_that_cannot_be_reached_harms_nobody(peer, receiver, raw_sender):
    good = raw_sender()
    peer.offer("Ghost", 9)
    good.offer()
    for sequence in range(100):
        good.send(sequence)
    assert [receiver.receive(timeout_s=20).sequence for _ in range(100)] == list(range(100))
    peer.depart("Ghost", 9)
    follows(receiver, good)


def test_waiting_for_a_sender_is_waiting_for_a_message(receiver):
    with pytest.raises(TimeoutError):
        receiver.receive(timeout_s=0.1)


def test_logs_who_comes_and_goes(peer, raw_sender, caplog):
    sender = raw_sender()
    with caplog.at_level(logging.INFO, "trunkline.cdtp"), cdtp.Receiver(group="lab", chirp_port=peer.port) as receiver:
        peer.hears(REQUEST)
        sender.offer()
        sender.send(1)
        receiver.receive(timeout_s=20)
        sender.depart()
        follows(receiver)
        with pytest.raises(TimeoutError):
            receiver.receive(timeout_s=0)
        # A thread of its own writes the log.
        for text in (f"{sender.endpoint} found", f"{sender.endpoint} departed"):
            until(lambda: any(text in record.message for record in caplog.records))  # noqa: B023 - called at once


@pytest.mark.req("CDTP-16")
def test_a_recorder_finds_and_records(peer, raw_sender, tmp_path):
    one, two = raw_sender("One"), raw_sender("Two")
    with cdtp.Recorder(tmp_path / "capture", group="lab", senders=["One", "Two"], chirp_port=peer.port) as recorder:
        peer.hears(REQUEST)
        for sender in (one, two):
            sender.offer()
            for sequence in range(50):
                sender.send(sequence)
            sender.depart()
        recorder.wait(count=100, timeout_s=20)
        assert recorder.stats.chirp_dropped == 0
    rows = capture.open(tmp_path / "capture").read_all()
    assert sorted(set(rows["endpoint"].to_pylist())) == sorted([one.endpoint, two.endpoint])
    assert (rows.num_rows, set(rows["protocol"].to_pylist())) == (100, {"cdtp"})


async def test_asyncio_finds_and_is_found(peer):
    async with cdtp.AsyncReceiver(group="lab", senders=["Det"], chirp_port=peer.port) as receiver:
        async with cdtp.AsyncSender("Det", bind=ANY, group="lab", chirp_port=peer.port) as sender:
            await sender.send(b"payload")
            message = await receiver.receive(timeout_s=20)
            assert message.payload == (b"payload",)
            assert receiver.endpoints == sender.endpoints
            # Answers only who asks later.
            async with cdtp.AsyncReceiver(group="lab", chirp_port=peer.port) as second:
                until(lambda: second.endpoints == sender.endpoints)


def test_many_senders_come_and_go(receiver, raw_sender):
    for _ in range(5):
        senders = [raw_sender(f"Det.{number}") for number in range(10)]
        for sender in senders:
            sender.offer()
            sender.send(7)
        assert {receiver.receive(timeout_s=20).sender for _ in senders} == {sender.name for sender in senders}
        for sender in senders:
            sender.depart()
        follows(receiver)


@pytest.mark.req("CHIRP-05")
@pytest.mark.parametrize("ending", ["exit", "terminate", "terminate_async"])
def test_departs_when_the_process_ends(peer, ending):
    script = f"""
import asyncio, signal, sys, warnings
from trunkline import cdtp
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
warnings.simplefilter("ignore", ResourceWarning)
where = dict(bind="tcp://127.0.0.1:*", group="lab", chirp_port={peer.port})

async def run():
    async with cdtp.AsyncSender("Det", **where):
        print("open", flush=True)
        await asyncio.sleep(60)

if {ending!r} == "terminate_async":
    asyncio.run(run())
sender = cdtp.Sender("Det", **where)
print("open", flush=True)
sys.stdin.readline()
"""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([sys.executable, "-c", script], text=True, **pipes)
    try:
        port = peer.hears(OFFER, "det").port
        assert process.stdout.readline() == "open\n"
        if ending != "exit":
            process.terminate()
        assert process.communicate("\n" if ending == "exit" else None, timeout=20)[1] == ""
        assert process.returncode == 0
        peer.hears(DEPART, "det", port=port)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.req("CHIRP-05")
def test_departs_when_its_context_is_terminated(peer):
    context = zmq.Context()
    sender = cdtp.Sender("Det", bind=ANY, group="lab", context=context, chirp_port=peer.port)
    port = peer.hears(OFFER, "det").port
    context.term()
    peer.hears(DEPART, "det", port=port)
    until(lambda: sender.closed)
    with pytest.raises(ClosedError, match="terminated"):
        sender.send(b"x")
    sender.close()


def test_says_what_contradicts():
    with pytest.raises(LocalProtocolError, match="bind"):
        cdtp.Sender("Det", connect="tcp://127.0.0.1:1", group="lab")
    with pytest.raises(LocalProtocolError, match="bind="):
        cdtp.Receiver(bind=ANY, group="lab")
    with pytest.raises(LocalProtocolError, match="group="):
        cdtp.Receiver(bind=ANY, senders=["Det"])
    with pytest.raises(ValueError, match="unicast"):
        cdtp.Receiver(group="lab", chirp="unicast")
