"""Standard output as a pipe."""

from __future__ import annotations

__all__ = ["PipeClosed"]


class PipeClosed(BaseException):
    """Standard output has no reader any more."""
