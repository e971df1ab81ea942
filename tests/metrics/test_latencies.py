"""How long what is asked for takes, counted in buckets of fixed bounds."""

import threading

import pytest

from peers.scraping import OPENMETRICS, scraped, value
from peers.waiting import until
from trunkline import Latencies, cdt, dcp, mc0, mtl, testing
from trunkline._metrics.counters import NO_LATENCIES
from trunkline.errors import ConfigError

ANY = "tcp://127.0.0.1:*"
MS = 1_000_000


def number(latencies):
    return sum(latencies.counts)


def test_bounds_grow_from_ten_microseconds_to_a_hundred_seconds():
    bounds = NO_LATENCIES.bounds_ns
    assert list(bounds) == sorted(set(bounds))
    assert (bounds[0], bounds[-1]) == (10_000, 100 * 10**9)
    assert len(NO_LATENCIES.counts) == len(bounds) + 1


def test_those_of_several_connections_add_up():
    one = Latencies((1, 2), (3, 0, 1), 10)
    assert one + Latencies((1, 2), (1, 1, 1), 5) == Latencies((1, 2), (4, 1, 2), 15)


@pytest.mark.parametrize(("took_ms", "bucket_ns"), [(0, 10_000), (1, 1 * MS), (2, 2_500_000), (99, 100 * MS)])
def test_a_client_counts_from_the_request_to_its_reply(took_ms, bucket_ns):
    with testing.pair(dcp.Broker, dcp.Client) as sim:
        sim.add(dcp.Worker, b"echo", testing.echo, work_s=took_ms / 1000)
        sim.client.request(b"echo", b"x", timeout_s=1)
        counted = sim.client.stats.latency
    assert counted.sum_ns == took_ms * MS
    assert counted.counts[NO_LATENCIES.bounds_ns.index(bucket_ns)] == 1 == number(counted)


def test_a_retry_counts_from_the_first_attempt():
    with testing.Simulation() as sim:
        broker, client = sim.peer(bind=["tcp://broker:1"]), sim.add(dcp.Client)
        future = client.submit(b"echo", b"x", timeout_s=1, retries=1)
        broker.receive()
        frames = broker.receive()
        assert sim.now_s == 1
        sim.advance(0.5)
        broker.send([*frames[:2], b"\x05", b"address", *frames[4:]])
        assert future.result().data == (b"x",)
        assert client.stats.latency.sum_ns == 1500 * MS


def test_all_three_of_dcp_count_every_reply():
    with (
        dcp.Broker(bind=ANY) as broker,
        dcp.Worker(b"echo", connect=broker.endpoints) as worker,
        dcp.Client(connect=broker.endpoints) as client,
    ):
        serving = threading.Thread(target=worker.serve, args=[lambda request: request.data])
        serving.start()
        for _ in range(20):
            client.request(b"echo", b"x", timeout_s=20)
        seen = [role.stats.latency for role in (client, broker, worker)]
        worker.stop()
        serving.join()
    assert [number(one) for one in seen] == [20, 20, 20]
    # The nearer to the client, the longer the wait.
    assert seen[0].sum_ns > seen[1].sum_ns > seen[2].sum_ns > 0


def test_a_connector_counts_what_is_confirmed_and_nothing_else():
    with mc0.Middleware(bind=ANY) as bus, mc0.Connector(connect=bus.endpoints) as connector:
        connector.put("t", b"x")
        for _ in range(3):
            connector.put("t", b"x", confirm=True, timeout_s=20)
        assert number(connector.stats.latency) == connector.stats.confirmed == 3


def test_a_client_of_mtl_counts_those_of_writers_that_are_closed_too():
    with (
        mtl.Server(bind=ANY, anonymous=True, resources=["jobs"]) as server,
        mtl.Client(connect=server.endpoints) as client,
    ):
        for _ in range(2):
            with client.writer("jobs") as writer:
                writer.send(b"x")
                writer.send(b"y")
        assert number(writer.stats.latency) == 2
        assert number(client.stats.latency) == 4


def test_a_source_counts_answers(request):
    servers = f"memory://{request.node.name}"
    with cdt.Target("cdp", servers=servers) as target, cdt.Source("cmx", target="cdp", servers=servers) as source:
        target.put("app", "endpoint", b"{}")
        source.pull("app", "endpoint", timeout_s=20)
        assert number(source.stats.latency) == 1


def test_a_target_counts_what_its_store_was_asked(request):
    servers = f"memory://{request.node.name}"
    with cdt.Target("cdp", servers=servers) as target, cdt.Source("cmx", target="cdp", servers=servers) as source:
        # What is put at the target itself is no request.
        target.put("app", "endpoint", b"{}")
        source.push("app", "endpoint", b"[]", timeout_s=20)
        source.pull("app", "endpoint", timeout_s=20)
        with pytest.raises(ConfigError, match="404"):
            source.pull("app", "another", timeout_s=20)
        seen = target.stats
    assert number(seen.latency) == seen.pulls + seen.pushes == 3
    assert 0 < seen.latency.sum_ns < source.stats.latency.sum_ns


@pytest.mark.parametrize("confirm", ["full", "none"])
@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
def test_a_server_counts_what_readers_are_done_with(confirm, accept):
    with (
        mtl.Server(bind=ANY, anonymous=True, resources=["jobs"], metrics="0") as server,
        mtl.Client(connect=server.endpoints) as client,
        client.writer("jobs") as writer,
        client.reader("jobs", confirm=confirm) as reader,
    ):
        reader.summon("jobs")
        for _ in range(10):
            writer.send(b"x")
            reader.receive(timeout_s=20).confirm() if confirm == "full" else reader.receive(timeout_s=20)
        until(lambda: number(server.stats.latency) == 10)
        samples = scraped(server.metrics_url, accept)
    name = "trunkline_mtl_server_latency_seconds"
    assert value(samples, f"{name}_count") == value(samples, f"{name}_bucket", le="+Inf") == 10
    assert value(samples, f"{name}_sum") > 0
