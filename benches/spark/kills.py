"""A stream of captures while its driver and workers are killed: `python -m benches.spark.kills [--kills N] [--sink capture]`.

Beside it a recorder goes on, deletes its oldest segments, and a second capture begins; the segments of a third, which grows by
imports, are merged again and again. At the end every message that was sent must be in the table once; or in the capture that the
stream writes, which must be whole at any moment.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgpack
import zmq

from benches.measure import machine, save
from trunkline import capture
from trunkline._native.capture import is_capture

# How many messages a second are sent to each recorder.
RATE = 1000

# How much a recorder keeps: what comes in some minutes.
KEPT_BYTES = 300 << 20

# What Spark's processes of Python are, as the system names them.
WORKERS = (
    "trunkline.spark._daemon",
    "pyspark.daemon",
    "pyspark/daemon",
    "python_streaming_source_runner",
    "python_streaming_sink_runner",
)

DRIVER = """
import json, sys, time
from trunkline import spark
runs, table, checkpoint, mode, sink = sys.argv[1:]
DECODED = {"protocol": "cdtp", "decode": True, "tags": "none"}
session = spark.session("kills", master="local[2]")
def stream():
    options = {} if sink == "capture" else DECODED
    rows = session.readStream.format("trunkline").options(recursive=True, **options).load(runs)
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    writer = writer.format("trunkline") if sink == "capture" else writer
    return (writer.trigger(availableNow=True) if mode == "finish" else writer.trigger(processingTime="200 milliseconds")).start(table)
restarts = 0
while True:
    query = stream()
    try:
        if restarts == 0:
            print(json.dumps({"event": "ready"}), flush=True)
        query.awaitTermination()
        break
    except Exception as error:
        restarts += 1
        # A worker that was killed fails its task, and that the query.
        print(json.dumps({"event": "restarted", "why": str(error)[-2000:]}), flush=True)
        if "deleted before they were read" in str(error):
            sys.exit(1)
rows = session.read.format("trunkline").options(**DECODED).load(table) if sink == "capture" else session.read.parquet(table)
found = rows.selectExpr("count(*) n", "count(DISTINCT capture_id, seq) unique", "count(DISTINCT sender, sequence) sent").first()
print(json.dumps({"event": "found", **found.asDict()}), flush=True)
session.stop()
"""


def descendants(root: int) -> dict[int, str]:
    """The processes that a process has started, and those that these have, with their command lines."""
    parents, lines = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    found: dict[int, str] = {}
    below = [root]
    while below:
        parent = below.pop()
        children = [child for child, its in parents.items() if its == parent and child not in found]
        found |= {child: lines[child] for child in children}
        below += children
    return found


class Driver:
    """A process that streams, until it is killed or has read all there is."""

    def __init__(self, folder: Path, mode: str, sink: str) -> None:
        self._told = {}
        places = [str(folder / name) for name in ("runs", "table", "checkpoint")]
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, *places, mode, sink],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def next(self) -> dict[str, object]:
        """Its next event."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the driver has ended with {self.process.wait()}: {self._told}"
        self._told: dict[str, object] = json.loads(line)
        return self._told

    def kill(self) -> None:
        """Kills it, and all that it has started."""
        below = descendants(self.process.pid)
        for pid in (self.process.pid, *below):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Waits for its end."""
        assert self.process.stdout is not None
        self.process.wait(60)
        self.process.stdout.close()

    def kill_a_worker(self, choose: random.Random) -> bool:
        """Kills a process of Python that works for Spark, if there is one."""
        workers = [pid for pid, line in descendants(self.process.pid).items() if any(name in line for name in WORKERS)]
        if workers:
            with suppress(ProcessLookupError):
                os.kill(choose.choice(workers), signal.SIGKILL)
        return bool(workers)


@contextmanager
def recording(directory: Path) -> Iterator[list[int]]:
    """A recorder and its sender; gives a list with the number of sent messages."""
    command = [
        sys.executable,
        "-m",
        "trunkline",
        "cdtp",
        "record",
        "--capture",
        directory,
        "--bind",
        "tcp://127.0.0.1:*",
    ]
    command += ["--segment-seconds", "0.3", "--keep-bytes", str(KEPT_BYTES), "--critical-free-bytes", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    (endpoint,) = json.loads(process.stdout.readline())["endpoints"]
    sent, stopping = [0], threading.Event()

    def send() -> None:
        context = zmq.Context()
        socket = context.socket(zmq.PUSH)
        socket.connect(endpoint)
        head = b"".join(map(msgpack.packb, ("CDTP\x01", directory.name, 0)))
        while not stopping.wait(0.01):
            for _ in range(RATE // 100):
                sent[0] += 1
                socket.send_multipart([head + msgpack.packb(sent[0]) + b"\x80", os.urandom(200)])
        socket.close(linger=-1)
        context.term()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stopping.set()
        thread.join()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()


@contextmanager
def merging(directory: Path) -> Iterator[list[int]]:
    """Imports and merges the segments of a capture in turn; gives two numbers: the messages, and how often segments were merged."""
    done, stopping = [0, 0], threading.Event()

    def work() -> None:
        lines = directory.parent / f".{directory.name}.jsonl"
        head = b"".join(map(msgpack.packb, ("CDTP\x01", directory.name, 0)))
        while not stopping.wait(0.2):
            with lines.open("w") as file:
                for number in range(done[0] + 1, done[0] + 101):
                    frames = [head + msgpack.packb(number) + b"\x80", os.urandom(200)]
                    coded = [base64.b64encode(frame).decode() for frame in frames]
                    file.write(json.dumps({"received_at_ns": time.time_ns(), "frames": coded}) + "\n")
            done[0] += capture.import_(lines, directory)
            if done[0] % 500 == 0:
                done[1] += capture.compact(directory, target_bytes=200_000).merged

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        stopping.set()
        thread.join()


def need_whole(directory: Path) -> None:
    """Sees to it that a capture, if there is one, has no gap, and nothing twice."""
    if is_capture(directory):
        problems = capture.verify(directory).problems
        assert not problems, problems


def run(folder: Path, kills: int, seed: int, patience_s: float = 3.0, sink: str = "table") -> dict[str, int]:
    """Kills the driver, or one of its workers, so many times, and the driver at the end; gives what was sent and what was found."""
    choose = random.Random(seed)
    counts = {"drivers": 0, "workers": 0}
    with (
        recording(folder / "runs" / "first") as first,
        recording(folder / "runs" / "later" / "second") as second,
        merging(folder / "runs" / "third") as third,
    ):
        driver = Driver(folder, "run", sink)
        driver.next()
        # Spark refuses the checkpoint of a driver that was killed while it wrote its first offset.
        while not (folder / "checkpoint" / "offsets" / "0").exists():
            assert driver.process.poll() is None, "the driver has ended before its first batch"
            time.sleep(0.05)
        for number in range(kills):
            time.sleep(choose.uniform(0, patience_s))
            # Most are of workers, which are back soon.
            if number % 5 != 4 and driver.kill_a_worker(choose):
                counts["workers"] += 1
                continue
            driver.kill()
            counts["drivers"] += 1
            if sink == "capture":
                need_whole(folder / "table")
            driver = Driver(folder, "run", sink)
            driver.next()
        driver.kill()
    if sink == "capture":
        need_whole(folder / "table")
    driver = Driver(folder, "finish", sink)
    while (event := driver.next())["event"] != "found":
        # No worker is killed any more.
        assert event["event"] == "ready", event
    driver.wait()
    if sink == "capture":
        need_whole(folder / "table")
    found = {name: event[name] for name in ("n", "unique", "sent")}
    return {**counts, "merges": third[1], "messages": first[0] + second[0] + third[0], **found}  # type: ignore[dict-item]


def main() -> None:
    """Kills so many times, and writes the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--sink", choices=("table", "capture"), default="table")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trunkline-kills-") as directory:
        found = run(Path(directory), options.kills, options.seed, sink=options.sink)
    wrong = {
        name: number
        for name, number in found.items()
        if name in ("n", "unique", "sent") and number != found["messages"]
    }
    lines = [
        "# A stream of captures, killed",
        "",
        f"`python -m benches.spark.kills --kills {options.kills} --seed {options.seed} --sink {options.sink}`, {machine()}",
        "",
        f"{found['drivers']} drivers and {found['workers']} workers were killed at random moments, beside two recorders that delete",
        f"their oldest segments, and a capture whose segments were merged {found['merges']} times: {found['messages']:,} messages sent, {found['n']:,} rows, {found['unique']:,} of them different.",
    ]
    if wrong:
        print("\n".join(lines))
        sys.exit(f"not every message is there once: {wrong}")
    save("kills" if options.sink == "table" else "kills-capture", lines, found)


if __name__ == "__main__":
    main()
