"""mc0 messages, and the engines of its roles."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from trunkline._native import Role

__all__ = ["Middleware"]

@final
class Middleware(Role):
    """A middleware's engine."""

    def __new__(cls, options: dict[str, Any], settings: Mapping[str, Any]) -> Middleware: ...
    def enforce(self, entries: Sequence[tuple[bytes, bool, Sequence[bytes], Sequence[bytes]]] | None) -> None:
        """Has these entries be the policy from the next message on; without any, everything is allowed."""

    def notices(self) -> list[tuple[Any, ...]]:
        """Notices since the last call, each `(kind, *details)`."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""
