"""The native part of trunkline; use the package around it."""

import os
from collections.abc import Sequence
from typing import Any, Literal, final

from typing_extensions import disjoint_base

__all__ = [
    "Guard",
    "Protocol",
    "Role",
    "__version__",
    "build_profile",
    "capture",
    "cdtp",
    "chirp",
    "columns",
    "dcp",
    "decode",
    "error_kinds",
    "msgpack",
    "protocols",
    "shutdown",
    "topic",
    "use_libzmq",
]

from trunkline._native import capture, cdtp, chirp, columns, dcp, msgpack

__version__: str
build_profile: Literal["debug", "release"]

def error_kinds() -> list[str]:
    """What is wrong with bytes that are not a message, by slug."""

def protocols() -> list[Protocol]:
    """Every protocol whose messages can be decoded into columns."""

def decode(protocol: str, frames: Sequence[Any]) -> list[cdtp.Message | dcp.Message] | None:
    """The messages in recorded frames, as leniently as any recorder may have been; None where the protocol is not known.

    Raises:
        DecodeError: The frames are no message.
    """

def topic(protocol: str, frames: Sequence[Any]) -> bytes | None:
    """The topic of a message, where the place of a frame alone says which it is."""

@final
class Protocol:
    """What there is to know of a protocol's columns."""

    @property
    def name(self) -> str:
        """The name in the `protocol` column of a capture."""

    @property
    def one_way(self) -> bool:
        """Whether messages go one way, so that those recorded can be sent again: nobody answers them."""

    @property
    def options(self) -> dict[str, Any]:
        """The options of decoding, with their defaults."""

    @property
    def inputs(self) -> tuple[tuple[str, Literal["always", "columns", "head"], tuple[str, ...]], ...]:
        """The columns that decoding takes: their name in a capture, and what they are needed for.

        ``"always"``: to tell what is a message. ``"columns"``: for these columns of what is decoded alone. ``"head"``: to
        tell what is a message, for which the frames before the body do; the body is for these columns. The numbers of
        frames and bytes may be missing.
        """

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of a capture that a message keeps of the row it comes from."""

    @property
    def error_kinds(self) -> tuple[str, ...]:
        """What can be wrong with frames that are no message, by slug."""

    @property
    def column_kinds(self) -> tuple[str, ...]:
        """Why a good message may have an empty cell, by slug."""

    @property
    def ddl(self) -> str:
        """The columns that decoding gives unless options say otherwise, in the words of Spark."""

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
