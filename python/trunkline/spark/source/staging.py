"""The staging directory of a job beside the capture that it writes, and the cleanup after killed jobs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
import zlib
from pathlib import Path

from trunkline._locations import begun_name
from trunkline._native import capture as _native
from trunkline._processes import runs

__all__ = ["begin", "clear", "end"]

# If it is unknown whether a job still runs, its directory is removed after so many seconds without a change.
_LEFT_S = 86_400

# A directory cannot be removed if a task makes a file in it meanwhile.
_REMOVALS = 10


def begin(target: Path, job: str) -> Path:
    """Makes a directory beside a target for the files of a job, which this process plans.

    Neither a search for captures nor Spark looks into directories that begin with a dot. The name has the id of the parent
    process: this process ends before the job, its parent with the job's driver.
    """
    staging = target.with_name(f"{begun_name(target)}{_machine()}.{os.getppid()}.{_hashed(job)}")
    staging.mkdir(parents=True, exist_ok=True)
    return staging


def end(target: Path, job: str) -> None:
    """Removes the directory of a job, which fails the tasks that still run.

    Spark aborts a job while some of its tasks run: they may make files until the directory is gone, but none anew.
    """
    for staging in target.parent.glob(f"{begun_name(target)}*.{_hashed(job)}"):
        _remove(staging)


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
            _remove(staging)


def _remove(staging: Path) -> None:
    for _ in range(_REMOVALS):
        shutil.rmtree(staging, ignore_errors=True)
        if not staging.exists():
            return


def _machine() -> str:
    """The name of this machine, as eight digits."""
    return _hashed(platform.node())


def _hashed(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _is_old(staging: Path) -> bool:
    """Whether nothing in a directory has changed for long; a file that vanishes meanwhile counts as a change."""
    try:
        changed = max(path.lstat().st_mtime for path in (staging, *staging.rglob("*")))
    except FileNotFoundError:
        return False
    return time.time() - changed > _LEFT_S
