"""Who roles are to a server, and what it lets them do."""

from __future__ import annotations

import nkeys
import pytest

from peers import nats
from trunkline import AuthenticationError, LocalProtocolError, cdt


def seed_and_user():
    """A new key: its seed, and what a server knows it by."""
    import os

    pair = nkeys.from_seed(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    return bytes(pair.seed).decode(), pair.public_key.decode()


async def served(server, **who):
    """Whether a target and a source with these credentials are admitted, and hear each other."""
    async with (
        cdt.AsyncTarget("cdp", servers=server.url, **who) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=server.url, **who) as source,
    ):
        config_id = await target.put("app-1", "e-1", b"{}")
        return (await source.pull("app-1", "e-1")).config_id == config_id


async def test_by_a_token(tmp_path):
    with nats.server(tmp_path, 'authorization { token: "word" }') as server:
        assert await served(server, token="word")
        with pytest.raises(AuthenticationError):
            await served(server, token="other")
        with pytest.raises(AuthenticationError):
            await served(server)


async def test_by_an_nkey(tmp_path):
    seed, user = seed_and_user()
    with nats.server(tmp_path, f"authorization {{ users: [ {{ nkey: {user} }} ] }}") as server:
        assert await served(server, nkey_seed=seed)
        with pytest.raises(AuthenticationError):
            await served(server, nkey_seed=seed_and_user()[0])
        with pytest.raises((AuthenticationError, LocalProtocolError)) as raised:
            await served(server, nkey_seed="SUANOSEED")
        assert "SUANOSEED" not in str(raised.value)


def credentials(path, seed, jwt="e30.e30.e30"):
    """A credentials file as nsc writes it."""
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    return path


async def test_a_file_of_credentials_is_read_even_if_the_server_asks_for_none(tmp_path):
    with nats.server(tmp_path) as server:
        assert await served(server, credentials=credentials(tmp_path / "ada.creds", seed_and_user()[0]))
        with pytest.raises(FileNotFoundError, match=r"none\.creds"):
            await served(server, credentials=tmp_path / "none.creds")
        other = tmp_path / "other.txt"
        other.write_text("x\n")
        with pytest.raises(LocalProtocolError, match=r"other\.txt is not a NATS credentials file"):
            await served(server, credentials=other)


async def test_by_the_url(tmp_path):
    with nats.server(tmp_path, 'authorization { user: "ada", password: "word" }') as server:
        url = server.url.replace("//", "//ada:word@")
        async with cdt.AsyncTarget("cdp", servers=url) as target:
            assert target.endpoints == (server.url,)
            assert "word" not in repr(target)


async def test_memory_has_all_that_a_server_has():
    url = "memory://identities"
    async with (
        cdt.AsyncTarget("cdp", servers=url) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=url) as source,
        cdt.AsyncSource("cmx", target="other", servers=url) as lost,
    ):
        watch = source.watch("app-1", "e-1")
        config_id = await target.put("app-1", "e-1", b"{}")
        assert (await watch.receive(timeout_s=5)).config_id == config_id
        await source.report_applied("app-1", "e-1", config_id)
        assert type(await lost.receive(timeout_s=5)) is cdt.ConfigNewAvailable
        with pytest.raises(Exception, match="no target named other is running"):
            await lost.pull("app-1", "e-1")
    with pytest.raises(LocalProtocolError, match="cannot be combined with others"):
        cdt.Target("cdp", servers=["memory://a", "memory://b"])


@pytest.mark.parametrize("servers", ["nats://127.0.0.1:no", "", [], "nats://[::1"])
async def test_what_is_no_server_is_refused(servers):
    with pytest.raises((LocalProtocolError, OSError)):
        await cdt.AsyncTarget("cdp", servers=servers).__aenter__()


@pytest.mark.parametrize("server", ["", "foo", "http://ada:word@127.0.0.1:4222", "nats://"])
async def test_what_is_no_url_of_a_server_is_not_looked_for(server):
    with pytest.raises(LocalProtocolError, match=r"is not a URL of a NATS server: use nats://HOST:PORT") as raised:
        await cdt.AsyncTarget("cdp", servers=["nats://127.0.0.1:1", server]).__aenter__()
    assert "word" not in str(raised.value)


async def test_a_machine_and_a_port_are_a_server(tmp_path):
    with nats.server(tmp_path) as server:
        async with cdt.AsyncTarget("cdp", servers=server.url.removeprefix("nats://")) as target:
            assert target.endpoints == (server.url,)
