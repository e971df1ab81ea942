"""Messages together, of a stream beside those of a batch: `python -m benches.spark.together [--rows N] [--fast]`.

Requests of a broker of DCP, and contents of one queue of MTL that 64 readers empty, of which 50,000 are open at a time. CPU of
the JVM and of Python together, of the same rows, all of what is given taken and nothing written. After a shuffle there are as many
tasks as cores: each keeps a state that Spark writes with every micro-batch, whatever is in it.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import struct
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benches.measure import arguments, machine, save
from benches.spark.report import Row, dcp
from benches.spark.source import drained, measured
from trunkline import capture, spark
from trunkline._native.capture import Import

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

AIM = 2.0
# Into how many micro-batches a stream is cut.
CUTS = (1, 8)
# How many readers empty the queue, and how many contents are open at a time.
READERS, OPEN = 64, 50_000


def contents() -> Iterator[Row]:
    """Contents of 50 bytes to readers in turn, each confirmed once so many are open."""
    header, size = struct.Struct(">BQ"), b"\x04jobs" + bytes(4)

    def row(number: int, direction: str, kind: int, rest: list[bytes]) -> Row:
        sequence = header.pack(kind, number // READERS + 1)
        return "mtl", direction, b"r%d" % (number % READERS), None, [sequence + rest[0], *rest[1:]]

    for number in itertools.count():
        yield row(number, "out", 5, [size, b"%050d" % number])
        if number >= OPEN:
            yield row(number - OPEN, "in", 6, [b"\0", b""])


# The messages, the options of the source, and the function that makes the table.
TABLES = {
    "requests": (dcp, {}, spark.pair_requests),
    "contents": (contents, {"protocol": "mtl", "decode": "true", "payload": "true"}, spark.contents),
}


def captured(directory: Path, messages: Iterator[Row], rows: int) -> None:
    """A capture of so many rows, a millisecond apart, of segments of 2 MiB."""
    writing = Import(directory, segment_bytes=2 << 20)
    for at, (protocol, direction, peer, _, frames) in enumerate(itertools.islice(messages, rows)):
        moment = 1_700_000_000_000_000_000 + at * 1_000_000
        writing.append(moment, frames, protocol=protocol, direction=direction, peer=peer)
    writing.commit()


def queries(
    session: SparkSession, path: Path, scratch: Path, source: dict[str, str], table: Callable[[DataFrame], DataFrame]
) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    numbers = itertools.count()
    segments = len(capture.open(path).segments)

    def stream(cuts: int) -> None:
        rows = session.readStream.format("trunkline").options(
            **source, maxSegmentsPerTrigger=math.ceil(segments / cuts)
        )
        streamed(table(rows.load(str(path))), scratch / f"{path.name}-{next(numbers)}")

    def batch() -> None:
        drained(table(session.read.format("trunkline").options(**source).load(str(path))))

    return {"batch": batch, **{named(cuts): functools.partial(stream, cuts) for cuts in CUTS}}


def streamed(rows: DataFrame, checkpoint: Path) -> StreamingQuery:
    """Takes what is available of a stream, and writes nothing but its checkpoint."""
    writer = rows.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def named(cuts: int) -> str:
    """What a stream is called."""
    return "stream, 1 micro-batch" if cuts == 1 else f"stream, {cuts} micro-batches"


def main() -> None:
    """Measures in turns, and writes the medians down."""
    options = arguments(2_000_000, fast_rows=1000)
    taken: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="trunkline-together-") as directory:
        session = spark.session(master="local[2]")
        session.sparkContext.setLogLevel("OFF")
        for name, (messages, source, table) in TABLES.items():
            path = Path(directory) / name
            captured(path, messages(), options.rows)
            cases = queries(session, path, Path(directory), source, table)
            for query in () if options.fast else cases.values():
                query()
            for _ in range(options.rounds):
                for case, query in cases.items():
                    taken[name, case].append(measured(query))
        session.stop()
    medians = {of: [statistics.median(column) for column in zip(*times, strict=True)] for of, times in taken.items()}
    lines = [
        "# Messages together, of a stream beside those of a batch",
        "",
        f"`python -m benches.spark.together --rows {options.rows} --rounds {options.rounds}`, {machine()}",
        "",
        __doc__.partition("\n\n")[2].strip(),
        "",
        "| table | query | CPU, s | µs a row | of the batch | wall, s |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {case} | {cpu:.2f} | {cpu / options.rows * 1e6:.1f} | {cpu / medians[name, 'batch'][0]:.2f} | {wall:.2f} |"
            for (name, case), (cpu, wall) in medians.items()
        ),
        "",
        f"Aim of a stream of what is available: at most {AIM:g} times the CPU of the batch; of contents 4 µs a row.",
    ]
    if not options.fast:
        save(
            "together", lines, {"rows": options.rows, "medians": {" ".join(of): times for of, times in medians.items()}}
        )


if __name__ == "__main__":
    main()
