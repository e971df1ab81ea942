"""The options of roles: checked, and as the native side takes them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, get_args

from trunkline._arguments import named, need_choice, need_flag, need_number, need_path, need_seconds, refuse
from trunkline._roles.endpoints import Side, is_public, need_endpoints
from trunkline._roles.native import use_pyzmq
from trunkline.curve import Curve
from trunkline.errors import LocalProtocolError
from trunkline.options import DEFAULTS, CaptureOverflow, Endpoints, RoleOptions, Transport

__all__ = ["capture_options", "capture_settings", "endpoints", "native_options", "need_client"]

_DAY_S = 24 * 60 * 60

# The options that say how a capture is written.
CAPTURE_OPTIONS = (
    "segment_bytes",
    "segment_s",
    "keep_bytes",
    "keep_days",
    "capture_private",
    "warn_free_bytes",
    "critical_free_bytes",
)

# The largest message of a CURVE handshake: the client's second, with the longest routing id there is, 255 bytes.
_CURVE_HANDSHAKE_BYTES = 547

# Options that bound what a peer can do.
_LIMITS = tuple(name for name in DEFAULTS if name.startswith(("max_", "handshake_")))

# The options that a transport does not support.
_LACKS = {
    "zmtp": ("socket", "context"),
    "zeromq": ("curve", "socket", "context", "options", *_LIMITS),
}


def endpoints(side: Side, given: Endpoints) -> list[str]:
    """One endpoint or several, as a list."""
    return named(side, given)


def need_client(what: str, given: RoleOptions) -> None:
    """Refuses what a role that connects to a server cannot have: an endpoint to listen on, and the security of a server."""
    if given.get("bind"):
        message = f"{what}: use connect="
        raise LocalProtocolError(message)
    curve = given.get("curve")
    if isinstance(curve, Curve) and not curve.is_client:
        message = f"{what}, whose public key it needs: Curve(secret, server_key=…)"
        raise LocalProtocolError(message)


def native_options(given: RoleOptions, *, grace_s: float, finds: bool = False, **more: Any) -> dict[str, Any]:
    """The options as the native role takes them; a role that finds its peers has no endpoints of its own."""
    use_pyzmq()
    chosen: RoleOptions = {**DEFAULTS, **given}
    _need_right(chosen)
    socket, context, curve = chosen["socket"], chosen["context"], chosen["curve"]
    bind, connect = endpoints("bind", chosen["bind"]), endpoints("connect", chosen["connect"])
    need_endpoints("bind", bind)
    need_endpoints("connect", connect)
    if finds and (socket is not None or bind or connect):
        message = "a role that finds its peers in a group takes no bind=, connect= or socket="
        raise LocalProtocolError(message)
    if socket is None and not bind and not connect and not finds:
        message = "a role needs an endpoint: give bind= or connect=, or a socket="
        raise LocalProtocolError(message)
    if curve is not None and chosen["max_message_bytes"] < _CURVE_HANDSHAKE_BYTES:
        message = (
            f"max_message_bytes must be at least {_CURVE_HANDSHAKE_BYTES} with curve=, not {chosen['max_message_bytes']}: "
            "messages of the handshake are that large, and no connection could be made"
        )
        raise LocalProtocolError(message)
    _refuse_beside(chosen, bind, connect)
    if context is None and any(endpoint.startswith("inproc:") for endpoint in (*bind, *connect)):
        message = "inproc:// needs context=, the pyzmq Context in which both ends are"
        raise LocalProtocolError(message)
    if chosen["raise_file_limit"]:
        _raise_file_limit()
    keep_alive: list[object] = []
    if socket is not None:
        if context is not None:
            message = "socket= has its own context: leave out context="
            raise LocalProtocolError(message)
        if curve is not None:
            message = "socket= has its own security: leave out curve="
            raise LocalProtocolError(message)
        context = socket.context
        keep_alive.append(socket)
    if context is not None:
        keep_alive.append(context)
    capture = chosen["capture"]
    return {
        **({} if curve is None else curve._native_options()),  # noqa: SLF001 - of the roles
        "bind": bind,
        "connect": connect,
        "options": dict(chosen["options"]),
        "socket": None if socket is None else socket.underlying,
        "context": None if context is None else context.underlying,
        "keep_alive": keep_alive,
        "queue_messages": chosen["queue_messages"],
        "queue_bytes": chosen["queue_bytes"],
        "outbox_bytes": chosen["outbox_bytes"],
        "transport": chosen["transport"],
        "max_connections": chosen["max_connections"],
        "max_connections_per_host": chosen["max_connections_per_host"],
        "max_message_bytes": chosen["max_message_bytes"],
        "max_message_frames": chosen["max_message_frames"],
        "max_handshake_bytes": chosen["max_handshake_bytes"],
        "handshake_timeout_s": chosen["handshake_timeout_s"],
        "has_limits": any(chosen[name] != DEFAULTS[name] for name in _LIMITS),  # type: ignore[literal-required]
        "capture": None if capture is None else os.fspath(capture),
        "capture_overflow": chosen["capture_overflow"],
        **capture_settings(chosen),
        "grace_s": grace_s,
        "simulation": given.get("simulation"),
        **more,
    }


def _need_right(chosen: RoleOptions) -> None:
    """Refuses options of a wrong type or out of range, and names them."""
    import zmq

    options = chosen["options"]
    if not isinstance(options, Mapping):
        refuse("options", "a mapping of socket options to values, e.g. {zmq.TCP_KEEPALIVE: 1}", options)
    for number, value in options.items():
        need_number("options", number)
        if not isinstance(value, bytes | str):
            need_number(f"options[{number}]", value, least=-(1 << 31))
    if not isinstance(chosen["socket"], zmq.Socket | None):
        refuse("socket", "a zmq.Socket", chosen["socket"])
    if not isinstance(chosen["context"], zmq.Context | None):
        refuse("context", "a zmq.Context", chosen["context"])
    if not isinstance(chosen["curve"], Curve | None):
        refuse("curve", "a trunkline.Curve", chosen["curve"])
    need_number("queue_messages", chosen["queue_messages"], least=1, error=LocalProtocolError)
    need_number("queue_bytes", chosen["queue_bytes"], least=1, error=LocalProtocolError)
    need_number("outbox_bytes", chosen["outbox_bytes"], least=1, error=LocalProtocolError)
    need_number("max_message_bytes", chosen["max_message_bytes"])
    need_number("max_message_frames", chosen["max_message_frames"], least=1, most=DEFAULTS["max_message_frames"])
    need_number("max_handshake_bytes", chosen["max_handshake_bytes"], least=1024)
    need_seconds("handshake_timeout_s", chosen["handshake_timeout_s"], least=0.001, may_be_none=True)
    need_number("max_connections", chosen["max_connections"], least=1, may_be_none=True)
    need_number("max_connections_per_host", chosen["max_connections_per_host"], least=1, may_be_none=True)
    need_flag("raise_file_limit", chosen["raise_file_limit"])
    if chosen["transport"] is not None:
        need_choice("transport", chosen["transport"], get_args(Transport))
    need_path("capture", chosen["capture"], may_be_none=True)
    need_choice("capture_overflow", chosen["capture_overflow"], get_args(CaptureOverflow))
    need_capture_options(chosen)


def need_capture_options(chosen: Mapping[str, Any]) -> None:
    """Refuses capture options of a wrong type or out of range."""
    need_number("segment_bytes", chosen["segment_bytes"], least=1, may_be_none=True)
    need_seconds("segment_s", chosen["segment_s"], may_be_none=True)
    need_number("keep_bytes", chosen["keep_bytes"], may_be_none=True)
    need_seconds("keep_days", chosen["keep_days"], may_be_none=True, unit="days")
    need_flag("capture_private", chosen["capture_private"])
    need_number("warn_free_bytes", chosen["warn_free_bytes"])
    need_number("critical_free_bytes", chosen["critical_free_bytes"])


def capture_settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """How a capture is written, as the native side takes it."""
    segment_bytes, segment_s, keep_days = chosen["segment_bytes"], chosen["segment_s"], chosen["keep_days"]
    return {
        "segment_bytes": DEFAULTS["segment_bytes"] if segment_bytes is None else segment_bytes,
        "segment_s": DEFAULTS["segment_s"] if segment_s is None else segment_s,
        "keep_bytes": chosen["keep_bytes"],
        "keep_s": None if keep_days is None else keep_days * _DAY_S,
        "capture_private": chosen["capture_private"],
        "warn_free_bytes": chosen["warn_free_bytes"],
        "critical_free_bytes": chosen["critical_free_bytes"],
    }


def capture_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a capture that are given as a mapping, as the native side takes them; refuses others."""
    if not isinstance(given, Mapping):
        refuse("capture_options", "a mapping of options to values", given)
    unknown = set(given) - set(CAPTURE_OPTIONS)
    if unknown:
        message = f"unknown capture option {unknown.pop()!r} (choose from {', '.join(sorted(CAPTURE_OPTIONS))})"
        raise TypeError(message)
    chosen = {**DEFAULTS, **{name: value for name, value in given.items() if value is not None}}
    need_capture_options(chosen)
    return capture_settings(chosen)


def _refuse_beside(chosen: RoleOptions, bound: list[str], dialled: list[str]) -> None:
    """Refuses options that the transport does not support; warns if strangers can connect to one without limits."""
    transport = chosen["transport"]
    if transport not in _LACKS:
        return
    for name in _LACKS[transport]:
        if chosen[name] != DEFAULTS[name]:  # type: ignore[literal-required]  # they are names of options
            message = f"transport={transport!r} does not support {name}=: leave it out, or use transport='libzmq'"
            raise LocalProtocolError(message)
    for endpoint in (*bound, *dialled):
        if endpoint.startswith("inproc:"):
            message = (
                f"transport={transport!r} does not support {endpoint}: use tcp:// or ipc://, or transport='libzmq'"
            )
            raise LocalProtocolError(message)
    for endpoint in bound:
        if transport == "zeromq" and is_public(endpoint):
            text = f"{endpoint}: transport='zeromq' has no limits for peers, any of which can end the process: trusted peers only"
            logging.getLogger("trunkline").warning(text)


def _raise_file_limit() -> None:
    try:
        import resource
    except ImportError:  # Windows, where there is no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
