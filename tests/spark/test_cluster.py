"""Commands on a cluster: a master and two workers on this machine, with a Python without trunkline."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet
import pyspark
import pytest

from peers.commands import release
from peers.recorded import AT, line
from trunkline import capture
from trunkline.spark._java import java_home

SPARK = Path(pyspark.__file__).parent


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with what Spark needs of one, and without trunkline."""
    home = tmp_path_factory.mktemp("python") / "venv"
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    # What a .pth file there adds is not added here: an installation for developers is such a file.
    (packages / "others.pth").write_text(f"{SPARK.parent}\n")
    found = home / "bin" / "python"
    missing = subprocess.run(
        [found, "-c", "import pyarrow, pandas, pyspark; import trunkline"],
        check=False,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert "No module named 'trunkline'" in missing.stderr
    return found


@pytest.fixture(scope="module")
def master(tmp_path_factory, python):
    """The address of a standalone master with two workers."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python), "SPARK_HOME": str(SPARK)}
    environment.pop("PYTHONPATH", None)
    home = java_home(folder)
    if home is not None:
        environment["JAVA_HOME"] = str(home)
    with running(environment, "master.Master", "--port", "0", "--webui-port", "0") as (said, _):
        address = said(r"Starting Spark master at (spark://[\d.]+:\d+)")
        work = ("worker.Worker", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir")
        with (
            running(environment, *work, str(folder / "one"), address) as (one, _),
            running(environment, *work, str(folder / "two"), address) as (two, _),
        ):
            for worker in (one, two):
                worker(r"(Successfully registered) with master")
            yield address


@contextmanager
def running(environment, name, *words):
    """A process of Spark's, and what waits for its words."""
    at = words.index("--webui-port")
    command = [
        SPARK / "bin" / "spark-class",
        f"org.apache.spark.deploy.{name}",
        "--host",
        "127.0.0.1",
        *words[:at],
        *words[at:],
    ]
    with following(command, environment) as found:
        yield found


@contextmanager
def following(command, environment, folder=None):
    """A process, and what waits for its words."""
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=folder) as process:

        def said(pattern):
            for text in process.stderr:
                found = re.search(pattern, text)
                if found:
                    return found[1]
            raise AssertionError(pattern)

        try:
            yield said, process
        finally:
            process.kill()


@pytest.fixture
def recorded(tmp_path):
    """A capture of a few segments."""
    for number in range(4):
        lines = tmp_path / "lines.jsonl"
        frames = [release(name, 0, number, b"x") for name in ("Det", "Two", "Two")]
        lines.write_text("".join(line(each, AT + number, protocol="cdtp") for each in frames))
        capture.import_(lines, tmp_path / "runs" / "one")
    return tmp_path / "runs" / "one"


def submit(master, python, *command, cores=1, **options):
    """Runs a command on the cluster, with an executor for each core."""
    words = [sys.executable, "-m", "trunkline", "spark", "submit", "--master", master]
    words += ["--conf", f"spark.pyspark.python={python}"]
    words += ["--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1"]
    words += ["--conf", f"spark.executor.extraJavaOptions={os.environ['SPARK_SUBMIT_OPTS']}"]
    words += ["--conf", f"spark.cores.max={cores}"]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [*words, "--", *map(str, command)], check=False, capture_output=True, text=True, env=environment, **options
    )


def test_a_capture_is_decoded_on_a_cluster(master, python, recorded, tmp_path):
    words = ("spark", "decode", recorded, tmp_path / "table", "--protocol", "cdtp", "--json")
    ran = submit(master, python, *words, cores=2)
    assert ran.returncode == 0, ran.stderr
    [event] = map(json.loads, ran.stdout.splitlines())
    assert (event["event"], event["rows"]) == ("decoded", 12)
    found = pyarrow.parquet.read_table(tmp_path / "table")["sender"].to_pylist()
    assert (found.count("Det"), found.count("Two")) == (4, 8)


def test_a_stream_of_captures_is_decoded_on_a_cluster(master, python, recorded, tmp_path):
    words = ("--protocol", "cdtp", "--trigger", "available-now", "--json")
    ran = submit(master, python, "spark", "stream", recorded.parent, tmp_path / "table", *words)
    assert ran.returncode == 0, ran.stderr
    assert pyarrow.parquet.read_table(tmp_path / "table").num_rows == 12


def test_what_is_wrong_is_said(master, python, tmp_path):
    ran = submit(master, python, "spark", "decode", tmp_path / "nothing", tmp_path / "table", "--protocol", "cdtp")
    assert ran.returncode == 1
    assert "nothing" in ran.stderr
    assert "Traceback" not in ran.stderr


CLIENT = """
import sys
from pyspark.sql import SparkSession
from trunkline import spark
session = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
rows = session.read.format("trunkline").load(sys.argv[2])
decoded = spark.decode(rows, "cdtp", tags=None)
print(rows.count(), sorted((row.sender, row["count"]) for row in decoded.groupBy("sender").count().collect()))
stream = session.readStream.format("trunkline").options(protocol="cdtp", decode=True, tags="none").load(sys.argv[2])
query = stream.writeStream.option("checkpointLocation", sys.argv[3] + "-checkpoint").trigger(availableNow=True)
query.start(sys.argv[3]).awaitTermination()
try:
    session.read.format("trunkline").load("runs/").count()
except Exception as error:
    print("an absolute one" in str(error))
"""


def test_a_connect_server_of_a_cluster_reads_captures(master, recorded, tmp_path):
    # The wheel is where the server runs and where its executors do.
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": sys.executable,
    }
    home = java_home(tmp_path)
    if home is not None:
        environment["JAVA_HOME"] = str(home)
    words = [SPARK / "bin" / "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    words += ["--master", master, "--executor-memory", "512m"]
    java = f"executor.extraJavaOptions={os.environ['SPARK_SUBMIT_OPTS']}"
    for conf in ("connect.grpc.binding.port=0", "driver.host=127.0.0.1", "ui.enabled=false", "cores.max=1", java):
        words += ["--conf", f"spark.{conf}"]
    with following(words, environment, tmp_path) as (said, _):
        port = said(r"Spark Connect server started at: \S*:(\d+)")
        address = f"sc://127.0.0.1:{port}"
        command = [sys.executable, "-c", CLIENT, address, str(recorded), str(tmp_path / "table")]
        ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert ran.stdout.splitlines() == ["12 [('Det', 4), ('Two', 8)]", "True"], ran.stderr
    assert pyarrow.parquet.read_table(tmp_path / "table").num_rows == 12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a command after --"),
        (("--master", "local"), "name a command after --"),
        (("--master", "local", "--", "cdtp", "send"), "'cdtp send' is no command of spark"),
        (("--", "spark", "submit"), "'spark submit' is no command of spark"),
    ],
)
def test_a_command_has_to_be_named(words, said):
    ran = subprocess.run(
        [sys.executable, "-m", "trunkline", "spark", "submit", *words], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert said in " ".join(ran.stderr.split())


@pytest.mark.parametrize("master", [("--master", "spark://127.0.0.1:1"), ("--master=spark://127.0.0.1:1,127.0.0.1:2",)])
def test_a_cluster_that_does_not_answer_is_named_in_a_line(tmp_path, master):
    words = ("spark", "decode", "run7", "out", "--protocol", "cdtp")
    ran = subprocess.run(
        [sys.executable, "-m", "trunkline", "spark", "submit", *master, "--", *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=30,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("trunkline: error: no cluster answers at spark://127.0.0.1:1 (nothing listens there)")
