"""Roles of CDT with a server that hangs."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from peers import nats
from peers.waiting import until
from trunkline import PeerLostError, cdt


@pytest.fixture
def server(tmp_path):
    with nats.server(tmp_path) as running:
        yield running


def test_a_role_whose_server_hangs_closes_in_time(server):
    target = cdt.Target("cdp", servers=server.url)
    source = cdt.Source("cmx", target="cdp", servers=server.url)
    source.push("app-1", "e-1", b"x", timeout_s=20)
    server.signal(signal.SIGSTOP)
    content = bytes(600_000)

    def push():
        with pytest.raises(TimeoutError):
            source.push("app-1", "e-1", content, timeout_s=0.5)

    # More than any buffer on the way holds.
    pushing = [threading.Thread(target=push) for _ in range(30)]
    for thread in pushing:
        thread.start()
    for thread in pushing:
        thread.join()
    began = time.monotonic()
    source.close(drain_s=0)
    target.close(drain_s=0)
    # There is no end to what it did before.
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_a_role_whose_server_hangs_goes_to_another(tmp_path):
    with nats.server(tmp_path / "a") as one, nats.server(tmp_path / "b") as other:
        servers = {one.url: one, other.url: other}
        with (
            cdt.Source("cmx", target="cdp", servers=list(servers)) as source,
            cdt.Target("cdp", servers=other.url if source.endpoints == (one.url,) else one.url) as target,
        ):
            (left,) = source.endpoints
            servers[left].signal(signal.SIGSTOP)
            # It is asked three times in half a minute.
            until(lambda: source.endpoints == target.endpoints, 60)
            assert source.push("app-1", "e-1", b"x", timeout_s=20) == target.get("app-1", "e-1").config_id


def test_a_server_that_hangs_for_a_while_is_heard_again(server):
    with cdt.Target("cdp", servers=server.url) as target, cdt.Source("cmx", target="cdp", servers=server.url) as source:
        server.signal(signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            source.push("app-1", "e-1", b"late", confirm=None, timeout_s=0.1)
        server.signal(signal.SIGCONT)
        # Its answer comes now, when no caller waits for it.
        assert source.push("app-1", "e-1", b"x", timeout_s=20) == target.get("app-1", "e-1").config_id


@pytest.mark.slow
def test_what_a_server_does_not_confirm_counts_as_unsent(server):
    with cdt.Source("cmx", target="cdp", servers=server.url) as source:
        server.signal(signal.SIGSTOP)
        with pytest.raises(PeerLostError, match="or it does not answer"):
            source.report_applied("app-1", "e-1", "v-1")
        server.signal(signal.SIGCONT)


def test_what_is_asked_waits_for_room_and_takes_none_where_there_is_none(server):
    content = bytes(700_000)
    with cdt.Target("cdp", servers=server.url) as target, cdt.Source("cmx", target="cdp", servers=server.url) as source:
        server.signal(signal.SIGSTOP)
        # 64 MiB may wait, and some more is on its way.
        for _ in range(200):
            with pytest.raises(TimeoutError) as raised:
                source.push("app-1", "e-1", content, timeout_s=0.02)
            if "no room" in str(raised.value):
                break
        assert "the queue had no room" in str(raised.value)
        server.signal(signal.SIGCONT)
        assert source.push("app-1", "e-1", content, timeout_s=20) == target.get("app-1", "e-1").config_id
