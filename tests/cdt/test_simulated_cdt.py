"""The roles of CDT in a simulation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline import ClosedError, ConfigError, LocalProtocolError, PeerLostError, cdt, testing


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
