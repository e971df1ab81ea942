"""Message protocols over ZeroMQ, from a live socket to a Spark table.

There is a subpackage for each protocol (`trunkline.cdt`, `trunkline.cdtp`, `trunkline.chirp`, `trunkline.dcp`,
`trunkline.mc0`, `trunkline.mtl`), one for recorded traffic (`trunkline.capture`), one for decoding it into columns
(`trunkline.columns`), one for the contents of reports (`trunkline.report`), one for Spark (`trunkline.spark`) and one
for your own tests (`trunkline.testing`). Each is imported on first use. The options that all roles take are in `trunkline.options`, the exceptions they raise in `trunkline.errors`.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from trunkline._counters import Latencies
from trunkline._native import __version__, build_profile, connection_failures, error_kinds
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
    from trunkline import capture, cdt, cdtp, chirp, columns, dcp, driver, mc0, msgpack, mtl, report, spark, testing

__all__ = [
    "AuthenticationError",
    "CaptureError",
    "ClosedError",
    "ConfigError",
    "Curve",
    "DecodeError",
    "Dropped",
    "Latencies",
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
    "connection_failures",
    "curve",
    "dcp",
    "driver",
    "error_kinds",
    "errors",
    "mc0",
    "msgpack",
    "mtl",
    "options",
    "report",
    "spark",
    "testing",
]

if build_profile == "debug":
    warnings.warn("this is a debug build of trunkline, many times slower than a release build", stacklevel=2)


def __getattr__(name: str) -> Any:
    # What is exported and not there yet is a subpackage.
    if name in __all__:
        return importlib.import_module(f"trunkline.{name}")
    message = f"module 'trunkline' has no attribute {name!r}"
    raise AttributeError(message)


__dir__ = __all__.copy
