"""The runs of senders of CDTP: counts by condition, and a list with bad ones first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from trunkline._arrow import from_bytes, to_bytes
from trunkline._conditions import GOOD, IN_PROGRESS, condition_text, is_bad
from trunkline._text import readable, span
from trunkline.report.model import NAME, largest_first
from trunkline.report.tables import BYTES, Column, Table, count, when

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RunBar", "RunCounts", "RunReport", "Tally"]

# The most runs in the list, and in the plot.
RUNS = 200
BARS = 1000

# The length at which the JSON of a configuration or of metadata is cut.
SAID = 2000

_NOTES = (
    "Bad runs are listed first, then those in progress, then the others, latest first in each group. A run extends from one BOR of a sender "
    "to the next. INCOMPLETE: numbers were skipped, the last did not arrive, or data arrived outside BOR and EOR; ABORTED: the EOR is missing. A run is in "
    "progress, neither good nor bad, until its EOR, the end of the recorder, or ten minutes without a message of its sender. All other "
    "conditions are reported by the sender. Missing are the numbers that were skipped; again, messages whose number had been received before; "
    "late, those with a new number below the highest one before. Click a sender's name for the configuration of the run, from "
    f"its BOR, and the metadata of its EOR, the first {SAID:,} characters of each."
)

_COLUMNS = (
    Column("sender", "title"),
    Column("run id", "run_id", readable, is_text=True),
    Column(
        "condition",
        "condition",
        lambda condition: condition_text(condition, ", "),
        is_text=True,
        is_bad=lambda condition: condition is not None and is_bad(condition),
    ),
    Column("run", "number"),
    count("messages", "messages"),
    BYTES,
    count("missing", "missed", is_bad=True),
    count("again", "duplicates"),
    count("late", "out_of_order"),
    when("first", "first_received_at_ns"),
    Column("took", "took_ns", span),
)


# What several runs have together.
_SUMMED = (
    *("messages", "bytes", "missed", "duplicates", "out_of_order"),
    *("first_received_at_ns", "last_received_at_ns"),
)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What was recorded of one run, in the terms of `trunkline.capture.Run`.

    Attributes:
        sender: The sender's name, cut at 200 characters; None for the row of all others.
        ordinal: Which of the sender's BORs began it; 0 for what came before the first.
        run_id: What the sender calls it, cut likewise; None if it does not say.
        condition: What is the matter, as Constellation names it, or ``IN_PROGRESS``; None for the row of all others.
        messages: DAT messages.
        bytes: Bytes of all frames.
        missed: Sequence numbers that were skipped.
        duplicates: Messages with a number that was received before.
        out_of_order: Messages that came late.
        first_received_at_ns: When the first was received, in nanoseconds since 1970.
        last_received_at_ns: When the last was.
        config: The configuration in its BOR as JSON, cut at 2000 characters; None if there is none.
        metadata: The metadata in its EOR, likewise.
        others: How many runs this row stands for, beside those that are listed; 0 for a row of one.
    """

    sender: str | None
    ordinal: int
    run_id: str | None
    condition: str | None
    messages: int
    bytes: int
    missed: int
    duplicates: int
    out_of_order: int
    first_received_at_ns: int
    last_received_at_ns: int
    config: str | None = None
    metadata: str | None = None
    others: int = 0

    @property
    def title(self) -> str:
        """The sender's name as text."""
        return f"{self.others:,} more runs" if self.sender is None else readable(self.sender)

    @property
    def number(self) -> str:
        """Its ordinal as text."""
        return "" if self.others else f"{self.ordinal:,}"

    @property
    def took_ns(self) -> int:
        """How long it was, in nanoseconds."""
        return self.last_received_at_ns - self.first_received_at_ns

    @property
    def said(self) -> dict[str, str]:
        """The configuration and the metadata as text, by name."""
        texts = {"configuration": self.config, "metadata": self.metadata}
        return {name: _lines(text) for name, text in texts.items() if text is not None and text != "{}"}


class RunBar(NamedTuple):
    """A run in the plot of runs over time, in the terms of `RunReport`."""

    sender: str
    ordinal: int
    run_id: str | None
    condition: str
    first_received_at_ns: int
    last_received_at_ns: int


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Counts of runs.

    Attributes:
        listed: 200 runs: bad ones first, then those in progress, then the others, of each the latest first; and a row of all that
            are not among them.
        conditions: How many runs there are of each condition, the one with most first.
        drawn: 1000 runs in the same order, to be drawn as far as their senders have a row in the plot.
    """

    listed: tuple[RunReport, ...] = ()
    conditions: Mapping[str, int] = field(default_factory=dict)
    drawn: tuple[RunBar, ...] = ()

    @property
    def bad(self) -> int:
        """How many runs are neither GOOD nor in progress."""
        return sum(number for condition, number in self.conditions.items() if is_bad(condition))

    @property
    def table(self) -> Table:
        """The listed runs, and counts by condition."""
        counts = [
            (f"{_words(condition)} {number:,}", is_bad(condition)) for condition, number in self.conditions.items()
        ]
        notes = _NOTES + self._not_listed()
        return Table("runs", "Runs", _COLUMNS, self.listed, notes, counts=counts, opens=lambda run: run.said)

    def _not_listed(self) -> str:
        """The note on runs without a row of their own, by condition."""
        left = dict(self.conditions)
        for run in self.listed:
            if run.condition is not None:
                left[run.condition] -= 1
        parts = [f"{number:,} {_words(condition)}" for condition, number in left.items() if number]
        return f" In the last row: {' · '.join(parts)}." if parts else ""


class Tally:
    """Counts runs in any order, and keeps those that come first on the page."""

    def __init__(self) -> None:
        self._conditions: Counter[str] = Counter()
        self._first: pa.Table | None = None
        # The runs that are not kept, together.
        self._rest: dict[str, int] = {}

    def add(self, runs: pa.RecordBatch) -> None:
        """Counts more runs."""
        import pyarrow as pa
        from pyarrow import compute

        if not runs.num_rows:
            return
        found = _shown(pa.Table.from_batches([runs]))
        for counted in compute.value_counts(found["condition"]).to_pylist():
            self._conditions[counted["values"]] += counted["counts"]
        # Keep only runs that may be listed or drawn.
        every = found if self._first is None else pa.concat_tables([self._first, found])
        ranks = [compute.equal(every["condition"], last).cast("int8") for last in (GOOD, IN_PROGRESS)]
        ranked = every.append_column("rank", compute.add(compute.add(ranks[0], ranks[0]), ranks[1]))
        order = [("rank", "ascending"), ("first_received_at_ns", "descending"), ("sender", "ascending")]
        places = compute.sort_indices(ranked, [*order, ("ordinal", "descending")])
        self._first = every.take(places[:BARS])
        self._rest = _together([self._rest, *every.take(places[BARS:]).select(_SUMMED).to_pylist()])

    def state(self) -> bytes:
        """The state of the counts, as bytes."""
        first = b"" if self._first is None else to_bytes(self._first)
        return json.dumps([self._conditions, self._rest]).encode() + b"\n" + first

    def merge(self, state: bytes) -> None:
        """Adds the state of another tally."""
        counts, _, first = state.partition(b"\n")
        conditions, rest = json.loads(counts)
        if first:
            before = self._conditions.copy()
            for batch in from_bytes(first):
                self.add(batch)
            # The kept runs are counted already.
            self._conditions = before
        self._conditions.update(conditions)
        self._rest = _together([self._rest, rest])

    def counts(self, ordinals: Mapping[str, Sequence[int]]) -> RunCounts:
        """The counts; if runs are selected, `ordinals` has their numbers by sender."""
        numbers = {sender[:NAME]: of_sender for sender, of_sender in ordinals.items()}

        def numbered(run: RunReport) -> RunReport:
            of_sender = numbers.get(run.sender or "")
            return replace(run, ordinal=of_sender[run.ordinal - 1]) if of_sender and run.ordinal else run

        rows = [] if self._first is None else self._first.to_pylist()
        chosen = [numbered(RunReport(**row)) for row in rows]
        bars = (RunBar(*(getattr(run, name) for name in RunBar._fields)) for run in chosen)
        listed = chosen[:RUNS]
        others = self._conditions.total() - len(listed)
        if others:
            rest: dict[str, Any] = _together(
                [self._rest, *({name: row[name] for name in _SUMMED} for row in rows[RUNS:])]
            )
            listed.append(RunReport(sender=None, ordinal=0, run_id=None, condition=None, **rest, others=others))
        return RunCounts(tuple(listed), largest_first(self._conditions), tuple(bars))


def _together(rows: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Runs as one; nothing is none."""
    found = [row for row in rows if row]
    if not found:
        return {}
    how = {"first_received_at_ns": min, "last_received_at_ns": max}
    return {name: how.get(name, sum)(row[name] for row in found) for name in _SUMMED}


def _shown(runs: pa.Table) -> pa.Table:
    """The columns that a page shows, cut to their lengths there."""
    import pyarrow as pa
    from pyarrow import compute

    found = runs.select([name for name in RunReport.__dataclass_fields__ if name != "others"])
    for name, most in (("sender", NAME), ("run_id", NAME), ("config", SAID), ("metadata", SAID)):
        short = compute.utf8_slice_codeunits(compute.cast(found[name], pa.string()), 0, most)
        found = found.set_column(found.schema.get_field_index(name), name, short)
    return found


def _words(condition: str) -> str:
    return condition_text(condition, " and ")


def _lines(said: str) -> str:
    """JSON with a line per key; unchanged if it was cut."""
    try:
        known = json.loads(said)
    except (ValueError, RecursionError):
        return readable(said) + "…"
    return "\n".join(f"{readable(key)}: {_value(value)}" for key, value in known.items())


def _value(value: object) -> str:
    return readable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
