"""The process that Spark's workers are forked from: pyspark's, without its needless work.

pyspark's prints an error for each worker that Spark disconnects, and collects garbage after every task, among all
imported modules.
"""

from __future__ import annotations

import gc
import socket

from pyspark import daemon

from trunkline.spark._disconnects import silence

__all__: list[str] = []

_run = daemon.worker


def _worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - pyspark gives it so
    """Runs a task. The modules that the first one imported are frozen, as they never become garbage."""
    code = _run(sock, authenticated)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return code


if __name__ == "__main__":
    silence(daemon)
    daemon.worker = _worker
    daemon.manager()
