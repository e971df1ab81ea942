"""Parts of objects of S3 by one request each.

pyarrow asks for the size of an object before it reads it, even where that is known: twice the requests for small segments. So
parts are read by signed requests of our own where the keys are known, from the URL or the environment, and by pyarrow elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import re
import ssl
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["Parts", "signature"]

# How long a connection may take to answer, in seconds.
_TIMEOUT_S = 60.0

# The regions of other partitions have other domains.
_REGION = re.compile(r"(?!cn-|us-iso|eu-isoe|eusc-)[a-z0-9-]+")

# Of names with dots a wildcard certificate is not valid.
_BUCKET = re.compile(r"[a-z0-9-]+")

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Keys:
    """Who asks.

    Attributes:
        access: The access key.
        secret: The secret key.
        token: The token of a session; empty without one.
    """

    access: str
    secret: str
    token: str


class Parts:
    """Reads parts of objects on a file system of pyarrow's.

    Args:
        options: The options of the file system, by name.
        keys: Who asks.
    """

    def __init__(self, options: Mapping[str, Any], keys: Keys) -> None:
        self._options, self._keys = options, keys
        self._idle: deque[tuple[str, http.client.HTTPConnection]] = deque(maxlen=16)
        self._is_useless = False

    @classmethod
    def of(cls, files: FileSystem) -> Parts | None:
        """The parts of objects on a file system; None if it is another one, or its keys are not known.

        pyarrow shows the options of a file system where it is pickled.
        """
        if files.type_name != "s3":
            return None
        _, (options, *_) = files.__reduce__()
        if options.get("proxy_options", {}).get("host") or options.get("anonymous") or options.get("role_arn"):
            return None
        access, secret, token = (options.get(name) for name in ("access_key", "secret_key", "session_token"))
        if not access:
            # These come first for pyarrow too.
            names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
            access, secret, token = map(os.environ.get, names)
        return cls(options, Keys(access, secret, token or "")) if access and secret else None

    def read(self, path: str, at: int, length: int) -> tuple[bytes, int] | None:
        """A part of an object, and the size of all of it; None for pyarrow to read it, or to say what is wrong.

        Args:
            path: The bucket and the name.
            at: Where it begins.
            length: The most bytes of it; at least one.

        Raises:
            FileNotFoundError: There is no such object.
        """
        where = self._address(path)
        if self._is_useless or where is None:
            return None
        scheme, host, name = where
        headers = self._signed(host, name, f"bytes={at}-{at + length - 1}")
        try:
            status, said, content = self._ask(f"{scheme}://{host}", name, headers)
        except (OSError, http.client.HTTPException):
            return None
        if status == http.client.PARTIAL_CONTENT and (found := _RANGE.fullmatch(said)):
            return content, int(found[3])
        if status == http.client.OK:
            return content[at : at + length], len(content)
        if status == http.client.NOT_FOUND and b"<Code>NoSuchKey</Code>" in content:
            raise FileNotFoundError(path)
        # An empty object has no part, and a busy server answers pyarrow later.
        is_passing = (
            status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE or status >= http.client.INTERNAL_SERVER_ERROR
        )
        self._is_useless = not is_passing
        return None

    def _address(self, path: str) -> tuple[str, str, str] | None:
        """The scheme, the host and the encoded path of an object."""
        bucket, _, name = path.partition("/")
        scheme, override = self._options.get("scheme") or "https", self._options.get("endpoint_override") or ""
        if "://" in override:
            scheme, override = urlsplit(override).scheme, urlsplit(override).netloc
        if override:
            if self._options.get("force_virtual_addressing"):
                return None
            return scheme, override, quote(f"/{bucket}/{name}", safe="/-_.~")
        region = self._options.get("region") or ""
        if not _REGION.fullmatch(region) or not _BUCKET.fullmatch(bucket):
            return None
        return scheme, f"{bucket}.s3.{region}.amazonaws.com", quote(f"/{name}", safe="/-_.~")

    def _signed(self, host: str, name: str, part: str) -> dict[str, str]:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": host, "range": part, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
        if self._keys.token:
            headers["x-amz-security-token"] = self._keys.token
        region = self._options.get("region") or "us-east-1"
        return headers | {"authorization": signature(self._keys, region, name, headers)}

    def _ask(self, server: str, name: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
        """The status, the range and the content of an answer."""
        with suppress(IndexError, OSError, http.client.HTTPException):
            # A server may have closed a connection that was idle.
            return self._answer(self._connected(server), server, name, headers)
        return self._answer(self._connection(server), server, name, headers)

    def _connected(self, server: str) -> http.client.HTTPConnection:
        """A connection that is idle.

        Raises:
            IndexError: There is none.
        """
        while True:
            to, connection = self._idle.pop()
            if to == server:
                return connection
            connection.close()

    def _connection(self, server: str) -> http.client.HTTPConnection:
        scheme, host = server.split("://")
        if scheme == "http":
            return http.client.HTTPConnection(host, timeout=_TIMEOUT_S)
        trusted = ssl.create_default_context(cafile=self._options.get("tls_ca_file_path") or None)
        return http.client.HTTPSConnection(host, timeout=_TIMEOUT_S, context=trusted)

    def _answer(
        self, connection: http.client.HTTPConnection, server: str, name: str, headers: dict[str, str]
    ) -> tuple[int, str, bytes]:
        try:
            connection.request("GET", name, headers=headers)
            answer = connection.getresponse()
            found = answer.status, answer.getheader("content-range", ""), answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append((server, connection))
        return found


def signature(keys: Keys, region: str, path: str, headers: Mapping[str, str]) -> str:
    """The header that signs a GET without a query, by version 4 of AWS.

    Args:
        keys: Who asks.
        region: The region.
        path: The encoded path.
        headers: The headers, with names in lower case, in the order of their names.
    """
    now, names = headers["x-amz-date"], ";".join(headers)
    lines = (f"{name}:{value}\n" for name, value in headers.items())
    request = f"GET\n{path}\n\n{''.join(lines)}\n{names}\n{headers['x-amz-content-sha256']}"
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
