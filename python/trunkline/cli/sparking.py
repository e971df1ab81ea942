"""Spark while a command runs: a session that is gone when the command ends, and progress meanwhile."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trunkline.cli import ending
from trunkline.cli.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trunkline.capture import Selection

__all__ = ["Keep", "selected", "spark_session", "watched"]

# Keeps some rows of a table.
Keep: TypeAlias = "Callable[[DataFrame], DataFrame]"

_LOOK_S = 0.25
_PATIENCE_S = 10.0


@contextmanager
def spark_session(app_name: str) -> Iterator[SparkSession]:
    """A Spark session whose JVM ends with it, also when the command is cut off."""
    from trunkline import spark
    from trunkline.errors import TrunklineError

    # Spark's 200 are for a cluster: here most of them would be empty, and each costs.
    session = spark.session(app_name, options={"spark.sql.shuffle.partitions": 8})
    ending.cut_off_on_signals()
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    orderly = False
    try:
        yield session
        orderly = True
    except PySparkException as error:
        # Its words are with the JVM, so they are fetched before that ends.
        raise TrunklineError(_reason(str(error))) from error
    except Py4JJavaError as error:
        raise TrunklineError(_java_reason(error.java_exception)) from error
    finally:
        _end(session, orderly=orderly)


@contextmanager
def selected(directory: Path, selection: Selection | None, protocol: str | None = None) -> Iterator[Keep]:
    """Gives what keeps the rows of a capture that are selected, of a table that has their numbers.

    What they are is found here, before there is a JVM, as all commands find it.

    Args:
        directory: The capture.
        selection: Which messages; all if None.
        protocol: The only one that matters, of whose records the numbers are those of CDTP; all if None.
    """
    if selection is None:
        yield lambda table: table
        return
    from pyarrow import parquet

    from trunkline import capture
    from trunkline.capture.selecting import wanted

    columns = ["seq", "record"] if protocol == "cdtp" else ["seq"]
    schema, batches = wanted(capture.open(directory), selection, columns)
    with tempfile.TemporaryDirectory(prefix="trunkline-selected-", ignore_cleanup_errors=True) as scratch:
        found = str(Path(scratch, "numbers.parquet"))
        with parquet.ParquetWriter(found, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

        def keep(table: DataFrame) -> DataFrame:
            by = [name for name in columns if name in table.columns]
            return table.join(table.sparkSession.read.parquet(found), by, "left_semi")

        yield keep


def _reason(text: str) -> str:
    """What Spark means: of a failed worker, its last exception; else all before the stack of the JVM."""
    raised = re.findall(r"^(?:\w+\.)*(\w+Error: .+)$", text, re.MULTILINE)
    return raised[-1] if raised else text.partition("JVM stacktrace:")[0]


def _java_reason(thrown: Any) -> str:
    """What Java means: what was being done, as it says of a file, and what came in its way."""
    cause = thrown
    while (deeper := cause.getCause()) is not None:
        cause = deeper
    return ": ".join(dict.fromkeys(map(_java_message, (thrown, cause))))


def _java_message(thrown: Any) -> str:
    """The message of an exception, without the stack it may bear, and without Spark's codes."""
    text: str = thrown.getMessage() or thrown.toString()
    return re.sub(r"^\[[\w.]+\] | *SQLSTATE: \w+$", "", text.strip().partition("\n")[0]).rstrip(". ")


def _end(session: SparkSession, *, orderly: bool) -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - pyspark offers no other way
    jvm: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if orderly:
        session.stop()
    else:
        _keep_quiet()
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


def _keep_quiet() -> None:
    """Lets pyspark print no traceback when the JVM is gone in the middle of something, of which its tasks tell it."""
    from pyspark import SparkContext

    server: Any = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)  # noqa: SLF001 - as above
    if server is not None:
        server.handle_error = lambda *_: None


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
