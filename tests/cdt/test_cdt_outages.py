"""What a server that goes, or says that something is wrong, does to roles; and stores that are wrong themselves."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from peers import nats
from peers.waiting import until
from trunkline import ClosedError, ConfigError, LocalProtocolError, PeerLostError, TimeoutError, cdt
from trunkline.cdt._opening import without_credentials

PUSHES = "kaa.v1.service.cdp.cmx2cdp.ConfigPush"


@pytest.fixture
def server(tmp_path):
    with nats.server(tmp_path / "nats") as running:
        yield running


@pytest.fixture
def pair(server):
    with cdt.Target("cdp", servers=server.url) as target, cdt.Source("cmx", target="cdp", servers=server.url) as source:
        yield target, source


def pulled(source):
    """The id of the configuration, once the server knows again who listens."""
    with suppress(PeerLostError, TimeoutError):
        return source.pull("app-1", "e-1", timeout_s=1).config_id


def test_what_was_said_to_be_unsent_is_not_sent_later(server, pair):
    target, source = pair
    first = target.put("app-1", "e-1", b"1")
    server.stop(signal.SIGKILL)
    until(lambda: not source.endpoints and not target.endpoints)
    with pytest.raises(PeerLostError):
        source.push("app-1", "e-1", b"old", confirm=None, timeout_s=None)
    with pytest.raises(PeerLostError):
        source.report_applied("app-1", "e-1", first)
    new = target.put("app-1", "e-1", b"new")
    server.start()
    until(lambda: pulled(source) == new)
    assert target.get("app-1", "e-1").content == b"new"
    assert [row.applied for row in target.rollout("app-1")] == [None]


async def test_events_of_an_outage_are_each_told_once(server):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        await target.put("app-1", "e-0", b"0")
        server.stop(signal.SIGKILL)
        await asyncio.to_thread(until, lambda: not target.endpoints)
        put = [await target.put("app-1", f"e-{number}", b"x%d" % number) for number in range(3)]
        server.start()
        async with nats.client(server.url) as bare:
            events = await bare.subscribe("kaa.v1.events.cdp.endpoint.config.ConfigNewAvailable")
            await bare.flush()
            announced = [json.loads((await nats.heard(events)).data)["configId"] for _ in put]
            assert sorted(announced) == sorted(put)
            # The next event is of the next put: nothing is announced twice.
            last = await target.put("app-1", "e-0", b"last")
            assert json.loads((await nats.heard(events)).data)["configId"] == last


def test_a_target_answers_at_once_after_a_restart_whatever_it_was_waiting_for(server):
    with cdt.Target("cdp", servers=server.url) as target:
        server.signal(signal.SIGSTOP)
        target.put("app-1", "e-1", b"1")
        server.restart()
        with cdt.Source("cmx", target="cdp", servers=server.url) as source:
            until(lambda: pulled(source))


async def test_what_comes_while_a_target_opens_is_answered_once_it_is_open(server, caplog):
    statuses = []

    async def answered(message):
        # Between two targets there is no subscriber, which the server reports without a body.
        if message.data:
            statuses.append(json.loads(message.data)["statusCode"])

    async with nats.client(server.url) as bare:
        await bare.subscribe("answers", cb=answered)
        await bare.flush()

        async def ask():
            while True:
                await bare.publish("kaa.v1.service.cdp.cmx2cdp.ConfigRequest", nats.request(), reply="answers")
                await bare.publish(PUSHES, nats.request(content={"bytes": "e30="}, contentType="json"), reply="answers")
                await bare.flush()

        asking = asyncio.create_task(ask())
        for _ in range(20):
            async with cdt.AsyncTarget("cdp", servers=server.url):
                seen = len(statuses)
                await asyncio.to_thread(until, lambda seen=seen: len(statuses) > seen)
        asking.cancel()
    assert set(statuses) <= {200, 201, 404, 503}
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_names_that_no_key_can_hold_cost_a_jetstream_target_nothing(server):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url, store="jetstream") as target,
        cdt.AsyncTarget("other", servers=server.url, store="jetstream") as other,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source,
    ):
        with pytest.raises(ConfigError) as raised:
            await source.push("app-1", "e" * 5000, b"1")
        assert raised.value.status_code == 400
        await target.put("app-1", "e-1", b"2")
        assert (await source.pull("app-1", "e-1")).content == b"2"
        # That of another target is another's.
        with pytest.raises(ConfigError) as raised:
            await other.get("app-1", "e-1")
        assert raised.value.status_code == 404
        server.stop(signal.SIGKILL)
        with pytest.raises(PeerLostError):
            await target.get("app-1", "e-2")


class Wrong(cdt.MemoryStore):
    """A store with a broken `get`."""

    def __init__(self, does):
        super().__init__()
        self.get = does


def stop(*_):
    raise StopIteration


def refuse(*_):
    raise ConfigError(70_000, "no status of HTTP")


@pytest.mark.parametrize("does", [stop, refuse, lambda *_: "a str"])
def test_whoever_asks_a_store_that_is_wrong_is_told_at_once_and_its_target_ends(does):
    url = f"memory://wrong-{does.__name__}"
    with cdt.Target("cdp", servers=url, store=Wrong(does), store_timeout_s=300) as target:
        with cdt.Source("cmx", target="cdp", servers=url) as source, pytest.raises(ConfigError) as raised:
            source.pull("app-1", "e-1", timeout_s=20)
        assert raised.value.status_code == 500
        target.close(drain_s=0.1)


def test_a_store_that_takes_its_time_holds_up_no_end():
    began = time.monotonic()
    with cdt.Target("cdp", servers="memory://slow", store=Wrong(lambda *_: time.sleep(5))) as target:
        with cdt.Source("cmx", target="cdp", servers="memory://slow") as source, pytest.raises(TimeoutError):
            source.pull("app-1", "e-1", timeout_s=0.2)
        target.close(drain_s=0.1)
        assert time.monotonic() - began < 4


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://u:secret/x@127.0.0.1:1", "nats://127.0.0.1:1"),
        ("nats://u:se#cr?et@h:1", "nats://h:1"),
        ("nats://token@h", "nats://h"),
        ("tls://u:p@q@h:1", "tls://h:1"),
        ("u:p@h:1", "nats://h:1"),
        ("nats://h:1", "nats://h:1"),
        ("h:1", "nats://h:1"),
    ],
)
def test_no_url_shows_who_we_are(url, shown):
    assert without_credentials(url) == shown


async def test_a_login_in_a_url_may_have_any_characters(tmp_path):
    with nats.server(tmp_path, "authorization { user: u, password: 'p/w@#?%' }") as server:
        url = server.url.replace("nats://", "nats://u:p%2Fw%40%23%3F%25@")
        async with cdt.AsyncTarget("cdp", servers=url) as target:
            assert target.endpoints == (server.url,)


@pytest.mark.parametrize(
    ("given", "size", "fits"),
    [
        ({"bytes_encoding": "latin1"}, 700_000, False),
        ({"codec": "avro"}, 1_047_000, True),
        ({}, 785_000, True),
        ({}, 787_000, False),
    ],
)
async def test_what_is_put_can_be_pulled_and_what_cannot_be_is_refused(server, given, size, fits):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url, **given) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url, **given) as source,
    ):
        if fits:
            await target.put("app-1", "e-1", bytes(size))
            assert len((await source.pull("app-1", "e-1")).content) == size
            return
        for put in (target.put, source.push):
            with pytest.raises(ConfigError) as raised:
                await put("app-1", "e-1", bytes(size))
            assert raised.value.status_code == 413


async def test_a_request_whose_own_names_fill_a_message_is_answered(server):
    async with cdt.AsyncTarget("cdp", servers=server.url) as _, nats.client(server.url) as bare:
        request = nats.request(endpointMessageId="m" * (1_048_576 - len(nats.request(endpointMessageId=""))))
        reply = await bare.request("kaa.v1.service.cdp.cmx2cdp.ConfigRequest", request, timeout=20)
        answer = json.loads(reply.data)
        assert (answer["statusCode"], answer["correlationId"]) == (413, json.loads(request)["correlationId"])


async def test_a_watch_hands_out_what_has_changed_since_it_did(server):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source,
        source.watch("app-1", "e-1") as watch,
    ):
        first = await target.put("app-1", "e-1", b"1")
        assert (await watch.receive(timeout_s=20)).config_id == first
        await target.put("app-1", "e-1", b"2")
        await target.rollback("app-1", "e-1", first)
        third = await target.put("app-1", "e-1", b"3")
        seen = []
        while not seen or seen[-1] != third:
            seen.append((await watch.receive(timeout_s=20)).config_id)
        assert first not in seen or seen.index(first) > 0


def test_a_push_that_is_not_answered_waits_no_longer_than_it_is_to(server, pair):
    _, source = pair
    server.signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        source.push("app-1", "e-1", b"x", confirm=None, timeout_s=0.2)
    assert time.monotonic() - began < 5
    server.signal(signal.SIGCONT)


def test_a_closed_source_answers_from_no_cache():
    with cdt.Target("cdp", servers="memory://cache") as target:
        source = cdt.Source("cmx", target="cdp", servers="memory://cache", cache=10)
        config_id = target.put("app-1", "e-1", b"1")
        assert source.pull("app-1", "e-1", config_id).content == b"1"
        source.close()
        with pytest.raises(ClosedError):
            source.pull("app-1", "e-1", config_id)


@pytest.mark.parametrize("name", ["a" * 600, "\ud800"])
def test_names_that_no_subject_can_hold(name):
    for make in (
        lambda: cdt.Target(name),
        lambda: cdt.Source("a", target=name),
        lambda: cdt.Target("a", replica_id=name),
    ):
        with pytest.raises(LocalProtocolError):
            make()


def test_a_path_called_memory_is_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with cdt.Target("cdp", servers="memory://path", store=Path(":memory:")) as target:
        target.put("app-1", "e-1", b"1")
    assert not list(tmp_path.iterdir())


async def test_a_first_connection_takes_no_longer_than_it_may():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(PeerLostError, match="no NATS server answers there"):
            await cdt.AsyncSource("cmx", target="cdp", servers=url, connect_timeout_s=0.1).__aenter__()
        # It takes 5 s unless that is said.
        assert time.monotonic() - began < 4
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="connect_timeout_s"):
            cdt.AsyncSource("cmx", target="cdp", connect_timeout_s=wrong)


@pytest.mark.usefixtures("pair")
def test_a_lost_connection_is_logged_in_words_of_ours(server, caplog):
    server.stop(signal.SIGKILL)
    until(lambda: "target: the NATS server closed the connection" in caplog.text)
    until(lambda: "source: the NATS server closed the connection" in caplog.text)
