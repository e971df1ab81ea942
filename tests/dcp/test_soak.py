"""The soak of the benches at a size of seconds: a broker in a process of its own, bare sockets on the other side."""

import pytest
from benches.dcp.soak import crowd, large, stalled, storm

from trunkline._native import error_kinds

# Each starts a dozen processes.
pytestmark = pytest.mark.timeout(180)


@pytest.mark.req("DCP-44")
def test_bad_messages_cost_those_who_behave_nothing():
    seen = storm(20_000)
    assert seen.answered > 0
    assert set(seen.dropped) <= {*error_kinds(), "queue_full", "queue_expired", "unroutable", "peer_full"}
    assert len(seen.dropped) > 7
    # The queues of services without workers are bounded by 16 MiB, and so is the outbox of each peer that does not read.
    assert seen.rss_mib[-1] - seen.rss_mib[0] < 64


@pytest.mark.req("DCP-01", "DCP-44")
def test_many_clients_and_workers_at_one_time():
    seen = crowd(400, 40, 3)
    assert (seen.peers_at_once, seen.requests, seen.dropped) == (440, 1200, {})


@pytest.mark.req("DCP-44")
@pytest.mark.needs("bounds")
def test_one_that_does_not_read_costs_the_others_nothing():
    seen = stalled(100, 1000, 1, 1.0)
    assert seen.dropped["peer_full"] > 0
    assert seen.idle_cpu_percent < 10
    assert seen.rss_mib_with - seen.rss_mib_without < 256


def test_large_requests_pass():
    seen = large(32, 3)
    assert seen.requests == 3
    assert seen.rss_mib[-1] < 1024
