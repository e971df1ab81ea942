"""The Spark session of a command, and its progress."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trunkline.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["source_options", "spark_session", "watched"]

_LOOK_S = 0.25


@contextmanager
def spark_session(app_name: str, process_group: int | None = None) -> Iterator[SparkSession]:
    """A Spark session of a command.

    For a command that runs `apart`, the end of its process group ends the JVM too. Others give the JVM its own process group,
    0, so that signals of the terminal reach only the command.
    """
    from trunkline.errors import TrunklineError
    from trunkline.spark.session import begin

    # Spark's default of 200 is for a cluster: here most partitions would be empty.
    options = {"spark.sql.shuffle.partitions": 8}
    session = None
    try:
        session = begin(app_name, options=options, process_group=process_group)
        yield session
    except ImportError:
        raise
    except Exception as error:
        reason = _said(error)
        if reason is None:
            raise
        raise TrunklineError(_with_advice(reason)) from error
    finally:
        if session is not None:
            _end(session, process_group)


def _said(error: Exception) -> str | None:
    """What Spark says in an error; None if it is of others."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if isinstance(error, PySparkException):
        return _reason(str(error))
    return _java_reason(error.java_exception) if isinstance(error, Py4JJavaError) else None


def _with_advice(reason: str) -> str:
    """A reason, and what to do about native libraries that Java cannot load."""
    from trunkline.spark._java import runs_code, scratch_advice

    scratch = tempfile.gettempdir()
    return reason if runs_code(scratch) else f"{reason}: {scratch_advice(scratch)}"


def _end(session: SparkSession, process_group: int | None) -> None:
    """Kills a JVM with its own process group; spark-submit ends its own.

    A JVM in our group is not stopped: pyspark's processes would print tracebacks about closed connections. The end of the
    command kills all of them at once.
    """
    from pyspark import SparkContext

    java = SparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no other name for it
    if java is None:
        session.stop()
    elif process_group is not None:
        with suppress(ProcessLookupError):
            os.killpg(java.pid, signal.SIGKILL)
        java.wait()


def source_options(protocol: str, decoding: Mapping[str, Any]) -> dict[str, str]:
    """The options of the data source for messages of a protocol, decoded so."""
    return {name: _as_option(value) for name, value in decoding.items()} | {"protocol": protocol, "decode": "true"}


def _as_option(value: Any) -> str:
    """The value of an option as text for the source."""
    if isinstance(value, dict):
        return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _reason(text: str) -> str:
    """The reason in an error of Spark: the last exception of a failed worker, or all before the stack of the JVM."""
    raised = re.findall(r"^(?:\w+\.)*(\w+Error: .+)$", text, re.MULTILINE)
    return raised[-1] if raised else text.partition("JVM stacktrace:")[0]


def _java_reason(thrown: Any) -> str:
    """The reason in a Java exception: its own message, e.g. with a file, and that of its cause."""
    cause = thrown
    while (deeper := cause.getCause()) is not None:
        cause = deeper
    return ": ".join(dict.fromkeys(map(_java_message, (thrown, cause))))


def _java_message(thrown: Any) -> str:
    """The message of an exception, without a stack and without Spark's codes."""
    text: str = thrown.getMessage() or thrown.toString()
    return re.sub(r"^\[[\w.]+\] | *SQLSTATE: \w+$", "", text.strip().partition("\n")[0]).rstrip(". ")


@contextmanager
def watched(session: SparkSession, doing: str) -> Iterator[None]:
    """Shows the progress of Spark."""
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
    # Errors of Spark are reported by the query itself; behind Connect there is no status tracker.
    with suppress(Exception):
        tracker = session.sparkContext.statusTracker()
        while not done.wait(_LOOK_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            tasks = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
            progress.at(sum(completed for completed, _ in tasks), sum(total for _, total in tasks))
