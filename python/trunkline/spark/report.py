"""Reports on captures, counted by Spark."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline import report as _sections
from trunkline.columns import Decoder
from trunkline.errors import LocalProtocolError
from trunkline.report import *  # noqa: F403 - what a report is made of has its name here too
from trunkline.report import Report
from trunkline.report.counting import OPTIONS, summary
from trunkline.report.model import Scope, Total
from trunkline.spark._counting import STATE, Counting
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark._paths import capture_rows
from trunkline.spark._together import keys, together
from trunkline.spark.columns import decode_keeping, need_columns
from trunkline.spark.runs import rows_of_runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from trunkline.capture import Selection

__all__ = ["report"]
__all__ += _sections.__all__

_NEEDED = ("capture_id", "seq", "received_at_ns", "endpoint", "n_frames", "n_bytes", "header")


@needs_extra
def report(
    capture: str | os.PathLike[str] | DataFrame,
    out_html: str | os.PathLike[str],
    *,
    name: str | None = None,
    selection: Selection | None = None,
) -> Report:
    """Writes a page with tables and plots of what was recorded: of CDTP rates, payload sizes, gaps and errors; of DCP
    the requests of each service, with percentiles of their latency; of mc0 the topics, with what passed through them and
    how long that took, and what was refused; of MTL the resources, with what waited in each and how long it took to
    confirm, and the logins that were refused; of CDT the versions of configurations, with how far each has come and how long
    that took, the endpoints that lag, and the answers that were errors.

    Spark counts; this process gets only a few thousand numbers, however large the capture. Of a directory, which all executors
    must reach, tasks read the segments themselves, and no message passes through the JVM as a row. The page is self-contained
    and needs no network. It replaces an older one once it is complete.

    Args:
        capture: A capture directory, or a table that has the columns of one.
        out_html: The file to write.
        name: The name of the capture on the page; its path if None.
        selection: Which messages of a capture directory to report; all if None.

    Returns:
        The content of the page.

    Raises:
        CaptureError: There is no capture.
        LocalProtocolError: A column of a capture is missing, no run is selected, or a selection is made of a table.
        OSError: The file cannot be written.
    """
    from trunkline.report.making import checked, made

    out = checked(out_html)
    if isinstance(capture, str | os.PathLike) and "://" not in os.fspath(capture):
        import pyspark  # noqa: F401 - that it is missing is to be known before a capture is

        from trunkline.capture import reading
        from trunkline.spark._segments import count
        from trunkline.spark.session import session

        opened = reading.open(capture)
        scope = Scope() if selection is None else Scope.of(selection, opened)
        total, counted = count(session(), opened, selection, scope)
        return made(counted, total, out, name or os.fspath(capture), scope)
    if selection is not None:
        message = "selection= is for a capture directory: select the rows of the table"
        raise LocalProtocolError(message)
    if isinstance(capture, str | os.PathLike):
        from trunkline.spark.session import session

        # What has a scheme is Spark's to find.
        return _of_rows(capture_rows(session(), capture), out, name or os.fspath(capture))
    return _of_rows(capture, out, name)


def _of_rows(rows: DataFrame, out: Path, name: str | None) -> Report:
    """Counts rows of a capture, in whatever order they are, and writes the page."""
    from trunkline.report.making import made

    need_columns(rows, _NEEDED, "a report needs")
    scope = Scope()
    total, protocols = _total(rows)
    counting = Counting(scope, total.clock)
    found = [_messages(rows, protocol, counting) for protocol in protocols]
    if "cdtp" in protocols:
        recorded = functools.partial(counting.recorded_runs, "cdtp")
        found.append(rows_of_runs(rows).mapInArrow(recorded, STATE))
    counted = counting.collected(functools.reduce(lambda one, other: one.union(other), found)) if found else {}
    return made(counted, total, out, name, scope)


def _total(rows: DataFrame) -> tuple[Total, list[str]]:
    """How much there is, from when until when, and the protocols that can be counted."""
    has_protocols = "protocol" in {column.lower() for column in rows.columns}
    protocol = F.col("protocol") if has_protocols else F.lit("cdtp")
    sums = (F.count("*"), F.sum("n_bytes"), F.min("received_at_ns"), F.max("received_at_ns"))
    found = rows.groupBy(protocol.alias("protocol")).agg(*sums).collect()
    total = Total.of(Total(rows, size or 0, first, last) for _, rows, size, first, last in found)
    return total, [name for name in OPTIONS if any(row[0] == name for row in found)]


def _messages(rows: DataFrame, protocol: str, counting: Counting) -> DataFrame:
    """What the messages of a protocol come to, those that belong together in one task."""
    needs = summary(protocol, counting.scope, counting.clock).needs
    decoder = Decoder(protocol, **OPTIONS[protocol])
    kept = [name for name in needs if name not in decoder.row_schema().names]
    decoded = decode_keeping(rows, decoder, kept, needs)
    return together(decoded, keys(protocol)).mapInArrow(functools.partial(counting.recorded, protocol), STATE)
