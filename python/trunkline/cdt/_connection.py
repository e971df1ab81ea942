"""What roles of CDT need of a NATS, in another process or in this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from trunkline._native import Messages

__all__ = ["Connection", "Deliver", "Happened"]

# Hears of messages, in their order: the socket of each is the number of its subscription, the peer its subject, and the frames are its
# reply subject, header block and body. It raises nothing, and may keep them.
Deliver: TypeAlias = Callable[[Messages], None]

# What became of the connection: "connected", "disconnected", "refused" or "failed", and where or why.
Happened: TypeAlias = Callable[[str, str], None]


class Connection(Protocol):
    """A connection to a NATS, whose callbacks come in the loop it was opened in."""

    @property
    def max_payload(self) -> int:
        """The largest body the server takes, in bytes."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The servers it is connected to, without credentials."""

    async def open(self) -> None:
        """Connects.

        Raises:
            PeerLostError: No server answers.
            AuthenticationError: The server refuses the credentials.
        """

    async def subscribe(self, number: int, subject: str, queue: str) -> None:
        """Has messages of a subject delivered under this number; one of each queue group has each."""

    async def unsubscribe(self, number: int) -> None:
        """Ends all subscriptions of a number."""

    @property
    def is_full(self) -> bool:
        """Whether what is sent now waits for the server."""

    async def room(self) -> None:
        """Waits until that is over."""

    def publish(self, messages: Messages) -> dict[int, str]:
        """Sends messages, made up as those that are delivered, in their order, at once or as soon as there is a connection again.

        Returns:
            The positions of those that are not sent, and why.
        """

    def pause(self) -> None:
        """Reads nothing more until `resume`: what is on its way waits with the server."""

    def resume(self) -> None:
        """Reads again."""

    async def flush(self) -> None:
        """Waits until the server has everything that was sent.

        Raises:
            PeerLostError: The server did not confirm in time.
        """

    async def close(self) -> None:
        """Ends the connection."""
