"""Logins, the client's side (RFC 4422): which mechanism to take of those on offer, and what to say in it."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from typing import NoReturn, Protocol

from trunkline.errors import AuthenticationError, RemoteProtocolError
from trunkline.mtl import scram
from trunkline.mtl.sasl import ANONYMOUS, EXTERNAL, PLAIN, SCRAM
from trunkline.mtl.saslprep import saslprep

__all__ = ["Anonymous", "External", "Mechanism", "Plain", "ScramSha256", "choose"]


class Mechanism(Protocol):
    """One login by one mechanism."""

    name: str
    """As the registry writes it."""

    @property
    def is_done(self) -> bool:
        """Whether a server that says the login is done may be believed: before, it has not proved what it has to."""

    def step(self, challenge: bytes | None) -> bytes:
        """The response to a challenge; None asks for the first one.

        Raises:
            AuthenticationError: The server has not proved that it knows the user.
            RemoteProtocolError: It said what the mechanism does not allow.
        """


class ScramSha256:
    """SCRAM-SHA-256 (RFC 7677): the password does not leave the client, and the server proves that it knows it.

    A server may have the password hashed 4,096 times at least, and a million times at most: half a second's work.

    Args:
        user: The name.
        password: The password.
        nonce: The client's part of the nonce; for tests.

    Raises:
        ValueError: The name or the password holds what none may.
    """

    name = SCRAM

    def __init__(self, user: str, password: str, *, nonce: str | None = None) -> None:
        self._password = saslprep(password)
        self._nonce = scram.new_nonce() if nonce is None else nonce
        self._first = f"n={scram.escaped(saslprep(user))},r={self._nonce}"
        self._proven: bytes | None = None
        self.is_done = False

    def step(self, challenge: bytes | None) -> bytes:
        """The response to a challenge; None asks for the first one."""
        if not challenge:
            if self._proven is not None or self.is_done:
                self._refuse("it has nothing to say")
            return f"n,,{self._first}".encode()
        try:
            message = challenge.decode()
            return self._final(message) if self._proven is None else self._check(message, self._proven)
        except ValueError:
            self._refuse("its challenge is none of SCRAM-SHA-256")

    def _final(self, server: str) -> bytes:
        nonce, salt, count = scram.attributes(server, "rsi")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            self._refuse("its nonce does not go on from ours")
        if not (count.isascii() and count.isdigit() and len(count) < 10):
            raise scram.MalformedError
        if not scram.LEAST_ITERATIONS <= int(count) <= scram.MOST_ITERATIONS:
            self._refuse(
                f"it wants the password hashed {count} times: {scram.LEAST_ITERATIONS} to {scram.MOST_ITERATIONS} are taken"
            )
        key = scram.salted(self._password, scram.unbase64(salt), int(count))
        without = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        said = f"{self._first},{server},{without}".encode()
        client_key = scram.signature(key, b"Client Key")
        proof = scram.xor(client_key, scram.signature(scram.digest(client_key), said))
        self._proven = scram.signature(scram.signature(key, b"Server Key"), said)
        return f"{without},p={base64.b64encode(proof).decode()}".encode()

    def _check(self, server: str, proven: bytes) -> bytes:
        if self.is_done:
            self._refuse("it goes on after its end")
        (told,) = scram.attributes(server, "v")
        if not hmac.compare_digest(scram.unbase64(told), proven):
            message = "the server does not know the password, and may be another than it says"
            raise AuthenticationError(message)
        self.is_done = True
        return b""

    def _refuse(self, why: str) -> NoReturn:
        message = f"the login cannot go on: of the server, {why}"
        raise RemoteProtocolError(message, "MTL-17")


class _Single:
    """A mechanism of one response, in which the server has nothing to prove."""

    name: str
    is_done = True

    def __init__(self, response: str) -> None:
        self._response = response.encode()

    def step(self, challenge: bytes | None) -> bytes:
        """The response; a challenge of nothing asks for it as None does."""
        if challenge:
            message = f"the login cannot go on: {self.name} has no challenges, and the server sent one"
            raise RemoteProtocolError(message, "MTL-17")
        return self._response


class Plain(_Single):
    """PLAIN (RFC 4616): the password as it is, for transports that nobody reads.

    Args:
        user: The name.
        password: The password.

    Raises:
        ValueError: The name or the password holds what none may.
    """

    name = PLAIN

    def __init__(self, user: str, password: str) -> None:
        super().__init__(f"\0{saslprep(user)}\0{saslprep(password)}")


class External(_Single):
    """EXTERNAL (RFC 4422): the transport knows who it is, by the key."""

    name = EXTERNAL

    def __init__(self) -> None:
        super().__init__("")


class Anonymous(_Single):
    """ANONYMOUS (RFC 4505): nobody in particular.

    Args:
        trace: What to be told by in the server's log.
    """

    name = ANONYMOUS

    def __init__(self, trace: str = "") -> None:
        super().__init__(trace)


def choose(
    offered: Iterable[str],
    *,
    user: str | None,
    password: str | None,
    mechanism: str | None,
    is_private: bool,
    has_key: bool,
) -> str:
    """The mechanism to log in by: the strongest on offer for which we have what it takes.

    Args:
        offered: What the server offers, in letters of either case.
        user: The name, if there is one.
        password: The password, if there is one.
        mechanism: The one to take, and no other.
        is_private: Whether nobody else can read along: over CURVE, ipc and inproc. PLAIN is taken elsewhere only where
            `mechanism` says so.
        has_key: Whether the transport has proved a key of ours.

    Raises:
        AuthenticationError: None fits; says what would be needed.
    """
    names = tuple(offered)
    has_password = user is not None and password is not None
    needs = {
        SCRAM: has_password,
        EXTERNAL: has_key and password is None,
        PLAIN: has_password and (is_private or mechanism is not None),
        ANONYMOUS: user is None and password is None,
    }
    known = {name.upper() for name in names}
    for name, is_met in needs.items():
        if is_met and name in known and mechanism in (None, name):
            return name
    message = f"the server offers {', '.join(names) or 'no way to log in'}: {_advice(known, mechanism, needs)}"
    raise AuthenticationError(message, names)


def _advice(offered: set[str], mechanism: str | None, needs: dict[str, bool]) -> str:
    """What to do where nothing fits."""
    if mechanism is not None and mechanism not in offered:
        return f"{mechanism} is not among them"
    if PLAIN in offered and SCRAM not in offered and not needs[PLAIN] and needs[SCRAM]:
        return 'passwords would go over the network in the clear; use CURVE, or say mechanism="PLAIN"'
    if {SCRAM, PLAIN} & offered and not needs[SCRAM]:
        return "give user= and password="
    if EXTERNAL in offered:
        return "give curve= with a key that it knows, and no password"
    return "none of them can be used with what was given"
