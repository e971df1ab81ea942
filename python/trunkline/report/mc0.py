"""The section of a report on mc0: the traffic of topics, and ERROR answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from trunkline._text import OWN, readable, text_or_digits
from trunkline.report.charts import Chart, named
from trunkline.report.model import Clock, Counted, Scope, Section, Tile, Total, largest_first
from trunkline.report.tables import BYTES, SEEN, Column, Table, about_others, count, ranked, times

__all__ = ["Mc0Section", "RefusalReport", "TopicReport"]

# The percentiles that are listed and plotted.
LATENCIES = ("p50", "p99", "max")

_COLUMNS = (
    Column("topic", "title"),
    Column("seen by", "seen_by", is_text=True),
    count("puts", "puts"),
    count("deliveries", "deliveries"),
    Column("fan-out", "fan_out", "{:,.3g}".format),
    BYTES,
    Column("per second", "rate", "{:,.1f}".format),
    count("publishers", "publishers"),
    count("subscribers", "subscribers"),
    *times(LATENCIES),
)
_REFUSAL_COLUMNS = (
    Column("error", "title"),
    Column("peer", "peer_name", is_text=True),
    count("count", "errors", is_bad=True),
    *SEEN,
)

_NOTES = (
    "Bytes and messages per second are those of published messages; a connector sees what others publish when it is delivered. Latency "
    "is from the receipt of a PUT by a middleware to the moment its MESSAGE was handed to a subscriber's connection. A "
    "MESSAGE is matched with a PUT by its position among the others: where messages were lost, the PUT may be a later one, "
    "and the latency too short."
)

_SOME = "Only some messages are selected: how often each was delivered cannot be determined from them."

_REFUSAL_NOTES = (
    "ERRORs with the same text to the same peer: what it sent was invalid or not allowed, or it did not read what it had "
    "subscribed to."
)


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What was recorded of one topic of mc0, as one role saw it; see `trunkline.spark.topics`.

    Attributes:
        topic: Its name, cut at 200 characters; None for the row of all others.
        seen_by: The role that recorded it: ``"middleware"`` or ``"connector"``; None if there are both.
        puts: What was put.
        deliveries: What was delivered.
        bytes: The bytes of the bodies, each as it was put.
        publishers: Peers that put something; None at a connector.
        subscribers: Peers that had something delivered; None at a connector.
        first_received_at_ns: When the first message passed, in nanoseconds since 1970.
        last_received_at_ns: When the last did.
        p50_ns: The way through the middleware that half of the deliveries stay below, in nanoseconds; None without any.
        p99_ns: Likewise 99 of 100.
        max_ns: The longest.
        others: How many topics this row stands for, beside the first 200; 0 for a row of one.
    """

    topic: str | None
    seen_by: str | None
    puts: int
    deliveries: int
    bytes: int
    publishers: int | None
    subscribers: int | None
    first_received_at_ns: int
    last_received_at_ns: int
    p50_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None
    others: int = 0

    @property
    def title(self) -> str:
        """The topic, or a placeholder, as text."""
        if self.topic is None:
            return f"{self.others:,} more topics"
        return readable(self.topic) or "(empty name)"

    @property
    def rate(self) -> float | None:
        """Messages a second as they were put, from the first to the last; None if that is no time, or none was."""
        passed_ns = self.last_received_at_ns - self.first_received_at_ns
        messages = self.puts if self.seen_by == "middleware" else self.puts + self.deliveries
        return messages / passed_ns * 1e9 if messages and passed_ns else None

    @property
    def fan_out(self) -> float | None:
        """Deliveries of what was put, on average; None at a connector, and where nothing was put."""
        return self.deliveries / self.puts if self.puts and self.seen_by == "middleware" else None


@dataclass(frozen=True, slots=True)
class RefusalReport:
    """ERRORs of one text to one peer of a middleware.

    Attributes:
        text: What they say, cut at 200 characters; None where they say nothing, and for the row of all others.
        peer: The peer's routing id, cut at 200 bytes; None for a connector, which received them itself.
        errors: How many there are.
        first_received_at_ns: When the first passed, in nanoseconds since 1970.
        last_received_at_ns: When the last did.
        others: How many texts and peers this row stands for, beside the first 100; 0 for a row of one.
    """

    text: str | None
    peer: bytes | None
    errors: int
    first_received_at_ns: int
    last_received_at_ns: int
    others: int = 0

    @property
    def title(self) -> str:
        """The text, or a placeholder."""
        if self.others:
            return f"{self.others:,} more texts and peers"
        return readable(self.text or "") or "(no text)"

    @property
    def peer_name(self) -> str:
        """The peer as text."""
        if self.others:
            return ""
        return "(this connector)" if self.peer is None else text_or_digits(self.peer)


@dataclass(frozen=True, slots=True)
class Mc0Section(Section):
    """What was recorded of mc0.

    Attributes:
        topics: The 200 topics with most messages, as each role saw them, and a row of all others.
        topic_count: How many there are in all.
        beyond: Messages of topics beyond the first 100,000, counted together.
        left_out: Whether there are others, which are trunkline's own.
        puts: What was put to all of them.
        deliveries: What was delivered of all of them.
        refusals: The 100 texts of ERRORs and peers they were sent to with most of them, and a row of all others.
        refused: How many ERRORs there are in all.
        cuts: What of a selection may keep a message and not what belongs to it.
        errors: Messages that do not decode, by kind of error.
        bucket_ns: What time is divided into, in nanoseconds.
        first_ns: When that begins, in nanoseconds since 1970.
        rates: Messages by topic and bucket. A topic is its index in `topics`; those without a colour are one.
        latencies: Deliveries by topic and class of the time through the middleware: n is from 10^(n/10) ns on.
    """

    protocol: ClassVar[str] = "mc0"
    title: ClassVar[str] = "mc0"
    has_answers: ClassVar[bool] = True

    topics: tuple[TopicReport, ...] = ()
    topic_count: int = 0
    beyond: int = 0
    left_out: bool = False
    puts: int = 0
    deliveries: int = 0
    refusals: tuple[RefusalReport, ...] = ()
    refused: int = 0
    cuts: frozenset[str] = frozenset()
    errors: Mapping[str, int] = field(default_factory=dict)
    bucket_ns: int = 1
    first_ns: int = 0
    rates: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    latencies: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""
        return self.errors

    @property
    def spoken(self) -> bool:
        """Whether there are messages of the protocol."""
        return bool(self.topics or self.refusals or self.malformed)

    @property
    def _has_both(self) -> bool:
        """Whether PUTs and MESSAGEs are both covered: of all criteria they share only the topic."""
        return self.cuts <= {"topic"}

    def tiles(self) -> Sequence[Tile]:
        """Topics, PUTs, deliveries, and ERRORs."""
        refused = (Tile("Refused", f"{self.refused:,}", not self.refused),)
        both = (("Puts", self.puts), ("Deliveries", self.deliveries))
        return (
            Tile("Topics", f"{self.topic_count:,}"),
            # No number for messages that are not selected.
            *(Tile(title, f"{number:,}") for title, number in both if number or self._has_both),
            # An ERROR has no topic: a selection by topic has none.
            *(() if self.cuts and not self.refused else refused),
        )

    def tables(self) -> Sequence[Table]:
        """The topics, if any."""
        if not self.topics:
            return ()
        columns = [column for column in _COLUMNS if self._has_both or column.field != "fan_out"]
        notes = _NOTES + about_others(self.beyond, "messages")
        notes += f" Topics of the middleware itself, {OWN}*, are left out." if self.left_out else ""
        notes = notes if self._has_both else f"{_SOME} {notes}"
        return (Table("topics", "Topics", columns, self.topics, notes, ranked),)

    def charts(self) -> Sequence[Chart]:
        """Rates and latencies."""
        if not self.topics:
            return ()
        from trunkline.report import latencies, over_time

        names = named([topic.title for topic in self.topics], self.topic_count)
        rates = over_time.rates(self.rates, Clock(self.first_ns, self.bucket_ns), names)
        return (
            Chart("topic-rates", "Topics over time", "Messages per second of each topic", rates, names),
            *latencies.charts(
                "ways",
                "Through the middleware",
                "the time from PUT to MESSAGE",
                of=self.topics,
                marks=LATENCIES,
                which="topics with the most messages",
                spread=self.latencies,
                names=names,
                unit="deliveries",
                none="No delivery through a middleware was recorded.",
            ),
        )

    def details(self) -> Sequence[Table]:
        """The ERRORs, if any."""
        if not self.refusals:
            return ()
        return (Table("refusals", "Refused", _REFUSAL_COLUMNS, self.refusals, _REFUSAL_NOTES),)

    @classmethod
    def of(cls, counted: Counted, total: Total, scope: Scope) -> Self:
        """The section of what was counted."""
        found = counted["section"]
        same = ("topic_count", "beyond", "left_out", "puts", "deliveries", "refused")
        return cls(
            topics=tuple(TopicReport(**row) for row in found["topics"]),
            refusals=tuple(RefusalReport(**row) for row in found["refusals"]),
            cuts=scope.cuts,
            errors=largest_first(counted["errors"]),
            bucket_ns=counted["bucket_ns"],
            first_ns=total.clock.first_ns,
            rates=dict(found["rates"]),
            latencies=dict(found["latencies"]),
            **{name: found[name] for name in same},
        )
