"""The section of a report on CDTP: senders and runs, rates, payload sizes, gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from trunkline.report.cdtp_counts import Counts, SenderReport
from trunkline.report.cdtp_runs import RunCounts, RunReport
from trunkline.report.charts import Chart
from trunkline.report.colours import COLOURS, OTHERS
from trunkline.report.model import Counted, Scope, Section, Tile, Total, to_plain
from trunkline.report.tables import BYTES, SEEN, Column, Table, about_others, count, ranked

__all__ = ["CdtpSection", "RunReport", "SenderReport"]

# The most senders in the plot of runs.
TIMELINE = 24


def _kinds(malformed: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {kind}" for kind, number in malformed.items()) or "0"


_COLUMNS = (
    Column("sender", "title"),
    Column("header", "variants", " ".join),
    count("messages", "messages"),
    BYTES,
    Column("per second", "rate", "{:,.1f}".format),
    *SEEN,
    count("missing", "missing", is_bad=True),
    Column("malformed", "malformed", _kinds, is_text=True, is_bad=bool),
)

_MISSING = (
    "Missing counts the sequence numbers that were skipped, as in the table of runs: each number is compared with the highest "
    "one of that sender since its run began. A sender is known by its name: two that share one are counted as one. Messages "
    "with header S have no numbers. "
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
    options: ClassVar[Mapping[str, Any]] = {"tags": None}

    counts: Counts
    run_counts: RunCounts
    scope: Scope = field(default_factory=Scope)

    @property
    def senders(self) -> tuple[SenderReport, ...]:
        """A row for each sender, the one with most messages first."""
        return self.counts.senders

    @property
    def runs(self) -> tuple[RunReport, ...]:
        """200 runs: bad ones first, then those in progress, then the others, of each the latest first."""
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
        return self._senders().text()

    def to_dict(self) -> dict[str, Any]:
        """What was counted, by the names of the attributes, as dicts, lists, numbers and strings."""
        names = ("senders", "messages", "missing", "malformed", "runs", "run_count", "conditions")
        plots = ("rates", "volumes", "sizes", "gaps")
        found = {name: getattr(self, name) for name in names} | {name: getattr(self.counts, name) for name in plots}
        clock = self.counts.clock
        return {name: to_plain(value) for name, value in (found | clock._asdict()).items()}

    @property
    def spoken(self) -> bool:
        """Whether there are messages of the protocol."""
        return bool(self.senders)

    def tiles(self) -> Sequence[Tile]:
        """Senders, runs, and problems."""
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
        """The number of senders with known names."""
        return sum(sender.others or 1 for sender in self.senders if sender.others or sender.sender is not None)

    def tables(self) -> Sequence[Table]:
        """The senders."""
        return (self._senders(),)

    def _senders(self) -> Table:
        notes = f"{self._about_scope}{_NOTES}{about_others(self.counts.beyond, 'messages')}"
        return Table("senders", "Senders", _COLUMNS, self.senders, notes, self._colour)

    def _colour(self, at: int) -> int | None:
        """The colour of a sender in plots; an unknown sender has that of all others."""
        sender = self.senders[at]
        return (ranked(at) if sender.sender is not None else COLOURS) if sender.messages else None

    @property
    def _about_scope(self) -> str:
        if not self.scope.has_sequences:
            return "Only some messages are selected: missing numbers and the condition of runs cannot be determined from them. "
        if not self.scope.has_runs:
            return f"Only part of the time is selected: the condition of runs cannot be determined from it. {_MISSING}"
        return _MISSING

    def details(self) -> Sequence[Table]:
        """The runs, if any."""
        return (self.run_counts.table,) if self.runs else ()

    def charts(self) -> Sequence[Chart]:
        """Rates, sizes of payloads, gaps, and runs over time."""
        from trunkline.report import over_time
        from trunkline.report.sizes import Squares

        counts, clock = self.counts, self.counts.clock
        names = {at: sender.title for at, sender in enumerate(self.senders[:COLOURS]) if sender.sender is not None}
        if self._known > len(names):
            names[OTHERS] = f"{self._known - len(names):,} more"
        sizes = {at: row for at, row in counts.sizes.items() if at in names}
        return (
            Chart(
                "rate",
                "CDTP rate over time",
                "Messages per second of each sender",
                over_time.rates(counts.rates, clock, names),
                names,
            ),
            Chart(
                "volume",
                "CDTP bytes over time",
                "Bytes per second of each sender, whole frames",
                over_time.volumes(counts.volumes, clock, names),
                names,
            ),
            *((self._timeline(),) if self.scope.has_runs else ()),
            Chart(
                "sizes",
                "Payload sizes",
                "Percentage of each sender's messages by payload size in bytes",
                Squares(sizes, names) if sizes else None,
                none="No message has a size.",
            ),
            *((self._gaps(names),) if self.scope.has_sequences else ()),
        )

    def _gaps(self, names: Mapping[int, str]) -> Chart:
        from trunkline.report import over_time

        counts = self.counts
        return Chart(
            "gaps",
            "Gaps",
            "Missing sequence numbers so far, each counted when the message after its gap arrived",
            over_time.totals(counts.gaps, counts.clock, names, "missing"),
            {at: name for at, name in names.items() if any(counts.gaps.get(at, {}).values())},
            "No sequence number is missing.",
        )

    def _timeline(self) -> Chart:
        from trunkline.report.timeline import Timeline

        plotted = [sender.sender for sender in self.senders if sender.sender is not None][:TIMELINE]
        drawn = [run for run in self.run_counts.drawn if run.sender in plotted]
        caption = "One bar for each run, from its first message to its last; bad runs are red and taller, those in progress grey."
        if len(drawn) < self.run_count:
            caption += (
                f" {len(drawn):,} of {self.run_count:,} runs, of the {len(plotted)} senders with the most messages:"
                " the bad ones first, then the latest."
            )
        spoken = {run.sender for run in drawn}
        rows = [sender for sender in plotted if sender in spoken]
        bars = Timeline(drawn, rows, self.counts.clock) if rows else None
        return Chart("timeline", "Runs over time", caption, bars, none="There are no runs.")

    @classmethod
    def of(cls, counted: Counted, total: Total, scope: Scope) -> Self:
        """The section of what was counted."""
        return cls(Counts.of(counted, total.clock), counted.get("runs", RunCounts()), scope)
