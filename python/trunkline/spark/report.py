"""Reports on captures, counted by Spark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trunkline._locations import location_of
from trunkline.capture.selecting import need_selection
from trunkline.capture.stores import is_readable
from trunkline.errors import LocalProtocolError
from trunkline.spark._missing import needs_extra
from trunkline.spark._paths import capture_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from trunkline.capture import Selection
    from trunkline.columns import Payload
    from trunkline.report import Report

__all__ = ["report"]


@needs_extra
def report(
    capture: str | os.PathLike[str] | DataFrame,
    out_html: str | os.PathLike[str],
    *,
    name: str | None = None,
    selection: Selection | None = None,
    payload: Payload | None = None,
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
        capture: A capture directory, or its URL; a folder of captures at any depth, which are one report; or a table that has
            the columns of a capture.
        out_html: The file to write.
        name: The name of the capture on the page; its path if None.
        selection: Which messages of one capture to report; all if None.
        payload: The layout of payloads, whose fields are reported too: as `trunkline.columns.CdtpOptions.payload`.

    Returns:
        The content of the page.

    Raises:
        CaptureError: There is no capture.
        LocalProtocolError: A column of a capture is missing, no run is selected, or a selection is made of a table.
        OSError: The file cannot be written.

    ```python
    from trunkline import capture, spark

    report = spark.report("runs/", "runs.html", selection=capture.Selection(sender="Detector.one"))
    print(report.rows, report.malformed)
    ```
    """
    import pyspark  # noqa: F401 - report a missing pyspark before a missing capture

    from trunkline.capture.folders import is_folder_of_captures
    from trunkline.columns import layout_of
    from trunkline.report.making import checked, made
    from trunkline.report.model import Scope

    need_selection(selection)
    layout = layout_of(payload)
    out = checked(out_html)
    if isinstance(capture, str | os.PathLike) and is_folder_of_captures(capture):
        from trunkline.spark.session import session

        name = name or str(location_of(capture))
        of_all = session().read.format("trunkline").option("recursive", value=True)
        capture = of_all.load(os.fspath(location_of(capture).absolute()))
    if isinstance(capture, str | os.PathLike) and is_readable(location_of(capture)):
        from trunkline.capture import reading
        from trunkline.spark.counting.payloads import count_segments
        from trunkline.spark.counting.segments import count
        from trunkline.spark.session import session

        opened = reading.open(capture)
        scope = Scope() if selection is None else Scope.of(selection, opened)
        total, counted = count(session(), opened, selection, scope, layout)
        payloads = None if layout is None else count_segments(session(), opened, selection, layout)
        return made(counted, total, out, name or str(opened.path), scope, payloads=payloads)
    if selection is not None:
        message = "selection= is for one capture: select the rows of the table"
        raise LocalProtocolError(message)
    from trunkline.spark.counting.payloads import count_table
    from trunkline.spark.counting.rows import count_rows

    if isinstance(capture, str | os.PathLike):
        from trunkline.spark.session import session

        # Spark resolves other schemes.
        name, capture = name or str(location_of(capture)), capture_rows(session(), capture)
    total, counted = count_rows(capture, Scope())
    payloads = None if layout is None else count_table(capture, layout, [*counted])
    return made(counted, total, out, name, Scope(), payloads=payloads)
