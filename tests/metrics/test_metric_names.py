"""Which metrics a role has, and what they are called: made from its counters, none of which is left out."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry, openmetrics
from tools import metrics

from peers.roles import KINDS
from peers.scraping import value
from trunkline import Latencies, cdtp, dcp
from trunkline._metrics.collector import LEFT_OUT, MOST_ROWS, ROLE_UP, Collector, metrics_of, role_name, stats_class
from trunkline._metrics.counters import Count, Level

CLASSES = {name: role.kind for name, role in KINDS.items()} | {role_name(kind): kind for kind in metrics.OTHERS}


def samples(collector):
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def filled(kind, **given):
    """Counters of a class: all zero but those that are given."""
    empty = {}
    for field in dataclasses.fields(kind):
        zero = {"Latencies": Latencies((1,), (0, 0), 0), "TransportName": "zmtp"}.get(field.type, 0)
        empty[field.name] = {} if field.type.startswith("Mapping") else () if field.type.startswith("Seq") else zero
    return kind(**{**empty, **given})


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_every_counter_of_every_role_is_a_metric(kind):
    made = metrics_of(kind)
    assert {metric.field for metric in made} == {field.name for field in dataclasses.fields(stats_class(kind))}
    prefix = f"trunkline_{role_name(kind).replace('.', '_')}_"
    for metric in made:
        assert metric.name.startswith(prefix)
        assert metric.help.endswith("."), metric.name
        assert metric.unit in ("", "bytes", "seconds")
        assert metric.name.endswith(metric.unit)


def test_the_transport_is_a_label():
    collector = Collector(dcp.Broker, lambda: filled(stats_class(dcp.Broker)), lambda: True)
    assert value(samples(collector), "trunkline_dcp_broker_transport_info", transport="zmtp") == 1


def test_no_two_metrics_have_the_same_name():
    names = [series for kind in CLASSES.values() for metric in metrics_of(kind) for series in metric.series]
    assert len(names) > 180
    assert len(names) == len(set(names))
    assert all(name.replace("_", "a").isalnum() and name == name.lower() for name in names)


def test_names_and_units_are_as_prometheus_wants_them():
    made = {series: metric for kind in CLASSES.values() for metric in metrics_of(kind) for series in metric.series}
    for name, kind, labels, unit in (
        ("trunkline_dcp_broker_received_total", "counter", (), ""),
        ("trunkline_dcp_broker_bytes_total", "counter", (), "bytes"),
        ("trunkline_dcp_broker_queued", "gauge", (), ""),
        ("trunkline_dcp_broker_dropped_total", "counter", ("kind",), ""),
        ("trunkline_dcp_broker_latency_seconds_bucket", "histogram", (), "seconds"),
        ("trunkline_dcp_broker_service_requests_total", "counter", ("service",), ""),
        ("trunkline_mc0_middleware_topic_bytes_total", "counter", ("topic",), "bytes"),
        ("trunkline_mtl_server_resource_in_total", "counter", ("virtual_host", "profile", "resource"), ""),
        ("trunkline_mtl_server_resource_queued_bytes", "gauge", ("virtual_host", "profile", "resource"), "bytes"),
        ("trunkline_cdtp_receiver_sender_missed_total", "counter", ("sender",), ""),
        ("trunkline_cdtp_receiver_runs_info", "info", ("sender", "run_id"), ""),
        ("trunkline_cdtp_sender_queued_bytes", "gauge", (), "bytes"),
    ):
        metric = made[name]
        assert (metric.kind, metric.labels, metric.unit) == (kind, labels, unit), name


def counting(kind):
    """A role with these counters."""

    class Counting(dcp.Broker):
        @property
        def stats(self):
            raise NotImplementedError

    Counting.stats.fget.__annotations__["return"] = kind
    return Counting


@pytest.mark.parametrize("annotation", [int, float, Mapping[str, int], Sequence[int]], ids=str)
def test_a_counter_that_does_not_say_whether_it_only_grows_is_refused(annotation):
    made = dataclasses.make_dataclass("NewStats", [("fresh", annotation)], namespace={"__module__": __name__})
    made.__doc__ = "Counters.\n\nAttributes:\n    fresh: New.\n"
    with pytest.raises(TypeError, match=r"NewStats\.fresh is neither a Count nor a Level"):
        metrics_of(counting(made))


@dataclass(frozen=True)
class TimedStats:
    """Counters with a time, which no role has so far.

    Attributes:
        waited_ns: How long it waited.
        oldest_s: How old the oldest is.
    """

    waited_ns: Count
    oldest_s: Level


def test_times_are_in_seconds():
    timed = counting(TimedStats)
    assert [(metric.series, metric.unit) for metric in metrics_of(timed)] == [
        (("trunkline_dcp_broker_waited_seconds_total",), "seconds"),
        (("trunkline_dcp_broker_oldest_seconds",), "seconds"),
    ]
    seen = samples(Collector(timed, lambda: TimedStats(1_500_000_000, 3), lambda: True))
    assert value(seen, "trunkline_dcp_broker_waited_seconds_total") == 1.5
    assert value(seen, "trunkline_dcp_broker_oldest_seconds") == 3


def test_latencies_are_a_histogram_that_adds_up():
    latencies = Latencies((10_000, 2_500_000_000), (4, 2, 1), 12_000_000_000)
    seen = samples(Collector(dcp.Client, lambda: filled(dcp.ClientStats, latency=latencies), lambda: True))
    name = "trunkline_dcp_client_latency_seconds"
    assert [value(seen, f"{name}_bucket", le=le) for le in ("1e-05", "2.5", "+Inf")] == [4, 6, 7]
    assert value(seen, f"{name}_count") == 7
    assert value(seen, f"{name}_sum") == 12


def test_runs_that_go_on_are_labels():
    stats = filled(cdtp.ReceiverStats, runs={"Det": "run_7", "Det2": ""})
    seen = samples(Collector(cdtp.Receiver, lambda: stats, lambda: True))
    assert value(seen, "trunkline_cdtp_receiver_runs_info", sender="Det", run_id="run_7") == 1
    assert value(seen, "trunkline_cdtp_receiver_runs_info", sender="Det2", run_id="") == 1


def services(names):
    return tuple(dcp.ServiceStats(name, 1, 0, 0, 1, 0, 0) for name in names)


def test_only_so_many_rows_are_told_and_how_many_are_not():
    stats = filled(dcp.BrokerStats, services=services(b"service %d" % at for at in range(MOST_ROWS + 250)))
    seen = samples(Collector(dcp.Broker, lambda: stats, lambda: True))
    rows = [labels for name, labels in seen if name == "trunkline_dcp_broker_service_queued"]
    assert len(rows) == MOST_ROWS
    assert value(seen, LEFT_OUT.name, counter="services") == 250
    senders = {f"Det{at}": cdtp.SenderCount(1, 1, 0) for at in range(MOST_ROWS + 1)}
    stats = filled(cdtp.ReceiverStats, senders=senders)
    seen = samples(Collector(cdtp.Receiver, lambda: stats, lambda: True))
    assert value(seen, LEFT_OUT.name, counter="senders") == 1
    assert sum(name == "trunkline_cdtp_receiver_sender_messages_total" for name, _ in seen) == MOST_ROWS


def test_names_that_are_the_same_as_text_are_one_sample():
    # Two names of services: a byte, and the text that stands for it.
    stats = filled(dcp.BrokerStats, services=services([b"\xff", b"\\xff"]))
    registry = CollectorRegistry()
    registry.register(Collector(dcp.Broker, lambda: stats, lambda: True))
    text = openmetrics.exposition.generate_latest(registry).decode()
    assert text.count('trunkline_dcp_broker_service_queued{service="\\\\xff"} 2.0') == 1


def test_a_counter_that_is_taken_back_does_not_look_like_a_restart():
    sent = iter([10, 9, 12])
    collector = Collector(dcp.Broker, lambda: filled(dcp.BrokerStats, sent=next(sent)), lambda: True)
    seen = [value(samples(collector), "trunkline_dcp_broker_sent_total") for _ in range(3)]
    assert seen == [10, 10, 12]


def test_a_role_that_is_not_open_has_no_counters_yet():
    seen = samples(Collector(dcp.Broker, lambda: None, lambda: False))
    assert {name for name, _ in seen} == {"trunkline_build_info", ROLE_UP.name}
    assert value(seen, ROLE_UP.name, role="dcp.broker") == 0


def test_what_is_described_is_what_is_collected():
    for kind in CLASSES.values():
        stats = filled(stats_class(kind))
        collector = Collector(kind, lambda stats=stats: stats, lambda: True)
        described = [(family.name, family.type) for family in collector.describe()]
        assert described == [(family.name, family.type) for family in collector.collect()]


def test_a_class_of_a_user_has_the_metrics_of_its_role():
    class Mine(dcp.AsyncBroker):
        pass

    Mine.__module__ = "mine"
    assert role_name(Mine) == "dcp.broker"
    assert metrics_of(Mine) == metrics_of(dcp.Broker)
