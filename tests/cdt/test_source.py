"""A source over NATS, against a bare client that plays the target."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter

import pytest

from peers import nats
from peers.waiting import until
from trunkline import ClosedError, ConfigError, LocalProtocolError, PeerLostError, cdt

REQUESTS = "kaa.v1.service.cdp.cmx2cdp.ConfigRequest"
PUSHES = "kaa.v1.service.cdp.cmx2cdp.ConfigPush"
NEW = "kaa.v1.events.cdp.endpoint.config.ConfigNewAvailable"
UPDATED = "kaa.v1.events.cmx.endpoint.config.ConfigUpdated"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with nats.server(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
async def bare(server):
    async with nats.client(server.url) as client:
        yield client


def answer(request: bytes, **fields: object) -> bytes:
    """The body of an answer to a request that nothing is wrong with, but for what is given."""
    asked = json.loads(request)
    good = {
        "correlationId": asked["correlationId"],
        "timestamp": time.time_ns() // 1_000_000,
        "timeout": asked["timeout"],
        "endpointMessageId": asked["endpointMessageId"],
        "appVersionName": asked["appVersionName"],
        "endpointId": asked["endpointId"],
        "contentType": "json",
        "configId": "v-1",
        "statusCode": 200,
        "content": {"bytes": "e30="},
    }
    return nats.body(**{**good, **fields})


def event(**fields: object) -> bytes:
    good = {"correlationId": "c", "timestamp": 5, "appVersionName": "app-1", "endpointId": "e-1", "configId": "v-1"}
    return nats.body(**{**good, **fields})


@pytest.mark.req("CDT-01", "CDT-02", "CDT-12", "CDT-13", "CDT-14", "CDT-15", "CDT-16", "CDT-17", "CDT-18", "CDT-46")
async def test_asks_as_the_specification_has_it(server, bare):
    requests = await bare.subscribe("kaa.v1.>")
    await bare.flush()
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url, replica_id="r7") as source:
        now_ms = time.time_ns() // 1_000_000
        pull = asyncio.create_task(source.pull("app-1", "e-1", endpoint_message_id="m-1", timeout_s=2.5))
        message = await nats.heard(requests)
        assert (message.subject, message.reply) == (REQUESTS, "kaa.v1.replica.r7.cmx2cdp.ConfigResponse")
        request = json.loads(message.data)
        assert now_ms - 1_000 < request.pop("timestamp") < now_ms + 10_000
        assert request.pop("correlationId")
        assert request == {
            "timeout": 2500,
            "endpointMessageId": "m-1",
            "appVersionName": "app-1",
            "endpointId": "e-1",
        }
        await bare.publish(message.reply, answer(message.data))
        response = await pull
        assert (response.content, response.content_type, response.config_id) == (b"{}", "json", "v-1")
        assert (response.status_code, response.reason_phrase) == (200, None)
        exact = asyncio.create_task(source.pull("app-1", "e-1", "v-0", timeout_s=None))
        # What goes back to the source is heard here as well.
        await nats.heard(requests)
        message = await nats.heard(requests)
        asked = json.loads(message.data)
        assert (asked["configId"], asked["timeout"]) == ("v-0", -1)
        assert asked["endpointMessageId"]
        await bare.publish(message.reply, answer(message.data, configId="v-0"))
        assert (await exact).config_id == "v-0"


@pytest.mark.req("CDT-30", "CDT-31")
@pytest.mark.parametrize(("status", "reason"), [(404, "Not Found"), (500, None), (304, "Not Modified"), (503, "ends")])
async def test_an_answer_that_is_none_of_2xx_is_an_error(server, bare, status, reason):
    requests = await bare.subscribe(REQUESTS)
    await bare.flush()
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        pull = asyncio.create_task(source.pull("app-1", "e-1"))
        message = await nats.heard(requests)
        await bare.publish(message.reply, answer(message.data, statusCode=status, reasonPhrase=reason, content=None))
        with pytest.raises(ConfigError) as raised:
            await pull
        assert (raised.value.status_code, raised.value.reason_phrase) == (status, reason or "")


@pytest.mark.req("CDT-35")
async def test_where_nobody_serves_the_target_a_pull_fails_at_once(server):
    async with cdt.AsyncSource("cmx", target="nobody", servers=server.url) as source:
        begun = time.monotonic()
        pulls = [source.pull("app-1", f"e-{number}", timeout_s=30, retries=3) for number in range(10)]
        outcomes = await asyncio.gather(*pulls, source.push("app-1", "e", b"x", timeout_s=30), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [PeerLostError] * 11
        assert time.monotonic() - begun < 5
        assert source.stats.retries == 0
        assert not source.stats.dropped


@pytest.mark.req("CDT-34")
async def test_asks_again_where_no_answer_comes(server, bare):
    requests = await bare.subscribe(REQUESTS)
    await bare.flush()
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        pull = asyncio.create_task(source.pull("app-1", "e-1", timeout_s=0.2, retries=1))
        first, second = [await nats.heard(requests) for _ in range(2)]
        one, two = json.loads(first.data), json.loads(second.data)
        assert one["endpointMessageId"] == two["endpointMessageId"]
        assert two["timestamp"] >= one["timestamp"] + 200
        await bare.publish(second.reply, answer(second.data))
        assert (await pull).config_id == "v-1"
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"did not answer within 0.05 s"):
            await source.pull("app-1", "e-1", timeout_s=0.05)
        assert 0.05 <= time.monotonic() - begun < 5
        assert (source.stats.retries, source.stats.pulls, source.stats.waiting) == (1, 2, 0)


@pytest.mark.req("CDT-21", "CDT-36")
async def test_answers_that_are_none_disturb_nobody(server, bare):
    async def serve():
        held = []
        async for message in requests.messages:
            held.append(message)
            reply = message.reply
            await bare.publish(reply, b"no json")
            await bare.publish(reply, answer(message.data, correlationId="of somebody else"))
            await bare.publish(reply, answer(message.data, timestamp=5, timeout=1))
            if len(held) == 100:
                # In another order than they came in, and each twice.
                for one in reversed(held):
                    endpoint = json.loads(one.data)["endpointId"]
                    for _ in range(2):
                        await bare.publish(one.reply, answer(one.data, configId=f"of {endpoint}"))

    requests = await bare.subscribe(REQUESTS)
    await bare.flush()
    serving = asyncio.create_task(serve())
    dropped = []
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url, on_drop=dropped.append) as source:
        responses = await asyncio.gather(*(source.pull("app-1", f"e-{number}") for number in range(100)))
        assert [response.config_id for response in responses] == [f"of e-{number}" for number in range(100)]
        await nats.settled(lambda: source.stats.received == 500)
        expected = {"bad_json": 100, "unknown_correlation": 100, "expired": 100, "late": 100}
        assert source.stats.dropped == expected
        assert source.stats.expired == 100
    assert len(dropped) == 400
    serving.cancel()


async def test_one_that_comes_after_its_time_is_late(server, bare):
    requests = await bare.subscribe(REQUESTS)
    await bare.flush()
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        with pytest.raises(TimeoutError):
            await source.pull("app-1", "e-1", timeout_s=0.02)
        message = await nats.heard(requests)
        await bare.publish(message.reply, answer(message.data, timeout=-1))
        await nats.settled(lambda: source.stats.received == 1)
        assert source.stats.dropped == {"late": 1}


@pytest.mark.req("CDT-39")
async def test_a_push_is_confirmed_by_the_target(server, bare):
    requests = await bare.subscribe(PUSHES)
    await bare.flush()
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url, replica_id="r7") as source:
        push = asyncio.create_task(source.push("app-1", "e-1", b"{}", content_type="json"))
        message = await nats.heard(requests)
        assert message.reply == "kaa.v1.replica.r7.cmx2cdp.ConfigPushResponse"
        asked = json.loads(message.data)
        assert (asked["contentType"], asked["content"], asked.get("configId")) == ("json", {"bytes": "e30="}, None)
        confirmed = answer(message.data, statusCode=201, content=None, contentType=None)
        await bare.publish(message.reply, confirmed)
        assert await push == "v-1"
        push = asyncio.create_task(source.push("app-1", "e-1", b"{}", config_id="v-2"))
        message = await nats.heard(requests)
        await bare.publish(message.reply, answer(message.data, statusCode=409, reasonPhrase="another"))
        with pytest.raises(ConfigError) as raised:
            await push
        assert raised.value.status_code == 409
        with pytest.raises(TimeoutError):
            await source.push("app-1", "e-1", b"{}", timeout_s=0.02)
        back = asyncio.create_task(source.rollback("app-1", "e-1", "v-1"))
        await nats.heard(requests)
        message = await nats.heard(requests)
        assert "content" not in json.loads(message.data)
        await bare.publish(message.reply, answer(message.data, content=None, contentType=None))
        assert await back == "v-1"


@pytest.mark.req("CDT-39")
@pytest.mark.parametrize("told_first", [False, True])
async def test_a_push_may_wait_for_the_endpoint(server, bare, told_first):
    requests = await bare.subscribe(PUSHES)
    await bare.flush()
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        push = asyncio.create_task(source.push("app-1", "e-1", b"{}", confirm="applied", timeout_s=20))
        message = await nats.heard(requests)
        confirmed = answer(message.data, statusCode=201, content=None, contentType=None)
        others = [event(configId="v-0"), event(endpointId="e-2"), event(appVersionName="app-2")]
        for one in others:
            await bare.publish(UPDATED, one)
        if told_first:
            await bare.publish(UPDATED, event())
            await bare.publish(message.reply, confirmed)
        else:
            await bare.publish(message.reply, confirmed)
            await nats.settled(lambda: source.stats.received == 4)
            assert not push.done()
            await bare.publish(UPDATED, event())
        assert await push == "v-1"


@pytest.mark.req("CDT-39")
async def test_what_nobody_applies_in_time_is_said_to_be_stored(server, bare):
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        async with cdt.AsyncTarget("cdp", servers=server.url) as target:
            with pytest.raises(
                TimeoutError, match=r"is stored as \w+, but nobody reported it applied within 1 s"
            ) as raised:
                await source.push("app-1", "e-1", b"{}", confirm="applied", timeout_s=1)
            config_id = (await target.get("app-1", "e-1")).config_id
            assert config_id in str(raised.value)
            with pytest.raises(TimeoutError, match=f"is stored as {config_id}, but nobody"):
                await source.rollback("app-1", "e-1", config_id, confirm="applied", timeout_s=1)
        # A subscriber that does not answer may have stored it.
        await bare.subscribe(PUSHES)
        await bare.flush()
        with pytest.raises(TimeoutError, match=r"may be stored as v-2, but nobody"):
            await source.push("app-1", "e-1", b"{}", config_id="v-2", confirm="applied", timeout_s=0.05)


async def test_a_push_that_waits_for_nothing_has_no_reply_subject(server, bare):
    requests = await bare.subscribe(PUSHES)
    await bare.flush()
    async with (
        cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source,
        cdt.AsyncTarget("cdp", servers=server.url) as target,
    ):
        config_id = await source.push("app-1", "e-1", b"{}", confirm=None)
        assert not (await nats.heard(requests)).reply
        await nats.settled(lambda: target.stats.configs == 1)
        assert (await target.get("app-1", "e-1")).config_id == config_id
        assert source.stats.waiting == 0


@pytest.mark.req("CDT-08", "CDT-40", "CDT-41", "CDT-42")
async def test_tells_what_endpoints_have_taken_on(server, bare):
    events = await bare.subscribe("kaa.v1.events.>")
    await bare.flush()
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url, replica_id="r7") as source:
        await source.report_applied("app-1", "e-1", "v-1")
        message = await nats.heard(events)
        assert message.subject == UPDATED
        said = json.loads(message.data)
        assert said.pop("correlationId")
        assert said.pop("timestamp") == said.pop("eventTimestamp")
        assert said == {
            "timeout": -1,
            "originatorReplicaId": "r7",
            "appVersionName": "app-1",
            "endpointId": "e-1",
            "configId": "v-1",
        }


@pytest.mark.req("CDT-08", "CDT-43", "CDT-44")
async def test_hands_out_events_of_others(server, bare):
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url, replica_id="r7") as source:
        await bare.publish(NEW, event(timestamp=None, eventTimestamp=7))
        await bare.publish(UPDATED, event(originatorReplicaId="r7"))
        await bare.publish(UPDATED, event())
        got = [await source.receive(timeout_s=10) for _ in range(2)]
        assert [type(one).__name__ for one in got] == ["ConfigNewAvailable", "ConfigUpdated"]
        assert got[0].timestamp_ms == 7
        assert source.stats.dropped == {"own_event": 1}


@pytest.mark.req("CDT-49")
async def test_a_watch_has_what_there_is_and_then_each_change(server):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source,
    ):
        async with source.watch("app-1", "e-1") as watch:
            with pytest.raises(TimeoutError):
                await watch.receive(timeout_s=0.05)
            await target.put("app-1", "e-1", b"1")
            assert (await watch.receive(timeout_s=10)).content == b"1"
            await target.put("app-1", "e-1", b"1")
            await target.put("app-1", "other", b"7")
            await target.put("app-1", "e-1", b"2")
            assert (await watch.receive(timeout_s=10)).content == b"2"
            with pytest.raises(TimeoutError):
                await watch.receive(timeout_s=0.05)
        with pytest.raises(ClosedError):
            await watch.receive(timeout_s=10)
        async for response in source.watch("app-1", "e-1"):
            assert response.content == b"2"
            break


async def test_those_who_share_a_watch_have_each_change_once(server):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source,
        source.watch("app-1", "e-1") as watch,
    ):
        waiting = {asyncio.create_task(watch.receive(timeout_s=20)) for _ in range(2)}
        for content in (b"1", b"2"):
            await target.put("app-1", "e-1", content)
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result().content for task in done] == [content]


async def test_what_a_watch_has_is_handed_out_without_waiting(server):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source,
        source.watch("app-1", "e-1") as watch,
    ):
        await target.put("app-1", "e-1", b"1")
        async with asyncio.timeout(20):
            while True:
                try:
                    response = await watch.receive(timeout_s=0)
                except TimeoutError:
                    await asyncio.sleep(0.005)
                else:
                    break
        assert response.content == b"1"


def test_a_watch_that_nobody_has_asks_for_nothing():
    pulled = Counter()

    class Counting(cdt.MemoryStore):
        """A store that counts what is asked of it."""

        def get(self, app_version_name, endpoint_id, config_id=None):
            pulled[endpoint_id] += 1
            return super().get(app_version_name, endpoint_id, config_id)

    url = "memory://left"
    with (
        cdt.Target("cdp", servers=url, store=Counting()) as target,
        cdt.Source("cmx", target="cdp", servers=url, resync_s=0.02) as source,
        source.watch("app-1", "other"),
    ):
        target.put("app-1", "e-1", b"1")
        for response in source.watch("app-1", "e-1"):
            assert response.content == b"1"
            break
        # Whatever it had asked for is answered before this.
        source.pull("app-1", "e-1")
        before = Counter(pulled)
        until(lambda: pulled["other"] >= before["other"] + 5)
        assert pulled["e-1"] == before["e-1"]


@pytest.mark.req("CDT-49")
async def test_a_watch_survives_restarts_of_target_and_server(tmp_path):
    with nats.server(tmp_path / "nats") as server:
        store = tmp_path / "configs.db"
        async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
            watch = source.watch("app-1", "e-1")
            with pytest.raises(TimeoutError):
                await watch.receive(timeout_s=0.02)
            for number in range(3):
                async with cdt.AsyncTarget("cdp", servers=server.url, store=store) as target:
                    await target.put("app-1", "e-1", f"a {number}".encode())
                    assert (await watch.receive(timeout_s=20)).content == f"a {number}".encode()
                    server.stop()
                    # A put is durable, with or without subscribers.
                    config_id = await target.put("app-1", "e-1", f"b {number}".encode())
                    server.start()
                    assert (await watch.receive(timeout_s=20)).config_id == config_id
            assert source.stats.expired == 0


async def test_remembers_what_was_asked_for_by_its_id(server):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url, cache=2) as source,
    ):
        ids = [await target.put("app-1", "e-1", content) for content in (b"1", b"2", b"3")]
        for config_id in (ids[0], ids[0], ids[1], ids[2], ids[0]):
            assert (await source.pull("app-1", "e-1", config_id)).config_id == config_id
        assert source.stats.pulls == 4
        for _ in range(2):
            assert (await source.pull("app-1", "e-1")).config_id == ids[2]
        assert source.stats.pulls == 6


async def test_a_thousand_pulls_are_under_way_at_a_time(server):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source,
    ):
        for number in range(10):
            await target.put("app-1", f"e-{number}", f"{number}".encode())
        pulls = [source.pull("app-1", f"e-{number % 10}") for number in range(1000)]
        for number, response in enumerate(await asyncio.gather(*pulls)):
            assert response.content == f"{number % 10}".encode()
        assert (target.stats.pulls, source.stats.received) == (1000, 1010)


async def test_one_who_does_not_wait_any_more_costs_nothing(server, bare):
    requests = await bare.subscribe(REQUESTS)
    await bare.flush()
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        pull = asyncio.create_task(source.pull("app-1", "e-1", timeout_s=None))
        message = await nats.heard(requests)
        pull.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pull
        await nats.settled(lambda: source.stats.waiting == 0)
        await bare.publish(message.reply, answer(message.data))
        await nats.settled(lambda: source.stats.received == 1)
        assert source.stats.dropped == {"late": 1}


async def test_what_waits_ends_with_the_source(server, bare):
    await bare.subscribe(REQUESTS)
    await bare.flush()
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        pull = asyncio.create_task(source.pull("app-1", "e-1", timeout_s=None))
        watch = source.watch("app-1", "e-1")
        watching = asyncio.create_task(watch.receive())
        await nats.settled(lambda: source.stats.sent == 2)
        await source.close(drain_s=0.05)
        for waiting in (pull, watching):
            with pytest.raises(ClosedError):
                await waiting
    with pytest.raises(ClosedError):
        await source.pull("app-1", "e-1")


async def test_a_close_that_is_cut_off_is_finished(server, bare):
    requests = await bare.subscribe(REQUESTS)
    await bare.flush()
    before = asyncio.all_tasks()
    source = await cdt.AsyncSource("cmx", target="cdp", servers=server.url).__aenter__()
    pull = asyncio.create_task(source.pull("app-1", "e-1", timeout_s=None))
    await nats.heard(requests)
    closing = asyncio.create_task(source.close(drain_s=1000))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await source.close(drain_s=1000)
    with pytest.raises(ClosedError):
        await pull
    # Those of its connection are gone.
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("timeout_s", [0, -0.0])
async def test_no_time_is_a_timeout_and_nothing_is_sent(server, timeout_s):
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        for wait in (source.pull("a", "e", timeout_s=timeout_s), source.push("a", "e", b"", timeout_s=timeout_s)):
            with pytest.raises(TimeoutError):
                await wait
        assert source.stats.sent == 0


async def test_what_is_larger_than_a_message_is_refused(server):
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        with pytest.raises(ConfigError) as raised:
            await source.push("app-1", "e-1", bytes(1 << 20))
        assert raised.value.status_code == 413
        assert source.stats.sent == 0
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url, max_content_bytes=5) as source:
        with pytest.raises(ConfigError, match="5 is the limit"):
            await source.push("app-1", "e-1", b"123456")


@pytest.mark.req("CDT-11")
@pytest.mark.parametrize("given", [{"name": "a.b"}, {"target": "*"}, {"prefix": "kaa..v1"}, {"replica_id": "a b"}])
async def test_names_that_are_no_token_are_refused(server, given):
    named = {"name": "cmx", "target": "cdp", **given}
    with pytest.raises(LocalProtocolError, match=next(iter(given))):
        cdt.AsyncSource(named.pop("name"), servers=server.url, **named)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda source: source.pull("", "e"), LocalProtocolError),
        (lambda source: source.pull("a", ""), LocalProtocolError),
        (lambda source: source.pull("a", b"e"), TypeError),
        (lambda source: source.pull("a", "e", timeout_s="1"), TypeError),
        (lambda source: source.push("a", "e", "text"), TypeError),
        (lambda source: source.push("a", "e", b"", confirm="read"), LocalProtocolError),
        (lambda source: source.report_applied("a", "e", ""), LocalProtocolError),
    ],
)
async def test_arguments_are_looked_at_before_anything_is_sent(server, call, error):
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        with pytest.raises(error):
            await call(source)
        assert source.stats.sent == 0


@pytest.mark.req("CDT-47")
async def test_logs_what_others_trace_by(server, bare, caplog):
    caplog.set_level(logging.DEBUG, "trunkline.cdt")
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        await bare.publish(NEW, event(correlationId="trace-1"))
        await source.receive(timeout_s=10)
    until(lambda: "ConfigNewAvailable of trace-1" in caplog.text)


@pytest.mark.req("CDT-50")
async def test_no_message_of_nats_makes_it_deaf(server):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url, replica_id="r7") as source,
    ):
        await target.put("app-1", "e-1", b"{}")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
        subjects = [REQUESTS.encode(), b"kaa.v1.replica.r7.cmx2cdp.ConfigResponse", NEW.encode()]
        for subject in subjects:
            for block in (b"XX", b"NATS/1.0", b"NATS/1.0 \xff\r\n\r\n", b"NATS/1.0\r\n:\r\n\r\n", b"\r\n\r\n"):
                body = block + b"{}"
                writer.write(b"HPUB %b %d %d\r\n%b\r\n" % (subject, len(block), len(body), body))
            writer.write(b"PUB %b \xff\xfe 2\r\n{}\r\n" % subject)
        writer.write(b"PUB kaa.v1.events.\xff.endpoint.config.ConfigUpdated 2\r\n{}\r\nPING\r\n")
        await writer.drain()
        await reader.readuntil(b"PONG\r\n")
        writer.close()
        assert (await source.pull("app-1", "e-1")).content == b"{}"
        assert sum(target.stats.dropped.values()) >= 6
        assert sum(source.stats.dropped.values()) >= 6


def test_blocks_for_those_who_have_no_loop(server):
    with (
        cdt.Target("cdp", servers=server.url) as target,
        cdt.Source("cmx", target="cdp", servers=server.url) as source,
    ):
        config_id = source.push("app-1", "e-1", b"{}")
        assert next(source).config_id == config_id
        assert source.pull("app-1", "e-1").content == b"{}"
        with source.watch("app-1", "e-1") as watch:
            assert next(watch).config_id == config_id
            source.report_applied("app-1", "e-1", config_id)
            target.put("app-1", "e-1", b"2")
            assert watch.receive(timeout_s=10).content == b"2"
        assert source.rollback("app-1", "e-1", config_id) == config_id
        assert list(watch) == []
    assert source.closed


async def test_what_the_server_forbids_is_an_error(tmp_path):
    permissions = """authorization { users: [
      { user: "all", password: "x" },
      { user: "ada", password: "x", permissions: { publish: "kaa.v1.events.>", subscribe: ">" } } ] }"""
    with nats.server(tmp_path, permissions) as server:
        from trunkline import AuthenticationError

        async with cdt.AsyncSource("cmx", target="cdp", servers=server.url, user="ada", password="x") as source:
            begun = time.monotonic()
            with pytest.raises(AuthenticationError, match="ermissions"):
                await source.pull("app-1", "e-1", timeout_s=30)
            assert time.monotonic() - begun < 10


async def test_another_loop_is_refused(server):
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        watch = source.watch("app-1", "e-1")
        with pytest.raises(TimeoutError):
            await watch.receive(timeout_s=0)
        for call in (lambda: source.pull("app-1", "e-1"), source.receive, watch.receive, watch.close, source.close):
            with pytest.raises(LocalProtocolError, match="bound to the event loop"):
                await asyncio.to_thread(lambda call=call: asyncio.run(asyncio.wait_for(call(), 20)))
        assert not source.closed
    # There is nothing left to do in any loop.
    await asyncio.to_thread(lambda: asyncio.run(source.close()))


def test_a_callback_may_ask(server):
    seen = []

    def on_drop(_):
        try:
            source.pull("app-1", "e-1", timeout_s=20)
        except PeerLostError as error:
            seen.append(str(error))

    with cdt.Source("cmx", target="cdp", servers=server.url, on_drop=on_drop, replica_id="r9") as source:

        async def send():
            async with nats.client(server.url) as client:
                await client.publish("kaa.v1.replica.r9.cmx2cdp.ConfigResponse", b"no json")

        asyncio.run(send())
        until(lambda: seen)
        assert "no target named cdp" in seen[0]


async def test_what_is_forbidden_ends_those_who_asked_for_it_alone(tmp_path):
    permissions = """authorization { users: [
      { user: "all", password: "x" },
      { user: "ada", password: "x", permissions: { publish: { deny: "kaa.v1.events.>" }, subscribe: ">" } } ] }"""
    with nats.server(tmp_path, permissions) as locked:
        from trunkline import AuthenticationError

        async with (
            nats.client(locked.url, user="all", password="x") as bare,
            cdt.AsyncSource("cmx", target="cdp", servers=locked.url, user="ada", password="x") as source,
        ):
            requests = await bare.subscribe(REQUESTS)
            await bare.flush()
            pull = asyncio.create_task(source.pull("app-1", "e-1", timeout_s=30))
            message = await nats.heard(requests)
            with pytest.raises(AuthenticationError):
                await source.report_applied("app-1", "e-1", "v")
            await bare.publish(message.reply, answer(message.data))
            assert (await pull).config_id == "v-1"


async def test_events_may_be_left_alone(server, bare):
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url, queue_messages=0) as source:
        await bare.publish(NEW, event())
        await nats.settled(lambda: source.stats.events == 1)
        assert not source.stats.dropped
        with pytest.raises(TimeoutError):
            await source.receive(timeout_s=0)


@pytest.mark.parametrize("role", ["Source", "Target"])
async def test_a_closed_role_says_which_it_is(server, role):
    given = {
        "Source": {"name": "cmx", "target": "cdp"},
        "Target": {"name": "cdp", "store": cdt.MemoryStore()},
    }[role]
    async with getattr(cdt, f"Async{role}")(**given, servers=server.url) as twin:
        pass
    with pytest.raises(ClosedError, match=rf"^this cdt\.{role} is closed$"):
        await twin.receive()
    opened = await asyncio.to_thread(lambda: getattr(cdt, role)(**given, servers=server.url))
    await asyncio.to_thread(opened.close)
    with pytest.raises(ClosedError, match=rf"^this cdt\.{role} is closed$"):
        await asyncio.to_thread(opened.receive)
