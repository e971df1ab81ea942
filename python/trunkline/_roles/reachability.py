"""Why an endpoint cannot be reached, for the error of a wait that timed out."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from trunkline._roles.notices import connections
from trunkline._text import readable

__all__ = ["unreached", "why_not", "why_not_at"]

# The timeout of the probe.
_PROBE_S = 0.5


def unreached(endpoints: Iterable[str]) -> str:
    """Endpoints, each with the reason why it cannot be reached, if known."""
    reasons = ((endpoint, why_not(endpoint)) for endpoint in endpoints)
    return ", ".join(f"{endpoint} ({reason})" if reason else endpoint for endpoint, reason in reasons)


def why_not(endpoint: str) -> str | None:
    """Why an endpoint that a role of this process dials cannot be reached; None if unknown.

    The reason of a failed handshake takes precedence over a probe of the port.
    """
    if connections.failed_at(endpoint):
        _, seen = connections.failures[endpoint]
        return readable(seen)
    if connections.made:
        # A probe would be a failed handshake at the peer.
        return None
    transport, _, address = endpoint.partition("://")
    host, _, port = address.rpartition(":")
    if transport != "tcp" or not port.isdigit():
        return None
    return why_not_at(host.strip("[]"), int(port))


def why_not_at(host: str, port: int, timeout_s: float = _PROBE_S) -> str | None:
    """Why nothing can be reached at a TCP port; None if something accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except socket.gaierror:
        return f"{host} does not resolve"
    except ConnectionRefusedError:
        return "nothing listens there"
    except OSError as error:
        return "no answer from the host" if isinstance(error, TimeoutError) else error.strerror
    return None
