"""The NATS inside this process: subjects, wildcards, queue groups and limits."""

from __future__ import annotations

import threading

import pytest

from peers.waiting import until
from trunkline import ConfigError, PeerLostError, capture, cdt


@pytest.fixture
def url(request):
    return f"memory://{request.node.name}"


def test_replicas_share_requests_and_all_hear_events(url):
    store = cdt.MemoryStore()
    with (
        cdt.Target("cdp", servers=url, store=store) as one,
        cdt.Target("cdp", servers=url, store=store) as other,
        cdt.Source("cmx", target="cdp", servers=url) as source,
    ):
        config_id = one.put("app-1", "e-1", b"1")
        for _ in range(100):
            assert source.pull("app-1", "e-1").config_id == config_id
        pulls = (one.stats.pulls, other.stats.pulls)
        assert sum(pulls) == 100
        # By chance, of which one in 2 ** 99 is otherwise.
        assert all(pulls)
        source.report_applied("app-1", "e-1", config_id)
        assert {target.receive(timeout_s=10).config_id for target in (one, other)} == {config_id}


def test_names_are_apart(url):
    with cdt.Target("cdp", servers=url), cdt.Source("cmx", target="cdp", servers=f"{url}-2") as source:
        with pytest.raises(PeerLostError):
            source.pull("app-1", "e-1")


def test_what_is_at_a_name_ends_with_its_roles(url):
    with cdt.Target("cdp", servers=url):
        pass
    with cdt.Source("cmx", target="cdp", servers=url) as source, pytest.raises(PeerLostError):
        source.pull("app-1", "e-1")


def test_a_recorder_hears_all_of_it_in_order(url, tmp_path):
    with cdt.Recorder(tmp_path / "rows", servers=url, limit=6) as recorder:
        with cdt.Target("cdp", servers=url) as target, cdt.Source("cmx", target="cdp", servers=url) as source:
            target.put("app-1", "e-1", b"1")
            source.pull("app-1", "e-1")
            source.push("app-1", "e-1", b"2")
            # The limit is reached.
            source.report_applied("app-1", "e-1", "v")
            source.report_applied("app-1", "e-1", "v")
        assert recorder.wait(timeout_s=10) == "count"
        recorder.flush()
        assert (recorder.stats.received, recorder.stats.recorded) == (6, 6)
    kinds = [row["topic"].rpartition(".")[2] for row in capture.open(tmp_path / "rows").rows()]
    expected = ["ConfigNewAvailable", "ConfigRequest", "ConfigResponse", "ConfigPush", "ConfigNewAvailable"]
    assert kinds == [*expected, "ConfigPushResponse"]


def test_what_is_too_large_is_refused(url):
    with cdt.Target("cdp", servers=url) as target, cdt.Source("cmx", target="cdp", servers=url) as source:
        for put in (target.put, source.push):
            with pytest.raises(ConfigError) as raised:
                put("app-1", "e-1", bytes(1 << 20))
            assert raised.value.status_code == 413


def test_many_threads_may_pull_at_once(url):
    with cdt.Target("cdp", servers=url) as target, cdt.Source("cmx", target="cdp", servers=url) as source:
        config_id = target.put("app-1", "e-1", b"1")
        seen = []

        def pull():
            seen.extend(source.pull("app-1", "e-1").config_id for _ in range(50))

        threads = [threading.Thread(target=pull) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [config_id] * 400


def test_without_a_queue_no_events_are_kept_and_none_is_counted_as_lost(url):
    with (
        cdt.Target("cdp", servers=url) as target,
        cdt.Source("cmx", target="cdp", servers=url, queue_messages=0) as one,
    ):
        watch = one.watch("app-1", "e-1")
        target.put("app-1", "e-1", b"1")
        assert watch.receive(timeout_s=10).content == b"1"
        until(lambda: one.stats.events == 1)
        assert one.stats.dropped == {}
        with pytest.raises(TimeoutError):
            one.receive(timeout_s=0)


def test_a_full_queue_of_events_holds_up_nothing_else(url):
    with (
        cdt.Target("cdp", servers=url) as target,
        cdt.Source("cmx", target="cdp", servers=url, queue_messages=2) as one,
    ):
        for number in range(5):
            target.put("app-1", f"e-{number}", b"1")
        until(lambda: one.stats.events == 5)
        assert one.stats.dropped == {"queue_full": 3}
        assert one.pull("app-1", "e-4").content == b"1"
        assert [one.receive(timeout_s=10).endpoint_id for _ in range(2)] == ["e-0", "e-1"]
        target.put("app-1", "e-5", b"1")
        assert one.receive(timeout_s=10).endpoint_id == "e-5"
