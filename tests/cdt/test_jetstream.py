"""Configurations in the key-value store of JetStream."""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect

import nats as nats_py
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.kv import KeyValue

from peers import nats
from trunkline import AuthenticationError, ConfigError, LocalProtocolError, PeerLostError, Tls, cdt
from trunkline.cdt.jetstream import JetStreamStore

# Options of a role without a login and without encryption.
PLAIN = {"name": "cdp", **dict.fromkeys(("user", "password", "token", "nkey_seed", "credentials", "tls"))}


@pytest.fixture
def server(tmp_path):
    with nats.server(tmp_path / "nats") as running:
        yield running


class Stored:
    """The store of a target, in whose thread it is called."""

    def __init__(self, target):
        self.keeper = target._keeper
        self.store = self.keeper.access.store

    async def call(self, method, *given, **more):
        return await asyncio.wrap_future(self.keeper.ask(lambda: self.keeper.access.call(method, *given, **more)))


async def test_is_a_store_like_the_others(server):
    names = ("app é.*>", "endpoint 7/:\n")
    async with cdt.AsyncTarget("cdp", servers=server.url, store="jetstream") as target:
        with pytest.raises(ConfigError):
            await target.get(*names)
        first = await target.put(*names, bytes(range(256)), content_type="raw\0type")
        second = await target.put(*names, b"2", if_current=first)
        assert await target.put(*names, b"2") == second
        assert (await target.get(*names)).content == b"2"
        assert await target.get(*names, first) == cdt.Config(first, "raw\0type", bytes(range(256)))
        for given in ({"config_id": second}, {"if_current": first}):
            with pytest.raises(ConfigError) as raised:
                await target.put(*names, b"3", **given)
            assert raised.value.status_code == 409
        assert await target.rollback(*names, first) == first
        with pytest.raises(ConfigError) as raised:
            await target.rollback(*names, "unknown")
        assert raised.value.status_code == 404
        history = await target.history(*names)
        assert [row.config_id for row in history] == [first, second, first]
        assert [row.content_bytes for row in history] == [256, 1, 256]
        assert await target.history("app", "none") == []
        assert [(row.endpoint_id, row.current, row.applied) for row in await target.rollout(names[0])] == [
            (names[1], first, None)
        ]
        assert await target.rollout("none") == []
        assert target.stats.configs == 2


@pytest.mark.req("CDT-05", "CDT-38", "CDT-40")
async def test_replicas_share_it_and_it_survives_them(server):
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        async with (
            cdt.AsyncTarget("cdp", servers=server.url, store="jetstream") as one,
            cdt.AsyncTarget("cdp", servers=server.url, store="jetstream") as two,
        ):
            for number in range(20):
                config_id = await (one, two)[number % 2].put("app-1", "e-1", f"{number}".encode())
                assert (await source.pull("app-1", "e-1")).config_id == config_id
            await source.report_applied("app-1", "e-1", config_id)
            rows = await one.rollout("app-1")
            while rows[0].applied is None:
                await asyncio.sleep(0.005)
                rows = await one.rollout("app-1")
            assert rows[0].applied == config_id
        server.stop()
        server.start()
        async with cdt.AsyncTarget("cdp", servers=server.url, store="jetstream") as again:
            assert (await again.get("app-1", "e-1")).config_id == config_id
            assert (await source.pull("app-1", "e-1", timeout_s=10, retries=2)).config_id == config_id


async def test_what_is_owed_is_told_by_the_next_one(server):
    async with cdt.AsyncTarget("cdp", servers=server.url, store="jetstream") as target:
        config_id = await target.put("app-1", "e-1", b"1")
        store = Stored(target)
        while await store.call("owed"):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.005)
        await store.call("put", "app-1", "e-2", b"2", content_type="t", config_id="v")
        assert await store.call("owed") == [("app-1", "e-2", "v")]
    async with cdt.AsyncSource("cmx", target="cdp", servers=server.url) as source:
        async with cdt.AsyncTarget("cdp", servers=server.url, store="jetstream"):
            event = await source.receive(timeout_s=10)
        assert (event.endpoint_id, event.config_id) == ("e-2", "v")
        assert config_id != "v"


async def test_many_who_put_at_a_time_leave_one_current(server):
    async with (
        cdt.AsyncTarget("cdp", servers=server.url, store="jetstream") as one,
        cdt.AsyncTarget("cdp", servers=server.url, store="jetstream") as two,
    ):
        puts = [(one, two)[number % 2].put("app-1", "e-1", f"{number}".encode()) for number in range(10)]
        ids = await asyncio.gather(*puts)
        history = [row.config_id for row in await one.history("app-1", "e-1")]
        assert sorted(history) == sorted(ids)
        assert (await two.get("app-1", "e-1")).config_id == history[-1]


async def test_where_there_is_none_is_said(tmp_path):
    with pytest.raises(LocalProtocolError, match="has no JetStream"):
        await cdt.AsyncTarget("cdp", servers="memory://no", store="jetstream").__aenter__()
    with nats.server(tmp_path / "nats") as server:
        config = (tmp_path / "nats" / "nats.conf").read_text().splitlines()
        (tmp_path / "nats" / "nats.conf").write_text(config[0])
        server.restart()
        with pytest.raises(PeerLostError, match="is not available"):
            await cdt.AsyncTarget("cdp", servers=server.url, store="jetstream").__aenter__()


async def test_another_configuration_that_is_owed_by_now_is_no_failure(server):
    # Without a target, which would announce it.
    store = JetStreamStore({**PLAIN, "servers": [server.url]}, 10.0)
    await store.open()
    await store.put("app-1", "e-1", b"1", content_type="t", config_id="v")
    bucket = store._owed
    get = bucket.get

    async def overtaken(key):
        entry = await get(key)
        await bucket.put(key, b"w")
        return entry

    bucket.get = overtaken
    await store.announced([("app-1", "e-1", "v")])
    assert await store.owed() == [("app-1", "e-1", "w")]
    await store.close()


async def test_no_login_is_sent_to_a_server_that_does_not_encrypt():
    received = []

    async def serve(reader, writer):
        writer.write(b'INFO {"server_id":"X","version":"2.11.0","max_payload":1048576,"auth_required":true}\r\n')
        while line := await reader.readline():
            received.append(line)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    options = {**PLAIN, "servers": [f"nats://{host}:{port}"], "user": "ada", "password": "word", "tls": Tls()}
    store = JetStreamStore(options, 1.0)
    with pytest.raises((AuthenticationError, PeerLostError)):
        await store.open()
    server.close()
    assert b"word" not in b"".join(received)


async def test_a_connection_that_ended_for_good_is_made_anew(server):
    async with cdt.AsyncTarget("cdp", servers=server.url, store="jetstream") as target:
        config_id = await target.put("app-1", "e-1", b"1")
        store = Stored(target)
        # As nats-py does when a login has expired.
        ending = asyncio.wrap_future(store.keeper.ask(lambda: store.keeper.access._run(store.store._client.close())))
        await ending
        assert (await target.get("app-1", "e-1")).config_id == config_id


def test_nats_py_has_what_the_store_calls():
    """What to look at where another minor of nats-py is tried: the pin of pyproject.toml names the one that was."""
    assert importlib.metadata.version("nats-py").startswith("2.16.")
    login = {"user", "password", "token", "nkeys_seed_str", "user_credentials", "tls"}
    times = {"ping_interval", "max_outstanding_pings", "reconnect_time_wait", "max_reconnect_attempts"}
    calls = {"servers", "name", "error_cb", "disconnected_cb"}
    assert login | times | calls <= inspect.signature(Client.connect).parameters.keys()
    assert inspect.iscoroutinefunction(nats_py.connect)
    assert inspect.iscoroutinefunction(Client.close)
    assert isinstance(Client.is_closed, property)
    assert {"bucket", "history"} <= inspect.signature(api.KeyValueConfig).parameters.keys()
    assert inspect.iscoroutinefunction(JetStreamContext.create_key_value)
    used = {"create": ("key", "value"), "put": ("key", "value"), "get": ("key",), "update": ("key", "value", "last")}
    used |= {"delete": ("key", "last"), "watch": ("keys", "include_history"), "status": ()}
    for method, parameters in used.items():
        function = getattr(KeyValue, method)
        assert inspect.iscoroutinefunction(function), method
        assert set(parameters) <= inspect.signature(function).parameters.keys(), method
    assert {"key", "value", "revision", "operation"} <= KeyValue.Entry.__dataclass_fields__.keys()
    errors = nats_py.js.errors
    for error in (errors.KeyNotFoundError, errors.KeyWrongLastSequenceError, errors.BadRequestError, errors.APIError):
        assert issubclass(error, nats_py.errors.Error), error
