"""Why an endpoint is not reached, for the error of a wait that has timed out."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from trunkline import _notices
from trunkline._text import readable

__all__ = ["unreached", "why_not"]

# How long a connection may take that shows whether something listens.
_PROBE_S = 0.5


def unreached(endpoints: Iterable[str]) -> str:
    """Endpoints, each with the reason why it is not reached, where that is known."""
    reasons = ((endpoint, why_not(endpoint)) for endpoint in endpoints)
    return ", ".join(f"{endpoint} ({reason})" if reason else endpoint for endpoint, reason in reasons)


def why_not(endpoint: str) -> str | None:
    """Why an endpoint that a role of this process dials is not reached; None if that is not known.

    What a handshake has shown goes before what a look at the host and the port shows.
    """
    if _notices.connections.failed_at(endpoint):
        _, seen = _notices.connections.failures[endpoint]
        return readable(seen)
    if _notices.connections.made:
        # A look from here would be a failed handshake there.
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
