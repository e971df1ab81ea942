"""Frames: their types, and those of a recorded message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import zmq
    from typing_extensions import Buffer

__all__ = ["Bytes", "Frame", "Parts", "of_row"]


class ArrayBuffer(Protocol):
    """An array of numpy, whose types say only for Python 3.12 and later that it is a buffer."""

    @property
    def data(self) -> memoryview:
        """Its memory."""

    @property
    def nbytes(self) -> int:
        """The size of its memory."""


# What has the buffer protocol.
Bytes: TypeAlias = "Buffer | ArrayBuffer"

Frame: TypeAlias = "Buffer | ArrayBuffer | zmq.Frame"

# One frame, or several.
Parts: TypeAlias = "Frame | Sequence[Frame]"


def of_row(row: Mapping[str, Any]) -> list[Any]:
    """The frames of a row of a capture, in the order they were received or sent."""
    header = [] if row["header"] is None else [row["header"]]
    return [*row["envelope"], *header, *row["payload"]]
