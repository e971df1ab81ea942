"""Roles of CDT with a server that hangs, and tasks that swallow a cancellation, as those of nats-py do."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

from peers import nats
from peers.waiting import until
from trunkline import ClosedError, PeerLostError, cdt
from trunkline.cdt import _client, _nats, _pump, _waits
from trunkline.cdt._memory import MemoryConnection


@pytest.fixture
def server(tmp_path):
    with nats.server(tmp_path) as running:
        yield running


async def taking(cancellations):
    """Takes as many cancellations for itself, and goes on."""
    for _ in range(cancellations):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()


async def test_a_task_that_takes_cancellations_is_cut_off_all_the_same():
    task = asyncio.create_task(taking(3))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await _waits.cut_off(task)
    assert task.cancelled()


async def test_what_takes_too_long_is_ended_and_what_does_not_gives_what_it_gives():
    ended = []

    async def slow():
        try:
            await taking(1)
        finally:
            ended.append(True)

    with pytest.raises(TimeoutError):
        await _waits.within(slow(), 0.01)
    assert ended
    assert await _waits.within(asyncio.sleep(0, "given"), 20) == "given"
    with pytest.raises(ZeroDivisionError):
        await _waits.within(failing(), 20)


async def failing():
    raise ZeroDivisionError


async def test_a_role_closes_although_its_connection_takes_a_cancellation(monkeypatch):
    monkeypatch.setattr(_pump, "_CLOSE_S", 0.2)
    flushing = asyncio.Event()

    async def flush(_):
        flushing.set()
        await taking(1)

    async with cdt.AsyncSource("cmx", target="cdp", servers="memory://taking") as source:
        monkeypatch.setattr(MemoryConnection, "flush", flush)
        reporting = asyncio.create_task(source.report_applied("app-1", "e-1", "v-1"))
        await flushing.wait()
        async with asyncio.timeout(20):
            await source.close(drain_s=0)
        with pytest.raises(ClosedError):
            await reporting


def test_a_role_whose_server_hangs_closes_in_time(server, monkeypatch):
    monkeypatch.setattr(_pump, "_CLOSE_S", 0.2)
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


def test_a_role_whose_server_hangs_goes_to_another(tmp_path, monkeypatch):
    monkeypatch.setattr(_client, "PING_S", 0.3)
    with nats.server(tmp_path / "a") as one, nats.server(tmp_path / "b") as other:
        servers = {one.url: one, other.url: other}
        with (
            cdt.Source("cmx", target="cdp", servers=list(servers)) as source,
            cdt.Target("cdp", servers=other.url if source.endpoints == (one.url,) else one.url) as target,
        ):
            (left,) = source.endpoints
            servers[left].signal(signal.SIGSTOP)
            until(lambda: source.endpoints == target.endpoints)
            assert source.push("app-1", "e-1", b"x", timeout_s=20) == target.get("app-1", "e-1").config_id


def test_a_server_that_hangs_for_a_while_is_heard_again(server, monkeypatch):
    with cdt.Target("cdp", servers=server.url) as target, cdt.Source("cmx", target="cdp", servers=server.url) as source:
        monkeypatch.setattr(_nats, "_FLUSH_S", 0.1)
        server.signal(signal.SIGSTOP)
        with pytest.raises(PeerLostError):
            source.report_applied("app-1", "e-1", "v-1")
        server.signal(signal.SIGCONT)
        # Its answer comes now, when no caller waits for it.
        assert source.push("app-1", "e-1", b"x", timeout_s=20) == target.get("app-1", "e-1").config_id


def test_what_is_asked_waits_for_room_and_takes_none_where_there_is_none(server, monkeypatch):
    monkeypatch.setattr(_pump, "_MOST_OUTPUT_BYTES", 2_000_000)
    content = bytes(600_000)
    with cdt.Target("cdp", servers=server.url) as target, cdt.Source("cmx", target="cdp", servers=server.url) as source:
        server.signal(signal.SIGSTOP)
        for _ in range(40):
            with pytest.raises(TimeoutError):
                source.push("app-1", "e-1", content, timeout_s=0.02)
        # Of each, four thirds; two that are admitted at the same time may exceed it.
        assert source._pump._output_bytes < 4_000_000
        server.signal(signal.SIGCONT)
        assert source.push("app-1", "e-1", content, timeout_s=20) == target.get("app-1", "e-1").config_id
