"""The process that Spark's workers are forked from: pyspark's, without what it does for nothing.

It tells of workers that were hung up on, and looks for garbage after every task, among all that was ever imported.
"""

from __future__ import annotations

import gc
import socket

from pyspark import daemon

from trunkline.spark._hanging_up import hush

__all__: list[str] = []

_run = daemon.worker


def _worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - pyspark gives it so
    """Runs a task. What the first one leaves, the modules it imported, is no garbage later either."""
    code = _run(sock, authenticated)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return code


if __name__ == "__main__":
    hush(daemon)
    daemon.worker = _worker
    daemon.manager()
