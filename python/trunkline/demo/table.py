"""What the demo prints: a line for each sender at each endpoint."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline.cli.output import Output, amount

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Line", "read", "show"]

_COLUMNS = ("sender", "header", "messages", "bytes", "per second", "first", "last", "missing", "malformed")


@dataclass(frozen=True, slots=True)
class Line:
    """What one sender has sent over one endpoint.

    Attributes:
        endpoint: Where it listened.
        sender: Its name; None for what has none that can be read.
        variant: Its header.
        messages: Good messages.
        bytes: Bytes of their payloads.
        first_ns: The first receipt, in nanoseconds since 1970.
        last_ns: The last one.
        missing: Sequence numbers that never came.
        malformed: Messages that do not decode, by kind.
    """

    endpoint: str
    sender: str | None
    variant: str | None
    messages: int
    bytes: int
    first_ns: int
    last_ns: int
    missing: int
    malformed: Mapping[str, int]

    @property
    def rate(self) -> float:
        """Messages a second, good and bad."""
        seconds = (self.last_ns - self.first_ns) / 1e9
        return (self.messages + sum(self.malformed.values())) / seconds if seconds else 0.0


def read(session: SparkSession, capture: Path) -> list[Line]:
    """Decodes a capture and counts what is in it."""
    from pyspark.sql import functions as f

    from trunkline import spark

    rows = session.read.schema(spark.capture_schema()).parquet(str(capture))
    messages = spark.decode(rows, "cdtp", tags=None).withColumn("missing", _missing())
    counted = messages.groupBy("endpoint", "sender", "variant", "error").agg(
        f.count("*").alias("messages"),
        f.sum("payload_bytes").alias("bytes"),
        f.min("received_at_ns").alias("first_ns"),
        f.max("received_at_ns").alias("last_ns"),
        f.sum("missing").alias("missing"),
    )
    return _lines(counted)


def _missing() -> Column:
    """Sequence numbers between this message and the one before it, in the same run of the same sender."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    run = Window.partitionBy("endpoint", "sender").orderBy("seq", "record")
    before, before_type = f.lag("sequence").over(run), f.lag("type").over(run)
    in_run = (f.col("type") == "DAT") & before_type.isin("BOR", "DAT")
    return f.when(in_run, f.greatest(f.col("sequence") - before - 1, f.lit(0))).otherwise(0)


def _lines(counted: DataFrame) -> list[Line]:
    lines = [
        Line(
            endpoint=row.endpoint,
            sender=row.sender,
            variant=row.variant,
            messages=0 if row.error else row.messages,
            bytes=row.bytes or 0,
            first_ns=row.first_ns,
            last_ns=row.last_ns,
            missing=row.missing or 0,
            malformed={row.error: row.messages} if row.error else {},
        )
        for row in counted.collect()
    ]
    return sorted(lines, key=lambda line: (line.sender is None, line.sender or "", line.variant or "", line.endpoint))


def show(lines: Sequence[Line], output: Output) -> None:
    """Prints the lines, those of what is malformed added up by kind."""
    good = [line for line in lines if line.sender is not None]
    bad: dict[str, int] = {}
    for line in lines:
        for kind, count in line.malformed.items():
            bad[kind] = bad.get(kind, 0) + count
    if output.json:
        for line in good:
            fields = {name: getattr(line, name) for name in Line.__dataclass_fields__ if name != "malformed"}
            output.event("sender", **fields)
        output.event("malformed", **bad)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for at, column in enumerate(_COLUMNS):
        table.add_column(column, justify="left" if at in (0, 1, 8) else "right", no_wrap=at != len(_COLUMNS) - 1)
    for line in good:
        times = (f"{datetime.fromtimestamp(ns / 1e9, UTC):%H:%M:%S.%f}"[:-3] for ns in (line.first_ns, line.last_ns))
        counts = (f"{line.messages:,}", amount(line.bytes), f"{line.rate:,.0f}")
        table.add_row(line.sender, line.variant, *counts, *times, f"{line.missing:,}", "")
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(bad.items()))
    table.add_row("(no header)", "", *[""] * 6, kinds)
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console = Console(file=sys.stdout, width=160)
    console.print(table)
