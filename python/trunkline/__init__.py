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

from trunkline._metrics.counters import Latencies
from trunkline._native import __version__, build_profile, connection_failures, error_kinds
from trunkline._native.columns import Layout
from trunkline._roles.notices import Dropped
from trunkline._tls import Tls
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
    from trunkline import capture, columns, msgpack, report, spark, testing

__all__ = [
    "AuthenticationError",
    "CaptureError",
    "ClosedError",
    "ConfigError",
    "Curve",
    "DecodeError",
    "Dropped",
    "Latencies",
    "Layout",
    "LeaseRefusedError",
    "LocalProtocolError",
    "MiddlewareError",
    "PeerLostError",
    "RemoteProtocolError",
    "RoleOptions",
    "SocketOptions",
    "TimeoutError",
    "Tls",
    "TrunklineError",
    "__version__",
    "capture",
    "columns",
    "connection_failures",
    "curve",
    "error_kinds",
    "errors",
    "msgpack",
    "options",
    "report",
    "spark",
    "testing",
]

# Of all protocols, written by tools/lists.py.
if TYPE_CHECKING:
    from trunkline import cdt, cdtp, chirp, dcp, mc0, mtl

__all__ += ["cdt", "cdtp", "chirp", "dcp", "mc0", "mtl"]
# End of what tools/lists.py writes.


if build_profile == "debug":
    warnings.warn("this is a debug build of trunkline, many times slower than a release build", stacklevel=2)


def __getattr__(name: str) -> Any:
    # What is exported and not there yet is a subpackage.
    if name in __all__:
        return importlib.import_module(f"trunkline.{name}")
    message = f"module 'trunkline' has no attribute {name!r}"
    raise AttributeError(message)


__dir__ = __all__.copy
