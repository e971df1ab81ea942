"""A client of SCRAM-SHA-256, for the login of checks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from trunkline.conform.checks import Failed

__all__ = ["Scram"]

# A server may ask for more, and would keep us busy.
_ITERATIONS = 1_000_000


class Scram:
    """One login.

    Args:
        user: The user; of `=` and `,` it has none that are not escaped.
        password: The password.
    """

    def __init__(self, user: str, password: str) -> None:
        self._password = password.encode()
        self._nonce = secrets.token_urlsafe(18)
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"

    @property
    def first(self) -> bytes:
        """The client's first message."""
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """The client's final message, after the server's first.

        Raises:
            Failed: That is none.
        """
        text = challenge.decode("utf-8", "replace")
        parts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        nonce, rounds = parts.get("r", ""), parts.get("i", "")
        if not nonce.startswith(self._nonce) or not rounds.isdigit() or not 0 < int(rounds) <= _ITERATIONS:
            message = f"the server's first message of SCRAM is {text[:100]!r}"
            raise Failed(message)
        salted = hashlib.pbkdf2_hmac("sha256", self._password, base64.b64decode(parts.get("s", "")), int(rounds))
        without = f"c=biws,r={nonce}"
        signed = f"{self._bare},{text},{without}".encode()
        key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        self._verifier = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        return f"{without},p={base64.b64encode(proof).decode()}".encode()

    def need_server(self, message: bytes) -> None:
        """Makes sure that the server knows the password too.

        Raises:
            Failed: It does not.
        """
        if message != b"v=" + base64.b64encode(self._verifier):
            wrong = (
                f"the server's final message of SCRAM is {message[:100]!r}, which is not of one that knows the password"
            )
            raise Failed(wrong)
