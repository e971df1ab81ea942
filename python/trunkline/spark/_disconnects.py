"""Silences needless errors of pyspark's daemons when Spark disconnects a worker.

When Spark disconnects a worker that waits for its next task, or has just started, the worker fails to report that, and
pyspark prints a needless error.
"""

from __future__ import annotations

import sys
import traceback
from types import ModuleType, SimpleNamespace

__all__ = ["silence", "silence_planner"]


def _print_exc() -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


def silence(daemon: ModuleType) -> None:
    """Lets the workers of a daemon end silently when they are disconnected."""
    quiet = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)
    daemon.traceback = quiet  # type: ignore[attr-defined]


def silence_planner() -> None:
    """The same for this process, if it plans a data source for Spark.

    Spark forks planners from pyspark's own daemon, whatever the session names, and disconnects them after an idle minute.
    """
    program = sys.modules["__main__"]
    if getattr(program.__spec__, "name", None) == "pyspark.daemon":
        silence(program)
