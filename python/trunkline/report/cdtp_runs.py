"""The runs of senders of CDTP: counts by condition, and a list with bad ones first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from trunkline._arrow import from_bytes, to_bytes
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
    "Runs that are not GOOD are listed first, then the others, latest first in each group. A run extends from one BOR of a sender "
    "to the next. INCOMPLETE: numbers were skipped, the last did not arrive, or data arrived outside BOR and EOR; ABORTED: the EOR is missing. All other "
    "conditions are reported by the sender. Missing are the numbers that were skipped; again, messages whose number had been received before; "
    "late, those with a new number below the highest one before. Click a sender's name for the configuration of the run, from "
    f"its BOR, and the metadata of its EOR, the first {SAID:,} characters of each."
)

_COLUMNS = (
    Column("sender", "sender", readable),
    Column("run id", "run_id", readable, is_text=True),
    Column(
        "condition",
        "condition",
        lambda words: words.replace("|", ", "),
        is_text=True,
        is_bad=lambda words: words != "GOOD",
    ),
    count("run", "ordinal"),
    count("messages", "messages"),
    BYTES,
    count("missing", "missed", is_bad=True),
    count("again", "duplicates"),
    count("late", "out_of_order"),
    when("first", "first_received_at_ns"),
    Column("took", "took_ns", span),
)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What was recorded of one run, in the terms of `trunkline.capture.Run`.

    Attributes:
        sender: The sender's name, cut at 200 characters.
        ordinal: Which of the sender's BORs began it; 0 for what came before the first.
        run_id: What the sender calls it, cut likewise; None if it does not say.
        condition: What is the matter, as Constellation names it.
        messages: DAT messages.
        bytes: Bytes of all frames.
        missed: Sequence numbers that were skipped.
        duplicates: Messages with a number that was received before.
        out_of_order: Messages that came late.
        first_received_at_ns: When the first was received, in nanoseconds since 1970.
        last_received_at_ns: When the last was.
        config: The configuration in its BOR as JSON, cut at 2000 characters; None if there is none.
        metadata: The metadata in its EOR, likewise.
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
    config: str | None = None
    metadata: str | None = None

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
        listed: 200 runs: those that are not GOOD first, then the others, of each the latest first.
        conditions: How many runs there are of each condition, the one with most first.
        drawn: 1000 runs in the same order, to be drawn as far as their senders have a row in the plot.
    """

    listed: tuple[RunReport, ...] = ()
    conditions: Mapping[str, int] = field(default_factory=dict)
    drawn: tuple[RunBar, ...] = ()

    @property
    def bad(self) -> int:
        """How many runs are not GOOD."""
        return sum(number for condition, number in self.conditions.items() if condition != "GOOD")

    @property
    def table(self) -> Table:
        """The listed runs, and counts by condition."""
        counts = [
            (f"{_words(condition)} {number:,}", condition != "GOOD") for condition, number in self.conditions.items()
        ]
        notes = _NOTES + self._not_listed()
        return Table("runs", "Runs", _COLUMNS, self.listed, notes, counts=counts, opens=lambda run: run.said)

    def _not_listed(self) -> str:
        """The note on runs that are not listed, by condition."""
        left = dict(self.conditions)
        for run in self.listed:
            left[run.condition] -= 1
        parts = [f"{number:,} {_words(condition)}" for condition, number in left.items() if number]
        return f" Not listed: {' · '.join(parts)}." if parts else ""


class Tally:
    """Counts runs in any order, and keeps those that come first on the page."""

    def __init__(self) -> None:
        self._conditions: Counter[str] = Counter()
        self._first: pa.Table | None = None

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
        good = every.append_column("good", compute.equal(every["condition"], "GOOD"))
        order = [("good", "ascending"), ("first_received_at_ns", "descending"), ("sender", "ascending")]
        places = compute.sort_indices(good, [*order, ("ordinal", "descending")])
        self._first = every.take(places[:BARS])

    def state(self) -> bytes:
        """The state of the counts, as bytes."""
        first = b"" if self._first is None else to_bytes(self._first)
        return json.dumps(self._conditions).encode() + b"\n" + first

    def merge(self, state: bytes) -> None:
        """Adds the state of another tally."""
        conditions, _, first = state.partition(b"\n")
        if first:
            before = self._conditions.copy()
            for batch in from_bytes(first):
                self.add(batch)
            # The kept runs are counted already.
            self._conditions = before
        self._conditions.update(json.loads(conditions))

    def counts(self, ordinals: Mapping[str, Sequence[int]]) -> RunCounts:
        """The counts; if runs are selected, `ordinals` has their numbers by sender."""
        numbers = {sender[:NAME]: of_sender for sender, of_sender in ordinals.items()}

        def numbered(run: RunReport) -> RunReport:
            of_sender = numbers.get(run.sender)
            return replace(run, ordinal=of_sender[run.ordinal - 1]) if of_sender and run.ordinal else run

        rows = [] if self._first is None else self._first.to_pylist()
        chosen = [numbered(RunReport(**row)) for row in rows]
        bars = (RunBar(*(getattr(run, name) for name in RunBar._fields)) for run in chosen)
        return RunCounts(tuple(chosen[:RUNS]), largest_first(self._conditions), tuple(bars))


def _shown(runs: pa.Table) -> pa.Table:
    """The columns that a page shows, cut to their lengths there."""
    import pyarrow as pa
    from pyarrow import compute

    found = runs.select(list(RunReport.__dataclass_fields__))
    for name, most in (("sender", NAME), ("run_id", NAME), ("config", SAID), ("metadata", SAID)):
        short = compute.utf8_slice_codeunits(compute.cast(found[name], pa.string()), 0, most)
        found = found.set_column(found.schema.get_field_index(name), name, short)
    return found


def _words(condition: str) -> str:
    return condition.replace("|", " and ")


def _lines(said: str) -> str:
    """JSON with a line per key; unchanged if it was cut."""
    try:
        known = json.loads(said)
    except (ValueError, RecursionError):
        return readable(said) + "…"
    return "\n".join(f"{readable(key)}: {_value(value)}" for key, value in known.items())


def _value(value: object) -> str:
    return readable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
