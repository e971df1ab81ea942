"""The server's side of logins (RFC 4422): which mechanisms it offers, and how it judges responses."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import TypeAlias

from trunkline.mtl import scram
from trunkline.mtl.saslprep import saslprep
from trunkline.mtl.scram import MalformedError, Verifier
from trunkline.mtl.users import User, Users

__all__ = ["ANONYMOUS", "EXTERNAL", "PLAIN", "SCRAM", "Answer", "Authenticator", "Challenge", "Refusal", "Welcome"]

# Names as in IANA's registry.
SCRAM = "SCRAM-SHA-256"
EXTERNAL = "EXTERNAL"
PLAIN = "PLAIN"
ANONYMOUS = "ANONYMOUS"

# The user of an ANONYMOUS login.
_ANONYMOUS_USER = "anonymous"

# Room for names and passwords of the 255 bytes that each mechanism requires, and more. The server keeps the first
# response of each login until that ends.
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Challenge:
    """The login continues (MTL-17).

    Attributes:
        challenge: The challenge to send to the client.
        state: What to pass with its next response.
        proven: The user whose password the client has proved to know, if it has.
    """

    challenge: bytes
    state: bytes
    proven: str | None = None


@dataclass(frozen=True, slots=True)
class Welcome:
    """The login has succeeded.

    Attributes:
        user: The user name.
        read: Patterns of the resources the user may read; None for all.
        write: Patterns of the resources the user may write to; None for all.
    """

    user: str
    read: tuple[str, ...] | None
    write: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The login has failed (MTL-19): a wrong password, an unknown user or an invalid response, all alike to the client.

    Attributes:
        user: The name that was tried; None if the client had not sent one yet.
    """

    user: str | None


Answer: TypeAlias = Challenge | Welcome | Refusal


class _RefusedError(Exception):
    """A login fails."""

    def __init__(self, user: str | None = None) -> None:
        super().__init__(user)
        self.user = user


class Authenticator:
    """Who may log in, and how (MTL-14, MTL-16 … MTL-19).

    It keeps no state between the steps of a login, and may be used by any number of threads. `users` may be replaced at any
    time: logins in progress continue with the new ones.

    Args:
        users: The users. None: each client that has proved a key is admitted, under the name that the allow-list gives the key.
        anonymous: Whether clients may log in without a name, as the user `anonymous`, whose permissions `users` may limit.
        nonce: Returns the server's part of a nonce; for tests.
    """

    def __init__(
        self,
        users: Users | None,
        *,
        anonymous: bool = False,
        nonce: str | None = None,
    ) -> None:
        self.users = users
        self._anonymous = anonymous
        self._nonce = nonce

    def offers(self, is_private: bool, user_id: str | None) -> list[str]:  # noqa: FBT001 - callers name it
        """The mechanisms for a client, the strongest first.

        Args:
            is_private: Whether the transport is safe from eavesdropping: CURVE, ipc and inproc. On others, PLAIN is never offered.
            user_id: The name that the client has proved by its key.
        """
        # Offered even if no user has a password: users may change while the server runs.
        has_passwords = self.users is not None
        offers = (
            (SCRAM, has_passwords),
            (EXTERNAL, user_id is not None and (self.users is None or user_id in self.users)),
            (PLAIN, has_passwords and is_private),
            (ANONYMOUS, self._anonymous),
        )
        return [name for name, is_on in offers if is_on]

    def step(self, mechanism: str, response: bytes, state: bytes, *, is_private: bool, user_id: str | None) -> Answer:
        """Judges a response; never raises, whatever the client sent.

        Args:
            mechanism: The mechanism; case does not matter.
            response: The response of the client; refused if longer than 4 KiB.
            state: The state returned with the previous challenge; empty for the first response.
            is_private: As for `offers`.
            user_id: As for `offers`.
        """
        name = mechanism.upper()
        if len(response) > _MOST_BYTES or name not in self.offers(is_private, user_id):
            return Refusal(None)
        try:
            if name == EXTERNAL:
                return self._external(response, user_id)
            if name == ANONYMOUS:
                return self._anonymously(response)
            if not state and not response:
                # The client did not or could not send an initial response: an empty challenge asks for it.
                return Challenge(b"", b"{}")
            return self._plain(response) if name == PLAIN else self._scram(response, state)
        except _RefusedError as refused:
            return Refusal(refused.user)
        except ValueError:
            # Not UTF-8, or not a message of the mechanism.
            return Refusal(None)

    def _external(self, response: bytes, user_id: str | None) -> Answer:
        assert user_id is not None
        if response not in (b"", user_id.encode()):
            raise _RefusedError(user_id)
        return self._welcome(user_id)

    def _anonymously(self, trace: bytes) -> Answer:
        trace.decode()
        anonymous = (self.users or Users()).get(_ANONYMOUS_USER) or User(_ANONYMOUS_USER)
        return Welcome(anonymous.name, anonymous.read, anonymous.write)

    def _plain(self, response: bytes) -> Answer:
        other, name, password = map(saslprep, response.decode().split("\0"))
        if not name or not password or other not in ("", name):
            raise MalformedError
        verifier = self._verifier(name)
        key = scram.salted(password, verifier.salt, verifier.iterations)
        stored_key = scram.digest(scram.signature(key, b"Client Key"))
        if not hmac.compare_digest(stored_key, verifier.stored_key):
            raise _RefusedError(name)
        return self._welcome(name)

    def _scram(self, response: bytes, state: bytes) -> Answer:
        said = json.loads(state or b"{}")
        if not said:
            return self._first(response.decode())
        if "proven" in said:
            if response:
                raise _RefusedError(said["proven"])
            return self._welcome(said["proven"])
        try:
            return self._final(response.decode(), said["header"], said["client"], said["server"], said["user"])
        except ValueError:
            raise _RefusedError(said["user"]) from None

    def _first(self, message: str) -> Answer:
        """Answers the name of the client with the salt and the iterations."""
        binding, other, bare = message.split(",", 2)
        # "y": the client supports channel binding, and believes that we do not, which is right.
        if binding not in ("n", "y") or not (other == "" or other.startswith("a=")):
            raise MalformedError
        name, nonce = scram.attributes(bare, "nr")
        user = saslprep(scram.unescaped(name))
        if not user or (other and saslprep(scram.unescaped(other[2:])) != user):
            raise _RefusedError(user or None)
        verifier = self._verifier(user)
        salt = base64.b64encode(verifier.salt).decode()
        server = f"r={nonce}{self._nonce or scram.new_nonce()},s={salt},i={verifier.iterations}"
        kept = {"header": f"{binding},{other},", "client": bare, "server": server, "user": user}
        return Challenge(server.encode(), json.dumps(kept).encode())

    def _final(self, message: str, header: str, client: str, server: str, name: str) -> Answer:
        """Checks the proof of the client, and returns that of the server."""
        without, _, proof_text = message.rpartition(",p=")
        channel, nonce = scram.attributes(without, "cr")
        proof = scram.unbase64(proof_text)
        if scram.unbase64(channel) != header.encode():
            raise MalformedError
        verifier = self._verifier(name)
        said = f"{client},{server},{without}".encode()
        key = scram.xor(proof, scram.signature(verifier.stored_key, said))
        # Check everything, so that the time does not depend on the first mismatch.
        is_right = hmac.compare_digest(scram.digest(key), verifier.stored_key)
        is_right &= hmac.compare_digest(nonce, scram.attributes(server, "r")[0])
        if not is_right:
            raise _RefusedError(name)
        proven = base64.b64encode(scram.signature(verifier.server_key, said))
        return Challenge(b"v=" + proven, json.dumps({"proven": name}).encode(), name)

    def _verifier(self, name: str) -> Verifier:
        """The verifier of a user; for one without, a verifier that no password fits and that looks like those of users."""
        users = self.users or Users()
        unfit = Verifier(*users.shape(name), secrets.token_bytes(32), secrets.token_bytes(32))
        user = users.get(name)
        return unfit if user is None or user.verifier is None else user.verifier

    def _welcome(self, name: str) -> Answer:
        user = User(name) if self.users is None else self.users.get(name)
        if user is None:
            # The user was removed meanwhile.
            raise _RefusedError(name)
        return Welcome(name, user.read, user.write)
