"""A page that shows what a capture holds, counted in this process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from trunkline._extras import needs
from trunkline.capture import reading
from trunkline.capture.selecting import Selection, wanted
from trunkline.errors import CaptureError, LocalProtocolError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    """Writes the page that `trunkline.spark.report` writes, without Spark and Java.

    DuckDB counts, in this process. That is the faster way for a capture on this machine up to some ten million rows; what
    does not fit in memory is on disk meanwhile.

    Args:
        capture: A capture directory.
        out_html: The file to write.
        name: What the page calls the capture; its path if None.
        selection: Which messages are reported; all if None.
        memory: How much DuckDB takes, as ``"2GB"``.
        on_progress: Called with the number of messages looked at so far; each is looked at several times.

    Returns:
        What the page shows.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
        LocalProtocolError: The extra ``report`` is not installed, or there is no run that is selected.
        OSError: The file cannot be written.
    """
    import duckdb

    from trunkline.spark import _engine
    from trunkline.spark.report import checked, make

    out, opened = checked(out_html), reading.open(capture)
    try:
        with _engine.here(memory, on_progress) as session:
            rows = session.read(opened)
            if selection is not None:
                rows = rows.join(session.frame_of(*wanted(opened, selection)), ["seq"], "left_semi")
            return make(cast("DataFrame", rows), out, name or os.fspath(capture))
    except duckdb.OutOfMemoryException as error:
        message = f"{memory} of memory, and what there is of {tempfile.gettempdir()}, do not do: {_said(error)}"
        raise LocalProtocolError(message) from error
    except duckdb.Error as error:
        message = f"{os.fspath(capture)}: {_said(error)}; trunkline capture verify says more"
        raise CaptureError(message) from error


def _said(error: Exception) -> str:
    """What DuckDB says first, without what kind of error it calls it."""
    return str(error).partition("\n")[0].partition("Error: ")[2] or str(error)
