"""Reports on captures, computed in this process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from trunkline._extras import needs
from trunkline.capture import reading
from trunkline.capture.selecting import Selection, of_records, wanted
from trunkline.errors import CaptureError, LocalProtocolError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from trunkline.spark._duckdb.session import Session
    from trunkline.spark.report import Report

__all__ = ["report"]


@needs("report", "duckdb", "matplotlib", "numpy", "pyarrow")
def report(
    capture: str | os.PathLike[str],
    out_html: str | os.PathLike[str],
    *,
    name: str | None = None,
    selection: Selection | None = None,
    memory: str = "2GB",
    on_progress: Callable[[int], object] = lambda _rows: None,
) -> Report:
    """Writes the same page as `trunkline.spark.report`, without Spark and Java.

    It is computed by DuckDB in this process, which is faster for captures on this machine of up to some ten million rows;
    what does not fit into memory is spilled to disk.

    Args:
        capture: A capture directory.
        out_html: The file to write.
        name: The title of the page; the capture's path if None.
        selection: Which messages to report; all if None.
        memory: DuckDB's memory limit, e.g. ``"2GB"``.
        on_progress: Called with the number of messages read so far; each is read several times.

    Returns:
        The content of the page.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
        LocalProtocolError: The extra ``report`` is not installed, or no run is selected.
        OSError: The file cannot be written.
    """
    import duckdb

    from trunkline.spark import _engine
    from trunkline.spark.report import checked, make
    from trunkline.spark.report.model import Scope

    out, opened = checked(out_html), reading.open(capture)
    try:
        with _engine.here(memory, on_progress) as session:
            whole, scope = session.read(opened), Scope()
            rows = whole
            if selection is not None:
                rows = whole.join(session.frame_of(*wanted(opened, selection)), ["seq"], "left_semi")
                scope = Scope.of(
                    selection, _keeping_records(session, opened, selection), cast("DataFrame", whole), opened
                )
            return make(cast("DataFrame", rows), out, name or os.fspath(capture), scope)
    except duckdb.OutOfMemoryException as error:
        message = f"{memory} of memory and the free space in {tempfile.gettempdir()} are not enough: {_said(error)}"
        raise LocalProtocolError(message) from error
    except duckdb.Error as error:
        message = f"{os.fspath(capture)}: {_said(error)}; trunkline capture verify shows more"
        raise CaptureError(message) from error


def _keeping_records(session: Session, opened: reading.Capture, selection: Selection) -> Any:
    """What keeps the messages of CDTP that are selected; None where whole rows are."""
    records = of_records(selection)
    if records is None:
        return None
    found = session.frame_of(*wanted(opened, records, ("seq", "record")))
    return lambda table: table.join(found, ["seq", "record"], "left_semi")


def _said(error: Exception) -> str:
    """What DuckDB says first, without what kind of error it calls it."""
    return str(error).partition("\n")[0].partition("Error: ")[2] or str(error)
