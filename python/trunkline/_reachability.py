"""Why an endpoint cannot be reached, for the error of a wait that timed out."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from trunkline import _notices
from trunkline._text import readable

__all__ = ["unreached", "why_not"]

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
    if _notices.connections.failed_at(endpoint):
        _, seen = _notices.connections.failures[endpoint]
        return readable(seen)
    if _notices.connections.made:
        # A probe would be a failed handshake at the peer.
        return None
    transport, _, address = endpoint.partition("://")
    host, _, port = address.rpartition(":")
    if transport != "tcp" or not port.isdigit():
        return None
    host = host.strip("[]")
    try:
        socket.create_connection((host, int(port)), timeout=_PROBE_S).close()
    except socket.gaierror:
        return f"{host} does not resolve"
    except ConnectionRefusedError:
        return "nothing listens there"
    except OSError as error:
        return "no answer from the host" if isinstance(error, TimeoutError) else error.strerror
    return None
