"""What is taken for a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zmq

__all__ = ["Frame", "Parts"]

Frame: TypeAlias = "bytes | bytearray | memoryview | zmq.Frame"

# One frame, or several.
Parts: TypeAlias = "Frame | Sequence[Frame]"
