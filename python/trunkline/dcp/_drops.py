"""What roles of DCP tell of messages they drop."""

from __future__ import annotations

from trunkline._notices import Dropped, Notices

__all__ = ["tell_dropped"]

# Registrations and requests, which name a service.
_WITH_SERVICE = (b"\x01", b"\x04")


def tell_dropped(notices: Notices, dropped: Dropped) -> None:
    """Tells of a drop, with the service that the message was about."""
    head = dropped.frames[:4]
    names_service = len(head) == 4 and head[2] in _WITH_SERVICE
    notices.dropped(dropped, about=f", of {head[3][:100]!r}" if names_service else "")
