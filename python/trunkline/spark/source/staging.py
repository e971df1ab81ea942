"""The staging directory of a job beside the capture that it writes, and the cleanup after killed jobs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
import uuid
import zlib
from pathlib import Path

from trunkline._locations import begun_name
from trunkline._native import capture as _native
from trunkline._processes import runs

__all__ = ["clear", "staging_of"]

# If it is unknown whether a job still runs, its directory is removed after so many seconds without a change.
_LEFT_S = 86_400


def staging_of(target: Path) -> Path:
    """A directory beside a target for the files of a job, which this process plans.

    Neither a search for captures nor Spark looks into directories that begin with a dot. The name has the id of the parent
    process: this process ends before the job, its parent with the job's driver.
    """
    return target.with_name(f"{begun_name(target)}{_machine()}.{os.getppid()}.{uuid.uuid4().hex[:8]}")


def clear(target: Path) -> None:
    """Removes directories of killed jobs beside a target, and restores a capture that one of them was replacing.

    Raises:
        CaptureError: It cannot be restored.
    """
    name = re.compile(rf"{re.escape(begun_name(target))}([0-9a-f]{{8}})\.(\d+)\.[0-9a-f]{{8}}")
    beside = sorted(target.parent.iterdir()) if target.parent.is_dir() else []
    for staging in beside:
        found = name.fullmatch(staging.name)
        if found is None:
            continue
        is_gone = found[1] == _machine() and not runs(int(found[2]))
        if is_gone or _is_old(staging):
            _native.put_back(staging, target)
            shutil.rmtree(staging, ignore_errors=True)


def _machine() -> str:
    """The name of this machine, as eight digits."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _is_old(staging: Path) -> bool:
    """Whether nothing in a directory has changed for long; a file that vanishes meanwhile counts as a change."""
    try:
        changed = max(path.lstat().st_mtime for path in (staging, *staging.rglob("*")))
    except FileNotFoundError:
        return False
    return time.time() - changed > _LEFT_S
