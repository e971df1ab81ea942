"""CHIRP datagrams, and the engine of its role."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Self, TypeAlias, final

from trunkline._frames import Bytes
from trunkline._native import Role
from trunkline.errors import DecodeError

__all__ = ["Beacon", "decode", "encode", "hash_name"]

_Kind: TypeAlias = Literal["offer", "request", "depart"]

def decode(frames: Bytes | Iterable[Bytes]) -> tuple[_Kind, str, str, int, int]:
    """What the datagram in these frames says: the one frame, or a sequence of it.

    Returns:
        Kind, group, host, service and port.

    Raises:
        DecodeError: It is no message.
    """

def encode(kind: _Kind, group: str, host: str, service: int, port: int) -> bytes:
    """The bytes of a datagram."""

def hash_name(name: str, lower_case: bool) -> str:
    """The hash of a name: 32 hexadecimal digits."""

@final
class Beacon(Role):
    """A beacon's engine."""

    def __new__(
        cls,
        options: Mapping[str, Any],
        beacon: Mapping[str, Any],
        on_drop: Callable[[str, DecodeError | None, tuple[bytes, ...], bytes | None], None],
    ) -> Self: ...
    def offer(self, service: int, port: int) -> None:
        """Announces a service, and answers those who ask for it."""

    def request(self, service: int) -> None:
        """Asks who offers a service."""

    def depart(self, service: int) -> None:
        """Takes an offer back."""

    def receive(self, timeout_s: float | None = None) -> tuple[_Kind, str, str | None, int, str | None]:
        """Waits for news: kind, host, name, service and endpoint."""

    def poll(self) -> tuple[_Kind, str, str | None, int, str | None] | None:
        """The next news if there are any now."""

    def stats(self) -> dict[str, Any]:
        """Counters, by name."""
