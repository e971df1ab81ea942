"""Servers, clients and data connections of MTL under a clock that the test moves."""

from contextlib import suppress

import pytest

from trunkline import mtl, testing
from trunkline.errors import AuthenticationError, ClosedError, LeaseRefusedError, LocalProtocolError, TimeoutError
from trunkline.mtl.users import Users


def make(**network):
    return testing.pair(mtl.Server, mtl.Client, **network)


def test_contents_go_from_writer_to_reader():
    with make(latency_s=0.01) as sim:
        client = sim.queue_client
        writer, reader = client.writer("jobs"), client.reader("jobs", window=10)
        reader.summon("jobs")
        began = sim.now_s
        writer.send(b"one", properties={"run": 5})
        content = reader.receive()
        assert (content.resource, content.properties, content.body) == ("jobs", {"run": 5}, b"one")
        assert round(sim.now_s - began, 3) == 0.02
        writer.flush()
        content.confirm()
        assert client.command("Queue.Info", {"name": "jobs"}).body["messages"] == 0
        (jobs,) = [one for one in sim.queue_server.stats.resources if one.resource == "jobs"]
        assert (jobs.confirmed, jobs.queued) == (1, 0)
        assert (client.stats.contents, client.stats.confirmed) == (2, 2)
        writer.close()
        reader.close()
        client.close()
        assert client.closed


@pytest.mark.req("MTL-54", "MTL-58")
def test_what_a_reader_that_crashes_had_in_hand_is_another_s():
    with make(latency_s=0.001) as sim:
        writer = sim.queue_client.writer("jobs")
        other = sim.add(mtl.Client)
        first = other.reader("jobs")
        first.summon("jobs")
        for number in range(3):
            writer.send(b"%d" % number)
        assert first.receive().body == b"0"
        sim.crash(other)
        with pytest.raises(ClosedError):
            first.receive()
        second = sim.queue_client.reader("jobs")
        second.summon("jobs")
        # The server hears of it by silence, if by nothing else.
        got = [second.receive(timeout_s=60) for _ in range(3)]
        assert [(content.body, content.redelivered) for content in got] == [(b"%d" % at, True) for at in range(3)]


@pytest.mark.req("MTL-15", "MTL-57")
def test_a_server_that_restarts_is_found_again():
    with make(latency_s=0.001) as sim:
        client, server = sim.queue_client, sim.queue_server
        writer, reader = client.writer("jobs"), client.reader("jobs")
        reader.summon("jobs")
        sim.crash(server)
        writer.send(b"kept by its writer")
        sim.advance(5)
        assert writer.stats.unconfirmed == 1
        sim.restart(server)
        content = reader.receive(timeout_s=60)
        assert content.body == b"kept by its writer"
        content.confirm()
        writer.flush(timeout_s=60)
        assert (writer.stats.reconnects, reader.stats.reconnects) == (1, 1)


@pytest.mark.req("MTL-53", "MTL-54")
def test_dead_letters():
    with testing.Simulation() as sim:
        sim.add(mtl.Server, anonymous=True, resources=("jobs", "jobs.dead"), max_recycle=2)
        client = sim.add(mtl.Client)
        writer, reader, dead = client.writer("jobs"), client.reader("jobs"), client.reader("jobs.dead")
        reader.summon("jobs")
        dead.summon("jobs.dead")
        writer.send(b"nobody likes it")
        for attempt in range(3):
            content = reader.receive()
            assert content.redelivered is (attempt > 0)
            reader.reject(content, recycle=True)
        assert dead.receive().body == b"nobody likes it"
        with pytest.raises(TimeoutError):
            reader.receive(timeout_s=10)


@pytest.mark.req("MTL-51", "MTL-54")
@pytest.mark.parametrize("seed", range(10))
def test_what_was_confirmed_to_its_writer_is_there_whatever_is_lost(seed):
    with make(seed=seed, latency_s=0.001, jitter_s=0.01) as sim:
        writer = sim.queue_client.writer("jobs", window=40)
        readers = [sim.add(mtl.Client).reader("jobs", window=5) for _ in range(2)]
        for reader in readers:
            reader.summon("jobs")
        sim.set_network(loss=0.1)
        for number in range(40):
            writer.send(b"%d" % number)
        got = set()
        for _ in range(20):
            for reader in readers:
                with suppress(TimeoutError):
                    content = reader.receive(timeout_s=0.05)
                    got.add(content.body)
                    content.confirm()
        sim.set_network(loss=0.0)
        # Contents and Confirms that were lost come to light when who had them leaves.
        for reader in readers:
            reader.close()
        last = sim.queue_client.reader("jobs")
        last.summon("jobs")
        with suppress(TimeoutError):
            while True:
                got.add(last.receive(timeout_s=30).body)
        (jobs,) = [one for one in sim.queue_server.stats.resources if one.resource == "jobs"]
        assert len(got) == jobs.in_ >= writer.stats.confirmed
        assert writer.stats.confirmed + writer.stats.unconfirmed == 40
        assert 0 < jobs.in_ < 40


@pytest.mark.req("MTL-17", "MTL-19")
def test_logins_cost_what_they_cost_by_the_clock(tmp_path):
    path = tmp_path / "users.toml"
    Users().adding("ada", "sesame", write=["nothing"]).write(path)
    with testing.Simulation() as sim:
        server = sim.add(mtl.Server, users=path, resources="jobs")
        for _ in range(5):
            with pytest.raises(AuthenticationError):
                sim.add(mtl.Client, user="ada", password="wrong", timeout_s=60)
        assert sim.now_s == 0
        with pytest.raises(AuthenticationError):
            sim.add(mtl.Client, user="ada", password="wrong", timeout_s=60)
        assert sim.now_s == 0.25
        client = sim.add(mtl.Client, user="ada", password="sesame")
        assert sim.now_s == 0.25
        with pytest.raises(LeaseRefusedError):
            client.writer("jobs")
        assert server.stats.refused == 6


def test_sessions_and_leases_age_with_the_clock():
    with testing.Simulation() as sim:
        server = sim.add(mtl.Server, anonymous=True, session_idle_s=10, lease_idle_s=3, resources="jobs")
        client = sim.add(mtl.Client)
        client.command("Connection.Reader", {"resources": ["jobs"]})
        assert (server.stats.sessions, server.stats.leases) == (1, 0)
        sim.advance(11)
        assert server.stats.sessions == 0
        # It is opened again, invisibly.
        assert client.command("Queue.List").status == 200


def test_handlers_answer_in_the_moment_they_are_asked():
    profile = mtl.Profile(
        "bank", commands={"Bank.Balance": lambda session, body: {"of": body["name"], "user": session.user}}
    )
    with testing.Simulation() as sim:
        sim.add(mtl.Server, anonymous=True, profiles=[profile])
        client = sim.add(mtl.Client, profile="bank")
        assert client.command("Bank.Balance", {"name": "x"}).body == {"status": "OK", "of": "x", "user": None}


@pytest.mark.parametrize(
    ("role", "settings", "words"),
    [
        (mtl.Server, {"anonymous": True, "durable": "store"}, "durable="),
        (mtl.Server, {"anonymous": True, "bind": "tcp://127.0.0.1:1"}, "bind="),
        (mtl.Client, {"connect": "tcp://127.0.0.1:1"}, "connect="),
        (mtl.Client, {"capture": "here"}, "capture="),
        (mtl.AsyncClient, {}, "AsyncClient is not simulated"),
    ],
)
def test_what_cannot_be_simulated_is_refused(role, settings, words):
    with testing.Simulation() as sim, pytest.raises(LocalProtocolError, match=words):
        sim.add(role, **settings)


def test_there_is_one_server():
    with make() as sim, pytest.raises(LocalProtocolError, match="there is a server already"):
        sim.add(mtl.Server, anonymous=True)


@pytest.mark.req("MTL-51")
def test_a_full_window_takes_no_more():
    with make() as sim:
        writer = sim.queue_client.writer("jobs", window=1)
        sim.set_network(loss=1.0)
        writer.send(b"one")
        with pytest.raises(TimeoutError, match="no room within 2 s"):
            writer.send(b"two", timeout_s=2)
        assert (sim.now_s, writer.stats.unconfirmed) == (2, 1)


def test_a_content_cannot_be_confirmed_once_its_reader_has_crashed():
    with make() as sim:
        writer, reader = sim.queue_client.writer("jobs"), sim.queue_client.reader("jobs")
        reader.summon("jobs")
        writer.send(b"one")
        content = reader.receive()
        sim.crash(sim.queue_client)
        with pytest.raises(ClosedError):
            content.confirm()
