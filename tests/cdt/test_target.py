"""A target over NATS, against a bare client."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from peers import nats
from peers.waiting import until
from trunkline import AuthenticationError, ClosedError, ConfigError, LocalProtocolError, PeerLostError, cdt

REQUESTS = "kaa.v1.service.cdp.cmx2cdp.ConfigRequest"
PUSHES = "kaa.v1.service.cdp.cmx2cdp.ConfigPush"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with nats.server(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
async def bare(server):
    async with nats.client(server.url) as client:
        yield client


async def asked(client, subject, body, reply="_INBOX.test.reply"):
    """Sends a request with a reply subject of our own, and gives the answer as a dict."""
    answers = await client.subscribe(reply)
    await client.publish(subject, body, reply=reply)
    answer = json.loads((await nats.heard(answers)).data)
    await answers.unsubscribe()
    return answer


@pytest.mark.req("CDT-03", "CDT-18", "CDT-19", "CDT-21", "CDT-22", "CDT-23", "CDT-24", "CDT-25", "CDT-26", "CDT-28")
@pytest.mark.parametrize("reply", ["_INBOX.odd.place", "kaa.v1.replica.r7.cmx2cdp.ConfigResponse"])
async def test_answers_requests(server, bare, reply):
    every_byte = bytes(range(256))
    async with cdt.AsyncTarget("cdp", servers=server.url, replica_id="r1") as target:
        first = await target.put("app-1", "e-1", every_byte, content_type="Protocol Buffer")
        latest = await target.put("app-1", "e-1", b"{}", content_type="json")
        now_ms = time.time_ns() // 1_000_000
        answer = await asked(bare, REQUESTS, nats.request(configId=None), reply)
        assert now_ms - 1_000 < answer.pop("timestamp") < now_ms + 10_000
        assert answer == {
            "correlationId": "c-1",
            "timeout": 5000,
            "endpointMessageId": "m-1",
            "appVersionName": "app-1",
            "endpointId": "e-1",
            "contentType": "json",
            "configId": latest,
            "statusCode": 200,
            "reasonPhrase": "OK",
            "content": {"bytes": "e30="},
        }
        exact = await asked(bare, REQUESTS, nats.request(configId=first), reply)
        message = cdt.decode(json.dumps(exact).encode(), "ConfigResponse")
        assert (message.content, message.content_type, message.config_id) == (every_byte, "Protocol Buffer", first)
        empty = await asked(bare, REQUESTS, nats.request(configId=""), reply)
        assert empty["configId"] == latest
        stats = target.stats
    assert (stats.pulls, stats.not_found, stats.configs, stats.received, dict(stats.dropped)) == (
        3,
        0,
        2,
        5,
        {"own_event": 2},
    )


@pytest.mark.req("CDT-30", "CDT-31", "CDT-25")
@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"endpointId": "other"}, 404, "Not Found"),
        ({"appVersionName": "other"}, 404, "Not Found"),
        ({"configId": "other"}, 404, "Not Found"),
        ({"endpointId": ""}, 400, "missing_field: endpointId"),
        ({"timestamp": True}, 400, "bad_type: timestamp"),
        ({"timeout": -2}, 400, "bad_timeout: timeout"),
    ],
)
async def test_answers_errors_with_a_status(server, bare, fields, status, words):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        await target.put("app-1", "e-1", b"{}")
        answer = await asked(bare, REQUESTS, nats.request(**fields))
        assert (answer["statusCode"], answer["reasonPhrase"], answer["contentType"]) == (status, words, "")
        assert "content" not in answer
        assert answer["configId"] == fields.get("configId", "")
        assert answer["correlationId"] == "c-1"
        assert target.stats.not_found == (status == 404)
        assert sum(target.stats.dropped.values()) - target.stats.dropped.get("own_event", 0) == (status == 400)


HOSTILE = {
    "millions of lists": b'{"x": [' + b"[]," * 300_000 + b"0]}",
    "a hundred thousand levels": b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a hundred thousand digits": b'{"timeout": ' + b"9" * 100_000 + b"}",
    "a name for each of many": b"{" + b",".join(b'"%d": 0' % number for number in range(60_000)) + b"}",
    "an end too early": b'{"correlationId": "c-1"',
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_good_requests_are_answered_around_a_hostile_one(server, bare, name):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        await target.put("app-1", "e-1", b"{}")
        for _ in range(2):
            assert (await asked(bare, REQUESTS, nats.request()))["statusCode"] == 200
            assert (await asked(bare, REQUESTS, HOSTILE[name]))["statusCode"] == 400
        dropped = {kind: count for kind, count in target.stats.dropped.items() if kind != "own_event"}
    assert sum(dropped.values()) == 2
    assert dropped.keys() <= {"bad_json", "missing_field"}


@pytest.mark.req("CDT-31", "CDT-50")
async def test_what_cannot_be_read_is_answered_and_counted(server, bare, caplog):
    dropped = []
    async with cdt.AsyncTarget("cdp", servers=server.url, on_drop=dropped.append) as target:
        for body, kind in [
            (b"\xff", "bad_utf8"),
            (b"{", "bad_json"),
            (b"[]", "not_an_object"),
            (b"{}", "missing_field"),
        ]:
            answer = await asked(bare, REQUESTS, body)
            assert (answer["statusCode"], answer["reasonPhrase"].partition(":")[0]) == (400, kind)
            assert answer["correlationId"] == ""
        assert target.stats.dropped == {"bad_utf8": 1, "bad_json": 1, "not_an_object": 1, "missing_field": 1}
    assert [drop.kind for drop in dropped] == ["bad_utf8", "bad_json", "not_an_object", "missing_field"]
    assert dropped[0].error.kind == "bad_utf8"
    assert dropped[0].frames == (b"_INBOX.test.reply", b"", b"\xff")
    await nats.settled(lambda: any(line.endswith(f", to {REQUESTS}") for line in caplog.messages))


@pytest.mark.req("CDT-32", "CDT-33")
async def test_a_request_whose_time_is_over_is_ignored(server, bare):
    long_ago = time.time_ns() // 1_000_000 - 60_000
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        await target.put("app-1", "e-1", b"{}")
        await bare.publish(REQUESTS, nats.request(timestamp=long_ago, timeout=59_000), reply="_INBOX.test.over")
        for timeout in (-1, 0):
            answer = await asked(bare, REQUESTS, nats.request(timestamp=long_ago, timeout=timeout))
            assert answer["statusCode"] == 200
        body = nats.request(timestamp=long_ago).replace(b'"timeout": 5000', b'"timeout": null')
        assert (await asked(bare, REQUESTS, body))["statusCode"] == 200
        assert (target.stats.expired, target.stats.pulls) == (1, 3)
    async with cdt.AsyncTarget("cdp", servers=server.url, clock_skew_ms=2_000) as target:
        await asked(bare, REQUESTS, nats.request(timestamp=long_ago, timeout=59_500))
        assert target.stats.expired == 0


@pytest.mark.req("CDT-37")
async def test_a_request_that_says_nowhere_to_answer_to_is_dropped(server, bare):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        await bare.publish(REQUESTS, nats.request())
        await bare.publish(REQUESTS, b"no json")
        await nats.settled(lambda: target.stats.received == 2)
        assert target.stats.dropped == {"no_reply_to": 1, "bad_json": 1}
        assert (target.stats.sent, target.stats.pulls) == (0, 0)


@pytest.mark.req("CDT-06")
async def test_answers_on_the_subject_of_its_replica(server, bare):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url, replica_id="one") as one,
        cdt.AsyncTarget("cdp", servers=server.url, replica_id="two") as two,
    ):
        answer = await asked(bare, "kaa.v1.replica.two.cmx2cdp.ConfigRequest", nats.request())
        assert answer["statusCode"] == 404
        assert (one.stats.pulls, two.stats.pulls) == (0, 1)


@pytest.mark.req("CDT-05", "CDT-10")
@pytest.mark.parametrize("queue", [True, False])
async def test_replicas_share_requests_in_a_queue_group(server, bare, queue):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url, queue=queue) as one,
        cdt.AsyncTarget("cdp", servers=server.url, queue=queue) as two,
    ):
        answers = await bare.subscribe("_INBOX.test.shared")
        for number in range(100):
            await bare.publish(REQUESTS, nats.request(correlationId=str(number)), reply="_INBOX.test.shared")
        seen = [json.loads((await nats.heard(answers)).data)["correlationId"] for _ in range(100 if queue else 200)]
        assert sorted(map(int, seen)) == sorted([*range(100)] * (1 if queue else 2))
        # How the server shares them out is its own affair.
        assert (one.stats.pulls + two.stats.pulls) == len(seen)


@pytest.mark.req("CDT-07", "CDT-08", "CDT-09", "CDT-38", "CDT-41", "CDT-42", "CDT-45")
@pytest.mark.parametrize("include_content", [False, True])
@pytest.mark.parametrize("wildcard", ["kaa.v1.events.*.endpoint.config.*", "kaa.v1.events.*.endpoint.>", "kaa.v1.>"])
async def test_tells_all_of_a_configuration_once_it_is_stored(server, bare, include_content, wildcard):
    events = await bare.subscribe(wildcard)
    await bare.flush()
    async with cdt.AsyncTarget("cdp", servers=server.url, replica_id="r1", include_content=include_content) as target:
        config_id = await target.put("app-1", "e-1", b"{}", content_type="json")
        message = await nats.heard(events)
        assert message.subject == "kaa.v1.events.cdp.endpoint.config.ConfigNewAvailable"
        event = json.loads(message.data)
        assert event.pop("correlationId")
        assert event.pop("timestamp") == event.pop("eventTimestamp")
        content = {"contentType": "json", "content": {"bytes": "e30="}} if include_content else {}
        assert event == {
            "timeout": -1,
            "originatorReplicaId": "r1",
            "appVersionName": "app-1",
            "endpointId": "e-1",
            "configId": config_id,
            **content,
        }
        assert (await target.get("app-1", "e-1")).config_id == config_id
    with pytest.raises(asyncio.TimeoutError):
        await nats.heard(events, 0.05)


@pytest.mark.req("CDT-38", "CDT-39")
async def test_what_is_pushed_is_stored_then_told_then_confirmed(server, bare):
    everything = await bare.subscribe(">")
    await bare.flush()
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        push = nats.request(contentType="json", content={"bytes": "e30="})
        await bare.publish(PUSHES, push, reply="kaa.v1.replica.r7.cmx2cdp.ConfigPushResponse")
        kinds = []
        while len(kinds) < 3:
            message = await nats.heard(everything)
            if message.subject.startswith("kaa."):
                kinds.append(message.subject.rpartition(".")[2])
        assert kinds == ["ConfigPush", "ConfigNewAvailable", "ConfigPushResponse"]
        answer = json.loads(message.data)
        config = await target.get("app-1", "e-1")
        assert (answer["statusCode"], answer["configId"]) == (201, config.config_id)
        again = await asked(bare, PUSHES, push)
        assert (again["statusCode"], again["configId"]) == (200, config.config_id)
        back = await asked(bare, PUSHES, nats.request(configId=config.config_id))
        assert back["statusCode"] == 200
        unknown = await asked(bare, PUSHES, nats.request(configId="unknown"))
        assert unknown["statusCode"] == 404
        nothing = await asked(bare, PUSHES, nats.request())
        assert nothing["statusCode"] == 400
        named = nats.request(configId=config.config_id, contentType="json", content={"bytes": "e319"})
        assert (await asked(bare, PUSHES, named))["statusCode"] == 409
        assert target.stats.pushes == 6


@pytest.mark.req("CDT-04")
async def test_an_answer_of_another_type_changes_the_last_token(server, bare):
    heard = await bare.subscribe("kaa.v1.replica.r7.cmx2cdp.ConfigPushResponse")
    async with cdt.AsyncTarget("cdp", servers=server.url):
        push = nats.request(contentType="json", content={"bytes": "e30="})
        await bare.publish(PUSHES, push, reply="kaa.v1.replica.r7.cmx2cdp.ConfigResponse")
        assert json.loads((await nats.heard(heard)).data)["statusCode"] == 201


@pytest.mark.req("CDT-31")
async def test_what_no_message_can_hold_is_refused(server, bare):
    class Large(cdt.MemoryStore):
        """A store with a configuration that another program wrote."""

        def get(self, *_):
            return cdt.Config("large", "json", bytes(1 << 20))

    async with cdt.AsyncTarget("cdp", servers=server.url, store=Large()) as target:
        answer = await asked(bare, REQUESTS, nats.request())
        assert (answer["statusCode"], answer["configId"], "content" in answer) == (413, "large", False)
        with pytest.raises(ConfigError) as raised:
            await target.put("app-1", "e-1", bytes(800_000))
        assert raised.value.status_code == 413
        largest = await target.put("app-1", "e-2", bytes(785_000))
        assert largest
    async with cdt.AsyncTarget("cdp", servers=server.url, codec="avro") as target:
        await target.put("app-1", "e-1", bytes(1_047_000))


@pytest.mark.req("CDT-31")
@pytest.mark.parametrize("what", ["raises", "is slow"])
async def test_a_store_that_fails_is_500_and_tells_nothing(server, bare, what):
    class Broken(cdt.MemoryStore):
        """A store that never says anything of use."""

        def get(self, *_):
            if what == "is slow":
                time.sleep(0.5)
            message = "secret"
            raise RuntimeError(message)

    async with cdt.AsyncTarget("cdp", servers=server.url, store=Broken(), store_timeout_s=0.1) as target:
        answer = await asked(bare, REQUESTS, nats.request())
        assert answer["statusCode"] == 500
        assert "secret" not in json.dumps(answer)
        assert target.stats.pulls == 1


@pytest.mark.req("CDT-31")
@pytest.mark.parametrize("overridden", ["in a class", "on one"])
@pytest.mark.parametrize("kind", [cdt.MemoryStore, cdt.SqliteStore])
async def test_a_store_is_asked_at_every_pull(server, bare, kind, overridden, tmp_path):
    pulled = []

    def get(app_version_name, endpoint_id, config_id=None):
        pulled.append(endpoint_id)
        if endpoint_id == "bad":
            message = "secret"
            raise RuntimeError(message)
        return kind.get(store, app_version_name, endpoint_id, config_id)

    class Watched(kind):
        """A store that others look over the shoulder of."""

        def get(self, *given):
            return get(*given)

    where = () if kind is cdt.MemoryStore else (tmp_path / "configs.db",)
    store = Watched(*where) if overridden == "in a class" else kind(*where)
    if overridden == "on one":
        store.get = get
    async with cdt.AsyncTarget("cdp", servers=server.url, store=store) as target:
        await target.put("app-1", "e-1", b"{}")
        endpoints = ["e-1", "e-1", "bad", "e-1"]
        answers = [await asked(bare, REQUESTS, nats.request(endpointId=endpoint)) for endpoint in endpoints]
    assert [answer["statusCode"] for answer in answers] == [200, 200, 500, 200]
    assert pulled == endpoints
    store.close()


async def test_a_slow_store_delays_nobody_else(server, bare):
    is_free = threading.Event()

    class Slow(cdt.MemoryStore):
        """A store that takes its time for one endpoint."""

        def get(self, app_version_name, endpoint_id, config_id=None):
            if endpoint_id == "slow":
                is_free.wait(10)
            return super().get(app_version_name, endpoint_id, config_id)

    store = Slow()
    async with cdt.AsyncTarget("cdp", servers=server.url, store=store) as target:
        await target.put("app-1", "e-1", b"{}")
        slow = await bare.subscribe("_INBOX.test.slow")
        await bare.publish(REQUESTS, nats.request(endpointId="slow"), reply="_INBOX.test.slow")
        assert (await asked(bare, REQUESTS, nats.request()))["statusCode"] == 200
        is_free.set()
        assert json.loads((await nats.heard(slow)).data)["statusCode"] == 404


async def test_a_store_may_be_of_coroutines(server, bare):
    inner = cdt.MemoryStore()

    class Loop:
        """The same for those who have a loop."""

        def __getattr__(self, name):
            method = getattr(inner, name)

            async def called(*given, **more):
                await asyncio.sleep(0)
                return method(*given, **more)

            return called

    async with cdt.AsyncTarget("cdp", servers=server.url, store=Loop()) as target:
        config_id = await target.put("app-1", "e-1", b"{}")
        assert (await asked(bare, REQUESTS, nats.request()))["configId"] == config_id
        assert target.stats.configs == 1


@pytest.mark.req("CDT-08", "CDT-44")
@pytest.mark.parametrize("include_own", [False, True])
async def test_hands_out_events_of_others(server, bare, include_own):
    async with cdt.AsyncTarget("cdp", servers=server.url, replica_id="me", include_own=include_own) as target:
        event = {"correlationId": "c", "eventTimestamp": 5, "appVersionName": "a", "endpointId": "e", "configId": "v"}
        subject = "kaa.v1.events.cmx.endpoint.config.ConfigUpdated"
        await bare.publish(subject, nats.body(**event, originatorReplicaId="me"))
        await bare.publish(subject, nats.body(**event, originatorReplicaId="other"))
        got = [await target.receive(timeout_s=10)]
        if include_own:
            got.append(await target.receive(timeout_s=10))
        assert [one.originator_replica_id for one in got] == (["me", "other"] if include_own else ["other"])
        assert type(got[0]) is cdt.ConfigUpdated
        assert target.stats.dropped == ({} if include_own else {"own_event": 1})
        with pytest.raises(TimeoutError):
            await target.receive(timeout_s=0)


@pytest.mark.req("CDT-41", "CDT-42", "CDT-32")
async def test_events_that_are_none_are_counted(server, bare):
    subject = "kaa.v1.events.cmx.endpoint.config."
    good = {"correlationId": "c", "timestamp": 5, "appVersionName": "a", "endpointId": "e", "configId": "v"}
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        for name in good:
            await bare.publish(subject + "ConfigUpdated", nats.body(**{**good, name: None}))
        await bare.publish(subject + "ConfigUpdated", nats.body(**good, timeout=1))
        await bare.publish(subject + "applied", nats.body(**good))
        await bare.publish(subject + "ConfigUpdated", nats.body(**good))
        event = await target.receive(timeout_s=10)
        assert event.config_id == "v"
        assert target.stats.dropped == {"missing_field": 5, "expired": 1, "unknown_type": 1}


@pytest.mark.req("CDT-10")
async def test_events_may_be_shared_among_replicas(server, bare):
    event = {"correlationId": "c", "timestamp": 5, "appVersionName": "a", "endpointId": "e", "configId": "v"}
    for queue_events in (True, False):
        async with (
            cdt.AsyncTarget("cdp", servers=server.url, queue_events=queue_events) as one,
            cdt.AsyncTarget("cdp", servers=server.url, queue_events=queue_events) as two,
        ):
            for _ in range(100):
                await bare.publish("kaa.v1.events.cmx.endpoint.config.ConfigUpdated", nats.body(**event))
            expected = 100 if queue_events else 200
            await nats.settled(lambda one=one, two=two, least=expected: one.stats.events + two.stats.events >= least)
            assert one.stats.events + two.stats.events == expected


async def test_a_queue_of_events_that_is_full_loses_the_newest(server, bare):
    event = {"correlationId": "c", "timestamp": 5, "appVersionName": "a", "endpointId": "e"}
    async with cdt.AsyncTarget("cdp", servers=server.url, queue_messages=2) as target:
        for number in range(5):
            await bare.publish(
                "kaa.v1.events.cmx.endpoint.config.ConfigUpdated", nats.body(**event, configId=str(number))
            )
        await nats.settled(lambda: target.stats.events == 5)
        assert target.stats.dropped == {"queue_full": 3}
        assert [(await target.receive(timeout_s=0)).config_id for _ in range(2)] == ["0", "1"]


@pytest.mark.req("CDT-40")
async def test_knows_what_endpoints_have_taken_on(server, bare):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        first = await target.put("app-1", "e-1", b"1")
        second = await target.put("app-1", "e-1", b"2")
        other = await target.put("app-1", "e-2", b"1")
        event = {"correlationId": "c", "timestamp": 77, "appVersionName": "app-1", "endpointId": "e-1"}
        for config_id in ("unknown", first):
            subject = "kaa.v1.events.cmx.endpoint.config.ConfigUpdated"
            await bare.publish(subject, nats.body(**event, configId=config_id))
        await target.receive(timeout_s=10)
        await target.receive(timeout_s=10)
        # The store is updated in a thread of its own.
        rows = await target.rollout("app-1")
        while rows[0].applied is None:
            await asyncio.sleep(0.005)
            rows = await target.rollout("app-1")
        since_ms = (await target.history("app-1", "e-2"))[0].since_ms
        assert rows == [cdt.Rollout("e-1", second, first, 77), cdt.Rollout("e-2", other, None, since_ms)]
        assert await target.rollout("other") == []


@pytest.mark.req("CDT-38")
@pytest.mark.parametrize("method", ["put", "rollback"])
async def test_what_is_stored_is_announced_though_nobody_waits_for_it(server, method):
    begun, is_free = threading.Event(), threading.Event()
    store = cdt.MemoryStore()
    stored = store.put("app-1", "e-1", b"1", content_type="t", config_id="v-1")
    store.announced([("app-1", "e-1", "v-1")])
    storing = getattr(store, method)

    def slow(*given, **more):
        begun.set()
        is_free.wait(20)
        return storing(*given, **more)

    setattr(store, method, slow)
    async with (
        cdt.AsyncTarget("cdp", servers=server.url, store=store) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source,
    ):
        given = stored.config.content if method == "put" else "v-1"
        waiting = asyncio.create_task(getattr(target, method)("app-1", "e-1", given))
        await asyncio.to_thread(begun.wait, 20)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        is_free.set()
        config_id = (await source.receive(timeout_s=20)).config_id
        assert config_id == (await target.get("app-1", "e-1")).config_id


@pytest.mark.parametrize(
    ("method", "given"), [("put", ("a", "e", b"x")), ("get", ("a", "e")), ("wait", ()), ("close", ())]
)
async def test_another_loop_is_refused(server, method, given):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        asked = getattr(target, method)(*given)
        with pytest.raises(LocalProtocolError, match="bound to the event loop"):
            await asyncio.to_thread(lambda: asyncio.run(asyncio.wait_for(asked, 20)))
        assert target.stats.configs == 0


async def test_goes_back_to_what_an_endpoint_had(server):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        ids = [await target.put("app-1", "e-1", content) for content in (b"1", b"2", b"1", b"3", b"3")]
        assert ids[0] == ids[2]
        assert await target.rollback("app-1", "e-1", ids[1]) == ids[1]
        history = await target.history("app-1", "e-1")
        assert [row.config_id for row in history] == [ids[0], ids[1], ids[0], ids[3], ids[1]]
        assert (await target.get("app-1", "e-1")).content == b"2"
        assert target.stats.configs == 3
        with pytest.raises(ConfigError) as raised:
            await target.rollback("app-1", "e-1", "unknown")
        assert raised.value.status_code == 404
        for name in ("e-1", "e-9"):
            with pytest.raises(ConfigError) as raised:
                await target.get("app-1", name, "unknown")
            assert raised.value.status_code == 404


async def test_puts_only_if_nobody_was_there_before(server):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        first = await target.put("app-1", "e-1", b"1")
        second = await target.put("app-1", "e-1", b"2", if_current=first)
        for content, given in [(b"3", {"if_current": first}), (b"3", {"config_id": second})]:
            with pytest.raises(ConfigError) as raised:
                await target.put("app-1", "e-1", content, **given)
            assert raised.value.status_code == 409
        assert (await target.get("app-1", "e-1")).config_id == second


async def test_an_id_is_the_hash_of_type_and_content(server):
    import hashlib

    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        config_id = await target.put("app-1", "e-1", b"{}")
        assert config_id == hashlib.sha256(b"application/json\0{}").hexdigest()[:32]
        assert config_id != await target.put("app-1", "e-1", b"{}", content_type="json")
        assert await target.put("app-1", "e-1", b"{}", config_id="mine") == "mine"


@pytest.mark.req("CDT-11")
@pytest.mark.parametrize("name", ["", "a.b", "a*", ">", "a b", "a\t", "a\r\n"])
async def test_names_that_are_no_token_are_refused(server, name):
    for given in ({"name": name}, {"replica_id": name}, {"protocol_token": name}):
        with pytest.raises(LocalProtocolError, match=next(iter(given))):
            cdt.AsyncTarget(given.pop("name", "cdp"), servers=server.url, **given)


@pytest.mark.parametrize("given", [{"app_version_name": ""}, {"endpoint_id": ""}, {"config_id": ""}])
async def test_ids_that_are_empty_are_refused(server, given):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        with pytest.raises(LocalProtocolError, match=next(iter(given))):
            await target.put(**{"app_version_name": "a", "endpoint_id": "e", "content": b"", **given})


@pytest.mark.req("CDT-47")
async def test_logs_what_others_trace_by(server, bare, caplog):
    caplog.set_level(logging.DEBUG, "trunkline.cdt")
    async with cdt.AsyncTarget("cdp", servers=server.url):
        await asked(bare, REQUESTS, nats.request(correlationId="trace-1"))
        await asked(bare, PUSHES, nats.request(correlationId="trace-2", content={"bytes": ""}, contentType="t"))
    until(lambda: "ConfigRequest of trace-1" in caplog.text)
    until(lambda: "ConfigPush of trace-2" in caplog.text)


async def test_finishes_what_it_has_begun_and_refuses_what_it_has_not(server, bare):
    begun, is_free = threading.Event(), threading.Event()

    class Slow(cdt.MemoryStore):
        """A store that takes its time."""

        def get(self, *_):
            begun.set()
            is_free.wait(10)
            return cdt.Config("v", "t", b"x")

    answers = await bare.subscribe("_INBOX.test.end")
    async with cdt.AsyncTarget("cdp", servers=server.url, store=Slow()) as target:
        await bare.publish(REQUESTS, nats.request(correlationId="begun"), reply="_INBOX.test.end")
        await asyncio.to_thread(begun.wait, 10)
        closing = asyncio.create_task(target.close())
        await asyncio.sleep(0)
        await bare.publish(REQUESTS, nats.request(correlationId="late"), reply="_INBOX.test.end")
        first = json.loads((await nats.heard(answers)).data)
        is_free.set()
        second = json.loads((await nats.heard(answers)).data)
        await closing
    assert (first["correlationId"], first["statusCode"]) == ("late", 503)
    assert (second["correlationId"], second["statusCode"]) == ("begun", 200)
    assert target.closed


async def test_is_over_once_it_is_closed(server):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        await target.put("app-1", "e-1", b"{}")
    assert target.stats.configs == 1
    with pytest.raises(ClosedError):
        await target.receive(timeout_s=1)
    assert [event async for event in target] == []


_ASKED = [
    ("put", ("a", "e", b"x")),
    ("get", ("a", "e")),
    ("history", ("a", "e")),
    ("rollback", ("a", "e", "v")),
    ("rollout", ("a",)),
]


@pytest.mark.parametrize("store", [":memory:", "configs.db"])
@pytest.mark.parametrize(("method", "given"), _ASKED)
async def test_its_store_is_not_asked_once_it_is_closed(server, tmp_path, store, method, given):
    store = store if store == ":memory:" else tmp_path / store
    async with cdt.AsyncTarget("cdp", servers=server.url, store=store) as target:
        pass
    with pytest.raises(ClosedError, match="closed"):
        await getattr(target, method)(*given)


@pytest.mark.parametrize("store", [":memory:", "configs.db"])
def test_its_store_is_not_asked_once_it_is_closed_by_those_who_have_no_loop(server, tmp_path, store):
    with cdt.Target("cdp", servers=server.url, store=store if store == ":memory:" else tmp_path / store) as target:
        pass
    for method, given in _ASKED:
        with pytest.raises(ClosedError, match="closed"):
            getattr(target, method)(*given)


def test_what_its_store_is_at_ends_before_it_is_closed(tmp_path, monkeypatch):
    begun, is_closed = threading.Event(), threading.Event()
    history, close = cdt.SqliteStore.history, cdt.SqliteStore.close

    def slow(store, *given):
        begun.set()
        # It is not closed meanwhile.
        assert not is_closed.wait(0.2)
        return history(store, *given)

    def closing(store):
        close(store)
        is_closed.set()

    monkeypatch.setattr(cdt.SqliteStore, "history", slow)
    monkeypatch.setattr(cdt.SqliteStore, "close", closing)
    with ThreadPoolExecutor(1) as threads:
        target = cdt.Target("cdp", servers="memory://busy", store=tmp_path / "configs.db")
        target.put("app-1", "e-1", b"{}")
        asked = threads.submit(target.history, "app-1", "e-1")
        assert begun.wait(10)
        target.close()
        assert len(asked.result(10)) == 1
    assert is_closed.is_set()


def test_blocks_for_those_who_have_no_loop(server):
    with cdt.Target("cdp", servers=server.url) as target:
        config_id = target.put("app-1", "e-1", b"{}")
        assert target.get("app-1", "e-1") == cdt.Config(config_id, "application/json", b"{}")
        assert target.rollback("app-1", "e-1", config_id) == config_id
        assert [row.config_id for row in target.history("app-1", "e-1")] == [config_id]
        assert target.rollout("app-1")[0].current == config_id
        assert target.endpoints == (server.url,)
        assert target.replica_id != "cdp" == target.name
        with pytest.raises(TimeoutError):
            target.receive(timeout_s=0)
    assert list(target) == []


def test_nobody_there_is_one_error_within_seconds():
    begun = time.monotonic()
    with pytest.raises(PeerLostError, match=r"127\.0\.0\.1:1"):
        cdt.Target("cdp", servers="nats://127.0.0.1:1")
    assert time.monotonic() - begun < 20


async def test_who_is_not_let_in_is_told(tmp_path):
    with nats.server(tmp_path, 'authorization { user: "ada", password: "secret" }') as server:
        async with cdt.AsyncTarget("cdp", servers=server.url, user="ada", password="secret"):
            pass
        with pytest.raises(AuthenticationError, match=r"[Aa]uthorization") as raised:
            await cdt.AsyncTarget("cdp", servers=server.url, user="ada", password="wrong-word").__aenter__()
        assert "wrong-word" not in str(raised.value)


async def test_who_may_not_subscribe_is_told(tmp_path):
    permissions = """authorization { users: [
      { user: "ada", password: "x", permissions: { publish: ">", subscribe: "other.>" } } ] }"""
    with nats.server(tmp_path, permissions) as server:
        with pytest.raises(AuthenticationError, match="ermissions"):
            await cdt.AsyncTarget("cdp", servers=server.url, user="ada", password="x").__aenter__()


async def test_what_waits_is_bounded_in_bytes(server, bare, monkeypatch):
    is_free = threading.Event()

    class Slow(cdt.MemoryStore):
        """A store that takes its time."""

        def put(self, *given, **more):
            is_free.wait(10)
            return super().put(*given, **more)

    monkeypatch.setattr("trunkline.cdt._keeper._MOST_HELD", 5_000)
    async with cdt.AsyncTarget("cdp", servers=server.url, store=Slow(), queue_messages=3) as target:
        answers = await bare.subscribe("_INBOX.test.held")
        push = nats.request(contentType="t", content={"bytes": "AAAA" * 1000})
        for _ in range(3):
            await bare.publish(PUSHES, push, reply="_INBOX.test.held")
        statuses = [json.loads((await nats.heard(answers)).data)["statusCode"] for _ in range(2)]
        assert statuses == [503, 503]
        is_free.set()
        assert json.loads((await nats.heard(answers)).data)["statusCode"] == 201
        event = {"correlationId": "c", "timestamp": 5, "appVersionName": "a", "endpointId": "e", "configId": "v"}
        for _ in range(5):
            await bare.publish("kaa.v1.events.cmx.endpoint.config.ConfigUpdated", nats.body(**event))
        await nats.settled(lambda: target.stats.events == 5)
        assert target.stats.dropped["queue_full"] == 2
        for _ in range(3):
            await target.receive(timeout_s=1)
        await bare.publish("kaa.v1.events.cmx.endpoint.config.ConfigUpdated", nats.body(**event))
        assert (await target.receive(timeout_s=10)).config_id == "v"


async def test_each_of_many_requests_is_answered(server, bare):
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        answers = await bare.subscribe("_INBOX.test.many")
        for number in range(500):
            await bare.publish(REQUESTS, nats.request(correlationId=str(number)), reply="_INBOX.test.many")
        seen = {json.loads((await nats.heard(answers)).data)["correlationId"] for _ in range(500)}
        assert len(seen) == 500
        assert target.stats.pulls == 500


async def test_a_store_that_fails_in_passing_costs_nobody_else(server, bare, monkeypatch):
    peek = cdt.MemoryStore.peek

    def broken(store, app_version_name, endpoint_id, config_id=None):
        if endpoint_id == "bad":
            message = "disk I/O error"
            raise OSError(message)
        return peek(store, app_version_name, endpoint_id, config_id)

    monkeypatch.setattr(cdt.MemoryStore, "peek", broken)
    async with cdt.AsyncTarget("cdp", servers=server.url) as target:
        await target.put("app-1", "e-1", b"{}")
        answers = await bare.subscribe("_INBOX.test.mixed")
        for endpoint in ("e-1", "bad", "e-1"):
            await bare.publish(REQUESTS, nats.request(endpointId=endpoint), reply="_INBOX.test.mixed")
        statuses = [json.loads((await nats.heard(answers)).data)["statusCode"] for _ in range(3)]
        assert sorted(statuses) == [200, 200, 500]
