"""State notifications to the supervisor of a role, as systemd wants with Type=notify."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

__all__ = ["notify"]


def notify(state: str) -> None:
    """Sends a state, as ``READY=1``, to the socket that `NOTIFY_SOCKET` names, if it names one."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    # Only sockets of the file system and of abstract names are supported, not vsock:.
    if not where.startswith(("/", "@")):
        return
    # The role goes on without its supervisor.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.sendto(state.encode(), where.replace("@", "\0", 1) if where.startswith("@") else where)
