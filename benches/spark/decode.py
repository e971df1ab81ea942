"""Decoding headers in Spark, beside what one would write otherwise: `python -m benches.spark.decode [--fast]`."""

from __future__ import annotations

import argparse
import io
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benches.measure import machine
from benches.spark.rounds import Rounds, in_turn
from trunkline import spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENT = ("capture_id", "segment", "seq", "received_at_ns", "endpoint", "header", "n_frames", "n_bytes")
TAGS = {"run": "bigint", "dtype": "string", "event": "bigint"}
SCHEMA = "sender string, timestamp_ns bigint, tag_run bigint, tag_dtype string, tag_event bigint"
NAMES = [column.split()[0] for column in SCHEMA.split(", ")]

# The rows of a batch that Spark sends.
_BATCH = 10_000

# Rounds until the JVM has compiled the query, as the CPU of the compiler counts too.
_WARM = 4

READY_ALL, READY = "mapInArrow, 8 columns to 20 ready ones", "mapInArrow, 2 columns to 5 ready ones"
IDENTITY_ALL, IDENTITY = "mapInArrow identity, 8 columns", "mapInArrow identity, 2 columns"
DECODE_ALL, DECODE = "spark.decode, 8 columns to all 20", "spark.decode, 2 columns to 5"
MSGPACK, PANDAS = "msgpack in mapInArrow", "msgpack in a pandas UDF"


def write_capture(path: Path, rows: int) -> None:
    """A table with the columns of a capture that matter here: headers of 58 bytes, three tags, no payload."""
    start = b"\xa5CDTP\x01\xacDetector.one\xd7\xff"
    tags = b"\x83\xa3run\x07\xa5dtype\xa5uint8\xa5event\xcf"
    stamp, number = struct.Struct(">Q"), struct.Struct(">Q")
    seconds = 1_795_251_125
    headers = [
        start + stamp.pack((at % 10**9) << 34 | (seconds + at // 10**9)) + tags + number.pack(at) for at in range(rows)
    ]
    table = pa.table(
        {
            "capture_id": pa.array(["00000000-0000-4000-8000-000000000000"] * rows),
            "segment": pa.array([0] * rows, pa.int64()),
            "seq": pa.array(range(rows), pa.int64()),
            "received_at_ns": pa.array(range(rows), pa.int64()),
            "endpoint": pa.array(["tcp://127.0.0.1:23999"] * rows),
            "header": pa.array(headers, pa.binary()),
            "n_frames": pa.array([2] * rows, pa.int32()),
            "n_bytes": pa.array([158] * rows, pa.int64()),
        }
    )
    pq.write_table(table, path, compression="zstd", row_group_size=rows // 4)


def decoded(header: bytes) -> tuple[Any, ...]:
    """What one would write with msgpack: the five columns of `SCHEMA`."""
    unpacker = msgpack.Unpacker(io.BytesIO(header), timestamp=0)
    _, sender, stamp, tags = unpacker
    return sender, stamp.to_unix_nano(), tags.get("run"), tags.get("dtype"), tags.get("event")


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches as they are."""
    yield from batches


def ready(decoded: DataFrame) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What gives the columns of a decoded table without decoding: what it costs to hand them back."""
    [made] = decoded.limit(_BATCH).toArrow().combine_chunks().to_batches()

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (made.slice(0, batch.num_rows) for batch in batches)

    return give


def with_msgpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of headers, read one by one."""
    for batch in batches:
        columns = zip(*map(decoded, batch.column("header").to_pylist()), strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=NAMES)


def pandas_frame(header: pd.Series) -> pd.DataFrame:
    """The same from pandas."""
    return pd.DataFrame([decoded(each) for each in header], columns=NAMES)


def cases(rows: DataFrame) -> Mapping[str, DataFrame]:
    """Every way to do it, each with its own plan. The rivals get the header alone and give the five columns."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    sent, few, header = rows.select(*SENT), rows.select("header", "n_frames"), rows.select("header")
    pandas_udf = F.pandas_udf(pandas_frame, SCHEMA).asNondeterministic()
    plain_udf = F.udf(decoded, SCHEMA, useArrow=True).asNondeterministic()
    five, everything = spark.decode(rows, "cdtp", tags=TAGS, columns=NAMES), spark.decode(rows, "cdtp", tags=TAGS)
    return {
        "scan": sent,
        IDENTITY: few.mapInArrow(identity, few.schema),
        READY: few.mapInArrow(ready(five), five.schema),
        DECODE: five,
        IDENTITY_ALL: sent.mapInArrow(identity, sent.schema),
        READY_ALL: sent.mapInArrow(ready(everything), everything.schema),
        DECODE_ALL: everything,
        "spark.decode, 8 columns to all 18, VARIANT": spark.decode(rows, "cdtp"),
        "spark.from_cdtp, typed tags": header.select(spark.from_cdtp("header", tags=TAGS).alias("d")).select("d.*"),
        "spark.pandas_udfs.cdtp, typed tags": header.select(
            spark.pandas_udfs.cdtp("header", tags=TAGS).alias("d")
        ).select("d.*"),
        MSGPACK: header.mapInArrow(with_msgpack, SCHEMA),
        PANDAS: header.select(pandas_udf("header").alias("d")).select("d.*"),
        "msgpack in a plain UDF": header.select(plain_udf("header").alias("d")).select("d.*"),
    }


def main(*, fast: bool) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    rows, rounds, warm = (20_000, 1, 0) if fast else (1_000_000, 5, _WARM)
    head = machine()
    session: SparkSession = spark.session(master="local[2]")
    jvm = session.sparkContext._gateway.proc.pid  # noqa: SLF001 - there is no public way
    with tempfile.TemporaryDirectory() as directory:
        write_capture(Path(directory, "0000000000.parquet"), rows)
        plans = cases(session.read.parquet(directory))
        first = plans[DECODE].orderBy("tag_event").first()
        assert first == plans[MSGPACK].orderBy("tag_event").first(), first
        measured = in_turn(plans, jvm, rows, rounds, warm)
    session.stop()
    if not fast:
        write(measured, rows, rounds, head)


def write(measured: Rounds, rows: int, rounds: int, head: str) -> None:
    """Writes `spark.md` and `spark.json`."""
    median, ratio = measured.median, measured.ratio
    method = (
        f"{rows:,} headers of 58 bytes with three tags, Parquet to the `noop` sink on local[2], {rounds} rounds after "
        f"{_WARM} to warm up, the cases in turn; medians. CPU of the JVM and of all its Python workers. The five columns "
        "are the sender, the timestamp and three tags; msgpack makes them of the header alone. Ready columns are those of "
        "the decoded table, made once: what it costs to send the input and to take as much back."
    )
    lines = [
        "# CDTP headers in Spark",
        "",
        head,
        "",
        method,
        "",
        "| case | wall s | M rows/s | CPU µs a row: JVM | Python | both | ratio to identity |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in measured:
        wall = median(name, "wall_s")
        lines.append(
            f"| {name} | {wall:.2f} | {rows / wall / 1e6:.2f} | {median(name, 'jvm_us'):.2f} | "
            f"{median(name, 'python_us'):.2f} | {median(name, 'cpu_us'):.2f} | {ratio(name, IDENTITY):.2f} |"
        )
    lines += [
        "",
        "| aim | | measured |",
        "|---|---|---|",
        f"| decode, CPU against as many ready columns | ≤ 1.2 | {ratio(DECODE, READY):.2f} |",
        f"| the same for the whole table | ≤ 1.2 | {ratio(DECODE_ALL, READY_ALL):.2f} |",
        f"| decode, CPU against identity of what it is sent | ≤ 1.2 | {ratio(DECODE, IDENTITY):.2f} |",
        f"| the same for the whole table | | {ratio(DECODE_ALL, IDENTITY_ALL):.2f} |",
        f"| msgpack in mapInArrow, CPU against decode | ≥ 3 | {ratio(MSGPACK, DECODE):.2f} |",
        f"| msgpack in a pandas UDF, CPU against decode | ≥ 5 | {ratio(PANDAS, DECODE):.2f} |",
        "",
    ]
    measured.write("spark", lines, head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
