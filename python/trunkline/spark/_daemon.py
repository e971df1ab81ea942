"""The process that Spark's workers are forked from: pyspark's, without what it does for nothing.

A worker that waits for its next task, or has just started, when Spark closes its connection fails at telling so, and
pyspark prints that as if something were wrong. And it looks for garbage after every task, among all that was ever imported.
"""

from __future__ import annotations

import gc
import socket
import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon

__all__: list[str] = []

_run = daemon.worker


def _print_exc() -> None:
    if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


def _worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - pyspark gives it so
    """Runs a task. What the first one leaves, the modules it imported, is no garbage later either."""
    code = _run(sock, authenticated)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return code


if __name__ == "__main__":
    quiet = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)
    daemon.traceback = quiet  # type: ignore[attr-defined,assignment]
    daemon.worker = _worker
    daemon.manager()
