"""The client's side of logins (RFC 4422): the choice of a mechanism, and its responses."""

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
    """The registered name of the mechanism."""

    @property
    def is_done(self) -> bool:
        """Whether the server may end the login now: it has proved what the mechanism asks of it."""

    def step(self, challenge: bytes | None) -> bytes:
        """The response to a challenge; None asks for the first one.

        Raises:
            AuthenticationError: The server could not prove that it knows the password.
            RemoteProtocolError: The challenge is not valid for the mechanism.
        """


class ScramSha256:
    """SCRAM-SHA-256 (RFC 7677): the password does not leave the client, and the server proves that it knows it.

    The server may ask for 4,096 to 1,000,000 iterations; the most take about half a second.

    Args:
        user: The user name.
        password: The password.
        nonce: The client's part of the nonce; for tests.

    Raises:
        ValueError: The name or the password has characters that are not allowed.
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
                self._refuse("the server sent an empty challenge")
            return f"n,,{self._first}".encode()
        try:
            message = challenge.decode()
            return self._final(message) if self._proven is None else self._check(message, self._proven)
        except ValueError:
            self._refuse("the challenge of the server is not valid in SCRAM-SHA-256")

    def _final(self, server: str) -> bytes:
        nonce, salt, count = scram.attributes(server, "rsi")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            self._refuse("the nonce of the server does not begin with that of the client")
        if not (count.isascii() and count.isdigit() and len(count) < 10):
            raise scram.MalformedError
        if not scram.LEAST_ITERATIONS <= int(count) <= scram.MOST_ITERATIONS:
            self._refuse(
                f"the server asks for {count} iterations, not {scram.LEAST_ITERATIONS} to {scram.MOST_ITERATIONS}"
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
            self._refuse("the server sent a challenge after the end of the exchange")
        (verifier,) = scram.attributes(server, "v")
        if not hmac.compare_digest(scram.unbase64(verifier), proven):
            message = "the server could not prove that it knows the password: it may be an impostor"
            raise AuthenticationError(message)
        self.is_done = True
        return b""

    def _refuse(self, why: str) -> NoReturn:
        message = f"login failed: {why}"
        raise RemoteProtocolError(message, "MTL-17")


class _Single:
    """A mechanism of one response, in which the server proves nothing."""

    name: str
    is_done = True

    def __init__(self, response: str) -> None:
        self._response = response.encode()

    def step(self, challenge: bytes | None) -> bytes:
        """The response; an empty challenge asks for it as None does."""
        if challenge:
            message = f"login failed: the server sent a challenge, which {self.name} does not have"
            raise RemoteProtocolError(message, "MTL-17")
        return self._response


class Plain(_Single):
    """PLAIN (RFC 4616): the password in the clear, for transports that are private.

    Args:
        user: The user name.
        password: The password.

    Raises:
        ValueError: The name or the password has characters that are not allowed.
    """

    name = PLAIN

    def __init__(self, user: str, password: str) -> None:
        super().__init__(f"\0{saslprep(user)}\0{saslprep(password)}")


class External(_Single):
    """EXTERNAL (RFC 4422): the transport identifies the client by its key."""

    name = EXTERNAL

    def __init__(self) -> None:
        super().__init__("")


class Anonymous(_Single):
    """ANONYMOUS (RFC 4505): a login without a name.

    Args:
        trace: What identifies the client in the log of the server.
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
    """The mechanism to log in with: the strongest one offered that the credentials fit.

    Args:
        offered: The mechanisms the server offers; case does not matter.
        user: The user name, if any.
        password: The password, if any.
        mechanism: The only mechanism to use; None for any.
        is_private: Whether the transport is safe from eavesdropping: CURVE, ipc and inproc. On others, PLAIN is only used if
            `mechanism` names it.
        has_key: Whether the client has proved its key to the transport.

    Raises:
        AuthenticationError: None fits; the message says what is needed.
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
    message = f"the server offers {', '.join(names) or 'no mechanism'}: {_advice(known, mechanism, needs)}"
    raise AuthenticationError(message, names)


def _advice(offered: set[str], mechanism: str | None, needs: dict[str, bool]) -> str:
    """The advice if no mechanism fits."""
    if mechanism is not None and mechanism not in offered:
        return f"{mechanism} is not among them"
    if PLAIN in offered and SCRAM not in offered and not needs[PLAIN] and needs[SCRAM]:
        return 'the password would be sent unencrypted; use CURVE, or give mechanism="PLAIN"'
    if {SCRAM, PLAIN} & offered and not needs[SCRAM]:
        return "give user= and password="
    if EXTERNAL in offered:
        return "give curve= with a key that the server knows, and no password"
    return "none of them fits the credentials given"
