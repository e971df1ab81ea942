"""Servers with TLS: which ones roles trust, and how they report others."""

from __future__ import annotations

import ssl
import subprocess
import sys

import pytest
import trustme

from peers import nats
from trunkline import AuthenticationError, LocalProtocolError, Tls, cdt


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def certified(authority, tmp_path_factory):
    """What a configuration says of a certificate of the authority."""
    directory = tmp_path_factory.mktemp("certificates")
    identity = authority.issue_cert("127.0.0.1")
    identity.private_key_pem.write_to_path(directory / "key.pem")
    identity.cert_chain_pems[0].write_to_path(directory / "cert.pem")
    return f'tls {{ cert_file: "{directory / "cert.pem"}", key_file: "{directory / "key.pem"}" }}'


@pytest.fixture(scope="module")
def server(certified, tmp_path_factory):
    with nats.server(tmp_path_factory.mktemp("nats"), certified) as running:
        yield running


@pytest.fixture
def believing(tmp_path):
    """Who believes one authority."""

    def tls(authority):
        path = tmp_path / f"{id(authority)}.pem"
        authority.cert_pem.write_to_path(path)
        return Tls(ca=path)

    return tls


async def exchanged(url, **options):
    async with (
        cdt.AsyncTarget("cdp", servers=url, **options) as target,
        cdt.AsyncSource("cmx", target="cdp", servers=url, **options) as source,
    ):
        config_id = await source.push("app-1", "e-1", b"{}", content_type="application/json")
        response = await source.pull("app-1", "e-1")
        assert (response.config_id, response.content) == (config_id, b"{}")
        return target.endpoints


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_roles_that_believe_its_authority_connect(believing, server, authority, scheme):
    url = server.url.replace("nats:", f"{scheme}:")
    assert await exchanged(url, tls=believing(authority)) == (url,)


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_other_authorities_are_not_believed(believing, server, scheme):
    url = server.url.replace("nats:", f"{scheme}:")
    for options in ({}, {"tls": believing(trustme.CA())}):
        with pytest.raises(AuthenticationError, match=r"its certificate is not trusted.*: give tls= a trunkline\.Tls"):
            await exchanged(url, **options)


async def test_a_certificate_of_another_host_is_not_believed(believing, server, authority):
    with pytest.raises(AuthenticationError, match="localhost"):
        await exchanged(server.url.replace("127.0.0.1", "localhost"), tls=believing(authority))


async def test_who_encrypts_says_nothing_to_a_server_that_does_not(believing, authority, tmp_path):
    with nats.server(tmp_path, 'authorization { user: "ada", password: "word" }') as plain:
        who = {"user": "ada", "password": "word"}
        for url, options in ((plain.url, {"tls": believing(authority)}), (plain.url.replace("nats:", "tls:"), {})):
            with pytest.raises(AuthenticationError, match="the server does not encrypt: set up TLS there"):
                await exchanged(url, **who, **options)
        assert await exchanged(plain.url, **who) == (plain.url,)


async def test_a_server_that_may_encrypt_does(believing, authority, certified, tmp_path):
    with nats.server(tmp_path, certified, "allow_non_tls: true") as both:
        assert await exchanged(both.url) == (both.url,)
        assert await exchanged(both.url, tls=believing(authority)) == (both.url,)
        with pytest.raises(AuthenticationError, match="its certificate is not trusted"):
            await exchanged(both.url, tls=believing(trustme.CA()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (ssl.create_default_context(), "an ssl.SSLContext cannot be used: give a trunkline.Tls"),
        (Tls(ca="/nowhere.pem"), "ca: /nowhere.pem"),
    ],
)
def test_other_means_of_trust_are_refused_in_words(given, said):
    with pytest.raises(LocalProtocolError, match=said):
        cdt.Source("cmx", target="cdp", tls=given)


async def test_a_lost_connection_is_encrypted_again(believing, authority, certified, tmp_path):
    with nats.server(tmp_path, certified) as server:
        options = {"servers": server.url, "tls": believing(authority)}
        async with (
            cdt.AsyncTarget("cdp", **options) as target,
            cdt.AsyncSource("cmx", target="cdp", **options) as source,
        ):
            watch = source.watch("app-1", "e-1")
            server.restart()
            config_id = await target.put("app-1", "e-1", b"{}")
            assert (await watch.receive(timeout_s=20)).config_id == config_id


@pytest.mark.parametrize(
    ("is_ours", "said"), [(True, "no target named cdp is running"), (False, "its certificate is not trusted")]
)
def test_commands_take_a_file_of_authorities(server, authority, tmp_path, is_ours, said):
    (authority if is_ours else trustme.CA()).cert_pem.write_to_path(tmp_path / "ca.pem")
    pull = [
        "cdt",
        "pull",
        "app-1",
        "e-1",
        "--target",
        "cdp",
        "--nats",
        server.url,
        "--tls-ca",
        str(tmp_path / "ca.pem"),
    ]
    ended = subprocess.run([sys.executable, "-m", "trunkline", *pull], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
