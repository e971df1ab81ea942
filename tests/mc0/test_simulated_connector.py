"""Connectors under a clock that is moved, against a bare ROUTER."""

import pytest

from peers.mc0 import connect, error, message, noop, ok, pack, put, sub
from peers.waiting import until
from trunkline import dcp, mc0, testing
from trunkline.errors import ClosedError, LocalProtocolError, MiddlewareError, TimeoutError
from trunkline.testing._roles import MIDDLEWARE as ENDPOINT

TTL_MS = 10_000


@pytest.fixture
def sim():
    with testing.Simulation(seed=7, latency_s=0.001) as sim:
        yield sim


class Bus:
    """A ROUTER that knows a connector by the number of its connection."""

    def __init__(self, sim):
        self.peer = sim.peer(kind="ROUTER", bind=[ENDPOINT])
        self.connection = 1

    def hears(self):
        return list(self.peer.receive(timeout_s=60))

    def says(self, *messages):
        for frames in messages:
            self.peer.send(frames, to=b"connector-%d" % self.connection)


def id_of(frames):
    return frames[3]


@pytest.mark.req("MC0-12", "MC0-31")
def test_a_connector_in_a_simulation_does_what_it_does_over_sockets(sim):
    bus, connector = Bus(sim), sim.add(mc0.Connector)
    assert sim.connector is connector
    assert bus.hears() == connect(TTL_MS)
    futures = [connector.submit("runs", b"1", headers={"X-A": "1"}), connector.submit("runs", b"2", timeout_s=1)]
    first, second = bus.hears(), bus.hears()
    assert first == put(b"runs", b"1", id_=id_of(first), headers=[(b"X-A", b"1")])
    bus.says(ok(id_of(first)), message(b"a", b"x"), error(b"no", id_of(second)))
    assert futures[0].result() is None
    with pytest.raises(MiddlewareError, match="no") as caught:
        futures[1].result()
    assert caught.value.topic == "runs"
    assert connector.receive().body == (b"x",)
    sim.after(0.5, lambda: bus.says(ok(id_of(bus.peer.received[-1]))))
    before = sim.now_s
    assert connector.ping() == pytest.approx(sim.now_s - before)
    with pytest.raises(TimeoutError, match=r"no reply came within 0\.25 s"):
        connector.subscribe("a", timeout_s=0.25)
    connector.put("runs", b"3")
    connector.close()
    sim.advance(1)
    assert list(bus.peer.received[-1]) == pack(b"DISCONNECT")
    with pytest.raises(ClosedError):
        connector.put("runs", b"4")
    assert connector.stats.confirmed == 1


@pytest.mark.req("MC0-25", "MC0-26")
def test_silence_is_timed_exactly(sim, caplog):
    bus, connector = Bus(sim), sim.add(mc0.Connector)
    bus.hears()
    sim.after(1, lambda: bus.says(ok(id_of(bus.peer.received[-1]))))
    connector.subscribe("a")
    heard = sim.now_s
    bus.peer.received.clear()
    # The NOOP is due at 0.95 times the TTL since the SUB, the end at 1.05 since the OK.
    assert bus.hears() == noop()
    assert sim.now_s == pytest.approx(0.001 + 9.5 + 0.001, abs=0.01)
    assert bus.hears() == connect(TTL_MS)
    assert heard + 10.5 + 0.05 <= sim.now_s <= heard + 10.5 + 0.11
    assert bus.hears() == sub(b"a")
    assert connector.stats.reconnects == 1
    until(lambda: "silent" in caplog.text)


def test_errors_are_told(sim):
    reported, dropped = [], []
    bus, connector = Bus(sim), sim.add(mc0.Connector, on_error=reported.append, on_drop=dropped.append, ttl_ms=None)
    assert bus.hears() == connect()
    bus.says(error(b"gone"), [b"PONG"])
    sim.advance(1)
    assert [said.text for said in reported] == ["gone"]
    assert [drop.kind for drop in dropped] == ["unknown_verb"]
    assert connector.stats.dropped == {"unknown_verb": 1}


def test_a_crash_ends_what_it_asked(sim):
    Bus(sim)
    connector = sim.add(mc0.Connector)
    future = connector.submit("runs", b"x")
    sim.crash(connector)
    with pytest.raises(ClosedError):
        future.result()
    with pytest.raises(LocalProtocolError, match="no sockets"):
        sim.add(mc0.Connector, connect="tcp://127.0.0.1:1")
    with pytest.raises(LocalProtocolError, match=r"mc0\.Connector"):
        sim.add(mc0.AsyncConnector)
    with pytest.raises(LocalProtocolError, match="no broker"):
        _ = sim.broker
    assert sim.add(dcp.Broker).closed is False


def test_a_bus_in_a_simulation(tmp_path):
    policy = tmp_path / "policy.toml"
    with testing.pair(mc0.Middleware, mc0.Connector, mc0.Connector, latency_s=0.01) as sim:
        subscriber = sim.connector
        publisher = sim.add(mc0.Connector)
        subscriber.subscribe("t")
        publisher.put("t", b"1", confirm=True)
        assert subscriber.receive().body == (b"1",)
        assert sim.middleware.stats.topics == (mc0.TopicStats(topic="t", subscribers=1, puts=1, messages=1, bytes=1),)
        sim.crash(sim.middleware)
        waits = publisher.submit("t", b"2")
        sim.advance(5)
        assert not waits.done()
        sim.restart(sim.middleware)
        assert waits.result() is None
        sim.until(lambda: sim.middleware.stats.subscriptions == 1)
        publisher.put("t", b"3", confirm=True)
        assert subscriber.receive().body[0] in (b"2", b"3")
        with pytest.raises(LocalProtocolError, match="there is a middleware already"):
            sim.add(mc0.Middleware)
        policy.write_text("allow = []")
        assert sim.middleware.stats.clients == 3
        sim.middleware.close()
        with pytest.raises(ClosedError):
            sim.middleware.reload()


def test_a_policy_in_a_simulation(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[[allow]]\nclient = "*"\nsubscribe = ["t"]\n')
    with testing.Simulation() as sim:
        bus = sim.add(mc0.Middleware, policy=policy)
        connector = sim.add(mc0.Connector)
        connector.subscribe("t")
        with pytest.raises(MiddlewareError, match="may not put"):
            connector.put("t", b"x", confirm=True)
        policy.write_text('[[allow]]\nclient = "*"\npublish = ["t"]\n')
        bus.reload()
        connector.put("t", b"x", confirm=True)
        assert bus.stats.subscriptions == 0
