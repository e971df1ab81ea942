"""Reports on captures, counted by Spark."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline import report as _sections
from trunkline._native.analysis import Summary
from trunkline.columns import Decoder
from trunkline.report import *  # noqa: F403 - what a report is made of has its name here too
from trunkline.report import Report, RunReport
from trunkline.report.cdtp_runs import BARS, RunCounts, Tally
from trunkline.report.counting import AROUND, OPTIONS, counted_of, summary
from trunkline.report.model import Clock, Counted, Scope, Total
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark._paths import capture_rows
from trunkline.spark._together import keys, together
from trunkline.spark.columns import decode_keeping, need_columns
from trunkline.spark.runs import count_runs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["report"]
__all__ += _sections.__all__

# How many tasks merge what the others have counted.
_MERGERS = 4

_NEEDED = ("capture_id", "seq", "received_at_ns", "endpoint", "n_frames", "n_bytes", "header")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which rows of a capture are selected.

    Attributes:
        numbers: The numbers of the rows, in the column `seq`.
        records: The messages of CDTP, by `seq` and `record`; None where all of a row are.
        since_ns: When the first row may have been received that answers one of these, in nanoseconds since 1970.
        until_ns: Before when the last may.
    """

    numbers: DataFrame
    records: DataFrame | None = None
    since_ns: int | None = None
    until_ns: int | None = None

    def keep(self, table: DataFrame) -> DataFrame:
        """The rows that are selected."""
        return table.join(self.numbers, ["seq"], "left_semi")

    def keep_records(self, table: DataFrame) -> DataFrame:
        """The messages that are."""
        return table if self.records is None else table.join(self.records, ["seq", "record"], "left_semi")

    def mark(self, table: DataFrame) -> DataFrame:
        """All rows; the column `chosen` says which are selected."""
        # A message with several records has a number for each.
        numbers = self.numbers.select("seq").distinct().withColumn("chosen", F.lit(True))  # noqa: FBT003 - a literal
        return table.join(numbers, ["seq"], "left")

    def within(self, table: DataFrame) -> DataFrame:
        """The rows of the time that is selected."""
        if self.since_ns is not None:
            table = table.where(table["received_at_ns"] >= self.since_ns)
        return table if self.until_ns is None else table.where(table["received_at_ns"] < self.until_ns)


@needs_extra
def report(
    capture: str | os.PathLike[str] | DataFrame, out_html: str | os.PathLike[str], *, name: str | None = None
) -> Report:
    """Writes a page with tables and plots of what was recorded: of CDTP rates, payload sizes, gaps and errors; of DCP
    the requests of each service, with percentiles of their latency; of mc0 the topics, with what passed through them and
    how long that took, and what was refused; of MTL the resources, with what waited in each and how long it took to
    confirm, and the logins that were refused; of CDT the versions of configurations, with how far each has come and how long
    that took, the endpoints that lag, and the answers that were errors.

    Spark counts; this process gets only a few thousand numbers, however large the capture. The page is self-contained
    and needs no network. It replaces an older one once it is complete.

    Args:
        capture: A capture directory, or a table that has the columns of one.
        out_html: The file to write.
        name: The name of the capture on the page; its path if None.

    Returns:
        The content of the page.

    Raises:
        CaptureError: There is no capture.
        LocalProtocolError: A column of a capture is missing.
        OSError: The file cannot be written.
    """
    from trunkline.report.making import checked

    out = checked(out_html)
    if isinstance(capture, str | os.PathLike):
        return make(_read(capture), out, name or os.fspath(capture))
    return make(capture, out, name)


def make(
    rows: DataFrame,
    out: Path,
    name: str | None,
    scope: Scope = Scope(),  # noqa: B008 - it is frozen
    chosen: Chosen | None = None,
) -> Report:
    """Counts rows of a capture, and writes the page."""
    from trunkline.report.making import made

    need_columns(rows, _NEEDED, "a report needs")
    total, protocols = _total(rows if chosen is None else chosen.keep(rows))
    counted = {protocol: _count(rows, protocol, scope, total.clock, chosen) for protocol in protocols}
    if scope.has_runs and "cdtp" in counted:
        counted["cdtp"]["runs"] = _runs(rows if chosen is None else chosen.keep(rows), scope)
    return made(counted, total, out, name, scope)


def _total(rows: DataFrame) -> tuple[Total, list[str]]:
    """How much there is, from when until when, and the protocols that can be counted."""
    has_protocols = "protocol" in {column.lower() for column in rows.columns}
    protocol = F.col("protocol") if has_protocols else F.lit("cdtp")
    sums = (F.count("*"), F.sum("n_bytes"), F.min("received_at_ns"), F.max("received_at_ns"))
    found = rows.groupBy(protocol.alias("protocol")).agg(*sums).collect()
    total = Total.of(Total(rows, size or 0, first, last) for _, rows, size, first, last in found)
    return total, [name for name in OPTIONS if any(row[0] == name for row in found)]


def _count(rows: DataFrame, protocol: str, scope: Scope, clock: Clock, chosen: Chosen | None) -> Counted:
    """Counts the messages of a protocol: those that belong together in one task, and what all tasks found merged."""
    made = functools.partial(summary, protocol, scope, clock)
    needs = made().needs
    decoder = Decoder(protocol, **OPTIONS[protocol])
    kept = [name for name in needs if name not in decoder.row_schema().names]
    is_around = protocol in AROUND
    if chosen is not None:
        rows = chosen.within(rows) if is_around else chosen.keep(rows)
    decoded = decode_keeping(rows, decoder, kept, needs)
    if chosen is not None:
        decoded = chosen.mark(decoded) if is_around else decoded
        decoded = chosen.keep_records(decoded) if "record" in needs else decoded
    states = together(decoded, keys(protocol)).mapInArrow(functools.partial(_states, made), "state binary")
    merged = states.repartition(_MERGERS).mapInArrow(functools.partial(_merged, made), "state binary")
    found = made()
    for row in merged.collect():
        found.merge(bytes(row["state"]))
    return counted_of(found)


def _states(made: Callable[[], Summary], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What messages come to, as the state of a summary."""
    found = made()
    for batch in batches:
        found.record(batch)
    found.finish()
    yield _state(found)


def _merged(made: Callable[[], Summary], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What several summaries come to together."""
    found = made()
    for batch in batches:
        for state in batch["state"]:
            found.merge(state.as_py())
    yield _state(found)


def _state(found: Summary) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch({"state": pa.array([found.state()], pa.binary())})


def _runs(rows: DataFrame, scope: Scope) -> RunCounts:
    """The runs: how many there are of each condition, and those that come first on the page."""
    found = count_runs(rows, json=True).select(*RunReport.__dataclass_fields__).persist()
    order = (F.col("condition") == "GOOD", F.desc("first_received_at_ns"), "sender", F.desc("ordinal"))
    try:
        conditions = {row["condition"]: row["count"] for row in found.groupBy("condition").count().collect()}
        first = found.orderBy(*order).limit(BARS).toArrow()
    finally:
        found.unpersist()
    return Tally(conditions, first).counts(scope.ordinals)


def _read(capture: str | os.PathLike[str]) -> DataFrame:
    import pyspark  # noqa: F401 - that it is missing is to be known before a capture is

    from trunkline.capture import reading
    from trunkline.spark.session import session

    # What has a scheme is not on this machine's disk, and Spark's to find.
    if "://" not in os.fspath(capture):
        reading.open(capture)
    return capture_rows(session(), capture)
