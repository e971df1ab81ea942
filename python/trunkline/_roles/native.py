"""The native side of roles: its libzmq, what is done once a role is open, and the end of all roles of the process."""

from __future__ import annotations

import atexit
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from trunkline import _native
from trunkline._arguments import named
from trunkline._roles.admission import Admission
from trunkline._roles.notices import Notices, connections, report_ends, stop, watch
from trunkline.errors import ClosedError
from trunkline.options import RoleOptions

if TYPE_CHECKING:
    from trunkline._native import Role as _Engine

__all__ = ["closed", "give_up", "opened", "use_pyzmq"]

# How long an engine may take to end at once.
_PARTING_S = 1.0

_ready = threading.Lock()

_library: str | None = None

# Missing limits that the process has warned of.
_warned: set[int | str] = set()

Native = TypeVar("Native", bound="_Engine")


def use_pyzmq() -> None:
    """Takes libzmq from pyzmq, and registers the end of all roles after pyzmq's, so that it runs before that."""
    global _library  # noqa: PLW0603 - once a process
    with _ready:
        if _library is None:
            from zmq.backend.cython import _zmq

            _library = _zmq.__file__
            _native.use_libzmq(_library)
            atexit.register(_shut_down)


def _shut_down() -> None:
    """Ends every role of the process and reports their last notices. An interrupt ends the current step."""
    for step in (stop, _native.shutdown, report_ends):
        with suppress(KeyboardInterrupt):
            step()


def closed(kind: str) -> ClosedError:
    """The error of a call on a closed role, by the kind of its machine: ``dcp.client``."""
    protocol, _, role = kind.rpartition(".")
    text = f"this {protocol}.{role.capitalize()} is closed"
    return ClosedError(text)


def give_up(native: _Engine) -> None:
    """Ends an engine at once, without waiting for pending work."""
    native.close(0.0)
    native.join(_PARTING_S)


def opened(native: Native, given: RoleOptions, notices: Notices) -> Native:
    """Sets up the admission of a native role that was just opened: its allow-list, and the log of refused clients."""
    notices.is_simulated = native.simulation is not None
    _warn_of_limits(native.missing, notices)
    connections.dialled.update(named("connect", given.get("connect") or ()))
    curve, guard = given.get("curve"), native.guard
    if curve is not None and guard is not None:
        curve._used_by(guard)  # noqa: SLF001 - of the roles
        admission = Admission(guard, curve.asks, notices)
        if curve.asks is None:
            watch(guard, admission.look)
        else:
            admission.start()
    return native


def _warn_of_limits(missing: int | str | None, notices: Notices) -> None:
    """Warns that a role runs over libzmq, which has weaker limits, if the user did not choose it."""
    if missing is None or missing in _warned:
        return
    _warned.add(missing)
    what = f"option {_option_name(missing)}" if isinstance(missing, int) else missing
    text = f"runs over libzmq, without the limits of transport='zmtp', which does not support {what}"
    if missing == "libsodium":
        text = "runs over libzmq, without the limits of transport='zmtp', which found no libsodium for CURVE"
    notices.log(logging.WARNING, "transport", text)


def _option_name(number: int) -> str:
    """A socket option as pyzmq calls it."""
    import zmq

    try:
        return zmq.SocketOption(number).name
    except ValueError:
        return str(number)
