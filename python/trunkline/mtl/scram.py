"""SCRAM-SHA-256 (RFC 5802, RFC 7677): what client and server have in common."""

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

# RFC 7677 asks for as many at least; a server that asks for fewer may be after the password.
LEAST_ITERATIONS = 4096
# Half a second of a client: a server that asks for more may be after its time.
MOST_ITERATIONS = 1_000_000
DEFAULT_ITERATIONS = 4096

_SALT_BYTES = 16
_KEY_BYTES = 32
_NONCE_BYTES = 18

_NONCE = re.compile(r"[!-+\--~]+")


class MalformedError(ValueError):
    """What came in is no message of the exchange."""


@dataclass(frozen=True, slots=True, repr=False)
class Verifier:
    """What a server keeps of a password: enough to recognise it, not enough to log in with.

    Attributes:
        iterations: How often it was hashed.
        salt: What it was hashed with.
        stored_key: Tells the client's proof.
        server_key: Proves the server to the client.
    """

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, *, iterations: int = DEFAULT_ITERATIONS, salt: bytes | None = None) -> Self:
        """That of a password.

        Raises:
            ValueError: It is empty, or holds what no password may.
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
        """One as `str` writes it: ``iterations$salt$stored$server``, the last three in BASE64.

        Raises:
            ValueError: It is none; says why.
        """
        parts = text.split("$")
        if len(parts) != 4:
            message = "it is iterations$salt$stored$server"
            raise ValueError(message)
        if not re.fullmatch("[1-9][0-9]{0,8}", parts[0]) or not LEAST_ITERATIONS <= int(parts[0]) <= MOST_ITERATIONS:
            message = f"its iterations are a number from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            raise ValueError(message)
        salt, stored_key, server_key = map(unbase64, parts[1:])
        if not salt or len(stored_key) != _KEY_BYTES or len(server_key) != _KEY_BYTES:
            message = f"it has a salt, and two keys of {_KEY_BYTES} bytes"
            raise ValueError(message)
        return cls(int(parts[0]), salt, stored_key, server_key)

    def __str__(self) -> str:
        parts = (base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return "$".join((str(self.iterations), *parts))

    def __repr__(self) -> str:
        # What it holds is for files alone, not for logs.
        return f"<trunkline.mtl.Verifier of {self.iterations} iterations>"


def salted(password: str, salt: bytes, iterations: int) -> bytes:
    """What both keys of a password are made from."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)


def digest(data: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()


def signature(key: bytes, data: bytes) -> bytes:
    """HMAC by SHA-256."""
    return hmac.digest(key, data, "sha256")


def xor(left: bytes, right: bytes) -> bytes:
    """The exclusive or of two that are equally long."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def new_nonce() -> str:
    """What nobody can foresee, and nobody has used before."""
    return secrets.token_urlsafe(_NONCE_BYTES)


def attributes(message: str, letters: str) -> list[str]:
    """The values of a message whose attributes begin with these letters; it may have more, which are passed over.

    Raises:
        MalformedError: It has others, as one that has to be understood, which comes first.
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
    """A name as a message has it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """The name that a message has.

    Raises:
        MalformedError: An equals sign in it means nothing.
    """
    if re.search("=(?!2C|3D)", name):
        raise MalformedError
    return name.replace("=2C", ",").replace("=3D", "=")


def unbase64(text: str) -> bytes:
    """The bytes of a text in BASE64, which can be written in one way only.

    Raises:
        MalformedError: It is not.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        message = "it is not BASE64"
        raise MalformedError(message) from error
    if base64.b64encode(data).decode() != text:
        message = "it is not BASE64"
        raise MalformedError(message)
    return data
