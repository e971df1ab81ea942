"""Counters have the names in Python that the native roles give them, and no others."""

from dataclasses import fields

import pytest

from peers.roles import ANY, KINDS, opened
from trunkline import cdtp, dcp, mc0, mtl


def names(stats):
    return {field.name for field in fields(stats)}


# What a role shows that it counts in Python.
IN_PYTHON = {
    "cdtp.Recorder": {"free_bytes"},
    "cdt.Source": {"expired"},
    "cdt.Target": {"configs", "expired"},
    "cdt.Recorder": {"accepted", "dropped", "free_bytes"},
    # Its readers and writers count.
    "mtl.Client": {"at_risk", "confirmed", "contents", "latency", "rejected", "unconfirmed"},
}
# The machine of receivers and recorders is one.
OF_BOTH = {"cdtp.Receiver": cdtp.RecorderStats, "cdtp.Recorder": cdtp.ReceiverStats}


@pytest.mark.parametrize("name", KINDS)
def test_the_counters_of_a_role_are_those_it_shows(name, tmp_path):
    with opened("mtl.Server", tmp_path) as server:
        given = {"connect": server.endpoints} if name == "mtl.Client" else {}
        with opened(name, tmp_path, **given) as role:
            shown = names(role.stats)
            counted = set(role._native.stats()) if hasattr(role._native, "stats") else set()
    in_python = IN_PYTHON.get(name, set())
    assert counted.isdisjoint(in_python)
    assert counted | in_python == shown | (names(OF_BOTH[name]) - {"free_bytes"} if name in OF_BOTH else set())


def test_the_counters_of_a_service_are_those_it_shows():
    with (
        dcp.Broker(bind=ANY) as broker,
        dcp.Worker(b"echo", connect=broker.endpoints) as worker,
        dcp.Client(connect=broker.endpoints) as client,
    ):
        client.submit(b"echo", b"x")
        worker.receive(timeout_s=20).reply(b"y")
        (service,) = broker._native.stats()["services"]
        assert set(service) == names(dcp.ServiceStats)


def test_the_counters_of_a_topic_are_those_it_shows():
    with mc0.Middleware(bind=ANY) as bus, mc0.Connector(connect=bus.endpoints) as connector:
        connector.subscribe("t", timeout_s=20)
        (topic,) = bus._native.stats()["topics"]
        assert set(topic) == names(mc0.TopicStats)


def test_the_counters_of_a_queue_and_of_those_who_use_it_are_those_they_show():
    with (
        mtl.Server(bind=ANY, anonymous=True, profiles="queue", resources="jobs") as server,
        mtl.Client(connect=server.endpoints) as client,
        client.reader("jobs") as reader,
    ):
        (jobs,) = server._native.stats()["resources"]
        assert {"in_" if name == "in" else name for name in jobs} == names(mtl.ResourceStats)
        assert set(client._native.stats()) <= names(mtl.ClientStats) | {"capture_lost"}
        assert set(reader._native.stats()) == names(mtl.FlowStats) == names(mtl.ClientStats) | {"capture_lost"}
