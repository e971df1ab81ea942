"""What a report says of CDTP: senders and runs, rates, payload sizes, gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, ClassVar

from trunkline._text import amount, moment, readable, span
from trunkline.spark.report import cdtp_counts
from trunkline.spark.report.cdtp_counts import Counts, SenderReport
from trunkline.spark.report.html import figure, key, line, table
from trunkline.spark.report.model import COLOURS, NAME, OTHERS, Section, Tile, Total
from trunkline.spark.runs import runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CdtpSection", "RunReport", "count"]

# How many runs are listed.
RUNS = 200

_NOTES = (
    "Missing are sequence numbers that were skipped between the begin of a run and the highest seen since; messages "
    "with header S have none. A malformed message does not say who sent it: it stands with the one sender of its "
    "endpoint, or by itself."
)

_RUN_NOTES = (
    "A run goes from one BOR of a sender to the next. INCOMPLETE: numbers were skipped, or data came outside BOR and EOR; "
    "ABORTED: there is no EOR. All other conditions are what the sender says of itself."
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
        """What a table shows of it, in the order of `CdtpSection.RUN_COLUMNS`."""
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
class CdtpSection(Section):
    """What was recorded of CDTP.

    Attributes:
        counts: What was counted.
        runs: The latest 200 runs, in the order they began.
        run_count: How many there are in all.
    """

    protocol: ClassVar[str] = "cdtp"

    counts: Counts
    runs: tuple[RunReport, ...] = ()
    run_count: int = 0

    COLUMNS: ClassVar = (
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
    RUN_COLUMNS: ClassVar = (
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

    @property
    def senders(self) -> tuple[SenderReport, ...]:
        """A row for each sender, the one with most messages first."""
        return self.counts.senders

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""
        return self.counts.errors

    @property
    def messages(self) -> int:
        """Messages of all senders."""
        return sum(sender.messages for sender in self.senders)

    @property
    def missing(self) -> int:
        """Sequence numbers that were skipped, of all senders."""
        return sum(sender.missing or 0 for sender in self.senders)

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

    @property
    def spoken(self) -> bool:
        """Whether anybody spoke it."""
        return bool(self.senders)

    def headline(self) -> Sequence[Tile]:
        """How many messages there are."""
        return (Tile("Messages", f"{self.messages:,}"),)

    def tiles(self) -> Sequence[Tile]:
        """Senders, runs, and what is missing."""
        return (
            Tile("Senders", f"{self._known:,}"),
            Tile("Runs", f"{self.run_count:,}"),
            Tile("Missing", f"{self.missing:,}", not self.missing),
        )

    @property
    def _known(self) -> int:
        """How many senders there are whose names are known."""
        return sum(sender.others or 1 for sender in self.senders if sender.others or sender.sender is not None)

    def tables(self) -> str:
        """The senders."""
        left = {"malformed"}
        rows = []
        for at, sender in enumerate(self.senders):
            tones = {"missing": sender.missing, "malformed": sender.malformed}
            mark = key(at if at < COLOURS and sender.sender is not None else COLOURS) if sender.messages else ""
            rows.append(line(sender.cells(), self.COLUMNS, left, {name for name in tones if tones[name]}, mark))
        return table("senders", "Senders", self.COLUMNS, left, rows, _NOTES)

    def details(self) -> str:
        """The runs, nothing where there are none."""
        if not self.runs:
            return ""
        left = {"sender", "run id", "condition"}
        rows = []
        for run in self.runs:
            tones = {"condition": run.condition != "GOOD", "missed": bool(run.missed)}
            rows.append(line(run.cells(), self.RUN_COLUMNS, left, {name for name in tones if tones[name]}))
        more = self.run_count - len(self.runs)
        notes = _RUN_NOTES + (f" {more:,} earlier runs are not listed." if more else "")
        return table("runs", "Runs", self.RUN_COLUMNS, left, rows, notes)

    def figures(self) -> Sequence[str]:
        """Rates, sizes of payloads, and gaps."""
        from trunkline.spark.report import cdtp_plots, over_time

        names = {at: sender.title for at, sender in enumerate(self.senders[:COLOURS]) if sender.sender is not None}
        if self._known > len(names):
            names[OTHERS] = f"{self._known - len(names):,} more"
        legend = "".join(
            f"<span>{key(COLOURS if at == OTHERS else at)}{escape(name)}</span>" for at, name in names.items()
        )
        bucket_ns = self.counts.bucket_ns
        rates = over_time.rates(self.counts.rates, bucket_ns, "Messages a second over time, a line for each sender")
        sizes = cdtp_plots.sizes(self.counts, names)
        missing = "Sequence numbers that were skipped, over time"
        gaps = over_time.stacks(self.counts.gaps, bucket_ns, "missing", missing)
        return (
            figure("rate", "Rate over time", "Messages a second of each sender", rates, legend, ""),
            figure(
                "sizes",
                "Payload sizes",
                "Share of each sender's messages by the bytes of their payload",
                sizes,
                "",
                "No message has a size.",
            ),
            figure(
                "gaps",
                "Gaps",
                "Sequence numbers that were skipped, by when the message after the gap came",
                gaps,
                legend,
                "No sequence number is missing.",
            ),
        )


def count(rows: DataFrame, total: Total) -> CdtpSection:
    """Counts what these rows of a capture hold."""
    counts = cdtp_counts.count(rows, total)
    latest, run_count = _latest_runs(rows)
    return CdtpSection(counts, latest, run_count)


def _latest_runs(rows: DataFrame) -> tuple[tuple[RunReport, ...], int]:
    """The runs that began last, in the order they began, and how many there are in all."""
    from pyspark.sql import functions as F  # noqa: N812

    found = runs(rows).drop("capture_id", "config", "metadata", "bor_seq", "eor_seq", "condition_code")
    for name in ("sender", "run_id"):
        found = found.withColumn(name, F.left(name, F.lit(NAME)))
    found = found.persist()
    try:
        order = ("first_received_at_ns", "sender", "ordinal")
        latest = found.orderBy(*(F.desc(name) for name in order)).limit(RUNS).collect()
        number = len(latest) if len(latest) < RUNS else found.count()
    finally:
        found.unpersist()
    return tuple(RunReport(**row.asDict()) for row in reversed(latest)), number
