"""A page that shows what was recorded."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline._text import amount, latency, moment, readable, span
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Report", "RunReport", "SenderReport", "ServiceReport", "report"]


@dataclass(frozen=True, slots=True)
class SenderReport:
    """What was recorded of one sender.

    Attributes:
        sender: Its name, cut at 200 characters; None for malformed messages of nobody knows whom, and for all senders
            that have no row of their own.
        others: How many senders this row stands for, beside the first 200; 0 for a row of one sender.
        variants: The headers it used.
        messages: Its messages, a CDTP2 one once a record.
        bytes: Bytes of all their frames.
        rate: Messages a second from the first to the last; None if that is no time.
        first_received_at_ns: When the first was received, in nanoseconds since 1970; None without one.
        last_received_at_ns: When the last was.
        missing: Sequence numbers that were skipped; None for a sender without sequence numbers (header S).
        malformed: What did not decode, by kind of error. A message that does not decode does not say who sent it: it
            counts for the one sender whose messages came by the same endpoint, if it was one.
    """

    sender: str | None
    variants: tuple[str, ...] = ()
    messages: int = 0
    bytes: int = 0
    rate: float | None = None
    first_received_at_ns: int | None = None
    last_received_at_ns: int | None = None
    missing: int | None = None
    malformed: Mapping[str, int] = field(default_factory=dict)
    others: int = 0

    @property
    def title(self) -> str:
        """The sender's name, or what it is if there is none, to read."""
        if self.others:
            return f"{self.others:,} more senders"
        return "(sender not known)" if self.sender is None else readable(self.sender)

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `Report.COLUMNS`."""
        return (
            self.title,
            " ".join(self.variants),
            f"{self.messages:,}",
            amount(self.bytes),
            "" if self.rate is None else f"{self.rate:,.1f}",
            moment(self.first_received_at_ns),
            moment(self.last_received_at_ns),
            "" if self.missing is None else f"{self.missing:,}",
            ", ".join(f"{count:,} {kind}" for kind, count in self.malformed.items()) or "0",
        )


@dataclass(frozen=True, slots=True)
class RunReport:
    """What was recorded of one run; see `trunkline.capture.Run`, whose words these are.

    Attributes:
        sender: The sender's name, cut at 200 characters.
        ordinal: Which of the sender's BORs began it; 0 for what came before the first.
        run_id: What the sender calls it, cut likewise; None if it does not say.
        condition: What is the matter, as Constellation names it.
        messages: DAT messages.
        bytes: Bytes of all frames.
        missed: Sequence numbers that were skipped.
        duplicates: Messages whose number had been there.
        out_of_order: Messages that came late.
        first_received_at_ns: When the first was received, in nanoseconds since 1970.
        last_received_at_ns: When the last was.
    """

    sender: str
    ordinal: int
    run_id: str | None
    condition: str
    messages: int
    bytes: int
    missed: int
    duplicates: int
    out_of_order: int
    first_received_at_ns: int
    last_received_at_ns: int

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `Report.RUN_COLUMNS`."""
        return (
            readable(self.sender),
            readable(self.run_id or ""),
            self.condition.replace("|", ", "),
            f"{self.ordinal:,}",
            f"{self.messages:,}",
            amount(self.bytes),
            f"{self.missed:,}",
            f"{self.duplicates:,}",
            f"{self.out_of_order:,}",
            moment(self.first_received_at_ns),
            span(self.last_received_at_ns - self.first_received_at_ns),
        )


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """What was recorded of the requests of one service of DCP, as one role saw it.

    Attributes:
        service: Its name, cut at 200 bytes.
        seen_by: The role that recorded it: ``"broker"``, ``"client"`` or ``"worker"``; see `pair_requests`.
        requests: Its requests.
        replies: Those that were replied to.
        forwards: Those that a worker sent on.
        p50_ns: The latency of replies that half of them stay below, in nanoseconds; None without a reply.
        p90_ns: Likewise nine of ten.
        p99_ns: Likewise 99 of 100.
        max_ns: The longest.
    """

    service: bytes
    seen_by: str
    requests: int
    replies: int
    forwards: int
    p50_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None

    @property
    def title(self) -> str:
        """The name of the service, or what it is if there is none, to read."""
        return readable(self.service.decode(errors="backslashreplace")) or "(empty name)"

    @property
    def unanswered(self) -> int:
        """Requests that nothing came of."""
        return self.requests - self.replies - self.forwards

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `Report.SERVICE_COLUMNS`."""
        counts = (self.requests, self.replies, self.forwards, self.unanswered)
        latencies = (self.p50_ns, self.p90_ns, self.p99_ns, self.max_ns)
        return (
            self.title,
            self.seen_by,
            *(f"{count:,}" for count in counts),
            *("" if ns is None else latency(ns) for ns in latencies),
        )


@dataclass(frozen=True, slots=True)
class Report:
    """What was recorded.

    Attributes:
        path: The page.
        senders: A row for each sender, the one with most messages first.
        rows: Rows of the capture, those of other protocols too.
        bytes: Bytes of all their frames.
        first_received_at_ns: When the first was received, in nanoseconds since 1970; None without one.
        last_received_at_ns: When the last was.
        runs: The latest 200 runs, in the order they began.
        run_count: How many there are in all.
        services: The 200 services of DCP with most requests, as each role saw them.
        service_count: How many there are in all.
        dcp_malformed: Messages of DCP that do not decode, by kind of error.
    """

    path: Path
    senders: tuple[SenderReport, ...]
    rows: int
    bytes: int
    first_received_at_ns: int | None
    last_received_at_ns: int | None
    runs: tuple[RunReport, ...] = ()
    run_count: int = 0
    services: tuple[ServiceReport, ...] = ()
    service_count: int = 0
    dcp_malformed: Mapping[str, int] = field(default_factory=dict)

    COLUMNS = (
        "sender",
        "header",
        "messages",
        "bytes",
        "per second",
        "first (UTC)",
        "last (UTC)",
        "missing",
        "malformed",
    )
    RUN_COLUMNS = (
        "sender",
        "run id",
        "condition",
        "run",
        "messages",
        "bytes",
        "missed",
        "again",
        "late",
        "first (UTC)",
        "took",
    )

    SERVICE_COLUMNS = (
        "service",
        "seen by",
        "requests",
        "replies",
        "sent on",
        "unanswered",
        "p50",
        "p90",
        "p99",
        "max",
    )

    @property
    def messages(self) -> int:
        """Messages of all senders."""
        return sum(sender.messages for sender in self.senders)

    @property
    def missing(self) -> int:
        """Sequence numbers that were skipped, of all senders."""
        return sum(sender.missing or 0 for sender in self.senders)

    @property
    def malformed(self) -> int:
        """Messages that do not decode."""
        of_senders = sum(sum(sender.malformed.values()) for sender in self.senders)
        return of_senders + sum(self.dcp_malformed.values())

    def table(self) -> str:
        """The senders as lines of text."""
        lines = [self.COLUMNS, *(sender.cells() for sender in self.senders)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.COLUMNS))]
        left = {"sender", "header", "malformed"}
        return "\n".join(
            "  ".join(
                cell.ljust(width) if name in left else cell.rjust(width)
                for name, cell, width in zip(self.COLUMNS, line, widths, strict=True)
            ).rstrip()
            for line in lines
        )


@needs_extra
def report(
    capture: str | os.PathLike[str] | DataFrame, out_html: str | os.PathLike[str], *, name: str | None = None
) -> Report:
    """Writes a page with tables and plots of what was recorded: of CDTP rates, payload sizes, gaps and errors; of DCP
    the requests of each service, with percentiles of their latency.

    Spark counts; what comes back to this process is a few thousand numbers, however large the capture. The page stands
    alone: it needs no network. It replaces an older one once it is complete.

    Args:
        capture: A capture directory, or a table that has the columns of one.
        out_html: The file to write.
        name: What the page calls the capture; its path if None.

    Returns:
        What its table shows.

    Raises:
        CaptureError: There is no capture.
        LocalProtocolError: A column of a capture is missing.
        OSError: The file cannot be written.
    """
    from trunkline.spark._counting import count, count_requests, latest_runs
    from trunkline.spark._page import page

    out = Path(out_html)
    if not out.parent.is_dir():
        raise FileNotFoundError(2, "the directory of the report does not exist", str(out.parent))
    if isinstance(capture, str | os.PathLike):
        rows, name = _read(capture), name or os.fspath(capture)
    else:
        rows = capture
    counts = count(rows)
    runs, run_count = latest_runs(rows)
    requests = count_requests(rows)
    result = Report(
        path=out,
        senders=counts.senders,
        rows=counts.rows,
        bytes=counts.bytes,
        first_received_at_ns=counts.first_ns,
        last_received_at_ns=counts.last_ns,
        runs=runs,
        run_count=run_count,
        services=requests.services,
        service_count=requests.service_count,
        dcp_malformed=requests.errors,
    )
    _write(out, page(result, counts, name))
    return result


def _read(capture: str | os.PathLike[str]) -> DataFrame:
    from trunkline.capture import reading
    from trunkline.spark.columns import capture_schema
    from trunkline.spark.session import session

    path = os.fspath(capture)
    # What has a scheme is not on this machine's disk, and Spark's to find.
    if "://" not in path:
        reading.open(path)
    return session().read.schema(capture_schema()).option("pathGlobFilter", reading.SEGMENTS).parquet(path)


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
