"""Frames: their types, and those of a recorded message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import zmq

__all__ = ["Frame", "Parts", "of_row"]

Frame: TypeAlias = "bytes | bytearray | memoryview | zmq.Frame"

# One frame, or several.
Parts: TypeAlias = "Frame | Sequence[Frame]"


def of_row(row: Mapping[str, Any]) -> list[Any]:
    """The frames of a row of a capture, in the order they were received or sent."""
    header = [] if row["header"] is None else [row["header"]]
    return [*row["envelope"], *header, *row["payload"]]
