"""CDT: configurations of endpoints over NATS. Targets store them, sources pull, push and watch them; both announce changes by events."""

from __future__ import annotations

from trunkline._native.cdt import (
    ConfigNewAvailable,
    ConfigPush,
    ConfigPushResponse,
    ConfigRequest,
    ConfigResponse,
    ConfigUpdated,
    decode,
    encode,
)
from trunkline._native.cdt import _restore as _restore
from trunkline.cdt.options import CdtOptions
from trunkline.cdt.recorder import AsyncRecorder, Recorder, RecorderStats
from trunkline.cdt.source import AsyncSource, AsyncWatch, Source, SourceStats, Watch
from trunkline.cdt.sqlite import SqliteStore
from trunkline.cdt.store import Assignment, Config, MemoryStore, Rollout, Store, Stored
from trunkline.cdt.target import AsyncTarget, Target, TargetStats

__all__ = [
    "Assignment",
    "AsyncRecorder",
    "AsyncSource",
    "AsyncTarget",
    "AsyncWatch",
    "CdtOptions",
    "Config",
    "ConfigNewAvailable",
    "ConfigPush",
    "ConfigPushResponse",
    "ConfigRequest",
    "ConfigResponse",
    "ConfigUpdated",
    "MemoryStore",
    "Recorder",
    "RecorderStats",
    "Rollout",
    "Source",
    "SourceStats",
    "SqliteStore",
    "Store",
    "Stored",
    "Target",
    "TargetStats",
    "Watch",
    "decode",
    "encode",
]
__dir__ = __all__.copy
