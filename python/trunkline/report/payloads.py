"""The fields of payloads, counted by a layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trunkline._native.analysis import Payloads
from trunkline.capture.decoding import Decoding
from trunkline.capture.reading import Capture
from trunkline.capture.selecting import Selection, of_rows
from trunkline.columns import Layout, maps_of
from trunkline.report.charts import Chart
from trunkline.report.distributions import Histogram, Profile
from trunkline.report.selecting import is_possible, spoken
from trunkline.report.tables import Column, Table, count

if TYPE_CHECKING:
    from trunkline._native.capture import Capture as Part

__all__ = ["FieldReport", "PayloadCounts"]

# What the payloads of each protocol are counted by.
_NAMES = {"cdtp": "sender", "dcp": "service", "mc0": "topic", "mtl": "resource", "cdt": "app_version_name"}

# How many fields are plotted.
_PLOTTED = 8


@dataclass(frozen=True, slots=True)
class FieldReport:
    """What was in a field of payloads.

    Attributes:
        protocol: The protocol.
        name: The sender, topic, resource or service, or the version of an application.
        field: The field; a member of structs as ``hits.charge``.
        count: The numbers counted, of arrays all items; or the texts.
        malformed: Payloads that are not of the layout.
        min: The smallest number; None without one.
        max: The largest.
        mean: Their mean.
        std: Their standard deviation, of the population.
        histogram: ``edges`` and ``counts``: bins of one width, a power of two.
        length: Of arrays: their ``count``, and the ``min``, ``max`` and ``mean`` of their lengths.
        profile: Of arrays: the ``mean`` and ``std`` of each place, of the first 4,096.
        samples: Of arrays: up to five that were drawn.
        values: Of texts and booleans: the 20 most frequent ones, each with its count. Texts are cut after 100 characters,
            and then end in an ellipsis; of those that are equal so far the count is one.
        different: Of texts and booleans: how many different ones there are; None beyond 10,000, and ``values`` is empty.
    """

    protocol: str
    name: str
    field: str
    count: int
    malformed: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    histogram: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    length: Mapping[str, float | None] | None = None
    profile: Mapping[str, Sequence[float | None]] | None = None
    samples: Sequence[Sequence[float]] = ()
    values: Sequence[tuple[str, int]] = ()
    different: int | None = 0


class PayloadCounts:
    """The counts of payloads of a capture by a layout; in any order, and added to each other.

    Args:
        layout: The layout.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._of: dict[str, Payloads] = {}

    def count(self, capture: Capture, selection: Selection | None, part: Part | None = None) -> None:
        """Counts the selected messages of a capture, or of a part of it."""
        for protocol in spoken(capture, selection, self._layout):
            if not is_possible(self._layout, protocol):
                continue
            options: dict[str, Any] = {**dict.fromkeys(maps_of(protocol)), "payload": self._layout}
            decoding = Decoding(protocol, "PERMISSIVE", self.columns(protocol), options)
            selected = of_rows(dataclasses.replace(selection or Selection(), protocol=protocol), protocol)
            chosen = selected.of(capture)
            batches = decoding.batches(capture, chosen) if part is None else decoding.decode(part, chosen)
            for batch in batches:
                self._summary(protocol).record(batch)

    def columns(self, protocol: str) -> list[str]:
        """The columns of messages that are counted."""
        return ["seq", _NAMES[protocol], "error", *self._layout.columns]

    def record(self, protocol: str, batch: Any) -> None:
        """Counts messages that are decoded."""
        self._summary(protocol).record(batch)

    def _summary(self, protocol: str) -> Payloads:
        return self._of.setdefault(protocol, Payloads(_NAMES[protocol]))

    def states(self) -> dict[str, bytes]:
        """The counts as bytes, by protocol."""
        return {protocol: counts.state() for protocol, counts in self._of.items()}

    def merge(self, states: Mapping[str, bytes]) -> None:
        """Adds other counts."""
        for protocol, state in states.items():
            self._summary(protocol).merge(state)

    def copy(self) -> PayloadCounts:
        """Counts to which others are added apart."""
        other = PayloadCounts(self._layout)
        other.merge(self.states())
        return other

    def found(self) -> list[FieldReport]:
        """What was counted, the protocols in the order of the page."""
        return [
            FieldReport(protocol=protocol, **each)
            for protocol in _NAMES
            if protocol in self._of
            for each in self._of[protocol].evaluate()
        ]


def table(fields: Sequence[FieldReport]) -> Table:
    """The table of the fields of those whose payloads are of the layout, or of all where none are."""
    fits = {(each.protocol, each.name) for each in fields if each.count or (each.length or {}).get("count")}
    rows = [each for each in fields if (each.protocol, each.name) in fits] or fields
    others = dict.fromkeys(each.name for each in fields if (each.protocol, each.name) not in fits)
    notes = (
        "By the layout that was given, for each sender, topic, resource or service. Of arrays all items are counted."
    )
    if fits and others:
        notes += f" No payload of {', '.join(others)} is of the layout."
    return Table(
        "payloads",
        "Payloads",
        [
            Column("of", "name", is_text=True),
            Column("field", "field", is_text=True),
            count("values", "count"),
            count("malformed", "malformed", is_bad=True),
            Column("min", "min", _number),
            Column("mean", "mean", _number),
            Column("σ", "std", _number),  # noqa: RUF001 - the sign of a standard deviation
            Column("max", "max", _number),
        ],
        rows,
        notes,
        opens=_details,
    )


def charts(fields: Sequence[FieldReport]) -> list[Chart]:
    """The plots of the first fields: how often each value came, and of arrays the mean of each place."""
    found = []
    for at, each in enumerate([each for each in fields if each.histogram.get("counts")][:_PLOTTED]):
        title = f"{each.field} of {each.name}" if each.name else each.field
        plot = Histogram(each.histogram["edges"], [int(number) for number in each.histogram["counts"]])
        found.append(Chart(f"payload-{at}", title, f"How often values of {title} came", plot))
        if each.profile is not None and len(each.profile["mean"]) > 1:
            profile = Profile(each.profile["mean"], each.profile["std"])
            caption = f"The mean of each place of {title}, and its standard deviation"
            found.append(Chart(f"payload-{at}-profile", f"{title}, place by place", caption, profile))
    return found


def _number(value: float) -> str:
    return f"{value:,.6g}"


def _most_frequent(each: FieldReport) -> str:
    if each.different is None:
        return "more than 10,000 different texts"
    listed = ", ".join(f"{value} ({number:,})" for value, number in each.values)
    return listed if each.different == len(each.values) else f"{listed}, … ({each.different:,} different)"


def _details(each: FieldReport) -> dict[str, str]:
    lines = {"most frequent": _most_frequent(each)}
    if each.length is not None:
        lines["length"] = ", ".join(
            f"{name} {_number(value)}" for name, value in each.length.items() if value is not None
        )
    return {name: text for name, text in lines.items() if text}
