"""Logins as the client sees them; the server is scramp, ours, or bytes."""

import functools
import hashlib

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

import trunkline
from trunkline import AuthenticationError, RemoteProtocolError
from trunkline.mtl.mechanisms import Anonymous, External, Plain, ScramSha256, choose
from trunkline.mtl.sasl import Authenticator, Challenge, Welcome
from trunkline.mtl.users import Users

NAMES = ["ada", "with,comma=sign", "Zoë", "a\u00adda\u00a0"]


@functools.cache
def scramp_server(name, **options):
    mechanism = scramp.ScramMechanism()
    known = mechanism.make_auth_info("secret", iteration_count=4096)
    return lambda: mechanism.make_server({name: known}.__getitem__, **options)


@pytest.mark.req("MTL-17")
@pytest.mark.parametrize("name", NAMES)
def test_scramp_lets_us_in(name):
    server = scramp_server(scramp.utils.saslprep(name))()
    client = ScramSha256(name, "secret")
    server.set_client_first(client.step(None).decode())
    server.set_client_final(client.step(server.get_server_first().encode()).decode())
    assert not client.is_done
    assert client.step(server.get_server_final().encode()) == b""
    assert client.is_done


def test_scramp_keeps_us_out():
    server = scramp_server("ada")()
    client = ScramSha256("ada", "wrong")
    server.set_client_first(client.step(None).decode())
    with pytest.raises(scramp.ScramException):
        server.set_client_final(client.step(server.get_server_first().encode()).decode())


def test_the_example_of_rfc_7677_from_the_client():
    client = ScramSha256("user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.step(None) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    proof = b"c=biws," + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.step(nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096") == proof
    assert client.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""
    assert client.is_done


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"r=ours,s=YWJj,i=4096", "nonce"),
        (b"r=theirs,s=YWJj,i=4096", "nonce"),
        (b"r=ours+,s=YWJj,i=4095", "asks for 4095 iterations"),
        (b"r=ours+,s=YWJj,i=1", "asks for 1 iterations"),
        (b"r=ours+,s=YWJj,i=1000001", "asks for 1000001 iterations"),
        (b"r=ours+,s=YWJj,i=9999999999", "not valid in SCRAM"),
        (b"r=ours+,s=YWJj,i=-1", "not valid in SCRAM"),
        (b"r=ours+,s=YWJj,i=\xd9\xa4096", "not valid in SCRAM"),
        (b"r=ours+,s=YW,i=4096", "not valid in SCRAM"),
        (b"m=x,r=ours+,s=YWJj,i=4096", "not valid in SCRAM"),
        (b"r=ours+,s=YWJj", "not valid in SCRAM"),
        (b"e=other-error", "not valid in SCRAM"),
        (b"\xff", "not valid in SCRAM"),
    ],
)
def test_what_a_server_may_not_ask_for(challenge, why):
    client = ScramSha256("ada", "secret", nonce="ours")
    client.step(None)
    with pytest.raises(RemoteProtocolError, match=why) as raised:
        client.step(challenge)
    assert raised.value.clause == "MTL-17"
    assert not client.is_done


@pytest.mark.parametrize("final", ["v=" + "A" * 43 + "=", "v=YWJj", "v="])
def test_a_server_that_does_not_know_the_password_is_not_believed(final):
    client = ScramSha256("ada", "secret", nonce="ours")
    client.step(None)
    client.step(b"r=ours+,s=YWJj,i=4096")
    with pytest.raises(AuthenticationError, match="could not prove that it knows the password"):
        client.step(final.encode())
    assert not client.is_done


@pytest.mark.parametrize("final", [b"e=invalid-proof", b"x", b"", b"\xff", b"v=?"])
def test_what_is_no_end_is_none(final):
    client = ScramSha256("ada", "secret", nonce="ours")
    client.step(None)
    client.step(b"r=ours+,s=YWJj,i=4096")
    with pytest.raises(RemoteProtocolError):
        client.step(final)


def log_in(mechanism, authenticator, **where):
    """A login at our server; what it answers at last."""
    response, state = mechanism.step(None), b""
    for _ in range(16):
        answer = authenticator.step(mechanism.name, response, state, **where)
        if not isinstance(answer, Challenge):
            return answer
        response, state = mechanism.step(answer.challenge), answer.state
    pytest.fail("it goes on for ever")


@pytest.mark.req("MTL-17", "MTL-18")
def test_every_mechanism_lets_us_in():
    authenticator = Authenticator(Users.read({"ada": "secret"}), anonymous=True)
    for mechanism in (ScramSha256("ada", "secret"), Plain("ada", "secret"), External()):
        assert log_in(mechanism, authenticator, is_private=True, user_id="ada") == Welcome("ada", None, None)
        assert mechanism.is_done
    assert log_in(Anonymous("a trace"), authenticator, is_private=False, user_id=None) == Welcome(
        "anonymous", None, None
    )


@settings(max_examples=25)
@given(
    name=st.text("aZ09,=ëß日 \u00ad", min_size=1, max_size=12).filter(lambda name: name.replace("\u00ad", "")),
    password=st.text("aZ09,=ëß日 \u00ad", min_size=1, max_size=12).filter(lambda name: name.replace("\u00ad", "")),
)
def test_any_name_and_password(name, password):
    from trunkline.mtl.saslprep import saslprep

    authenticator = Authenticator(Users.read({saslprep(name): password}))
    for mechanism in (ScramSha256(name, password), Plain(name, password)):
        assert log_in(mechanism, authenticator, is_private=True, user_id=None).user == saslprep(name)
        assert hashlib.sha256(password.encode()).hexdigest() not in repr(mechanism)


def test_mechanisms_of_one_response_have_one():
    for mechanism in (Plain("ada", "secret"), External(), Anonymous()):
        assert mechanism.step(None) == mechanism.step(b"")
        with pytest.raises(RemoteProtocolError, match="sent a challenge"):
            mechanism.step(b"more")


ALL = ["ANONYMOUS", "plain", "EXTERNAL", "SCRAM-SHA-256", "CRAM-MD5"]
ADA = {"user": "ada", "password": "secret"}
NO_USER = {"user": None, "password": None}
KEY = {"user": "ada", "password": None, "has_key": True}


@pytest.mark.req("MTL-14")
@pytest.mark.parametrize(
    ("offered", "given", "chosen"),
    [
        (ALL, ADA, "SCRAM-SHA-256"),
        (ALL, {**ADA, "has_key": True}, "SCRAM-SHA-256"),
        (ALL, KEY, "EXTERNAL"),
        (ALL, {**NO_USER, "has_key": True}, "EXTERNAL"),
        (ALL, NO_USER, "ANONYMOUS"),
        (["PLAIN"], {**ADA, "is_private": True}, "PLAIN"),
        (["PLAIN"], {**ADA, "mechanism": "PLAIN"}, "PLAIN"),
        (ALL, {**ADA, "mechanism": "PLAIN"}, "PLAIN"),
        (["scram-sha-256"], ADA, "SCRAM-SHA-256"),
    ],
)
def test_the_strongest_that_fits_is_chosen(offered, given, chosen):
    assert choose(offered, **{"mechanism": None, "is_private": False, "has_key": False, **given}) == chosen


@pytest.mark.req("MTL-14")
@pytest.mark.parametrize(
    ("offered", "given", "why"),
    [
        (["PLAIN"], ADA, "unencrypted"),
        (["PLAIN", "ANONYMOUS"], ADA, "unencrypted"),
        (["SCRAM-SHA-256"], NO_USER, "give user= and password="),
        (["SCRAM-SHA-256"], {"user": "ada", "password": None}, "give user= and password="),
        (["EXTERNAL"], ADA, "a key that the server knows"),
        (["EXTERNAL"], {**ADA, "has_key": True}, "and no password"),
        (["CRAM-MD5"], ADA, "none of them fits"),
        (["SCRAM-SHA-256"], {**ADA, "mechanism": "PLAIN"}, "PLAIN is not among them"),
        (["SCRAM-SHA-256"], {**ADA, "mechanism": "X"}, "X is not among them"),
        ([], ADA, "no mechanism"),
    ],
)
def test_where_none_fits_it_says_what_would(offered, given, why):
    with pytest.raises(trunkline.AuthenticationError, match=why) as raised:
        choose(offered, **{"mechanism": None, "is_private": False, "has_key": False, **given})
    assert raised.value.mechanisms == tuple(offered)
