"""The process that Spark's workers are forked from: pyspark's, without its tracebacks about a session that is over.

A worker that waits for its next task, or has just started, when Spark closes its connection fails at telling so, and
pyspark prints that as if something were wrong.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon

__all__: list[str] = []


def _print_exc() -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


if __name__ == "__main__":
    quiet = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)
    daemon.traceback = quiet  # type: ignore[attr-defined,assignment]
    daemon.manager()
