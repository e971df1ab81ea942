"""The report of a capture, counted in this process and by Spark: `python -m benches.spark.report [--fast]`.

The capture is of seven parts CDTP, a part each of DCP and mc0 that pass a server, and one of MTL and CDT.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack

from benches.measure import machine, save
from trunkline import capture
from trunkline._native.capture import Import

# The fewest rows measure the fixed cost of a report.
FEW, SPARK_ROWS = 2_000, 10_000_000
ROWS = (FEW, 1_000_000, SPARK_ROWS, 100_000_000)
# Requests are paired with replies of so many.
PAIRED = 1_000_000
SENDERS, PER_RUN, PEERS = 20, 50_000, 50
MS = 10**6

Row = tuple[str, str, bytes | None, str | None, list[bytes]]


def cdtp() -> Iterator[Row]:
    """Senders in turn, with runs of their own, numbers that are skipped, and payloads of 100 bytes."""
    number = struct.Struct(">Q")
    begins = [msgpack.packb("CDTP\x01") + msgpack.packb(f"Detector.d{at}") for at in range(SENDERS)]
    ends = {kind: bytes([kind]) + b"\xcf" for kind in range(3)}
    configuration, payload = msgpack.packb({"threshold": 12.5}), bytes(100)
    sequence = 0
    while True:
        place = sequence % PER_RUN
        kind = 1 if place == 0 else 2 if place == PER_RUN - 1 else 0
        # One in 5000 is missing.
        if place % 5000 != 4321:
            for begin in begins:
                header = begin + ends[kind] + number.pack(sequence) + b"\x80"
                yield "cdtp", "in", None, None, [header, payload if kind == 0 else configuration]
        sequence += 1


def dcp() -> Iterator[Row]:
    """Requests of many clients, which a broker gives to a worker and answers."""
    for number in range(1 << 40):
        client, metadata = b"c%d" % (number % PEERS), number.to_bytes(8, "big")
        service = b"service%d" % (number % 5)
        head, tail = [b"", b"DGBX\x01"], [b"", metadata, b"", b"x" * 20]
        yield "dcp", "in", client, None, [*head, b"\x04", service, *tail]
        yield "dcp", "out", b"w", None, [*head, b"\x04", service, client, *tail]
        yield "dcp", "in", b"w", None, [*head, b"\x05", client, *tail]
        yield "dcp", "out", client, None, [*head, b"\x05", client, *tail]


def mc0() -> Iterator[Row]:
    """Topics with two subscribers each."""
    for number in range(1 << 40):
        said = [b"TOPIC", b"topic%d" % (number % 10), b"", b"%d" % number + b"x" * 20]
        yield "mc0", "in", b"p%d" % (number % PEERS), None, [b"", b"PUT", *said]
        for peer in (b"s1", b"s2"):
            yield "mc0", "out", peer, None, [b"", b"MESSAGE", *said]


def mtl() -> Iterator[Row]:
    """Contents of a writer that the server confirms, and the same to a reader that does."""
    name, size = struct.Struct(">BQ"), b"\x04jobs" + bytes(4)
    for number in range(1, 1 << 40):
        content = [name.pack(5, number) + size, b"x" * 50]
        confirm = [name.pack(6, number) + b"\0", b""]
        yield "mtl", "in", b"w", None, content
        yield "mtl", "out", b"w", None, confirm
        yield "mtl", "out", b"r", None, content
        yield "mtl", "in", b"r", None, confirm


def cdt() -> Iterator[Row]:
    """Configurations of a fleet: announced, pulled, applied."""
    events = "kaa.v1.events.cdp.endpoint.config.Config"
    subjects = (f"{events}NewAvailable", "kaa.v1.service.cmx.cmx2cdp.ConfigResponse", f"{events}Updated")
    for number in range(1 << 40):
        said = {"correlationId": "c", "timestamp": 1, "timeout": 0, "endpointMessageId": "m", "appVersionName": "app"}
        said |= {"endpointId": f"e{number % 10_000}", "configId": f"v{number // 10_000}"}
        answer = {"contentType": "t", "content": {"bytes": ""}, "statusCode": 200, "reasonPhrase": "OK"}
        for subject, more in zip(subjects, ({}, answer, {}), strict=True):
            yield "cdt", "in", None, subject, [json.dumps(said | more).encode()]


def record(path: Path, rows: int) -> None:
    """A capture of so many rows, a millisecond apart."""
    parts = [cdtp(), dcp(), mc0(), mtl(), cdt()]
    shares = [0] * 14 + [1] * 2 + [2] * 2 + [3, 4]
    recording = Import(path)
    for at in range(rows):
        protocol, direction, peer, topic, frames = next(parts[shares[at % len(shares)]])
        recording.append(
            1_795_251_125 * 10**9 + at * MS, frames, protocol=protocol, direction=direction, peer=peer, topic=topic
        )
    recording.commit()


def measure(command: str, recorded: Path, out: Path) -> tuple[float, float, float]:
    """The seconds that a command takes, those of CPU, and the most memory in GB that one of its processes has."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "trunkline", *command.split(), str(recorded), str(out)])
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, status
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6


def decoding(recorded: Path) -> float:
    """The seconds of CPU that it takes to decode all five protocols once."""
    code = "import sys; from trunkline import capture; from trunkline.report.sections import SECTIONS\n"
    code += "import pyarrow, time; opened = capture.open(sys.argv[1]); began = time.process_time()\n"
    code += "for protocol, section in SECTIONS.items():\n    for batch in opened.decode(protocol, **section.options): pass\n"
    code += "print(time.process_time() - began)"
    found = subprocess.run([sys.executable, "-c", code, str(recorded)], check=True, stdout=subprocess.PIPE, text=True)
    return float(found.stdout)


def pairing(rows: int) -> float:
    """The CPU of `Capture.requests` of so many rows of DCP, beside that of decoding them: the median of five rounds."""
    with tempfile.TemporaryDirectory() as directory:
        recording = Import(directory)
        for at, (protocol, direction, peer, topic, frames) in enumerate(itertools.islice(dcp(), rows)):
            recording.append(MS * at, frames, protocol=protocol, direction=direction, peer=peer, topic=topic)
        recording.commit()
        opened = capture.open(directory)
        ratios = []
        # The first round has imports to do.
        for _ in range(6):
            spent = [time.process_time()]
            for read in (lambda: opened.decode("dcp"), opened.requests):
                assert sum(batch.num_rows for batch in read())
                spent.append(time.process_time())
            ratios.append((spent[2] - spent[1]) / (spent[1] - spent[0]))
        return statistics.median(ratios[1:])


def main(*, fast: bool) -> None:
    """Makes captures, reports each with both, and writes what that took."""
    head = machine()
    lines = ["# Reports of captures", "", head, "", __doc__.partition("\n\n")[2].strip(), ""]
    data: dict[str, object] = {"machine": head}
    lines += ["| rows | command | seconds | CPU seconds | GB of the largest process |", "|---|---|---|---|---|"]
    ratios = []
    fixed = 0.0
    paired = pairing(FEW if fast else PAIRED)
    for rows in ROWS[:1] if fast else ROWS:
        with tempfile.TemporaryDirectory() as directory:
            recorded, out = Path(directory, "capture"), Path(directory, "report.html")
            record(recorded, rows)
            with_spark = not fast and FEW < rows <= SPARK_ROWS
            for command in ("capture report", *(("spark report",) if with_spark else ())):
                rounds = [
                    measure(command, recorded, out)
                    for _ in range(1 if fast or rows > SPARK_ROWS or command != "capture report" else 3)
                ]
                wall, cpu, memory = (statistics.median(each) for each in zip(*rounds, strict=True))
                data[f"{rows} rows, {command}"] = {"seconds": wall, "cpu_seconds": cpu, "gb": memory}
                lines.append(f"| {rows:,} | `trunkline {command}` | {wall:.1f} | {cpu:.1f} | {memory:.2f} |")
                if command == "capture report" and rows == FEW:
                    fixed = cpu
                elif command == "capture report" and rows <= SPARK_ROWS:
                    ratio = (cpu - fixed) / decoding(recorded)
                    data[f"{rows} rows, beside decoding"] = ratio
                    ratios.append(f"{ratio:.2f} at {rows:,} rows")
    if not fast:
        lines += [
            "",
            "What grows with the rows, in CPU beside decoding all five protocols once: " + ", ".join(ratios) + ".",
            "",
            f"`Capture.requests` of {PAIRED:,} rows of DCP takes {paired:.2f} times the CPU of decoding them.",
        ]
        data["requests, beside decoding"] = paired
        save("report", lines, data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
