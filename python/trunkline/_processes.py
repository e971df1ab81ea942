"""Processes of this machine."""

from __future__ import annotations

import os
import sys

__all__ = ["runs"]


def runs(process: int) -> bool:
    """Whether a process still runs; True where that cannot be told."""
    if sys.platform == "win32":
        # There this would end it.
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        # It is somebody else's, or cannot be told.
        return True
    return True
