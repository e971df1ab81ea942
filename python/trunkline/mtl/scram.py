"""SCRAM-SHA-256 (RFC 5802, RFC 7677): the parts common to client and server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass
from typing import Self

from trunkline.mtl.saslprep import saslprep

__all__ = [
    "DEFAULT_ITERATIONS",
    "LEAST_ITERATIONS",
    "MOST_ITERATIONS",
    "MalformedError",
    "Verifier",
    "attributes",
    "digest",
    "escaped",
    "new_nonce",
    "salted",
    "signature",
    "unbase64",
    "unescaped",
    "xor",
]

# The minimum of RFC 7677; a server that asks for fewer iterations may want to guess the password.
LEAST_ITERATIONS = 4096
# Half a second of CPU of a client; a server that asks for more may want to waste it.
MOST_ITERATIONS = 1_000_000
DEFAULT_ITERATIONS = 4096

_SALT_BYTES = 16
_KEY_BYTES = 32
_NONCE_BYTES = 18

_NONCE = re.compile(r"[!-+\--~]+")


class MalformedError(ValueError):
    """A message that is not valid in the exchange."""


@dataclass(frozen=True, slots=True, repr=False)
class Verifier:
    """What a server stores of a password: enough to check it, not enough to log in with.

    Attributes:
        iterations: How many times it was hashed.
        salt: The salt it was hashed with.
        stored_key: Checks the proof of the client.
        server_key: Makes the proof of the server.
    """

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, *, iterations: int = DEFAULT_ITERATIONS, salt: bytes | None = None) -> Self:
        """The verifier of a password.

        Raises:
            ValueError: The password is empty, or has characters that are not allowed.
        """
        prepared = saslprep(password, stored=True)
        if not prepared:
            message = "it is empty"
            raise ValueError(message)
        salt = os.urandom(_SALT_BYTES) if salt is None else salt
        key = salted(prepared, salt, iterations)
        return cls(iterations, salt, digest(signature(key, b"Client Key")), signature(key, b"Server Key"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a verifier as `str` writes it: ``iterations$salt$stored$server``, the last three in BASE64.

        Raises:
            ValueError: It is not a verifier; the message says why.
        """
        parts = text.split("$")
        if len(parts) != 4:
            message = "expected iterations$salt$stored$server"
            raise ValueError(message)
        if not re.fullmatch("[1-9][0-9]{0,8}", parts[0]) or not LEAST_ITERATIONS <= int(parts[0]) <= MOST_ITERATIONS:
            message = f"iterations must be a number from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            raise ValueError(message)
        salt, stored_key, server_key = map(unbase64, parts[1:])
        if not salt or len(stored_key) != _KEY_BYTES or len(server_key) != _KEY_BYTES:
            message = f"expected a salt, and two keys of {_KEY_BYTES} bytes"
            raise ValueError(message)
        return cls(int(parts[0]), salt, stored_key, server_key)

    def __str__(self) -> str:
        parts = (base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return "$".join((str(self.iterations), *parts))

    def __repr__(self) -> str:
        # What it holds is for files alone, not for logs.
        return f"<trunkline.mtl.Verifier of {self.iterations} iterations>"


def salted(password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password, which both keys are derived from."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)


def digest(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()


def signature(key: bytes, data: bytes) -> bytes:
    """HMAC by SHA-256."""
    return hmac.digest(key, data, "sha256")


def xor(left: bytes, right: bytes) -> bytes:
    """The exclusive or of two byte strings of equal length."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def new_nonce() -> str:
    """A random nonce."""
    return secrets.token_urlsafe(_NONCE_BYTES)


def attributes(message: str, letters: str) -> list[str]:
    """The values of the attributes with these letters, which a message must begin with; further ones are ignored.

    Raises:
        MalformedError: The message begins with others, e.g. a mandatory extension.
    """
    values = []
    parts = message.split(",")
    if len(parts) < len(letters):
        raise MalformedError
    for letter, part in zip(letters, parts, strict=False):
        if not part.startswith(f"{letter}="):
            raise MalformedError
        values.append(part[2:])
    # Further ones have a letter too.
    if not all(re.match("[A-Za-z]=.", part, re.DOTALL) for part in parts[len(letters) :]):
        raise MalformedError
    if "r" in letters and not _NONCE.fullmatch(values[letters.index("r")]):
        raise MalformedError
    return values


def escaped(name: str) -> str:
    """A name as messages write it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """A name as it was before it was escaped.

    Raises:
        MalformedError: It has an invalid escape.
    """
    if re.search("=(?!2C|3D)", name):
        raise MalformedError
    return name.replace("=2C", ",").replace("=3D", "=")


def unbase64(text: str) -> bytes:
    """Decodes canonical BASE64.

    Raises:
        MalformedError: It is not canonical BASE64.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        message = "not valid BASE64"
        raise MalformedError(message) from error
    if base64.b64encode(data).decode() != text:
        message = "not valid BASE64"
        raise MalformedError(message)
    return data
