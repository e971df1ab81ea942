"""Logins as the server sees them; the client is scramp, or bytes."""

import base64
import functools
import hashlib
import hmac
import json
import threading

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline.mtl import scram
from trunkline.mtl.sasl import Authenticator, Challenge, Refusal, Welcome
from trunkline.mtl.scram import Verifier
from trunkline.mtl.users import User, Users

PRIVATE = {"is_private": True, "user_id": None}
CLEAR = {"is_private": False, "user_id": None}
NAMES = ["ada", "with,comma=sign", "Zoë", "anonymous"]
SECRET = b"of the server"


@functools.cache
def users():
    return Users.read({name: f"secret of {name}" for name in NAMES})


@pytest.fixture
def authenticator():
    limited = User("byron", Verifier.of("secret of byron"), ("jobs*",), ("jobs1", "?"))
    return Authenticator(Users([*map(users().get, NAMES), limited, User("by key")], secret=SECRET))


def exchange(authenticator, client):
    """A login by scramp; the answers of the server."""
    answers = [authenticator.step("SCRAM-SHA-256", client.get_client_first().encode(), b"", **CLEAR)]
    client.set_server_first(answers[-1].challenge.decode())
    answers.append(authenticator.step("SCRAM-SHA-256", client.get_client_final().encode(), answers[-1].state, **CLEAR))
    if isinstance(answers[-1], Challenge):
        client.set_server_final(answers[-1].challenge.decode())
        answers.append(authenticator.step("SCRAM-SHA-256", b"", answers[-1].state, **CLEAR))
    return answers


@pytest.mark.req("MTL-17", "MTL-18")
@pytest.mark.parametrize("name", NAMES)
def test_scramp_logs_in(authenticator, name):
    first, final, last = exchange(authenticator, scramp.ScramClient(["SCRAM-SHA-256"], name, f"secret of {name}"))
    assert isinstance(first, Challenge)
    assert final.challenge.startswith(b"v=")
    assert last == Welcome(name, None, None)


def test_a_limited_user_is_welcomed_with_the_limits(authenticator):
    *_, last = exchange(authenticator, scramp.ScramClient(["SCRAM-SHA-256"], "byron", "secret of byron"))
    assert last == Welcome("byron", ("jobs*",), ("jobs1", "?"))


@pytest.mark.req("MTL-17")
def test_the_example_of_rfc_7677():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = Users([User("user", Verifier.of("pencil", iterations=4096, salt=salt))])
    authenticator = Authenticator(known, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = authenticator.step("SCRAM-SHA-256", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", b"", **CLEAR)
    nonce = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first.challenge == nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = b"c=biws," + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    final = authenticator.step("SCRAM-SHA-256", proof, first.state, **CLEAR)
    assert final.challenge == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert authenticator.step("scram-sha-256", b"", final.state, **CLEAR) == Welcome("user", None, None)


@pytest.mark.req("MTL-19")
def test_an_unknown_user_and_a_wrong_password_look_the_same(authenticator):
    shapes = []
    for name in ("ada", "eve", "by key"):
        client = scramp.ScramClient(["SCRAM-SHA-256"], name, "wrong", c_nonce="same")
        first, last = exchange(authenticator, client)
        parts = first.challenge.split(b",")
        shapes.append((len(first.challenge), [part[:2] for part in parts], parts[2], type(last)))
        assert last == Refusal(name)
        assert authenticator.step("PLAIN", f"\0{name}\0wrong".encode(), b"", **PRIVATE) == Refusal(name)
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.req("MTL-19")
def test_an_unknown_user_costs_as_much_as_a_wrong_password(authenticator, monkeypatch):
    work = []
    for name in ("digest", "signature", "salted"):
        done = getattr(scram, name)
        monkeypatch.setattr(
            scram, name, lambda *given, name=name, done=done: (work.append((name, given[2:])), done(*given))[1]
        )

    def cost(name):
        work.clear()
        exchange(authenticator, scramp.ScramClient(["SCRAM-SHA-256"], name, "wrong"))
        authenticator.step("PLAIN", f"\0{name}\0wrong".encode(), b"", **PRIVATE)
        return list(work)

    assert cost("ada") == cost("eve") == cost("by key")
    assert ("salted", (4096,)) in work


@pytest.mark.req("MTL-19")
def test_an_unknown_user_has_the_same_salt_each_time(authenticator):
    def salt(name, authenticator=authenticator):
        return authenticator.step("SCRAM-SHA-256", f"n,,n={name},r=abc".encode(), b"", **CLEAR).challenge.split(b",")[1]

    assert salt("eve") == salt("eve") != salt("mallory")
    # So it has whatever users come and go, on each server that has the secret; by hand there may be none.
    others = Users([User("byron")], secret=SECRET)
    assert salt("byron") != salt("byron", Authenticator(others)) == salt("byron", Authenticator(others))
    assert salt("eve") == salt("eve", Authenticator(others))
    assert salt("eve") != salt("eve", Authenticator(users())) == salt("eve", Authenticator(users()))


@pytest.mark.req("MTL-19")
def test_an_unknown_user_has_such_a_verifier_as_users_have():
    kinds = {(20_000, 16), (20_000, 8)}
    known = [
        User(f"user {count} {size}", Verifier.of("x", iterations=count, salt=b"s" * size)) for count, size in kinds
    ]
    authenticator = Authenticator(Users(known, secret=SECRET))

    def kind(name):
        first = authenticator.step("SCRAM-SHA-256", f"n,,n={name},r=abc".encode(), b"", **CLEAR).challenge.decode()
        _, salt, count = first.split(",")
        return int(count[2:]), len(base64.b64decode(salt[2:]))

    before = {name: kind(name) for name in map(str, range(40))}
    assert set(before.values()) == kinds == {kind(user.name) for user in known}
    # A kind that is new takes some of them, and leaves the others what they had.
    authenticator.users = Users([*known, User("new", Verifier.of("x", iterations=4096))], secret=SECRET)
    assert {kind(name) for name, had in before.items() if kind(name) != had} == {(4096, 16)}


@pytest.mark.req("MTL-14")
def test_what_is_on_offer():
    def offers(authenticator):
        return [
            authenticator.offers(is_private, user_id)
            for is_private in (False, True)
            for user_id in (None, "ada", "eve")
        ]

    scram, private = ["SCRAM-SHA-256"], ["SCRAM-SHA-256", "PLAIN"]
    with_key = ["SCRAM-SHA-256", "EXTERNAL"]
    assert offers(Authenticator(users())) == [scram, with_key, scram, private, [*with_key, "PLAIN"], private]
    # The offer does not reveal whether any user has a password, which may change.
    assert offers(Authenticator(Users([User("ada")]))) == [
        scram,
        with_key,
        scram,
        private,
        [*with_key, "PLAIN"],
        private,
    ]
    assert offers(Authenticator(None)) == [[], ["EXTERNAL"], ["EXTERNAL"]] * 2
    assert Authenticator(users(), anonymous=True).offers(is_private=True, user_id=None) == [*private, "ANONYMOUS"]
    assert Authenticator(Users(), anonymous=True).offers(is_private=True, user_id="ada") == [*private, "ANONYMOUS"]


@pytest.mark.req("MTL-16", "MTL-19")
@pytest.mark.parametrize("mechanism", ["EXTERNAL", "ANONYMOUS", "CRAM-MD5", "", "SCRAM-SHA-256-PLUS", "scram", "PLAIN"])
def test_what_is_not_on_offer_is_refused(authenticator, mechanism):
    for response in (b"", b"\0ada\0secret of ada", b"n,,n=ada,r=x"):
        assert authenticator.step(mechanism, response, b"", **CLEAR) == Refusal(None)


@pytest.mark.req("MTL-16")
def test_whoever_is_silent_is_asked_to_speak(authenticator):
    for mechanism, response in (("SCRAM-SHA-256", b"n,,n=ada,r=x"), ("Plain", b"\0ada\0secret of ada")):
        asked = authenticator.step(mechanism, b"", b"", **PRIVATE)
        assert asked.challenge == b""
        assert asked.state
        assert authenticator.step(mechanism, b"", asked.state, **PRIVATE) == Refusal(None)
        assert not isinstance(authenticator.step(mechanism, response, asked.state, **PRIVATE), Refusal)


@pytest.mark.parametrize(
    "response",
    [
        b"ada\0ada\0secret of ada",
        b"\0ada\0secret of ada",
        b"\0\xc2\xada\xc2\xadda\0secret\xc2\xa0of ada",
    ],
)
def test_plain_lets_in(authenticator, response):
    assert authenticator.step("PLAIN", response, b"", **PRIVATE) == Welcome("ada", None, None)


@pytest.mark.parametrize(
    ("response", "user"),
    [
        (b"\0ada\0secret of eve", "ada"),
        (b"byron\0ada\0secret of ada", None),
        (b"\0ada\0", None),
        (b"\0\0secret", None),
        (b"ada\0secret of ada", None),
        (b"\0ada\0secret of ada\0", None),
        (b"\0ada\0secret of ada\xff", None),
        (b"\0ada\x07\0secret of ada", None),
        (b"\0ada\0" + b"x" * 4096, None),
        (b"\0by key\0secret", "by key"),
    ],
)
def test_plain_keeps_out(authenticator, response, user):
    assert authenticator.step("PLAIN", response, b"", **PRIVATE) == Refusal(user)


@pytest.mark.parametrize(
    ("response", "user_id", "answer"),
    [
        (b"", "ada", Welcome("ada", None, None)),
        (b"ada", "ada", Welcome("ada", None, None)),
        (b"", "by key", Welcome("by key", None, None)),
        (b"", "byron", Welcome("byron", ("jobs*",), ("jobs1", "?"))),
        (b"byron", "ada", Refusal("ada")),
        (b"\xff", "ada", Refusal("ada")),
        (b"", "eve", Refusal(None)),
        (b"", None, Refusal(None)),
    ],
)
def test_external_goes_by_the_key(authenticator, response, user_id, answer):
    assert authenticator.step("EXTERNAL", response, b"", is_private=True, user_id=user_id) == answer


def test_a_key_alone_is_enough_where_there_are_no_users():
    authenticator = Authenticator(None)
    assert authenticator.step("EXTERNAL", b"", b"", is_private=True, user_id="eve") == Welcome("eve", None, None)
    assert authenticator.step("EXTERNAL", b"", b"", is_private=True, user_id=None) == Refusal(None)


def test_anybody_may_be_nobody_where_that_is_said():
    authenticator = Authenticator(Users(), anonymous=True)
    for trace in (b"", "Zoë".encode()):
        assert authenticator.step("ANONYMOUS", trace, b"", **CLEAR) == Welcome("anonymous", None, None)
    assert authenticator.step("ANONYMOUS", b"\xff", b"", **CLEAR) == Refusal(None)
    authenticator.users = Users([User("anonymous", read=("news",), write=())])
    assert authenticator.step("ANONYMOUS", b"", b"", **CLEAR) == Welcome("anonymous", ("news",), ())


@pytest.mark.parametrize(
    "message",
    [
        b"p=tls-unique,,n=ada,r=x",
        b"x,,n=ada,r=x",
        b"n,a=byron,n=ada,r=x",
        b"n,ada,n=ada,r=x",
        b"n,,m=must,n=ada,r=x",
        b"n,,n=ada",
        b"n,,n=ada,r=",
        b"n,,n=ada,r=\x7f",
        b"n,,n=,r=x",
        b"n,,n=a=2Dda,r=x",
        b"n,,n=a=2cda,r=x",
        b"n,,n=ada\x07,r=x",
        b"n,,r=x,n=ada",
        b"n,,n=ada,r=x,",
        b"n,,n=ada,r=x,1=2",
        b"n,,n=\xff,r=x",
        b"n",
        b"\0",
        b"n,,n=ada,r=" + b"x" * 4096,
    ],
)
def test_what_is_no_first_message_is_refused(authenticator, message):
    assert isinstance(authenticator.step("SCRAM-SHA-256", message, b"", **CLEAR), Refusal)


@pytest.mark.parametrize("head", ["n,,", "y,,", "n,a=ada,", "y,a=ada,"])
@pytest.mark.parametrize("more", ["", ",x=1", ",x=1,Y=2=3"])
def test_what_may_be_in_a_first_message(authenticator, head, more):
    first = authenticator.step("SCRAM-SHA-256", f"{head}n=ada,r=x{more}".encode(), b"", **CLEAR)
    said = json.loads(first.state)
    final = proof_of("secret of ada", head, f"n=ada,r=x{more}", said["server"], extra=",z=3")
    answer = authenticator.step("SCRAM-SHA-256", final, first.state, **CLEAR)
    assert isinstance(answer, Challenge)
    assert authenticator.step("SCRAM-SHA-256", b"", answer.state, **CLEAR) == Welcome("ada", None, None)


def signed(password, bare, server, without):
    """A client's final message, by hashlib and hmac alone."""
    _, salt, count = (part[2:] for part in server.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(count))
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), f"{bare},{server},{without}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}".encode()


def proof_of(password, head, bare, server, extra=""):
    channel = base64.b64encode(head.encode()).decode()
    return signed(password, bare, server, f"c={channel},{server.split(',')[0]}{extra}")


def test_a_proof_is_of_this_exchange_alone(authenticator):
    first = authenticator.step("SCRAM-SHA-256", b"n,,n=ada,r=x", b"", **CLEAR)
    server = first.challenge.decode()
    # All of them are signed with the right password.
    other_nonce = proof_of("secret of ada", "n,,", "n=ada,r=x", server).replace(b",r=x", b",r=y")
    bound = proof_of("secret of ada", "y,,", "n=ada,r=x", server)
    for_another = proof_of("secret of ada", "n,a=byron,", "n=ada,r=x", server)
    longer_nonce = signed("secret of ada", "n=ada,r=x", server, f"c=biws,{server.split(',')[0]}y")
    before = signed("secret of ada", "n=ada,r=x", server, f"m=x,c=biws,{server.split(',')[0]}")
    for final in (other_nonce, bound, for_another, longer_nonce, before, b"c=biws," + server.split(",")[0].encode()):
        assert authenticator.step("SCRAM-SHA-256", final, first.state, **CLEAR) == Refusal("ada")


def test_the_last_response_says_nothing(authenticator):
    client = scramp.ScramClient(["SCRAM-SHA-256"], "ada", "secret of ada")
    _, final, _ = exchange(authenticator, client)
    assert authenticator.step("SCRAM-SHA-256", b"x", final.state, **CLEAR) == Refusal("ada")


def test_whoever_is_removed_meanwhile_is_not_let_in(authenticator):
    first, final, _ = exchange(authenticator, scramp.ScramClient(["SCRAM-SHA-256"], "ada", "secret of ada"))
    server = json.loads(first.state)["server"]
    proof = proof_of("secret of ada", "n,,", json.loads(first.state)["client"], server)
    assert isinstance(authenticator.step("SCRAM-SHA-256", proof, first.state, **CLEAR), Challenge)
    authenticator.users = users().removing("ada")
    assert authenticator.step("SCRAM-SHA-256", proof, first.state, **CLEAR) == Refusal("ada")
    assert authenticator.step("SCRAM-SHA-256", b"", final.state, **CLEAR) == Refusal("ada")


@given(
    st.binary(max_size=200),
    st.sampled_from(["SCRAM-SHA-256", "PLAIN", "EXTERNAL", "ANONYMOUS", "x", "\u017fcram"]),
    st.integers(0, 2),
)
def test_nothing_a_client_says_raises_anything(response, mechanism, steps):
    authenticator = Authenticator(users(), anonymous=True)
    states = [b"", b"{}", authenticator.step("SCRAM-SHA-256", b"n,,n=ada,r=x", b"", **CLEAR).state]
    for prefix in (b"", b"n,,n=ada,r=", b"c=biws,r=", b"\0ada\0"):
        answer = authenticator.step(mechanism, prefix + response, states[steps], is_private=True, user_id="ada")
        assert isinstance(answer, Challenge | Refusal) or answer.user in ("ada", "anonymous")
        if mechanism in ("SCRAM-SHA-256", "PLAIN"):
            assert not isinstance(answer, Welcome)


@functools.cache
def recorded():
    """A login that succeeds: its messages, and the state that the second of them came with."""
    authenticator = Authenticator(users(), nonce="server")
    client = scramp.ScramClient(["SCRAM-SHA-256"], "ada", "secret of ada", c_nonce="client")
    first = client.get_client_first().encode()
    answer = authenticator.step("SCRAM-SHA-256", first, b"", **CLEAR)
    client.set_server_first(answer.challenge.decode())
    return authenticator, first, client.get_client_final().encode(), answer.state


@settings(max_examples=500)
@given(st.data())
def test_a_changed_proof_is_never_welcome(data):
    authenticator, _, final, state = recorded()
    at = data.draw(st.integers(0, len(final) - 1))
    how = data.draw(st.sampled_from(["change", "cut", "insert", "drop"]))
    byte = data.draw(st.binary(min_size=1, max_size=1).filter(lambda byte: byte != final[at : at + 1]))
    changed = {
        "change": final[:at] + byte + final[at + 1 :],
        "cut": final[:at],
        "insert": final[:at] + byte + final[at:],
        "drop": final[:at] + final[at + 1 :],
    }[how]
    assert isinstance(authenticator.step("SCRAM-SHA-256", final, state, **CLEAR), Challenge)
    assert authenticator.step("SCRAM-SHA-256", changed, state, **CLEAR) == Refusal("ada")


def test_a_proof_is_written_in_one_way_only():
    authenticator, _, final, state = recorded()
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    others = [final[:-2] + bytes([letter]) + final[-1:] for letter in alphabet if letter != final[-2]]
    for changed in [*others, final + b"=", final[:-1], final + b"A", final + b"AAAA"]:
        assert authenticator.step("SCRAM-SHA-256", changed, state, **CLEAR) == Refusal("ada")


def test_many_log_in_at_once(authenticator):
    welcomed = []

    def log_in(name):
        welcomed.append(
            exchange(authenticator, scramp.ScramClient(["SCRAM-SHA-256"], name, f"secret of {name}"))[-1].user
        )

    threads = [threading.Thread(target=log_in, args=(name,)) for name in NAMES * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(welcomed) == sorted(NAMES * 5)
