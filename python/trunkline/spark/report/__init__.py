"""A page that shows what was recorded, with a section for each protocol."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline.spark._engine import F
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import need_columns
from trunkline.spark.report import cdt, cdtp, counting, dcp, mc0, mtl
from trunkline.spark.report.cdt import CdtSection, LaggingEndpoint, RefusedPull, VersionReport
from trunkline.spark.report.cdtp import CdtpSection
from trunkline.spark.report.cdtp_counts import SenderReport
from trunkline.spark.report.cdtp_runs import RunReport
from trunkline.spark.report.dcp import DcpSection, ServiceReport
from trunkline.spark.report.html import page
from trunkline.spark.report.mc0 import Mc0Section, RefusalReport, TopicReport
from trunkline.spark.report.model import Report, Scope, Section, Total
from trunkline.spark.report.mtl import MtlSection, RefusedLogin, ResourceReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "CdtSection",
    "CdtpSection",
    "DcpSection",
    "LaggingEndpoint",
    "Mc0Section",
    "MtlSection",
    "RefusalReport",
    "RefusedLogin",
    "RefusedPull",
    "Report",
    "ResourceReport",
    "RunReport",
    "Section",
    "SenderReport",
    "ServiceReport",
    "TopicReport",
    "VersionReport",
    "report",
]

# Counts the section of each protocol, in the order they have on the page.
_SECTIONS = (cdtp.count, dcp.count, mc0.count, mtl.count, cdt.count)


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
    out = checked(out_html)
    if isinstance(capture, str | os.PathLike):
        return make(_read(capture), out, name or os.fspath(capture))
    return make(capture, out, name)


def checked(out_html: str | os.PathLike[str]) -> Path:
    """Where a page goes, if that can be.

    Raises:
        FileNotFoundError: There is no such directory.
    """
    # Whether plots can be made is to be known before anything is counted.
    importlib.import_module("trunkline.spark.report.plots")
    out = Path(out_html)
    if not out.parent.is_dir():
        raise FileNotFoundError(2, "the directory of the report does not exist", str(out.parent))
    return out


def make(rows: DataFrame, out: Path, name: str | None, scope: Scope = Scope()) -> Report:  # noqa: B008 - it is frozen
    """Counts rows of a capture, and writes the page."""
    total = _total(rows)
    sections = [count(rows, total, scope) for count in _SECTIONS]
    # Of CDTP there is more to say: who sent them.
    has_others = any(section.spoken for section in sections if section.protocol != cdtp.CdtpSection.protocol)
    volumes, messages = _volumes(rows, total, [section.protocol for section in sections]) if has_others else ({}, {})
    result = Report(
        path=out,
        rows=total.rows,
        bytes=total.bytes,
        first_received_at_ns=total.first_ns,
        last_received_at_ns=total.last_ns,
        sections={section.protocol: section for section in sections},
        volumes=volumes,
        messages=messages,
        selected=scope.said,
    )
    _write(out, page(result, name))
    return result


def _total(rows: DataFrame) -> Total:
    need_columns(rows, ("received_at_ns", "n_bytes"), "a report needs")
    counted = rows.agg(F.count("*"), F.sum("n_bytes"), F.min("received_at_ns"), F.max("received_at_ns")).first()
    assert counted is not None
    number, bytes_, first, last = counted
    return Total(number, bytes_ or 0, first, last)


def _volumes(
    rows: DataFrame, total: Total, protocols: Sequence[str]
) -> tuple[dict[str, dict[int, int]], dict[str, int]]:
    """Bytes of all frames by protocol and bucket, and how many rows there are of each protocol."""
    when = counting.bucket("received_at_ns", total.clock)
    known = rows.where(F.col("protocol").isin(*protocols))
    volumes: dict[str, dict[int, int]] = {}
    messages: dict[str, int] = {}
    counted = known.groupBy("protocol", when).agg(F.sum("n_bytes"), F.count("*"))
    for protocol, place, number, of_rows in counted.collect():
        volumes.setdefault(protocol, {})[place] = number
        messages[protocol] = messages.get(protocol, 0) + of_rows
    return volumes, messages


def _read(capture: str | os.PathLike[str]) -> DataFrame:
    from trunkline.capture import reading
    from trunkline.spark.columns import capture_schema
    from trunkline.spark.session import session

    path, schema = os.fspath(capture), capture_schema()
    # What has a scheme is not on this machine's disk, and Spark's to find.
    if "://" not in path:
        reading.open(path)
    return session().read.schema(schema).option("pathGlobFilter", reading.SEGMENTS).parquet(path)


def _write(out: Path, text: str) -> None:
    """Writes a file that is never seen in part."""
    handle, name = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # A new file has the permissions it would have had without the detour.
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(out)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
