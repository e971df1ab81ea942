"""Counters have the names in Python that the native roles give them, and no others."""

from dataclasses import fields

import pytest

from trunkline import cdtp, chirp, dcp, mc0, mtl

ANY = "tcp://127.0.0.1:*"
NOWHERE = "tcp://127.0.0.1:9"


def names(stats):
    return {field.name for field in fields(stats)}


@pytest.mark.parametrize(
    ("make", "stats"),
    [
        (lambda: cdtp.Sender("Det", bind=ANY), cdtp.SenderStats),
        (lambda: dcp.Broker(bind=ANY), dcp.BrokerStats),
        (lambda: dcp.Client(connect=NOWHERE), dcp.ClientStats),
        (lambda: dcp.Worker(b"echo", connect=NOWHERE), dcp.WorkerStats),
        (lambda: mc0.Connector(connect=NOWHERE), mc0.ConnectorStats),
        (lambda: mc0.Middleware(bind=ANY), mc0.MiddlewareStats),
        (lambda: mtl.Server(bind=ANY, anonymous=True), mtl.ServerStats),
        (lambda: chirp.Beacon("lab", port=0), chirp.BeaconStats),
    ],
)
def test_the_counters_of_a_role_are_those_it_shows(make, stats):
    role = make()
    try:
        assert set(role._native.stats()) == names(stats)
    finally:
        role.close()


def test_a_receiver_and_a_recorder_show_what_both_count(tmp_path):
    with cdtp.Receiver(bind=ANY) as receiver, cdtp.Recorder(tmp_path / "capture", bind=ANY) as recorder:
        counted = set(receiver._native.stats())
        assert counted == set(recorder._native.stats()) == names(cdtp.ReceiverStats) | names(cdtp.RecorderStats)


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
