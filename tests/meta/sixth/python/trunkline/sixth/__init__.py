"""The room of the made-up protocol."""

from __future__ import annotations

from trunkline._native import sixth as _native

__all__ = ["AsyncNode", "Message", "Node"]

Message = _native.Message


class Node:
    """A role.

    Args:
        letters: How many letters it keeps.
    """

    def __init__(self, letters: int = 3) -> None:
        self.letters = letters


class AsyncNode(Node):
    """Its twin."""
