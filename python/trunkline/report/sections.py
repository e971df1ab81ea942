"""The sections of all protocols, in the order of the page."""

from __future__ import annotations

from collections.abc import Mapping

from trunkline._protocols import RECORDED, rooms
from trunkline.report.model import Section

__all__ = ["SECTIONS"]

_ROOMS = dict(rooms(__package__))
SECTIONS: Mapping[str, type[Section]] = {
    protocol.name: getattr(_ROOMS[protocol.name], f"{protocol.prefix}Section") for protocol in RECORDED
}
