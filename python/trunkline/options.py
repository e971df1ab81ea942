"""The options that all roles of all protocols take, and their defaults."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, cast

from trunkline._text import did_you_mean

if TYPE_CHECKING:
    import zmq

    from trunkline.curve import Curve

__all__ = ["CaptureOverflow", "Endpoints", "Overflow", "RoleOptions", "SocketOptions", "Transport"]
__dir__ = __all__.copy

Endpoints = str | Sequence[str]
Overflow = Literal["block", "raise"]
CaptureOverflow = Literal["count", "block"]
Transport = Literal["auto", "zmtp", "libzmq", "zeromq"]


class SocketOptions(TypedDict, total=False):
    """Options of sockets and queues.

    A role needs ``bind`` or ``connect``, a ``socket``, or a CHIRP group in which it finds its peers.

    Attributes:
        bind: One or more endpoints to listen on, e.g. ``"tcp://127.0.0.1:*"``. Endpoints that ZeroMQ would silently take for
            others, such as a port above 65535, are refused. Default: none.
        connect: One or more endpoints to connect to. An address of IPv6 is in brackets, here and in `bind`:
            ``"tcp://[::1]:23999"``. Default: none.
        options: ZeroMQ socket options, e.g. ``{zmq.TCP_KEEPALIVE: 1}``. Default: none.
        socket: Your own pyzmq socket to use; do not close it before the role. It has its own context and security, so
            `context` and `curve` are refused beside it. Default: none.
        context: A pyzmq Context to share, for ``inproc://``; do not terminate it before the role is closed. Default: none.
        curve: Encryption and authentication, a `trunkline.Curve`. Default: none.
        queue_messages: The most messages in the queue between the role and its user, at least 1. Default: 100,000.
        queue_bytes: The most bytes in that queue, counting 64 bytes of overhead for each frame. A larger message is accepted
            when the queue is empty. At least 1. Default: 256 MiB.
        outbox_bytes: The most bytes that may wait for all peers of a role that answers, such as a broker; beyond it, the newest
            message of the peer with the most bytes waiting is dropped. At least 1. Default: 256 MiB.
        max_message_bytes: The largest frame that is accepted, in bytes. A peer that sends a larger one is disconnected;
            sending one raises `LocalProtocolError`. With `curve` at least 547, for its handshake. Default: 1 GiB.
        max_message_frames: The most frames of a message that is accepted, 1 to 10,000; a peer that sends more is disconnected.
            Over libzmq 10,000, whatever is given. Default: 10,000.
        max_handshake_bytes: The most bytes of a peer before its handshake is over, and of a ZMTP command after it, at least
            1024. Only over `zmtp`. Default: 64 KiB.
        handshake_timeout_s: The time a peer has for its handshake, in seconds, at least 0.001. None: 10 s, over libzmq 5 s.
            Default: none.
        max_connections: The most peers that a listening role accepts; further ones are disconnected and counted in
            ``stats.turned_away``. None: the process's limit of open files less 64, or less a quarter of it where the limit
            is low. Default: none.
        max_connections_per_host: The same of one host. None for no limit. Default: none.
        raise_file_limit: Raise the process's soft limit of open files to its hard limit: each accepted connection takes a
            file descriptor. Default: False.
        transport: The implementation of ZeroMQ. ``"libzmq"`` is the one that pyzmq has loaded. ``"zmtp"`` is our own, on the
            thread of the role: faster, and what a peer can make it hold is bounded while it comes; it does not support
            ``inproc://``, `socket`, `context`, or `options` whose numbers it does not know, each of which raises
            `LocalProtocolError`, and takes CURVE from the libsodium that comes with pyzmq. ``"zeromq"`` is the Rust crate of
            that name: it does not support `curve`, ``inproc://``, ``ipc://*``, `options`, `socket`, `context` or any limit of
            what a peer can do (`max_message_bytes` and those after it), each of which raises `LocalProtocolError`: use it
            with trusted peers only. ``"auto"``, or None: our own where it supports all that is asked
            for, else libzmq, and a warning says what is missing; libzmq throughout where the environment variable
            ``TRUNKLINE_TRANSPORT`` is ``libzmq``, and the crate wherever it supports what is asked for where that is
            ``zeromq``. Default: none.
        metrics: Where to serve the counters of the role for Prometheus, over HTTP: ``"127.0.0.1:9100"``, or a port alone, which
            means 127.0.0.1; port 0 is a free one, see ``metrics_url``. ``/metrics`` has the counters, ``/healthz`` says
            whether the role serves. Anyone who can connect may read both. Needs the extra ``metrics``. Default: none.

    ```pycon
    >>> from trunkline import SocketOptions, cdtp
    >>> options: SocketOptions = {"bind": "tcp://127.0.0.1:*", "queue_messages": 1000}
    >>> with cdtp.Receiver(**options) as receiver:
    ...     len(receiver.endpoints)
    1

    ```
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
    max_message_frames: int
    max_handshake_bytes: int
    handshake_timeout_s: float | None
    max_connections: int | None
    max_connections_per_host: int | None
    raise_file_limit: bool
    transport: Transport | None
    metrics: str | None


class RoleOptions(SocketOptions, total=False):
    """Options of every role: `SocketOptions`, and those of its capture.

    Attributes:
        capture: A directory in which to record everything received and sent; the options below apply to it. Default: none.
        capture_overflow: What to do when the disk cannot keep up: drop rows and count them in ``stats.capture_lost``
            (``"count"``), or stop reading from the sockets until it has caught up (``"block"``). If the capture fails, the
            role continues without it. Default: "count".
        segment_bytes: The most frame bytes in a segment file; at least 1, or None for the default. Default: 256 MiB.
        segment_s: The age at which a segment is published, in seconds; None for the default. Default: 60 s.
        keep_bytes: The most bytes that the capture may take on disk; beyond it, the oldest segments are deleted. None keeps
            all. Default: none.
        keep_days: The age in days after which a published segment is deleted. None keeps all. Default: none.
        capture_private: Create the directory with mode 0700 and its files with 0600; else the umask applies.
            Default: False.
        warn_free_bytes: Log a warning each time the free space of the disk falls below this. Default: 10 GiB.
        critical_free_bytes: Log another one when it falls below this. Default: 3 GiB.

    ```pycon
    >>> import tempfile
    >>> from trunkline import RoleOptions, capture, dcp
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     options: RoleOptions = {"bind": "tcp://127.0.0.1:*", "capture": runs, "keep_days": 30}
    ...     with dcp.Broker(**options):
    ...         pass
    ...     len(capture.open(runs))
    0

    ```
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
    "max_message_frames": 10_000,
    "max_handshake_bytes": 64 << 10,
    "handshake_timeout_s": None,
    "max_connections": None,
    "max_connections_per_host": None,
    "raise_file_limit": False,
    "transport": None,
    "metrics": None,
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
_Class = TypeVar("_Class")


def spelled_out(
    options: type[Any] | None = None, *, without: str | tuple[str, ...] = (), defaults: Mapping[str, object] = DEFAULTS
) -> Callable[[_Function], _Function]:
    """Lets the signature of a function name each of the options that its ``**options`` takes, as `help` shows it, and
    refuses arguments that it does not fit, before anything else is done.

    Args:
        options: Those it takes; none but its own parameters if None.
        without: One or several that are not shown: the function says itself why it does not take them.
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
            for name, kind in {**dict.fromkeys(left_out, ""), **getattr(options, "__annotations__", {})}.items()
        ]
        taken = signature.replace(parameters=[*own, *more])
        shown = [each for each in taken.parameters.values() if each.name not in left_out]

        @functools.wraps(function)
        def fitting(*args: Any, **given: Any) -> Any:
            name = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
            for unknown in given.keys() - taken.parameters.keys():
                hint = did_you_mean(unknown, (each.name for each in shown))
                message = f"{name}() got an unexpected keyword argument {unknown!r}{hint}"
                raise TypeError(message)
            try:
                taken.bind(*args, **given)
            except TypeError as error:
                message = f"{name}(): {error}"
                raise TypeError(message) from None
            return function(*args, **given)

        fitting.__signature__ = taken.replace(parameters=shown)  # type: ignore[attr-defined]
        return cast("_Function", fitting)

    return spell_out


def hinting(kind: type[_Class]) -> type[_Class]:
    """Lets the constructor of a class say which argument was probably meant in place of an unknown one."""
    setattr(kind, "__init__", spelled_out()(kind.__init__))  # noqa: B010 - type checkers allow nothing else
    return kind


def _annotation(kind: Any) -> str:
    """An annotation as it is written here."""
    return kind.__forward_arg__ if hasattr(kind, "__forward_arg__") else str(kind)
