"""The beacon, against raw UDP sockets."""

import logging
import random
import signal
import subprocess
import sys
from hashlib import md5

import pytest

from peers.chirp import BROADCAST, CONTROL, DATA, DEPART, MULTICAST, OFFER, REQUEST, pack
from peers.waiting import until
from trunkline import chirp
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError

GOLDEN = {
    # Release 1.0.2, and 0.5.1.
    True: "434849525001023191fe735ce6c6bab5a659fd9bac14fd292611b4698fa32a6839cf1d0b10c219045dbf",
    False: "434849525001023191fe735ce6c6bab5a659fd9bac14fd46afaebd7e317004a605533638c51e24045dbf",
}


@pytest.fixture
def beacon(peer):
    with chirp.Beacon("lab", "Viewer.one", port=peer.port) as beacon:
        yield beacon


@pytest.mark.req("CHIRP-01", "CHIRP-03", "CHIRP-05")
@pytest.mark.parametrize("lower_case", GOLDEN)
def test_offers_and_departs_as_released_peers_do(peer, lower_case):
    with chirp.Beacon("edda", "RandomDataSender.s1", lower_case=lower_case, port=peer.port) as beacon:
        beacon.offer(chirp.Service.DATA, 23999)
        peer.hears(OFFER)
        assert peer.datagram.hex() == GOLDEN[lower_case]
        assert beacon.host == GOLDEN[lower_case][46:78]
    peer.hears(DEPART)
    assert peer.datagram.hex() == GOLDEN[lower_case].replace("500102", "500103")


@pytest.mark.req("CHIRP-04")
@pytest.mark.parametrize(("mode", "address"), [("multicast", MULTICAST), ("broadcast", BROADCAST)])
def test_announces_in_the_mode_it_is_told(peer, listen, mode, address):
    listener, other = (
        listen(peer.port, address),
        listen(peer.port, {MULTICAST: BROADCAST, BROADCAST: MULTICAST}[address]),
    )
    with chirp.Beacon("lab", "Det", chirp=mode, port=peer.port) as beacon:
        beacon.offer(chirp.Service.DATA, 4000)
        assert listener.hears(OFFER) == (OFFER, md5(b"lab").digest(), md5(b"det").digest(), DATA, 4000)
        assert listener.source[0] == "127.0.0.1"
        assert mode == "broadcast" or listener.ttl == 8
    listener.hears(DEPART, port=4000)
    # Whatever went out the other way is here by now.
    other.socket.settimeout(0)
    with pytest.raises(BlockingIOError):
        other.socket.recv(100)


@pytest.mark.req("CHIRP-03", "CHIRP-04", "CHIRP-05")
def test_asks_both_ways_with_both_hashes(peer, listen):
    listeners = [listen(peer.port, MULTICAST), listen(peer.port, BROADCAST)]
    with chirp.Beacon("Lab", "Viewer.One", port=peer.port) as beacon:
        beacon.request(chirp.Service.CONTROL)
        for listener in listeners:
            heard = {listener.hears(REQUEST) for _ in range(2)}
            assert heard == {
                (REQUEST, md5(group).digest(), md5(host).digest(), CONTROL, 0)
                for group, host in [(b"lab", b"viewer.one"), (b"Lab", b"Viewer.One")]
            }


@pytest.mark.req("CHIRP-04")
@pytest.mark.parametrize("to", [MULTICAST, BROADCAST])
def test_hears_both_modes(peer, beacon, to):
    peer.send(pack(OFFER, "Det", 1000), to)
    event = beacon.receive(timeout_s=20)
    assert event == chirp.Event("offer", md5(b"Det").hexdigest(), None, chirp.Service.DATA, "tcp://127.0.0.1:1000")


@pytest.mark.req("CHIRP-05")
def test_answers_those_who_ask(peer):
    with chirp.Beacon("lab", "Det", port=peer.port) as beacon:
        beacon.offer(chirp.Service.DATA, 4000)
        beacon.offer(chirp.Service.CONTROL, 4001)
        for _ in range(2):
            peer.hears(OFFER)
        for host, service, port in [("One", DATA, 4000), ("One", CONTROL, 4001), ("Two", DATA, 4000)]:
            peer.send(pack(REQUEST, host, service=service))
            assert peer.hears(OFFER)[3:] == (service, port)
            assert beacon.receive(timeout_s=20).service == service
        beacon.depart(chirp.Service.CONTROL)
        assert peer.hears(DEPART)[3:] == (CONTROL, 4001)
        # Of what is no longer offered nothing is said: the next answer is to the next question.
        peer.send(pack(REQUEST, "Three", service=CONTROL))
        peer.send(pack(REQUEST, "Three", service=DATA))
        assert peer.hears(OFFER)[3:] == (DATA, 4000)


@pytest.mark.req("CHIRP-06")
def test_tells_what_changes(peer, beacon):
    for _ in range(5):
        peer.offer("Det", 1000)
    peer.offer("Det", 2000)
    peer.depart("Nobody", 1000)
    peer.depart("Det", 1000)
    peer.offer("Det", 1, group="other")
    peer.offer("Viewer.one", 1)
    peer.offer("viewer.one", 1)
    peer.depart("Det", 2000)
    events = [beacon.receive(timeout_s=20) for _ in range(4)]
    assert [(event.kind, event.endpoint) for event in events] == [
        ("offer", "tcp://127.0.0.1:1000"),
        ("depart", "tcp://127.0.0.1:1000"),
        ("offer", "tcp://127.0.0.1:2000"),
        ("depart", "tcp://127.0.0.1:2000"),
    ]
    assert {event.host for event in events} == {md5(b"Det").hexdigest()}


@pytest.mark.req("CHIRP-04")
def test_beacons_on_one_host_share_the_port(peer):
    with chirp.Beacon("lab", "One", port=peer.port) as one, chirp.Beacon("lab", "Two", port=peer.port) as two:
        with chirp.Beacon("lab", names=["One", "Two"], port=peer.port) as viewer:
            one.offer(chirp.Service.DATA, 1001)
            two.offer(chirp.Service.DATA, 1002)
            events = {viewer.receive(timeout_s=20) for _ in range(2)}
            assert {(event.name, event.endpoint) for event in events} == {
                ("One", "tcp://127.0.0.1:1001"),
                ("Two", "tcp://127.0.0.1:1002"),
            }
            assert one.receive(timeout_s=20).endpoint == "tcp://127.0.0.1:1002"
            assert two.receive(timeout_s=20).endpoint == "tcp://127.0.0.1:1001"
            viewer.request(chirp.Service.DATA)
            assert [each.receive(timeout_s=20).kind for each in (one, two)] == ["request", "request"]
            one.close()
            event = viewer.receive(timeout_s=20)
            assert (event.kind, event.name) == ("depart", "One")


@pytest.mark.parametrize("mode", ["multicast", "broadcast"])
def test_an_offer_on_every_network_of_a_host_is_one(peer, beacon, mode):
    with chirp.Beacon("lab", "Det", chirp=mode, port=peer.port) as det:
        det.offer(chirp.Service.DATA, 1000)
        assert beacon.receive(timeout_s=20).endpoint == "tcp://127.0.0.1:1000"
        # Longer than it takes to believe that a host has moved.
        with pytest.raises(TimeoutError):
            beacon.receive(timeout_s=1.3)


@pytest.mark.req("CHIRP-02", "CHIRP-07")
def test_thousands_of_random_datagrams_change_nothing(peer, beacon):
    peer.offer("Det", 1000)
    assert beacon.receive(timeout_s=20).kind == "offer"
    chance = random.Random(7)
    for batch in range(1, 51):
        for _ in range(100):
            datagram = bytearray(pack(OFFER, "Det", 1000)) + chance.randbytes(20)
            datagram[chance.randrange(6)] ^= chance.randrange(1, 256)
            datagram[6] = chance.randrange(256)
            peer.send(datagram[: chance.randrange(62)])
        # As many as the system's buffer holds, then the next.
        until(lambda: beacon.stats.received == 1 + 100 * batch)  # noqa: B023 - called at once
    stats = beacon.stats
    assert (sum(stats.dropped.values()), stats.services) == (5000, 1)
    assert {"bad_protocol", "truncated", "unsupported_version"} <= set(stats.dropped)
    peer.depart("Det", 1000)
    event = beacon.receive(timeout_s=20)
    assert (event.kind, event.endpoint) == ("depart", "tcp://127.0.0.1:1000")


@pytest.mark.req("CHIRP-07")
def test_hands_over_what_came_to_nothing(peer, caplog):
    dropped = []
    datagrams = [b"", b"x", pack(OFFER, "Det", 1)[:41], pack(OFFER, "Det", 1) + b"x", bytes(9000)]
    with caplog.at_level(logging.INFO, "trunkline.chirp"):
        with chirp.Beacon("lab", on_drop=dropped.append, port=peer.port) as beacon:
            for datagram in datagrams:
                peer.send(datagram)
            peer.offer("Det", 1000)
            assert beacon.receive(timeout_s=20).kind == "offer"
            assert beacon.stats.dropped == {"truncated": 2, "bad_protocol": 2, "trailing_bytes": 1}
    assert [drop.frames for drop in dropped] == [(datagram,) for datagram in datagrams]
    assert dropped[2].error.offset == 41
    assert dropped[2].peer == f"127.0.0.1:{peer.port}".encode()
    # Others may use this port as well: no warning.
    assert [record for record in caplog.records if record.name == "trunkline.chirp"] == []


@pytest.mark.parametrize("ending", ["exit", "interrupt", "terminate", "collect"])
@pytest.mark.req("CHIRP-05")
def test_departs_when_the_process_ends(peer, ending):
    script = f"""
import gc, signal, sys, warnings
from trunkline import chirp
# Who starts the tests in the background has them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
warnings.simplefilter("ignore", ResourceWarning)
beacon = chirp.Beacon("lab", "Det", port={peer.port})
beacon.offer(chirp.Service.DATA, 4000)
if {ending!r} in ("interrupt", "terminate"):
    try:
        print("waiting", flush=True)
        beacon.receive()
    except KeyboardInterrupt:
        pass
elif {ending!r} == "collect":
    del beacon
    gc.collect()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        peer.hears(OFFER, "det", port=4000)
        if ending in ("interrupt", "terminate"):
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGINT if ending == "interrupt" else signal.SIGTERM)
        peer.hears(DEPART, "det", port=4000)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.communicate()


def test_iteration_ends_with_the_beacon(peer, beacon):
    peer.offer("Det", 1000)
    events = iter(beacon)
    assert next(events).kind == "offer"
    beacon.stop()
    assert list(events) == []
    beacon.close()
    with pytest.raises(ClosedError):
        beacon.receive()
    with pytest.raises(ClosedError):
        beacon.offer(chirp.Service.DATA, 1)
    assert beacon.stats.services == 1
    assert beacon.endpoints == (f"udp://0.0.0.0:{peer.port}",)


def test_waits_run_out(beacon):
    for timeout_s in (0, 0.01):
        with pytest.raises(TimeoutError):
            beacon.receive(timeout_s=timeout_s)


def test_says_what_is_wrong(peer):
    with pytest.raises(ValueError, match="unicast"):
        chirp.Beacon("lab", "Det", chirp="unicast", port=peer.port)
    with chirp.Beacon("lab", port=peer.port) as listener:
        assert listener.host is None
        with pytest.raises(LocalProtocolError, match="name"):
            listener.offer(chirp.Service.DATA, 1)
    with chirp.Beacon("lab", "Det", port=peer.port) as beacon, pytest.raises(LocalProtocolError, match="port"):
        beacon.offer(chirp.Service.DATA, 0)


async def test_asyncio_hears_and_is_heard_as_blocking_is(peer):
    async with chirp.AsyncBeacon("lab", "Det", port=peer.port) as beacon:
        with pytest.raises(TimeoutError):
            await beacon.receive(timeout_s=0.01)
        beacon.offer(chirp.Service.DATA, 4000)
        peer.hears(OFFER, "det", port=4000)
        for port in range(1000, 1010):
            peer.offer(f"Other.{port}", port)
        async for event in beacon:
            if event.endpoint == "tcp://127.0.0.1:1009":
                beacon.stop()
    peer.hears(DEPART, "det", port=4000)
