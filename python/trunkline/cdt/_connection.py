"""The connection to a NATS server as roles of CDT need it, over the network or in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from trunkline._native import Messages

__all__ = ["Connection", "Deliver", "Happened"]

# Called with messages, in order: the socket of each is the number of its subscription, the peer its subject, and the frames are its
# reply subject, header block and body. It does not raise, and may keep them.
Deliver: TypeAlias = Callable[[Messages], None]

# Called with changes of the connection: "connected", "disconnected", "refused" or "failed", and the server or the reason.
Happened: TypeAlias = Callable[[str, str], None]


class Connection(Protocol):
    """A connection to a NATS server; callbacks run in the event loop that opened it."""

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
        """Subscribes to a subject under this number; one member of each queue group gets each message."""

    async def unsubscribe(self, number: int) -> None:
        """Ends all subscriptions of a number."""

    @property
    def is_full(self) -> bool:
        """Whether the write buffer is full."""

    async def room(self) -> None:
        """Waits until the write buffer has room."""

    def publish(self, messages: Messages) -> dict[int, str]:
        """Sends messages, in the form of delivered ones, in order, at once or when the connection is restored.

        Returns:
            The positions of messages that are not sent, with the reasons.
        """

    def pause(self) -> None:
        """Stops reading until `resume`: messages wait at the server."""

    def resume(self) -> None:
        """Reads again."""

    async def flush(self) -> None:
        """Waits until the server has everything that was sent.

        Raises:
            PeerLostError: The server did not confirm in time.
        """

    async def close(self) -> None:
        """Ends the connection."""
