"""Connectors against a raw ROUTER."""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time

import pytest
import zmq

from peers.dcp import bound_again
from peers.mc0 import ANY, Middleware, connect, error, message, noop, ok, pack, put, sub, unsub
from peers.waiting import until
from trunkline import Curve, capture, mc0
from trunkline.errors import (
    ClosedError,
    LocalProtocolError,
    MiddlewareError,
    PeerLostError,
    TimeoutError,
)

PATIENCE_S = 20


@pytest.fixture
def bus(open_socket):
    return Middleware(open_socket(zmq.ROUTER, bind=ANY))


@pytest.fixture
def threads():
    """Runs what blocks, while the test plays the middleware."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        yield pool.submit


@contextlib.contextmanager
def connected(bus, **options):
    """A connector, and what the middleware calls it."""
    with mc0.Connector(connect=bus.endpoint, **options) as connector:
        yield connector, bus.hears(b"CONNECT").peer


def subscribed(bus, threads, connector, *topics):
    done = threads(connector.subscribe, *topics, timeout_s=PATIENCE_S)
    said = bus.confirms(b"SUB")
    done.result(PATIENCE_S)
    return said


@pytest.mark.req("MC0-01", "MC0-07", "MC0-19", "MC0-20")
def test_connect_is_the_first_message(bus):
    with mc0.Connector(connect=bus.endpoint) as connector:
        connector.put("runs", b"x")
        assert bus.hears().frames == connect(10_000)
        assert bus.hears().frames == put(b"runs", b"x")
        assert not connector.closed
        connector.close(drain_s=0)
    with mc0.Connector(connect=bus.endpoint, ttl_ms=None):
        assert bus.hears(b"DISCONNECT")
        assert bus.hears().frames == connect()
    with mc0.Connector(connect=bus.endpoint, ttl_ms=500, leading_delimiter=False) as connector:
        assert bus.hears(b"DISCONNECT")
        connector.put("runs", b"x")
        assert bus.socket.recv_multipart()[1:] == connect(500)[1:]
        assert bus.socket.recv_multipart()[1:] == put(b"runs", b"x")[1:]
        connector.close(drain_s=0)


@pytest.mark.req("MC0-12", "MC0-28", "MC0-31", "MC0-11", "MC0-32")
def test_subscribes_and_reads(bus, threads):
    with connected(bus) as (connector, peer):
        subscribing = threads(connector.subscribe, "alerts", b"runs", timeout_s=PATIENCE_S)
        said = bus.hears(b"SUB")
        assert said.frames == sub(b"alerts", b"runs", id_=said.id)
        assert said.id.isascii()
        assert not subscribing.done()
        bus.say(peer, ok(said.id))
        assert subscribing.result(PATIENCE_S) is None
        bus.say(peer, message(b"runs", b"a", b"", headers=[(b"X-Origin", b"daq"), (b"X-Origin", b"\xff")]))
        bus.say(peer, message(b"alerts"))
        received = connector.receive(timeout_s=PATIENCE_S)
        assert (received.verb, received.topic, received.body) == ("MESSAGE", "runs", (b"a", b""))
        assert received.headers == (("TOPIC", "runs"), ("X-Origin", "daq"), ("X-Origin", "\udcff"))
        assert next(iter(connector)).body == ()
        with pytest.raises(TimeoutError, match="no message came within 0"):
            connector.receive(timeout_s=0)
        unsubscribing = threads(connector.unsubscribe, "runs")
        said = bus.hears(b"UNSUB")
        assert said.frames == unsub(b"runs", id_=said.id)
        bus.say(peer, ok(said.id))
        unsubscribing.result(PATIENCE_S)
        stats = connector.stats
        assert (stats.received, stats.messages, stats.sent, stats.dropped, stats.queued) == (4, 2, 3, {}, 0)


@pytest.mark.req("MC0-12", "MC0-15")
def test_an_error_is_raised_where_it_is_waited_for(bus, threads):
    with connected(bus) as (connector, peer):
        for call, topic in [
            (lambda: connector.subscribe("secret"), "secret"),
            (lambda: connector.subscribe("a", "b"), None),
            (lambda: connector.unsubscribe("a"), "a"),
            (lambda: connector.put("runs", b"x", confirm=True), "runs"),
            (lambda: connector.submit("runs", b"x").result(PATIENCE_S), "runs"),
            (connector.ping, None),
        ]:
            refused = threads(call)
            bus.say(peer, error(b"forbidden: \xff", bus.hears().id))
            with pytest.raises(MiddlewareError) as caught:
                refused.result(PATIENCE_S)
            assert (caught.value.topic, caught.value.text) == (topic, "forbidden: \udcff")
            assert str(caught.value) == "forbidden: \udcff"
        bare = threads(connector.ping)
        bus.say(peer, pack(b"ERROR", (b"ID", bus.hears().id)))
        with pytest.raises(MiddlewareError, match="gave no reason"):
            bare.result(PATIENCE_S)
        assert connector.stats.errors == 7


@pytest.mark.req("MC0-10", "MC0-11", "MC0-30", "MC0-32", "MC0-05")
def test_puts_with_headers_and_any_body(bus):
    with connected(bus, ttl_ms=None) as (connector, _):
        connector.put("runs", b"body", headers={"X-Origin": "daq", "X-Run": b"\xff"})
        headers = [(b"X-Origin", b"daq"), (b"X-Run", b"\xff")]
        assert bus.hears().frames == put(b"runs", b"body", headers=headers)
        connector.put(b"\xff", [b"a", memoryview(b""), b"c" * 5000], headers=[("X-A", "1"), ("X-A", "2")])
        headers = [(b"X-A", b"1"), (b"X-A", b"2")]
        assert bus.hears().frames == put(b"\xff", b"a", b"", b"c" * 5000, headers=headers)
        connector.put("Läufe\udcff", [])
        assert bus.hears().frames == put("Läufe".encode() + b"\xff")
        for key in ("TOPIC", "ID", "FOO", "x-lower", "", b"VERSION"):
            with pytest.raises(LocalProtocolError, match="X-"):
                connector.put("runs", b"x", headers={key: "1"})
        with pytest.raises(TypeError, match="encode it"):
            connector.put("runs", "text")
        with pytest.raises(TypeError):
            connector.put(7, b"x")
        with pytest.raises(LocalProtocolError, match="at most"):
            connector.put("runs", [b"x"] * 10_000)
        with pytest.raises(LocalProtocolError, match="at most"):
            connector.subscribe(*map(str, range(10_000)))
        assert bus.is_silent(200)
        assert connector.stats.put == 3
        connector.close(drain_s=0)
    with connected(bus, max_message_bytes=1000) as (connector, _):
        with pytest.raises(LocalProtocolError, match="max_message_bytes, 1000"):
            connector.put("runs", b"x" * 1001)


@pytest.mark.req("MC0-12")
def test_a_put_that_is_confirmed_waits_for_that(bus, threads):
    with connected(bus) as (connector, peer):
        confirmed = threads(connector.put, "runs", b"x", confirm=True)
        said = bus.hears(b"PUT")
        assert said.frames == put(b"runs", b"x", id_=said.id)
        # Another's answer is none.
        bus.say(peer, ok(b"1234"))
        bus.say(peer, error(b"no", b"1234"))
        assert not connector.closed
        bus.say(peer, ok(said.id))
        assert confirmed.result(PATIENCE_S) is None
        with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
            connector.put("runs", b"y", confirm=True, timeout_s=0.05)
        bus.say(peer, ok(bus.hears(b"PUT").id))
        until(lambda: connector.stats.received == 4)
        stats = connector.stats
        assert (stats.put, stats.confirmed, stats.queued, stats.dropped) == (2, 1, 0, {})


@pytest.mark.req("MC0-12", "MC0-13")
def test_many_are_on_their_way_and_confirmed_in_any_order(bus):
    count = 500
    with connected(bus) as (connector, peer):
        futures = [connector.submit("runs", b"%d" % number) for number in range(count)]
        said = [bus.hears(b"PUT") for _ in range(count)]
        assert [one.frames[-1] for one in said] == [b"%d" % number for number in range(count)]
        assert len({one.id for one in said}) == count
        assert connector.stats.queued == count
        for one in reversed(said):
            bus.say(peer, ok(one.id))
        assert [future.result(PATIENCE_S) for future in futures] == [None] * count
        assert connector.stats.confirmed == count


@pytest.mark.req("MC0-18")
def test_a_ping_says_how_long_it_took(bus, threads):
    with connected(bus) as (connector, peer):
        pinging = threads(connector.ping, timeout_s=PATIENCE_S)
        said = bus.hears()
        assert said.frames == noop(said.id)
        time.sleep(0.05)
        bus.say(peer, ok(said.id))
        assert 0.05 <= pinging.result(PATIENCE_S) < PATIENCE_S


@pytest.mark.req("MC0-16")
def test_errors_that_answer_nothing_are_told(bus, caplog):
    reported = []
    with (
        caplog.at_level(logging.WARNING),
        connected(bus, on_error=lambda m: reported.append((m, threading.current_thread().name))) as (connector, peer),
    ):
        bus.say(peer, error(b"your topics\x1b are gone"))
        until(lambda: reported)
        ((said, thread),) = reported
        assert (said.verb, said.text) == ("ERROR", "your topics\x1b are gone")
        assert thread == "trunkline-notices"
        until(lambda: any("your topics\\x1b are gone" in text for text in caplog.messages))
        # It needs no reader, and the role goes on.
        connector.put("runs", b"x")
        bus.hears(b"PUT")
        connector.close(drain_s=0)


@pytest.mark.req("MC0-18", "MC0-34")
def test_a_connector_answers_nothing(bus):
    dropped = []
    with connected(bus, ttl_ms=None, on_drop=dropped.append) as (connector, peer):
        for frames in [noop(b"1"), sub(b"a", id_=b"2"), put(b"a", b"x", id_=b"3"), [b"PONG"], [b""], ok(b"4")]:
            bus.say(peer, frames)
        until(lambda: len(dropped) == 4)
        assert [drop.kind for drop in dropped] == ["unexpected_verb", "unexpected_verb", "unknown_verb", "missing_verb"]
        assert [drop.error is None for drop in dropped] == [True, True, False, False]
        assert bus.is_silent(200)
        assert connector.stats.dropped == {"unexpected_verb": 2, "unknown_verb": 1, "missing_verb": 1}


@pytest.mark.req("MC0-25")
def test_says_something_within_the_ttl(bus):
    with connected(bus, ttl_ms=500) as (connector, peer):
        before = time.monotonic()
        for _ in range(4):
            assert bus.is_silent(200)
            bus.say(peer, noop())
            assert bus.hears().frames == noop()
            now = time.monotonic()
            assert 0.4 < now - before < 2
            before = now
        assert connector.stats.reconnects == 0


@pytest.mark.req("MC0-23")
def test_without_a_ttl_says_nothing_and_waits_for_ever(bus):
    with connected(bus, ttl_ms=None) as (connector, _):
        assert bus.is_silent(1000)
        assert connector.stats.reconnects == 0


@pytest.mark.req("MC0-26")
def test_a_silent_middleware_is_connected_to_anew(bus, threads):
    with connected(bus, ttl_ms=400) as (connector, peer):
        subscribed(bus, threads, connector, "b", "a")
        future = connector.submit("runs", b"1")
        said = bus.hears(b"PUT")
        begun = time.monotonic()
        again = bus.hears(b"CONNECT")
        assert 0.3 < time.monotonic() - begun < 3
        assert again.frames == connect(400)
        assert again.peer != peer
        # The subscriptions come before anything else.
        assert bus.hears().frames == sub(b"a", b"b")
        assert bus.hears().frames == said.frames
        connector.put("runs", b"2")
        assert bus.hears(b"PUT").frames == put(b"runs", b"2")
        bus.say(again.peer, ok(said.id))
        future.result(PATIENCE_S)
        bus.say(again.peer, message(b"a", b"x"))
        assert connector.receive(timeout_s=PATIENCE_S).body == (b"x",)
        assert connector.stats.reconnects == 1


@pytest.mark.req("MC0-26")
def test_a_connection_that_breaks_is_made_anew(bus, open_socket, threads):
    with connected(bus, ttl_ms=None) as (connector, _):
        subscribed(bus, threads, connector, "a")
        futures = [connector.submit("runs", b"%d" % number) for number in range(3)]
        said = [bus.hears(b"PUT") for _ in range(3)]
        bus.say(said[1].peer, ok(said[1].id))
        futures[1].result(PATIENCE_S)
        bus.socket.close(linger=0)
        until(lambda: connector.stats.reconnects == 1)
        connector.put("runs", b"once")
        late = connector.submit("runs", b"late")
        again = Middleware(bound_again(open_socket, zmq.ROUTER, bus.endpoint))
        assert again.hears().frames == connect()
        assert again.hears().frames == sub(b"a")
        resent = [again.hears() for _ in range(4)]
        assert [one.frames for one in resent[:2]] == [said[0].frames, said[2].frames]
        assert [one.frames[-1] for one in resent[2:]] == [b"once", b"late"]
        for one in resent:
            again.say(one.peer, ok(one.id or b"none"))
        for future in (*futures, late):
            future.result(PATIENCE_S)
        assert connector.stats.reconnects == 1


@pytest.mark.req("MC0-21")
def test_one_that_is_forgotten_for_not_reading_begins_anew(bus, threads):
    with connected(bus) as (connector, peer):
        subscribed(bus, threads, connector, "a")
        bus.say(peer, error(b"disconnected: the queue holds no more"))
        assert bus.hears(b"CONNECT").peer != peer
        assert bus.hears().frames == sub(b"a")
        assert connector.stats.reconnects == 1


def test_of_several_endpoints_one_is_dialled_at_a_time(bus, open_socket):
    nowhere = open_socket(zmq.DEALER)
    port = nowhere.bind_to_random_port("tcp://127.0.0.1")
    nowhere.unbind(f"tcp://127.0.0.1:{port}")
    other = Middleware(open_socket(zmq.ROUTER, bind=ANY))
    with mc0.Connector(connect=[f"tcp://127.0.0.1:{port}", bus.endpoint, other.endpoint]) as connector:
        bus.hears(b"CONNECT")
        assert other.is_silent(100)
        assert connector.stats.reconnects == 0
        bus.socket.close(linger=0)
        other.hears(b"CONNECT")


@pytest.mark.req("MC0-29")
def test_a_subscription_that_times_out_is_taken_back(bus, threads):
    with connected(bus) as (connector, peer):
        subscribed(bus, threads, connector, "a")
        with pytest.raises(TimeoutError, match=r"no reply came within 0\.1 s"):
            connector.subscribe("a", "b", timeout_s=0.1)
        late = bus.hears(b"SUB")
        bus.say(peer, ok(late.id))
        assert bus.hears(b"UNSUB").frames == unsub(b"b")
        bus.say(peer, error(b"disconnected: once more"))
        bus.hears(b"CONNECT")
        assert bus.hears().frames == sub(b"a")


@pytest.mark.req("MC0-27")
def test_closing_waits_for_answers_and_leaves(bus, threads):
    connector = mc0.Connector(connect=bus.endpoint, ttl_ms=None)
    peer = bus.hears(b"CONNECT").peer
    future = connector.submit("runs", b"x")
    said = bus.hears(b"PUT")
    closing = threads(connector.close)
    assert bus.is_silent(100)
    with pytest.raises(ClosedError):
        connector.submit("runs", b"late").result(PATIENCE_S)
    bus.say(peer, ok(said.id))
    assert bus.hears().frames == pack(b"DISCONNECT")
    closing.result(PATIENCE_S)
    assert future.result(0) is None
    assert connector.closed
    for call in (
        lambda: connector.put("runs", b"x"),
        lambda: connector.put("runs", b"x", confirm=True),
        lambda: connector.submit("runs", b"x"),
        lambda: connector.subscribe("a"),
        connector.ping,
        connector.receive,
    ):
        with pytest.raises(ClosedError):
            call()
    assert list(connector) == []
    assert connector.stats.confirmed == 1


def test_flushing_waits_until_all_is_sent_and_confirmed(bus, threads):
    with mc0.Connector(connect="tcp://127.0.0.1:9") as alone:
        alone.flush(timeout_s=0)
        alone.put("runs", b"x")
        with pytest.raises(TimeoutError, match=r"not sent, or not confirmed, within 0\.1 s: 1 message$") as caught:
            alone.flush(timeout_s=0.1)
        assert caught.value.unsent == 1
        alone.close(drain_s=0)
    with connected(bus) as (connector, peer):
        connector.put("runs", b"x")
        connector.submit("runs", b"y")
        bus.hears(b"PUT")
        said = bus.hears(b"PUT")
        flushing = threads(connector.flush)
        assert bus.is_silent(100)
        assert not flushing.done()
        bus.say(peer, ok(said.id))
        flushing.result(PATIENCE_S)
    with pytest.raises(ClosedError):
        connector.flush()


def test_what_is_not_confirmed_when_it_closes_says_so(bus):
    connector = mc0.Connector(connect=bus.endpoint)
    bus.hears(b"CONNECT")
    future = connector.submit("runs", b"x")
    bus.hears(b"PUT")
    connector.close(drain_s=0.05)
    with pytest.raises(ClosedError):
        future.result(PATIENCE_S)


def test_a_loop_over_messages_may_put(bus, threads):
    with connected(bus) as (connector, peer):
        subscribed(bus, threads, connector, "in")

        def work():
            for received in connector:
                connector.put("out", received.body, confirm=True)
                connector.put("log", b"done")
                if received.body == (b"last",):
                    return

        working = threads(work)
        for body in (b"first", b"last"):
            bus.say(peer, message(b"in", body))
            said = bus.confirms(b"PUT")
            assert said.frames == put(b"out", body, id_=said.id)
            assert bus.hears(b"PUT").frames == put(b"log", b"done")
        working.result(PATIENCE_S)
        connector.close(drain_s=0)


def test_a_full_queue_waits_or_raises(bus):
    with connected(bus, queue_messages=2, overflow="raise") as (connector, peer):
        futures = [connector.submit("runs", b"x"), connector.submit("runs", b"y")]
        said = [bus.hears(b"PUT") for _ in futures]
        for call in (lambda: connector.submit("runs", b"z"), lambda: connector.put("runs", b"z"), connector.ping):
            with pytest.raises(TimeoutError, match="no room"):
                call()
        for one in said:
            bus.say(peer, ok(one.id))
        for future in futures:
            future.result(PATIENCE_S)
        connector.put("runs", b"z")
        bus.hears(b"PUT")
        connector.close(drain_s=0)
    with connected(bus, queue_messages=1) as (connector, peer):
        connector.submit("runs", b"x")
        said = bus.hears(b"PUT")
        with pytest.raises(TimeoutError, match=r"no room within 0\.1 s"):
            connector.put("runs", b"z", timeout_s=0.1)
        bus.say(peer, ok(said.id))
        connector.put("runs", b"z", timeout_s=PATIENCE_S)
        connector.close(drain_s=0)


@pytest.mark.req("MC0-26")
def test_who_does_not_read_does_not_hold_silence_against_the_middleware(bus, threads):
    with connected(bus, ttl_ms=300, queue_messages=10) as (connector, peer):
        subscribed(bus, threads, connector, "a")
        for number in range(50):
            bus.say(peer, message(b"a", b"%d" % number))
        # It goes on saying that it is there.
        for _ in range(4):
            assert bus.hears().frames == noop()
        bodies = [connector.receive(timeout_s=PATIENCE_S).body for _ in range(50)]
        assert bodies == [(b"%d" % number,) for number in range(50)]
        assert connector.stats.reconnects == 0


@pytest.mark.req("MC0-26")
def test_a_socket_of_the_user_begins_again_after_a_break(bus, open_socket, threads):
    dealer = open_socket(zmq.DEALER, connect=bus.endpoint, reconnect_ivl=50)
    with mc0.Connector(socket=dealer, ttl_ms=None) as connector:
        bus.hears(b"CONNECT")
        subscribed(bus, threads, connector, "a")
        bus.socket.close(linger=0)
        again = Middleware(bound_again(open_socket, zmq.ROUTER, bus.endpoint))
        assert again.hears().frames == connect()
        assert again.hears().frames == sub(b"a")


@pytest.mark.req("MC0-26")
def test_a_silent_middleware_on_a_socket_of_the_user_is_told_of(bus, open_socket, threads):
    dealer = open_socket(zmq.DEALER, connect=bus.endpoint)
    with mc0.Connector(socket=dealer, ttl_ms=1000) as connector:
        waiting = threads(connector.ping)
        receiving = threads(connector.receive)
        peer = bus.hears(b"CONNECT").peer
        for wait in (waiting, receiving):
            with pytest.raises(PeerLostError, match="silent"):
                wait.result(PATIENCE_S)
        for call in (
            lambda: connector.subscribe("a"),
            lambda: connector.put("runs", b"x", confirm=True),
            lambda: connector.submit("runs", b"x").result(PATIENCE_S),
            connector.ping,
        ):
            with pytest.raises(PeerLostError):
                call()
        until(lambda: _is_refused(lambda: connector.put("runs", b"x")))
        # It is asked again and again, on the same connection, and heard of again.
        while (said := bus.hears()).verb != b"CONNECT":
            pass
        assert said.peer == peer
        bus.say(peer, noop())
        until(lambda: connector.stats.received == 1)
        ping = threads(connector.ping)
        while (said := bus.hears()).id is None:
            pass
        bus.say(peer, ok(said.id))
        assert ping.result(PATIENCE_S) < PATIENCE_S
        until(lambda: not _is_refused(lambda: connector.put("runs", b"x")))


def _is_refused(call):
    try:
        call()
    except PeerLostError:
        return True
    return False


@pytest.mark.req("MC0-03")
def test_connects_by_curve(open_socket, threads):
    public, secret = zmq.curve_keypair()
    router = open_socket(zmq.ROUTER, bind=ANY, curve_server=True, curve_secretkey=secret, curve_publickey=public)
    bus = Middleware(router)
    with connected(bus, curve=Curve(zmq.curve_keypair(), server_key=public)) as (connector, _):
        subscribed(bus, threads, connector, "a")
    assert bus.hears(b"DISCONNECT")
    stranger, _ = zmq.curve_keypair()
    with mc0.Connector(connect=bus.endpoint, curve=Curve(zmq.curve_keypair(), server_key=stranger)) as wrong:
        with pytest.raises(TimeoutError):
            wrong.ping(timeout_s=0.3)
        assert bus.is_silent(100)


def test_works_over_inproc(context, open_socket, threads):
    bus = Middleware(open_socket(zmq.ROUTER, bind="inproc://bus"))
    with mc0.Connector(connect="inproc://bus", context=context) as connector:
        bus.hears(b"CONNECT")
        subscribed(bus, threads, connector, "a")
    assert bus.hears(b"DISCONNECT")


def test_works_over_the_other_transport(bus, threads):
    with connected(bus, transport="zeromq") as (connector, peer):
        subscribed(bus, threads, connector, "a")
        bus.say(peer, message(b"a", b"x"))
        assert connector.receive(timeout_s=PATIENCE_S).body == (b"x",)


def test_records_what_comes_and_goes(bus, threads, tmp_path):
    with connected(bus, capture=tmp_path / "bus", ttl_ms=None) as (connector, peer):
        subscribed(bus, threads, connector, "a")
        bus.say(peer, message(b"a", b"x"))
        connector.receive(timeout_s=PATIENCE_S)
        bus.say(peer, [b"PONG"])
        until(lambda: connector.stats.received == 3)
    rows = list(capture.open(tmp_path / "bus").rows())
    said = [(row["direction"], row["header"], row["topic"], row["error"]) for row in rows]
    assert said == [
        ("out", b"CONNECT", None, None),
        ("out", b"SUB", None, None),
        ("in", b"OK", None, None),
        ("in", b"MESSAGE", "a", None),
        ("in", b"PONG", None, "unknown_verb"),
        ("out", b"DISCONNECT", None, None),
    ]
    verbs = [recorded.verb for recorded in capture.open(tmp_path / "bus")]
    assert verbs == ["CONNECT", "SUB", "OK", "MESSAGE", "DISCONNECT"]


def test_a_connector_dials():
    with pytest.raises(LocalProtocolError, match="connect="):
        mc0.Connector(bind=ANY)
    with pytest.raises(LocalProtocolError):
        mc0.Connector()


async def _asked(bus, coroutine, verb):
    """Answers the next message of this verb meanwhile."""
    task = asyncio.ensure_future(coroutine)
    said = await asyncio.to_thread(bus.confirms, verb)
    return said, await asyncio.wait_for(task, PATIENCE_S)


def test_asyncio_does_the_same(bus):
    async def run():
        reported, loop = [], asyncio.get_running_loop()
        with pytest.raises(LocalProtocolError, match="async with"):
            await mc0.AsyncConnector(connect=bus.endpoint).ping()
        async with mc0.AsyncConnector(connect=bus.endpoint, on_error=reported.append) as connector:
            peer = (await asyncio.to_thread(bus.hears, b"CONNECT")).peer
            said, _ = await _asked(bus, connector.subscribe("a", timeout_s=PATIENCE_S), b"SUB")
            assert said.frames == sub(b"a", id_=said.id)
            await _asked(bus, connector.unsubscribe("b"), b"UNSUB")
            await connector.put("runs", b"x", headers={"X-A": "1"})
            said = await asyncio.to_thread(bus.hears, b"PUT")
            assert said.frames == put(b"runs", b"x", headers=[(b"X-A", b"1")])
            await _asked(bus, connector.put("runs", b"x", confirm=True), b"PUT")
            _, round_trip_s = await _asked(bus, connector.ping(), b"NOOP")
            assert 0 < round_trip_s < PATIENCE_S
            futures = [connector.submit("runs", b"%d" % number) for number in range(10)]
            assert all(isinstance(future, asyncio.Future) and future.get_loop() is loop for future in futures)
            said = [await asyncio.to_thread(bus.hears, b"PUT") for _ in futures]
            bus.say(peer, error(b"no", said[0].id))
            for one in said[1:]:
                bus.say(peer, ok(one.id))
            done = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), PATIENCE_S)
            assert done[1:] == [None] * 9
            assert isinstance(done[0], MiddlewareError)
            assert done[0].topic == "runs"
            await connector.flush(timeout_s=PATIENCE_S)
            with pytest.raises(TimeoutError):
                await connector.subscribe("late", timeout_s=0.05)
            bus.say(peer, message(b"a", b"1"))
            bus.say(peer, message(b"a", b"2"))
            bus.say(peer, error(b"told"))
            assert (await connector.receive(timeout_s=PATIENCE_S)).body == (b"1",)
            async for received in connector:
                assert received.body == (b"2",)
                break
            await asyncio.to_thread(until, lambda: reported)
            with pytest.raises(TimeoutError):
                await connector.receive(timeout_s=0.05)
        with pytest.raises(ClosedError):
            connector.submit("runs", b"x")
        assert connector.stats.confirmed == 10

    asyncio.run(run())


def test_a_full_queue_raises_where_a_submit_cannot_wait(bus):
    async def run():
        async with mc0.AsyncConnector(connect=bus.endpoint, queue_messages=1) as connector:
            future = connector.submit("runs", b"x")
            with pytest.raises(TimeoutError, match="no room"):
                connector.submit("runs", b"y")
            said = await asyncio.to_thread(bus.hears)
            said = await asyncio.to_thread(bus.hears, b"PUT")
            bus.say(said.peer, ok(said.id))
            await asyncio.wait_for(future, PATIENCE_S)

    asyncio.run(run())


def test_a_call_that_is_cancelled_is_not_waited_for(bus):
    async def run():
        async with mc0.AsyncConnector(connect=bus.endpoint) as connector:
            peer = (await asyncio.to_thread(bus.hears, b"CONNECT")).peer
            task = asyncio.ensure_future(connector.subscribe("a"))
            said = await asyncio.to_thread(bus.hears, b"SUB")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await asyncio.to_thread(bus.hears, b"UNSUB")).frames == unsub(b"a")
            bus.say(peer, ok(said.id))

    asyncio.run(run())
