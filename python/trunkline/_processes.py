"""Processes of this machine."""

from __future__ import annotations

import os
import sys

__all__ = ["runs"]


def runs(process: int) -> bool:
    """Whether a process still runs; True where that is unknown."""
    if sys.platform == "win32":
        # On Windows `os.kill` would end it.
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        # It belongs to another user, or the number is invalid.
        return True
    return True
