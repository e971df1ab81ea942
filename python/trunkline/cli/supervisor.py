"""What whoever supervises a role is told, as systemd is with Type=notify."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

__all__ = ["notify"]


def notify(state: str) -> None:
    """Sends a state, as ``READY=1``, to the socket that `NOTIFY_SOCKET` names, if it names one."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    # Others are no sockets of this machine's file system or of its abstract names, as vsock:.
    if not where.startswith(("/", "@")):
        return
    # A supervisor that is gone is no reason to end.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.sendto(state.encode(), where.replace("@", "\0", 1) if where.startswith("@") else where)
