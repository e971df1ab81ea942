"""The roles of CDT in a simulation."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline import ClosedError, ConfigError, LocalProtocolError, PeerLostError, TimeoutError, cdt, testing


def test_a_pair_does_what_roles_over_nats_do():
    with testing.pair(cdt.Target, cdt.Source, latency_s=0.001) as sim:
        config_id = sim.target.put("app-1", "e-1", b"{}")
        assert sim.source.pull("app-1", "e-1").config_id == config_id
        assert sim.now_s == pytest.approx(0.002)
        assert type(sim.source.receive()) is cdt.ConfigNewAvailable
        watch = sim.source.watch("app-1", "e-1")
        assert watch.receive().config_id == config_id
        assert sim.source.push("app-1", "e-1", b"2", config_id="v") == "v"
        assert watch.receive().content == b"2"
        sim.source.report_applied("app-1", "e-1", "v")
        assert sim.target.receive().config_id == "v"
        assert sim.target.rollout("app-1")[0].applied == "v"
        assert sim.target.rollback("app-1", "e-1", config_id) == config_id
        assert [row.config_id for row in sim.target.history("app-1", "e-1")] == [config_id, "v", config_id]
        with pytest.raises(ConfigError) as raised:
            sim.source.pull("app-1", "none")
        assert raised.value.status_code == 404
        assert sim.target.stats.pulls == sim.source.stats.pulls + 3
        sim.target.close()
        with pytest.raises(PeerLostError):
            sim.source.pull("app-1", "e-1")
        sim.source.close()
        with pytest.raises(ClosedError):
            sim.source.pull("app-1", "e-1")


def test_a_crash_loses_what_waits():
    with testing.pair(cdt.Target, cdt.Source, loss=1.0) as sim:
        waiting = sim.source.submit("app-1", "e-1", timeout_s=None)
        sim.crash(sim.source)
        with pytest.raises(ClosedError):
            waiting.result()
        sim.restart(sim.source)
        sim.set_network(loss=0.0)
        with pytest.raises(ConfigError):
            sim.source.pull("app-1", "e-1")


def test_the_time_of_day_goes_on_while_a_role_is_down():
    with testing.pair(cdt.Target, cdt.Source) as sim:
        config_id = sim.target.put("app-1", "e-1", b"{}")
        # Longer than any message is good for.
        sim.advance(100.0)
        sim.crash(sim.source)
        sim.restart(sim.source)
        assert sim.source.pull("app-1", "e-1").config_id == config_id
        sim.crash(sim.target)
        sim.restart(sim.target)
        assert sim.source.pull("app-1", "e-1").config_id == config_id


def test_a_source_pushes_and_goes_back_as_one_over_nats():
    with testing.pair(cdt.Target, cdt.Source, latency_s=0.001) as sim:
        first = sim.source.push("app-1", "e-1", b"1", confirm=None)
        assert first == hashlib.sha256(b"application/json\0" + b"1").hexdigest()[:32]
        sim.advance(1)
        assert sim.target.get("app-1", "e-1").config_id == first
        sim.source.push("app-1", "e-1", b"2")
        assert sim.source.rollback("app-1", "e-1", first) == first
        assert sim.target.get("app-1", "e-1").content == b"1"
        with pytest.raises(ConfigError):
            sim.source.rollback("app-1", "e-1", "never")
        assert sim.source.pull("app-1", "e-1", endpoint_message_id="m").endpoint_message_id == "m"
        with pytest.raises(TypeError, match="content"):
            sim.source.push("app-1", "e-1", None)


def test_what_comes_too_late_is_told_with_its_time():
    with testing.pair(cdt.Target, cdt.Source, latency_s=0.001) as sim:
        with pytest.raises(TimeoutError, match="is stored as v, but nobody reported it applied within 2 s"):
            sim.source.push("app-1", "e-1", b"1", config_id="v", confirm="applied", timeout_s=2)
        sim.set_network(loss=1.0)
        with pytest.raises(TimeoutError, match=r"within 1\.5 s"):
            sim.source.pull("app-1", "e-1", timeout_s=1.5)
        with pytest.raises(TimeoutError, match=r"may be stored as w, .* within 2 s"):
            sim.source.push("app-1", "e-1", b"1", config_id="w", confirm="applied", timeout_s=2)


def test_events_are_iterated_over_until_the_role_ends():
    with testing.pair(cdt.Target, cdt.Source, latency_s=0.001) as sim:
        sim.target.put("app-1", "e-1", b"1", config_id="v")
        sim.source.report_applied("app-1", "e-1", "v")
        sim.advance(1)
        sim.source.close()
        sim.target.close()
        assert [event.config_id for event in sim.source] == ["v"]
        assert [type(event) for event in sim.target] == [cdt.ConfigUpdated]


def test_a_watch_is_iterated_over_until_it_is_closed():
    with testing.pair(cdt.Target, cdt.Source, latency_s=0.001) as sim:
        sim.target.put("app-1", "e-1", b"1")
        with sim.source.watch("app-1", "e-1") as first:
            assert next(iter(first)).content == b"1"
        other, pulls = sim.source.watch("app-1", "e-1"), sim.target.stats.pulls
        sim.target.put("app-1", "e-1", b"2")
        assert other.receive().content == b"2"
        sim.advance(1)
        # The other one asks at first and at the change, and the one that is closed no more.
        assert sim.target.stats.pulls - pulls == 2
        assert list(first) == []
        sim.after(1, other.close)
        assert list(other) == []
        sim.crash(sim.source)
        sim.restart(sim.source)
        other.close()


def test_a_target_that_is_closed_tells_and_stores_nothing():
    store = cdt.MemoryStore()
    with testing.Simulation() as sim:
        target = sim.add(cdt.Target, "cdp", store=store)
        config_id = target.put("app-1", "e-1", b"1")
        with pytest.raises(LocalProtocolError, match="config_id"):
            target.put("app-1", "e-1", b"1", config_id="")
        target.close()
        for refused in (
            lambda: target.get("app-1", "e-1"),
            lambda: target.put("app-1", "e-1", b"2"),
            lambda: target.rollback("app-1", "e-1", config_id),
            lambda: target.history("app-1", "e-1"),
            lambda: target.rollout("app-1"),
        ):
            with pytest.raises(ClosedError):
                refused()
        assert [row.config_id for row in store.history("app-1", "e-1")] == [config_id]


def test_there_is_neither_a_nats_nor_a_disk():
    sim = testing.Simulation()
    for refused in ({"servers": "nats://127.0.0.1"}, {"capture": "runs"}):
        with pytest.raises(LocalProtocolError, match=next(iter(refused))):
            sim.add(cdt.Target, "cdp", **refused)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), loss=st.floats(0, 0.4), duplication=st.floats(0, 0.4))
def test_a_watch_converges_over_any_network(seed, loss, duplication):
    network = {"seed": seed, "loss": loss, "duplication": duplication, "jitter_s": 0.3, "reorder": True}
    with testing.pair(cdt.Target, cdt.Source, **network) as sim:
        watch = sim.source.watch("app-1", "e-1")
        for number in range(5):
            config_id = sim.target.put("app-1", "e-1", str(number).encode())
            sim.advance(0.2)
        sim.set_network(loss=0.0)
        sim.advance(310)
        assert watch.receive(timeout_s=0).config_id == config_id
