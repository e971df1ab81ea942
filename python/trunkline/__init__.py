"""Message protocols over ZeroMQ, from a live socket to a Spark table.

There is a subpackage for each protocol (`trunkline.cdt`, `trunkline.cdtp`, `trunkline.chirp`, `trunkline.dcp`,
`trunkline.mc0`, `trunkline.mtl`), one for recorded traffic (`trunkline.capture`), one for decoding it into columns
(`trunkline.columns`), one for Spark (`trunkline.spark`) and one for your own tests (`trunkline.testing`). Each is imported
on first use. The options that all roles take are in `trunkline.options`, the exceptions they raise in `trunkline.errors`.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from trunkline._native import __version__, build_profile, error_kinds
from trunkline._notices import Dropped
from trunkline.curve import Curve
from trunkline.errors import (
    AuthenticationError,
    CaptureError,
    ClosedError,
    ConfigError,
    DecodeError,
    LeaseRefusedError,
    LocalProtocolError,
    MiddlewareError,
    PeerLostError,
    RemoteProtocolError,
    TimeoutError,  # noqa: A004 - it is one, under the name users look for
    TrunklineError,
)
from trunkline.options import RoleOptions, SocketOptions

if TYPE_CHECKING:
    from trunkline import capture, cdt, cdtp, chirp, columns, dcp, mc0, msgpack, mtl, spark, testing

__all__ = [
    "AuthenticationError",
    "CaptureError",
    "ClosedError",
    "ConfigError",
    "Curve",
    "DecodeError",
    "Dropped",
    "LeaseRefusedError",
    "LocalProtocolError",
    "MiddlewareError",
    "PeerLostError",
    "RemoteProtocolError",
    "RoleOptions",
    "SocketOptions",
    "TimeoutError",
    "TrunklineError",
    "__version__",
    "capture",
    "cdt",
    "cdtp",
    "chirp",
    "columns",
    "dcp",
    "error_kinds",
    "mc0",
    "msgpack",
    "mtl",
    "spark",
    "testing",
]

_ROOMS = frozenset({"capture", "cdt", "cdtp", "chirp", "columns", "dcp", "mc0", "msgpack", "mtl", "spark", "testing"})

if build_profile == "debug":
    warnings.warn("this is a debug build of trunkline, many times slower than a release build", stacklevel=2)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"trunkline.{name}")
    message = f"module 'trunkline' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted(set(globals()) | _ROOMS)
