"""Spark while a command runs: a session that is gone when the command ends, and progress meanwhile."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trunkline.cli import ending
from trunkline.cli.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session", "watched"]

_LOOK_S = 0.25
_PATIENCE_S = 10.0


@contextmanager
def spark_session(app_name: str) -> Iterator[SparkSession]:
    """A Spark session whose JVM ends with it, also when the command is cut off."""
    from trunkline import spark

    # It tells of every connection that an end by a signal breaks.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    session = spark.session(app_name)
    ending.cut_off_on_signals()
    orderly = False
    try:
        yield session
        orderly = True
    finally:
        _end(session, orderly=orderly)


def _end(session: SparkSession, *, orderly: bool) -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - pyspark offers no other way
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if orderly:
        session.stop()
    if jvm is None:
        return
    if orderly:
        gateway.shutdown()
    jvm.terminate()
    try:
        jvm.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


@contextmanager
def watched(session: SparkSession, doing: str) -> Iterator[None]:
    """Shows how far Spark is with what is done inside."""
    done = threading.Event()
    with Progress(doing, None) as progress:
        watch = threading.Thread(target=_watch, args=(session, progress, done), daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            watch.join(_LOOK_S * 4)


def _watch(session: SparkSession, progress: Progress, done: threading.Event) -> None:
    # Whatever is wrong with Spark is for the one who uses it to tell; there is none to ask behind Connect.
    with suppress(Exception):
        tracker = session.sparkContext.statusTracker()
        while not done.wait(_LOOK_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            tasks = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
            progress.at(sum(completed for completed, _ in tasks), sum(total for _, total in tasks))
