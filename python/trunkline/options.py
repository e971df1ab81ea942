"""What every role of every protocol takes beside what is its own, and what it takes where nothing is given."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

if TYPE_CHECKING:
    import zmq

    from trunkline.curve import Curve

__all__ = ["CaptureOverflow", "Endpoints", "Overflow", "RoleOptions", "SocketOptions", "Transport"]

Endpoints = str | Sequence[str]
Overflow = Literal["block", "raise"]
CaptureOverflow = Literal["count", "block"]
Transport = Literal["libzmq", "zeromq"]


class SocketOptions(TypedDict, total=False):
    """What every role takes about its sockets and queues.

    A role needs ``bind`` or ``connect``, or else a ``socket``, or a group in which it finds its peers.

    Attributes:
        bind: One endpoint to listen on, or several, as ``"tcp://127.0.0.1:*"``. Refused: what ZeroMQ would take for
            another endpoint, as a port above 65535. Default: none.
        connect: One endpoint to dial, or several. Default: none.
        options: Socket options by their number, as ``{zmq.TCP_KEEPALIVE: 1}``. Default: none.
        socket: A pyzmq socket of yours to use; do not close it while the role lives. It brings its own context and its
            own security: refused beside `context` and `curve`. Default: none.
        context: A pyzmq Context to share, for ``inproc://``; do not close it while the role lives. Default: none.
        curve: Encryption and authentication, a `trunkline.Curve`. Default: none.
        queue_messages: Messages that may wait between the role and you, at least 1. Default: 100,000.
        queue_bytes: Bytes that they may take: those of their frames, and 64 for each frame. One larger message is taken
            when nothing waits. At least 1. Default: 256 MiB.
        outbox_bytes: Bytes that may wait for the peers of a role that answers (a broker), all of them together; beyond it
            the peer with the most waiting loses its newest message. At least 1. Default: 256 MiB.
        max_message_bytes: The largest frame that is taken, in bytes. A peer that sends a larger one is disconnected; to
            send one raises `LocalProtocolError`. Beside `curve` at least 547, which its handshake takes. Default: 1 GiB.
        max_connections: Peers that a role lets in where it listens; who comes when there are as many is hung up on and counted in
            ``stats.turned_away``. None: as many as the process may have files open, but for 64 that it keeps back, or a quarter of
            them where there are few. Default: none.
        raise_file_limit: Raise the limit of open files to what the system allows, for all of the process: each connection
            of a role that listens is a file. Default: False.
        transport: The implementation of ZeroMQ: the one that pyzmq has loaded (``"libzmq"``), or the Rust crate
            ``"zeromq"``, which this package brings. It has no CURVE, no ``inproc://``, no socket options, takes no `socket` and no
            `context`, knows no `max_connections`, and each of these raises `LocalProtocolError`; nor does it dial again once a
            connection is lost. None: libzmq, and the other where pyzmq gives none away. Default: none.
    """

    bind: Endpoints
    connect: Endpoints
    options: Mapping[int, int | bytes | str]
    socket: zmq.Socket[bytes] | None
    context: zmq.Context[Any] | None
    curve: Curve | None
    queue_messages: int
    queue_bytes: int
    outbox_bytes: int
    max_message_bytes: int
    max_connections: int | None
    raise_file_limit: bool
    transport: Transport | None


class RoleOptions(SocketOptions, total=False):
    """What every role takes: `SocketOptions`, and what says whether and how it records its traffic.

    Attributes:
        capture: A directory to record everything in that is received and sent. What follows is about that. Default: none.
        capture_overflow: What happens when the capture cannot keep up: the rows it misses are counted in
            ``stats.capture_lost`` (``"count"``), or nothing is read until it can (``"block"``). When the capture fails, the
            role goes on without it. Default: "count".
        segment_bytes: The frame bytes of one segment file, at most; at least 1, or None for the default. Default: 256 MiB.
        segment_s: The age at which a segment is published, in seconds; None for the default. Default: 60 s.
        keep_bytes: The bytes that the capture may take on disk; what is more is deleted, the oldest segments first. None
            keeps all. Default: none.
        keep_days: How many days ago a segment may have been published; what is older is deleted. None keeps all.
            Default: none.
        capture_private: Make the capture's directory for this user alone (0700), and its files (0600); else they are as
            the umask has it. Default: False.
        warn_free_bytes: Warn when the disk has less left: in the log, each time it falls below. Default: 10 GiB.
        critical_free_bytes: Tell once more when it has less than this. Default: 3 GiB.
    """

    capture: str | os.PathLike[str] | None
    capture_overflow: CaptureOverflow
    segment_bytes: int | None
    segment_s: float | None
    keep_bytes: int | None
    keep_days: float | None
    capture_private: bool
    warn_free_bytes: int
    critical_free_bytes: int


DEFAULTS: RoleOptions = {
    "bind": (),
    "connect": (),
    "options": {},
    "socket": None,
    "context": None,
    "curve": None,
    "queue_messages": 100_000,
    "queue_bytes": 256 << 20,
    "outbox_bytes": 256 << 20,
    "max_message_bytes": 1 << 30,
    "max_connections": None,
    "raise_file_limit": False,
    "transport": None,
    "capture": None,
    "capture_overflow": "count",
    "segment_bytes": 256 << 20,
    "segment_s": 60.0,
    "keep_bytes": None,
    "keep_days": None,
    "capture_private": False,
    # As released peers do.
    "warn_free_bytes": 10 << 30,
    "critical_free_bytes": 3 << 30,
}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def spelled_out(
    options: type[Any], *, without: str | tuple[str, ...] = (), defaults: Mapping[str, object] = DEFAULTS
) -> Callable[[_Function], _Function]:
    """Lets the signature of a function name each of the options that its ``**options`` takes, as `help` shows it.

    Args:
        options: Those it takes.
        without: One or several that it does not.
        defaults: What each is where it is not given.
    """
    left_out = (without,) if isinstance(without, str) else without

    def spell_out(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=_annotation(kind)
            )
            for name, kind in options.__annotations__.items()
            if name not in left_out
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return spell_out


def _annotation(kind: Any) -> str:
    """An annotation as it is written here."""
    return kind.__forward_arg__ if hasattr(kind, "__forward_arg__") else str(kind)
