"""The native part of trunkline; use the package around it."""

import os
from collections.abc import Sequence
from typing import Any, Literal, Self, final

from typing_extensions import disjoint_base

from trunkline._frames import Frame

__all__ = [
    "Caller",
    "Guard",
    "NoticeQueue",
    "Outgoing",
    "Peer",
    "Protocol",
    "Role",
    "Simulation",
    "__version__",
    "analysis",
    "build_profile",
    "capture",
    "cdt",
    "cdtp",
    "chirp",
    "columns",
    "connection_failures",
    "dcp",
    "decode",
    "drop_meanings",
    "error_kinds",
    "has_network",
    "latency_bounds_ns",
    "mc0",
    "msgpack",
    "mtl",
    "protocols",
    "shutdown",
    "topic",
    "transports",
    "use_libzmq",
]

from trunkline._native import analysis, capture, cdt, cdtp, chirp, columns, dcp, mc0, msgpack, mtl

__version__: str
build_profile: Literal["debug", "release"]

def drop_meanings() -> dict[str, str]:
    """What each reason to drop a valid message means, by slug."""

def connection_failures() -> dict[str, str]:
    """Why connections over ``transport="zmtp"`` are refused or given up: what each key of ``stats.connection_failures`` means."""

def error_kinds() -> list[str]:
    """The kinds of errors of invalid messages, by slug."""

def has_network() -> bool:
    """Whether a network of this host is up, be it the loopback network alone."""

def latency_bounds_ns() -> list[int]:
    """The longest time that each bucket of latencies but the last counts, in nanoseconds."""

def protocols() -> list[Protocol]:
    """Every protocol whose messages can be decoded into columns."""

def decode(protocol: str, frames: Sequence[Any], topic: str | None = None) -> list[Any] | None:
    """The messages in recorded frames, as leniently as any recorder may have been; None where the protocol is not known. Of CDT the
    topic says what they are: without, there are none.

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
        """Whether messages go one way and are never answered, so that recorded ones can be sent again."""

    @property
    def options(self) -> dict[str, Any]:
        """The options of decoding, with their defaults."""

    @property
    def inputs(self) -> tuple[tuple[str, Literal["always", "columns", "head"], tuple[str, ...]], ...]:
        """The columns that decoding takes: their name in a capture, and what they are needed for.

        ``"always"``: to find messages. ``"columns"``: only for these decoded columns. ``"head"``: to
        find messages, for which the frames before the body suffice; the body is for these columns. The numbers of
        frames and bytes, and the topic, may be missing.
        """

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of a capture that a message keeps of the row it comes from."""

    @property
    def error_kinds(self) -> tuple[str, ...]:
        """The kinds of errors of invalid messages, by slug."""

    @property
    def column_kinds(self) -> tuple[str, ...]:
        """Why a valid message may have an empty cell, by slug."""

    @property
    def message_types(self) -> tuple[str, ...]:
        """What messages there are, as the column ``type`` has them; ``verb`` with mc0."""

    @property
    def ddl(self) -> str:
        """The columns that decoding gives unless options say otherwise, in the words of Spark."""

def transports() -> list[tuple[str, bool]]:
    """The implementations of ZeroMQ that there are, and whether each has CURVE."""

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
    def simulation(self) -> Any:
        """The simulation's entry of a simulated role; None of a live one."""

    @property
    def unsent(self) -> bool:
        """Whether it ended with messages that the transport had taken and could not send in time."""

    @property
    def closed(self) -> bool:
        """Whether the role is over."""

    @property
    def closing(self) -> bool:
        """Whether the role was asked to end, or is over."""

    @property
    def progress(self) -> int:
        """Messages taken in since the start."""

    @property
    def transport(self) -> str | None:
        """The implementation of ZeroMQ that it runs over."""

    @property
    def missing(self) -> int | str | None:
        """What kept "auto" from taking our own transport: the number of a socket option, an endpoint, or "libsodium"."""

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
class Simulation:
    """Machines, and all that is between them."""

    def __new__(cls, seed: int, steps: int) -> Self: ...
    def set_network(self, *, latency_s: float, jitter_s: float, loss: float, duplication: float, reorder: bool) -> None:
        """Has messages sent from now on treated like this."""

    @property
    def now_ns(self) -> int:
        """The time since the start."""

    def peer(self, kind: str, bind: list[str], connect: list[str]) -> Peer:
        """Adds a raw socket of this kind."""

    def wake(self, after_s: float, token: int) -> None:
        """Has `run` report this number after so long."""

    def run(self, until_ns: int | None, *, once: bool) -> tuple[list[tuple[int | None, int]], bool]:
        """Runs what is due by then: one step with `once`, else until there is something to report.

        Returns what is reported, each the number of a role that has an event to `deliver` or None, and that of `wake`; and
        whether anything was due.
        """

    def deliver(self, number: int) -> None:
        """Hands the oldest event of a role that `run` has reported to its readers."""

    def crash(self, number: int) -> None:
        """Removes a role without notice."""

    def restart(self, number: int) -> None:
        """Restarts a role without its former state."""

@final
class Peer:
    """A raw socket of a simulation."""

    @property
    def number(self) -> int:
        """What `Simulation.run` calls it."""

    @property
    def closed(self) -> bool:
        """Whether it has crashed."""

    @property
    def address(self) -> bytes | None:
        """What it is called by who it dialled first, while it is connected."""

    def send(self, frames: Sequence[Frame], to: bytes | None) -> None:
        """Sends a message, to this peer of a ROUTER."""

    def poll(self) -> tuple[bytes, ...] | None:
        """The next message that was delivered."""

@final
class Outgoing:
    """A call on its way to the engine."""

    @property
    def call(self) -> int:
        """The number of the call."""

@disjoint_base
class Caller(Role):
    """The part of a role that asks."""

    def post(self, outgoing: Outgoing) -> bool:
        """Hands a call to the engine, which `wake` wakes; false when there is no room."""

    def wake(self) -> None:
        """Wakes the engine for the calls that it was handed."""

    def put(self, outgoing: Outgoing, timeout_s: float | None = None) -> None:
        """Hands a call to the engine, waiting for room."""

    def request(self, outgoing: Outgoing, *, room_s: float | None, timeout_s: float | None) -> Any:
        """Asks, and waits for the reply in this thread alone; `room_s` is how long to wait for room in the queue."""

    def cancel(self, call: int) -> None:
        """Gives up a call; a thread that waits for it gets "unanswered"."""

    def outcomes(self) -> list[tuple[int, Any]]:
        """The calls that have ended since the last time: the number and the reply, or what there was instead.

        That is ``"timed_out"`` or ``"unanswered"``, or an exception.
        """

    def outcomes_fileno(self) -> int:
        """The descriptor that is readable when calls have ended."""

    def arm_outcomes(self) -> bool:
        """Announces a wait on `outcomes_fileno`; true when there is no reason to wait."""

    def disarm_outcomes(self) -> None:
        """Ends a wait on `outcomes_fileno`."""

@final
class NoticeQueue:
    """The notices of a role, apart from its messages."""

    @property
    def simulation(self) -> Any:
        """The simulation's entry of a simulated role; None of a live one."""

    @property
    def closed(self) -> bool:
        """Whether the role is over."""

    def fileno(self) -> int:
        """The descriptor that is readable when there are notices."""

    def arm(self) -> bool:
        """Announces a wait on `fileno`; true when there is no reason to wait."""

    def disarm(self) -> None:
        """Ends a wait on `fileno`."""

    def read(self) -> list[tuple[Any, ...]]:
        """Notices since the last call, each ``(kind, *details)``."""

@final
class Guard(Role):
    """Who lets CURVE clients in."""

    def allow(self, allowed: dict[bytes, str]) -> None:
        """Admits the holders of these keys from now on, each by its name, and cuts off the others."""

    def ask_again(self) -> None:
        """Asks about the connected clients again, and cuts off those that are refused."""

    def answer(self, token: int, name: str | None) -> None:
        """Answers a question: with the client's name if it is admitted."""

    def read(self) -> list[tuple[int | None, str, str]]:
        """Who was refused and who is asked about since the last call: the question's token or None, the key in Z85, and
        the address.
        """
