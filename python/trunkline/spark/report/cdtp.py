"""What a report says of CDTP: senders and runs, rates, payload sizes, gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from trunkline.spark.report import cdtp_counts, cdtp_runs
from trunkline.spark.report.cdtp_counts import Counts, SenderReport
from trunkline.spark.report.cdtp_runs import RunCounts, RunReport
from trunkline.spark.report.html import figure, key, legend, line, table
from trunkline.spark.report.model import COLOURS, OTHERS, Scope, Section, Tile, Total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CdtpSection", "count"]

# How many senders have a row in the plot of runs.
TIMELINE = 24

_MISSING = (
    "Missing counts the sequence numbers skipped between the start of a run and the highest seen since; messages "
    "with header S have none. "
)
_NOTES = (
    "The sender of a malformed message is unknown: it is counted under the only sender of its "
    "endpoint, or separately. A CDTP2 message counts once per record. Over time, the records of a CDTP2 message with several are spread evenly from its sender's "
    "previous message to this one, rather than counted when it arrived."
)


@dataclass(frozen=True, slots=True)
class CdtpSection(Section):
    """What was recorded of CDTP.

    Attributes:
        counts: What was counted.
        run_counts: What was counted of runs.
        scope: Which part of the capture it covers.
    """

    protocol: ClassVar[str] = "cdtp"
    title: ClassVar[str] = "CDTP"

    counts: Counts
    run_counts: RunCounts
    scope: Scope = field(default_factory=Scope)

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
    RUN_COLUMNS: ClassVar = RunCounts.COLUMNS

    @property
    def senders(self) -> tuple[SenderReport, ...]:
        """A row for each sender, the one with most messages first."""
        return self.counts.senders

    @property
    def runs(self) -> tuple[RunReport, ...]:
        """200 runs: those that are not GOOD first, then the others, of each the latest first."""
        return self.run_counts.listed

    @property
    def run_count(self) -> int:
        """How many runs there are in all."""
        return sum(self.conditions.values())

    @property
    def conditions(self) -> Mapping[str, int]:
        """How many runs there are of each condition, the one with most first."""
        return self.run_counts.conditions

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

    def tiles(self) -> Sequence[Tile]:
        """Senders, runs, and what is not as it should be."""
        runs = (
            Tile("Runs", f"{self.run_count:,}"),
            Tile("Bad runs", f"{self.run_counts.bad:,}", not self.run_counts.bad),
        )
        records = (Tile("Records", f"{self.messages:,}"),)
        missing = (Tile("Missing", f"{self.missing:,}", not self.missing),)
        return (
            *(records if any("2" in sender.variants for sender in self.senders) else ()),
            Tile("Senders", f"{self._known:,}"),
            *(runs if self.scope.has_runs else ()),
            *(missing if self.scope.has_sequences else ()),
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
        return table("senders", "Senders", self.COLUMNS, left, rows, f"{self._about_scope}{_NOTES}")

    @property
    def _about_scope(self) -> str:
        if not self.scope.has_sequences:
            return "Only some messages are selected: missing numbers and the condition of runs cannot be determined from them. "
        if not self.scope.has_runs:
            return f"Only part of the time is selected: the condition of runs cannot be determined from it. {_MISSING}"
        return _MISSING

    def details(self) -> str:
        """The runs, nothing where there are none."""
        return self.run_counts.table()

    def figures(self) -> Sequence[str]:
        """Rates, sizes of payloads, gaps, and when runs were."""
        from trunkline.spark.report import cdtp_plots, over_time

        counts, clock = self.counts, self.counts.clock
        names = {at: sender.title for at, sender in enumerate(self.senders[:COLOURS]) if sender.sender is not None}
        if self._known > len(names):
            names[OTHERS] = f"{self._known - len(names):,} more"
        with_gaps = {at: name for at, name in names.items() if any(counts.gaps.get(at, {}).values())}
        sizes = cdtp_plots.sizes(counts, names)
        rates = over_time.rates(counts.rates, clock, names, "Messages per second over time, one line for each sender")
        volumes = over_time.volumes(
            counts.volumes, clock, names, "Bytes per second over time, one line for each sender"
        )
        gaps = over_time.totals(
            counts.gaps, clock, names, "missing", "Missing sequence numbers up to each point in time"
        )
        missing = figure(
            "gaps",
            "Gaps",
            "Missing sequence numbers so far, each counted when the message after its gap arrived",
            gaps,
            legend(with_gaps),
            "No sequence number is missing.",
        )
        return (
            figure("rate", "CDTP rate over time", "Messages per second of each sender", rates, legend(names), ""),
            figure(
                "volume",
                "CDTP bytes over time",
                "Bytes per second of each sender, whole frames",
                volumes,
                legend(names),
                "",
            ),
            *([self._timeline()] if self.scope.has_runs else []),
            figure(
                "sizes",
                "Payload sizes",
                "Percentage of each sender's messages by payload size in bytes",
                sizes,
                "",
                "No message has a size.",
            ),
            *([missing] if self.scope.has_sequences else []),
        )

    def _timeline(self) -> str:
        from trunkline.spark.report.timeline import timeline

        plotted = [sender.sender for sender in self.senders if sender.sender is not None][:TIMELINE]
        drawn = [run for run in self.run_counts.drawn if run.sender in plotted]
        bars = timeline(drawn, plotted, self.counts.clock)
        caption = "One bar for each run, from its first message to its last; runs that are not GOOD are red and taller."
        if len(drawn) < self.run_count:
            caption += (
                f" {len(drawn):,} of {self.run_count:,} runs, of the {len(plotted)} senders with the most messages:"
                " the bad ones first, then the latest."
            )
        return figure("timeline", "Runs over time", caption, bars, "", "There are no runs.")


def count(rows: DataFrame, total: Total, scope: Scope) -> CdtpSection:
    """Counts what these rows of a capture hold."""
    counts = cdtp_counts.count(rows, total, scope)
    is_known = any(sender.sender is not None for sender in counts.senders)
    return CdtpSection(
        counts, cdtp_runs.count(rows, scope.ordinals) if is_known and scope.has_runs else RunCounts(), scope
    )
