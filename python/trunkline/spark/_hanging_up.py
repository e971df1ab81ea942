"""What pyspark's daemons print when Spark hangs up on a worker, and need not.

A worker that waits for its next task, or has just started, when Spark closes its connection fails at telling so, and
pyspark prints that as if something were wrong.
"""

from __future__ import annotations

import sys
import traceback
from types import ModuleType, SimpleNamespace

__all__ = ["hush", "hush_planner"]


def _print_exc() -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


def hush(daemon: ModuleType) -> None:
    """Has the workers of a daemon end in silence when they are hung up on."""
    quiet = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)
    daemon.traceback = quiet  # type: ignore[attr-defined]


def hush_planner() -> None:
    """The same of this process, where it is one that Spark asks for a data source.

    Spark forks those from pyspark's own daemon, whatever the session names, and hangs up after a minute without a question.
    """
    program = sys.modules["__main__"]
    if getattr(program.__spec__, "name", None) == "pyspark.daemon":
        hush(program)
