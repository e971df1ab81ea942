"""The native part of trunkline; use the package around it."""

import os
from typing import Literal, final

from typing_extensions import disjoint_base

__all__ = [
    "Guard",
    "Role",
    "__version__",
    "build_profile",
    "capture",
    "cdtp",
    "chirp",
    "columns",
    "dcp",
    "error_kinds",
    "msgpack",
    "shutdown",
    "use_libzmq",
]

from trunkline._native import capture, cdtp, chirp, columns, dcp, msgpack

__version__: str
build_profile: Literal["debug", "release"]

def error_kinds() -> list[str]:
    """What is wrong with bytes that are not a message, by slug."""

def use_libzmq(path: str | os.PathLike[str]) -> None:
    """Says which library pyzmq has loaded."""

def shutdown() -> None:
    """Ends every role of this process, within the time its lingering takes, then the context they share.

    A signal whose handler raises ends the lingering.
    """

@disjoint_base
class Role:
    """The part of a role that does not depend on its protocol."""

    @property
    def endpoints(self) -> list[str]:
        """The endpoints the role listens on, ports filled in."""

    @property
    def closed(self) -> bool:
        """Whether the role is over."""

    @property
    def progress(self) -> int:
        """Messages taken in since the start."""

    @property
    def guard(self) -> Guard | None:
        """Who lets clients in, where there is an allow-list."""

    def fileno(self, *, changes: bool = False) -> int:
        """The descriptor that is readable when there are events; with `changes`, when anything else was waited for."""

    def arm(self) -> bool:
        """Announces a wait on `fileno`; true when there is no reason to wait."""

    def disarm(self) -> None:
        """Ends a wait on `fileno`."""

    def arm_changes(self) -> None:
        """Announces a wait on ``fileno(changes=True)``."""

    def disarm_changes(self) -> None:
        """Ends a wait on ``fileno(changes=True)``."""

    def close(self, grace_s: float) -> None:
        """Asks the role to end; it may take so many seconds to do so in an orderly way. A child after fork has none to end."""

    def join(self, timeout_s: float | None = None) -> bool:
        """Waits until the role has ended; false when the time is up."""

    def raise_failure(self) -> None:
        """Raises why the role ended, unless it was closed."""

    def check_open(self) -> None:
        """Raises `ClosedError`, or what ended the role, if it is over."""

    def has_room(self) -> bool:
        """Whether a message would find room."""

    def is_drained(self) -> bool:
        """Whether nothing waits to be sent."""

    def wait_drained(self, timeout_s: float | None = None) -> bool:
        """Waits until nothing waits to be sent; false when the time is up."""

    def ask_flush(self, publish: bool) -> int:
        """Asks for the capture to be safe on disk, with `publish` also as Parquet; gives a ticket."""

    def flushed(self, ticket: int) -> bool:
        """Whether a flush is done."""

    def wait_flushed(self, ticket: int, timeout_s: float | None = None) -> bool:
        """Waits for a flush; false when the time is up."""

    def await_progress(self, count: int) -> None:
        """Wakes waits for changes when so many messages have been taken in; to be said before each wait."""

    def wait_progress(self, count: int, timeout_s: float | None = None) -> bool:
        """Waits for so many messages, in all since the start; false when the time is up."""

@final
class Guard(Role):
    """Who lets CURVE clients in."""

    def allow(self, allowed: dict[bytes, str]) -> None:
        """Lets in the holders of these keys from now on, each by its name."""

    def answer(self, token: int, name: str | None) -> None:
        """Answers a question: with the client's name where it is let in."""

    def read(self) -> list[tuple[int | None, str, str]]:
        """Who was refused and who is asked about since the last call: the question's token or None, the key in Z85, and
        the address.
        """
