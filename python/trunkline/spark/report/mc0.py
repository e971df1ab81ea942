"""What a report says of mc0: the topics with what passed through them, and the errors that were answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from trunkline._text import OWN, amount, latency, moment, readable, text_or_digits
from trunkline.columns import Decoder
from trunkline.spark._engine import F, made_once
from trunkline.spark.columns import decode_keeping
from trunkline.spark.report import counting
from trunkline.spark.report.html import figure, key, legend, line, table
from trunkline.spark.report.model import COLOURS, NAME, OTHERS, Clock, Scope, Section, Tile, Total
from trunkline.spark.topics import TOPIC_COLUMNS, count_topics, passing, timed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Mc0Section", "RefusalReport", "TopicReport", "count"]

# How many topics are listed.
TOPICS = 200

# How many refusals are listed.
REFUSALS = 100

# What is plotted of latencies.
LATENCIES = ("p50", "p99", "max")

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
        topic: Its name, cut at 200 characters.
        seen_by: The role that recorded it: ``"middleware"`` or ``"connector"``.
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
    """

    topic: str
    seen_by: str
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

    @property
    def title(self) -> str:
        """The topic, or what it is if it has no name, to read."""
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

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `Mc0Section.COLUMNS`."""
        peers = (self.publishers, self.subscribers)
        latencies = (self.p50_ns, self.p99_ns, self.max_ns)
        return (
            self.title,
            self.seen_by,
            f"{self.puts:,}",
            f"{self.deliveries:,}",
            "" if self.fan_out is None else f"{self.fan_out:,.3g}",
            amount(self.bytes),
            "" if self.rate is None else f"{self.rate:,.1f}",
            *("" if count is None else f"{count:,}" for count in peers),
            *("" if ns is None else latency(ns) for ns in latencies),
        )


@dataclass(frozen=True, slots=True)
class RefusalReport:
    """ERRORs of one text to one peer of a middleware.

    Attributes:
        text: What they say, cut at 200 characters; None where they say nothing.
        peer: The peer's routing id, cut at 200 bytes; None for a connector, which received them itself.
        errors: How many there are.
        first_received_at_ns: When the first passed, in nanoseconds since 1970.
        last_received_at_ns: When the last did.
    """

    text: str | None
    peer: bytes | None
    errors: int
    first_received_at_ns: int
    last_received_at_ns: int

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `Mc0Section.REFUSAL_COLUMNS`."""
        peer = "(this connector)" if self.peer is None else text_or_digits(self.peer)
        return (
            readable(self.text or "") or "(no text)",
            peer,
            f"{self.errors:,}",
            moment(self.first_received_at_ns),
            moment(self.last_received_at_ns),
        )


@dataclass(frozen=True, slots=True)
class Mc0Section(Section):
    """What was recorded of mc0.

    Attributes:
        topics: The 200 topics with most messages, as each role saw them.
        topic_count: How many there are in all.
        left_out: Whether there are others, which are trunkline's own.
        puts: What was put to all of them.
        deliveries: What was delivered of all of them.
        refusals: The 100 texts of ERRORs and peers they were sent to with most of them.
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

    topics: tuple[TopicReport, ...] = ()
    topic_count: int = 0
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

    COLUMNS: ClassVar = (
        "topic",
        "seen by",
        "puts",
        "deliveries",
        "fan-out",
        "bytes",
        "per second",
        "publishers",
        "subscribers",
        "p50",
        "p99",
        "max",
    )
    REFUSAL_COLUMNS: ClassVar = ("error", "peer", "count", "first (UTC)", "last (UTC)")

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""
        return self.errors

    @property
    def spoken(self) -> bool:
        """Whether anybody spoke it."""
        return bool(self.topics or self.refusals or self.malformed)

    @property
    def _has_both(self) -> bool:
        """Whether what is put is covered where what is delivered is: they share a topic, and nothing else that one selects by."""
        return self.cuts <= {"topic"}

    def tiles(self) -> Sequence[Tile]:
        """Topics, what was put and delivered, and what was answered with an error."""
        refused = (Tile("Refused", f"{self.refused:,}", not self.refused),)
        both = (("Puts", self.puts), ("Deliveries", self.deliveries))
        return (
            Tile("Topics", f"{self.topic_count:,}"),
            # Of one that is not selected there is no number to show.
            *(Tile(title, f"{number:,}") for title, number in both if number or self._has_both),
            # An ERROR says of no topic: that there is none among some messages says nothing.
            *(() if self.cuts and not self.refused else refused),
        )

    def tables(self) -> str:
        """The topics, nothing where nothing passed through any."""
        if not self.topics:
            return ""
        columns = tuple(name for name in self.COLUMNS if self._has_both or name != "fan-out")
        rows = []
        for at, topic in enumerate(self.topics):
            cells = dict(zip(self.COLUMNS, topic.cells(), strict=True))
            rows.append(line([cells[name] for name in columns], columns, {"seen by"}, mark=key(min(at, COLOURS))))
        more = self.topic_count - len(self.topics)
        notes = _NOTES + (f" {more:,} topics with fewer messages are not listed." if more else "")
        notes += f" Topics of the middleware itself, {OWN}*, are left out." if self.left_out else ""
        notes = notes if self._has_both else f"{_SOME} {notes}"
        return table("topics", "Topics", columns, {"topic", "seen by"}, rows, notes)

    def figures(self) -> Sequence[str]:
        """Rates and latencies."""
        if not self.topics:
            return ()
        from trunkline.spark.report import latencies, over_time

        names = {at: topic.title for at, topic in enumerate(self.topics[:COLOURS])}
        if self.topic_count > len(names):
            names[OTHERS] = f"{self.topic_count - len(names):,} more"
        clock = Clock(self.first_ns, self.bucket_ns)
        rates = over_time.rates(self.rates, clock, names, "Messages per second over time, one line for each topic")
        return (
            figure("topic-rates", "Topics over time", "Messages per second of each topic", rates, legend(names), ""),
            *latencies.figures(
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

    def details(self) -> str:
        """The errors that were answered, nothing where there are none."""
        if not self.refusals:
            return ""
        rows = [line(refusal.cells(), self.REFUSAL_COLUMNS, {"peer"}, {"count"}) for refusal in self.refusals]
        more = self.refused - sum(refusal.errors for refusal in self.refusals)
        notes = _REFUSAL_NOTES + (f" {more:,} more ERRORs are not listed." if more else "")
        return table("refusals", "Refused", self.REFUSAL_COLUMNS, {"error", "peer"}, rows, notes)


def count(rows: DataFrame, total: Total, scope: Scope) -> Mc0Section:
    """Counts what these rows of a capture hold."""
    if "protocol" not in {name.lower() for name in rows.columns}:
        return Mc0Section()
    spoken = rows.where(F.col("protocol") == "mc0")
    if spoken.isEmpty():
        return Mc0Section()
    said = ("verb", "topic", "headers", "text", "body_frames", "body_bytes", "error")
    kept = tuple(name for name in TOPIC_COLUMNS if name not in said)
    decoded = made_once(decode_keeping(scope.around(rows, "mc0"), Decoder("mc0"), kept, (*kept, *said)))
    # What was delivered is held against what was put, selected or not.
    topics = scope.selected(timed(passing(decoded)), spoken).withColumn("topic", F.left("topic", F.lit(NAME)))
    every = topics.drop("capture_id", "seq").persist()
    is_own = F.left("topic", F.lit(len(OWN))) == OWN
    passed = every if scope.has_own else every.where(~is_own)
    try:
        left_out = not scope.has_own and not every.where(is_own).isEmpty()
        found, (number, puts, deliveries) = _largest(passed)
        at = _place(found[:COLOURS])
        once = passed.where("is_put OR seen_by = 'connector'")
        rates, latencies = counting.rates(once, at, total.clock), counting.spread(passed, at)
    finally:
        every.unpersist()
    selected = scope.selected(decoded, spoken)
    refusals, refused = _refusals(selected)
    errors = counting.errors(selected)
    return Mc0Section(
        topics=found,
        topic_count=number,
        left_out=left_out,
        puts=puts,
        deliveries=deliveries,
        refusals=refusals,
        refused=refused,
        cuts=scope.cuts,
        errors=errors,
        bucket_ns=total.bucket_ns,
        first_ns=total.clock.first_ns,
        rates=rates,
        latencies=latencies,
    )


def _largest(passed: DataFrame) -> tuple[tuple[TopicReport, ...], tuple[int, int, int]]:
    """The topics with most messages; and how many topics, PUTs and MESSAGEs there are in all."""
    counted = count_topics(passed).persist()
    try:
        order = (F.desc(F.col("puts") + F.col("deliveries")), "topic", "seen_by")
        largest = counted.orderBy(*order).limit(TOPICS).collect()
        number, puts, deliveries = counted.agg(F.count("*"), F.sum("puts"), F.sum("deliveries")).collect()[0]
    finally:
        counted.unpersist()
    return tuple(TopicReport(**row.asDict()) for row in largest), (number, puts or 0, deliveries or 0)


def _place(coloured: Sequence[TopicReport]) -> Column:
    """The index of a topic, `OTHERS` for one without a colour."""

    def is_of(topic: TopicReport) -> Column:
        return (F.col("topic") == topic.topic) & (F.col("seen_by") == topic.seen_by)

    places = (F.when(is_of(topic), at) for at, topic in enumerate(coloured))
    return F.coalesce(*places, F.lit(OTHERS))


def _refusals(decoded: DataFrame) -> tuple[tuple[RefusalReport, ...], int]:
    """The errors that a middleware sent or a connector received by text and peer, and how many there are in all."""
    goes_out, at_middleware = F.col("direction") == "out", F.col("peer").isNotNull()
    counted = (
        decoded.where((F.col("verb") == "ERROR") & (goes_out == at_middleware))
        .groupBy(F.left("text", F.lit(NAME)).alias("text"), F.substring("peer", 1, NAME).alias("peer"))
        .agg(
            F.count("*").alias("errors"),
            F.min("received_at_ns").alias("first_received_at_ns"),
            F.max("received_at_ns").alias("last_received_at_ns"),
        )
        .persist()
    )
    try:
        order = (F.desc("errors"), "text", "peer")
        largest = counted.orderBy(*order).limit(REFUSALS).collect()
        number = counted.agg(F.sum("errors")).collect()[0][0]
    finally:
        counted.unpersist()
    refusals = (row.asDict() | {"peer": row["peer"] and bytes(row["peer"])} for row in largest)
    return tuple(RefusalReport(**refusal) for refusal in refusals), number or 0
