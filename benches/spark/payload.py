"""Waveforms in Spark, beside a UDF that reads them with NumPy: `python -m benches.spark.payload [--fast]`."""

from __future__ import annotations

import argparse
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benches.measure import machine
from benches.spark.rounds import Rounds, in_turn
from trunkline import spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLES = 256
LAYOUT = f"adc u16[{SAMPLES}]"
HEADER = b"\xa5CDTP\x01\xacDetector.one\xd7\xff" + struct.pack(">Q", 1_795_251_125) + b"\x80"

# Rounds until the JVM has compiled the query.
_WARM = 3

OURS_MAX, OURS_SUM = "spark.decode, array_max of payload_adc", "spark.decode, aggregate of payload_adc"
PANDAS_COLUMN = "a pandas UDF to array<int>, array_max of it"
PANDAS_MAX, PANDAS_SUM = "the largest in a pandas UDF", "the sum in a pandas UDF"


def write_capture(path: Path, rows: int) -> None:
    """A table with the columns of a capture that matter here."""
    waves = np.random.default_rng(7).integers(0, 1 << 14, (rows, SAMPLES)).astype("<u2")
    payload = pa.array([[wave.tobytes()] for wave in waves], pa.list_(pa.binary()))
    header = pa.array([HEADER] * rows, pa.binary())
    table = pa.table({"header": header, "payload": payload, "n_frames": pa.array([2] * rows, pa.int32())})
    pq.write_table(table, path, compression="zstd", row_group_size=rows // 4)


def samples(payload: pd.Series) -> pd.Series:
    """The samples of each waveform."""
    return pd.Series([np.frombuffer(frames[0], "<u2").astype("<i4") for frames in payload])


def largest(payload: pd.Series) -> pd.Series:
    """The largest sample of each waveform."""
    return pd.Series([int(np.frombuffer(frames[0], "<u2").max()) for frames in payload])


def total(payload: pd.Series) -> pd.Series:
    """The sum of the samples of each waveform."""
    return pd.Series([int(np.frombuffer(frames[0], "<u2").sum(dtype="<i8")) for frames in payload])


def cases(rows: DataFrame) -> Mapping[str, DataFrame]:
    """Every way to do it, each a sum over all messages."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    decoded = spark.decode(rows, "cdtp", tags=None, payload=LAYOUT, columns=["payload_adc"])
    in_jvm = F.aggregate("payload_adc", F.lit(0).cast("bigint"), lambda so_far, sample: so_far + sample)
    udfs = {of: F.pandas_udf(of, "bigint")(rows["payload"]) for of in (largest, total)}
    return {
        "scan": rows.select(F.sum(F.length(rows["payload"][0]))),
        OURS_MAX: decoded.select(F.sum(F.array_max("payload_adc"))),
        PANDAS_COLUMN: rows.select(F.pandas_udf(samples, "array<int>")(rows["payload"]).alias("found")).select(
            F.sum(F.array_max("found"))
        ),
        PANDAS_MAX: rows.select(udfs[largest].alias("found")).select(F.sum("found")),
        OURS_SUM: decoded.select(F.sum(in_jvm)),
        PANDAS_SUM: rows.select(udfs[total].alias("found")).select(F.sum("found")),
    }


def main(*, fast: bool) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    rows, rounds, warm = (2_000, 1, 0) if fast else (400_000, 5, _WARM)
    head = machine()
    session: SparkSession = spark.session(master="local[2]")
    jvm = session.sparkContext._gateway.proc.pid  # noqa: SLF001 - there is no public way
    with tempfile.TemporaryDirectory() as directory:
        write_capture(Path(directory, "0000000000.parquet"), rows)
        plans = cases(session.read.parquet(directory))
        for ours, other in ((OURS_MAX, PANDAS_COLUMN), (OURS_MAX, PANDAS_MAX), (OURS_SUM, PANDAS_SUM)):
            assert plans[ours].first()[0] == plans[other].first()[0]  # type: ignore[index]
        measured = in_turn(plans, jvm, rows, rounds, warm)
    session.stop()
    if not fast:
        write(measured, rows, rounds, head)


def write(measured: Rounds, rows: int, rounds: int, head: str) -> None:
    """Writes `spark-payload.md` and `spark-payload.json`."""
    median, ratio = measured.median, measured.ratio
    lines = [
        "# Payloads in Spark",
        "",
        head,
        "",
        (
            f"{rows:,} messages with a waveform of {SAMPLES} samples each, Parquet to one number on local[2], {rounds} rounds "
            f"after {_WARM} to warm up, the cases in turn; medians. CPU of the JVM and of all its Python workers."
        ),
        "",
        "| case | wall s | CPU µs a row: JVM | Python | both |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {median(name, 'wall_s'):.2f} | {median(name, 'jvm_us'):.2f} | "
            f"{median(name, 'python_us'):.2f} | {median(name, 'cpu_us'):.2f} |"
            for name in measured
        ),
        "",
        "| aim | | measured |",
        "|---|---|---|",
        f"| array_max, CPU against a pandas UDF that makes the same column | ≤ 0.25 | {ratio(OURS_MAX, PANDAS_COLUMN):.2f} |",
        f"| the same, against one that gives the largest alone | ≤ 0.25 | {ratio(OURS_MAX, PANDAS_MAX):.2f} |",
        f"| aggregate, against one that gives the sum alone | ≤ 0.25 | {ratio(OURS_SUM, PANDAS_SUM):.2f} |",
        "",
    ]
    measured.write("spark-payload", lines, head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
