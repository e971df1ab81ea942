"""Checks endpoints before ZeroMQ does, which takes port 99999 for 34463, and 80x for 80."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Literal

from trunkline.errors import LocalProtocolError

__all__ = ["Side", "host_and_port", "is_public", "need_endpoints", "what_is_wrong"]

Side = Literal["bind", "data_bind", "connect"]

_LOOKS_LIKE = "an endpoint looks like tcp://127.0.0.1:23999 or ipc:///tmp/data"

_LAST_PORT = 65535

_LONGEST_HOST = 253
_HOST = re.compile(r"[A-Za-z0-9:*_.][A-Za-z0-9:*_.%-]*")


def need_endpoints(side: Side, given: Iterable[str]) -> None:
    """Refuses invalid endpoints.

    Args:
        side: The argument they were given as.
        given: The endpoints.

    Raises:
        LocalProtocolError: One is none; it says which, and of which argument.
    """
    for endpoint in given:
        wrong = what_is_wrong(side, endpoint)
        if wrong is not None:
            message = f"{side}={endpoint!r} {wrong}"
            raise LocalProtocolError(message)


def what_is_wrong(side: Side, endpoint: str) -> str | None:
    """Why an endpoint cannot be bound or dialled; None if it is valid.

    >>> what_is_wrong("connect", "tcp://127.0.0.1:99999")
    "has the port '99999', not a number from 1 to 65535"
    """
    transport, separator, address = endpoint.partition("://")
    if not separator or not transport:
        return f"does not name its transport: {_LOOKS_LIKE}"
    if transport != "tcp":
        return None
    host, colon, port = address.rpartition(":")
    if not colon:
        return f"has no port: {_LOOKS_LIKE}"
    if not host:
        return f"has no host: {_LOOKS_LIKE}"
    # Of libzmq: an address to dial from stands before a semicolon.
    if not all(map(_is_host, host.split(";"))):
        return f"has the host {host!r}, which cannot be one: {_LOOKS_LIKE}"
    is_port = port.isascii() and port.isdigit() and len(port) <= len(str(_LAST_PORT)) and 1 <= int(port) <= _LAST_PORT
    if is_port or (side != "connect" and port in ("*", "0")):
        return None
    free = ", or * for a free one" if side != "connect" else ""
    return f"has the port {port!r}, not a number from 1 to {_LAST_PORT}{free}"


def _is_host(host: str) -> bool:
    r"""Whether a host is written as one: a name, an address, in brackets or not, a network interface or a star.

    >>> [_is_host(host) for host in ("localhost", "[::1]", "::1", "fe80::1%eth0", "*", "10.0.0.1:0")]
    [True, True, True, True, True, True]
    >>> [_is_host(host) for host in ("[::1", "::1]", "[]", "a..b", "user@host", "/host", "a b", "-x", "h\xf6st", "a" * 254)]
    [False, False, False, False, False, False, False, False, False, False]
    """
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
    return len(bare) <= _LONGEST_HOST and ".." not in bare and _HOST.fullmatch(bare) is not None


def is_public(endpoint: str) -> bool:
    """Whether other machines can connect to it; true for a host name, as that is unknown.

    >>> [is_public(at) for at in ("tcp://*:1", "tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://localhost:1", "ipc:///tmp/a")]
    [True, False, False, False, False]
    """
    transport, _, address = endpoint.partition("://")
    host = address.rpartition(":")[0].strip("[]")
    if transport != "tcp" or host in ("localhost", "lo"):
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def host_and_port(given: str) -> tuple[str, int]:
    """Parses the address of metrics: HOST:PORT, or PORT alone, which means 127.0.0.1; 0 is a free one.

    Raises:
        LocalProtocolError: It is neither.

    >>> [host_and_port(at) for at in ("9100", ":9100", "[::1]:0", "*:9100")]
    [('127.0.0.1', 9100), ('127.0.0.1', 9100), ('::1', 0), ('0.0.0.0', 9100)]
    """
    host, _, port = given.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= len(str(_LAST_PORT)) and int(port) <= _LAST_PORT
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not is_port or "/" in host or (":" in host and not is_bracketed) or host == "[]":
        message = f"metrics={given!r} is not HOST:PORT, such as 127.0.0.1:9100 or [::1]:9100, nor a port from 0 to {_LAST_PORT}"
        raise LocalProtocolError(message)
    if host == "*":
        return "0.0.0.0", int(port)  # noqa: S104 - who writes a star wants all of them
    return host.strip("[]") or "127.0.0.1", int(port)
