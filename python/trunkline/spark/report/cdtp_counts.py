"""Counts what senders of CDTP sent, in Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trunkline._text import amount, moment, readable
from trunkline.columns import Decoder
from trunkline.spark._engine import F, Window
from trunkline.spark.columns import decode_keeping, need_columns
from trunkline.spark.report.cdtp_batches import spread
from trunkline.spark.report.counting import bucket
from trunkline.spark.report.model import COLOURS, NAME, OTHERS, Clock, Scope, Total, largest_first
from trunkline.spark.runs import skipped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

__all__ = ["Counts", "SenderReport", "count"]

# How many senders have a row of their own. Names come from the network: what they are told apart by is bounded.
SENDERS = 200

_NEEDED = ("capture_id", "seq", "received_at_ns", "endpoint", "n_frames", "n_bytes", "header")


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
        return "(unknown sender)" if self.sender is None else readable(self.sender)

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `CdtpSection.COLUMNS`."""
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
class Counts:
    """What was counted.

    Attributes:
        senders: A row a sender, the one with most messages first.
        errors: What does not decode, by kind.
        clock: What time is divided into.
        rates: Messages by sender and bucket. A sender is its index in `senders`; those without a colour are `OTHERS`.
            The records of a CDTP2 message with several count evenly over the time since its sender's previous one.
        volumes: Bytes of all their frames, likewise.
        sizes: Messages by sender and the number of binary digits of their payload's bytes.
        gaps: Sequence numbers that were skipped, by sender and bucket.
    """

    senders: tuple[SenderReport, ...]
    errors: Mapping[str, int]
    clock: Clock
    rates: Mapping[int, Mapping[int, float]]
    volumes: Mapping[int, Mapping[int, float]]
    sizes: Mapping[int, Mapping[int, int]]
    gaps: Mapping[int, Mapping[int, int]]

    @property
    def bucket_ns(self) -> int:
        """How long a bucket is, in nanoseconds."""
        return self.clock.bucket_ns


def count(rows: DataFrame, total: Total, scope: Scope) -> Counts:
    """Counts what these rows of a capture hold."""
    need_columns(rows, _NEEDED, "a report needs")

    clock = total.clock
    when = bucket("received_at_ns", clock).alias("bucket")
    # It is small, and a session may well make hundreds of partitions of it.
    parts = _parts(rows, when, scope).coalesce(4).persist()
    try:
        return _gather(parts, None if scope.keep else _batches(rows, clock), clock)
    finally:
        parts.unpersist()


def _decoded(rows: DataFrame, kept: tuple[str, ...], only: tuple[str, ...]) -> DataFrame:
    return decode_keeping(rows, Decoder("cdtp", tags=None), kept, kept + only)


def _named(messages: DataFrame) -> DataFrame:
    """The same by as much of senders' names as the report tells apart."""
    return messages.withColumn("sender", F.left("sender", F.lit(NAME)))


def _parts(rows: DataFrame, when: Column, scope: Scope) -> DataFrame:
    """The messages, counted by all that the report tells apart, and the sequence numbers that were skipped.

    Each number is held against the highest one before it since the begin of the run, as a receiver does (CDTP-21). Of records
    of which only some are wanted the payload is counted in place of all frames.
    """
    counted = ("endpoint", "received_at_ns", "n_bytes", "record", "variant", "sender", "payload_bytes", "error")
    decoded = _decoded(rows, ("capture_id", "seq", *counted[:3]), (*counted[3:], "type", "sequence"))
    if scope.keep:
        decoded = scope.keep(decoded).withColumn("n_bytes", F.col("payload_bytes"))
    messages = _named(
        skipped(decoded, ("capture_id", "endpoint", "sender"), counted)
        if scope.has_sequences
        else decoded.select(*counted, F.lit(None).cast("bigint").alias("missed"))
    )
    whole = F.col("n_bytes") if scope.keep else F.when(F.col("record") == 0, F.col("n_bytes"))
    good = F.col("variant").isNotNull()
    size = F.when(F.col("payload_bytes") == 0, 0).otherwise(F.length(F.bin("payload_bytes")))
    parts = messages.groupBy(
        "endpoint", "sender", "variant", F.when(~good, F.col("error")).alias("kind"), when, size.alias("size")
    ).agg(
        F.count("*").alias("messages"),
        F.sum(whole).alias("bytes"),
        F.min("received_at_ns").alias("first"),
        F.max("received_at_ns").alias("last"),
        F.sum("missed").alias("skipped"),
    )
    endpoint = Window.partitionBy("endpoint")
    only_one = F.min("sender").over(endpoint) == F.max("sender").over(endpoint)
    return parts.withColumn("owner", F.coalesce("sender", F.when(only_one, F.min("sender").over(endpoint))))


def _batches(rows: DataFrame, clock: Clock) -> DataFrame:
    """What came of senders of CDTP2, by sender and bucket."""
    # What says so is at the very beginning: all else need not be decoded to be left out.
    rows = rows.where(F.contains(F.substring("header", 1, 10), F.lit(b"CDTP\x02")))
    kept = ("capture_id", "seq", "endpoint", "received_at_ns", "n_bytes")
    return spread(_named(_decoded(rows, kept, ("variant", "sender"))).where("variant = '2'"), clock)


def _gather(parts: DataFrame, batches: DataFrame | None, clock: Clock) -> Counts:
    """Brings the counts here, with the senders there is no room for folded into one.

    `batches` has what came of CDTP2 over time; where there is none, each record counts when it came.
    """
    by_owner = parts.where("owner IS NOT NULL").groupBy("owner").agg(F.sum("messages").alias("messages"))
    largest = by_owner.orderBy(F.desc("messages"), "owner").limit(SENDERS)
    names = [row["owner"] for row in largest.collect()]
    known = len(names) if len(names) < SENDERS else by_owner.count()

    def place(column: str, most: int) -> Column:
        """The index of a sender, `OTHERS` for one beyond `most`, null for none."""
        pairs = [F.lit(part) for at, name in enumerate(names[:most]) for part in (name, at)]
        found = F.create_map(*pairs)[F.col(column)] if pairs else F.lit(None).cast("int")
        return F.when(F.col(column).isNotNull(), F.coalesce(found, F.lit(OTHERS)))

    # One query for all that is wanted, as it is starting one that takes time.
    keys = ("at", "kind", "colour", "bucket", "size")
    placed = parts.withColumn("at", place("owner", SENDERS)).withColumn("colour", place("owner", COLOURS))
    counted = placed.groupingSets([["at", "kind"], ["colour", "bucket"], ["colour", "size"]], *keys).agg(
        *(F.grouping(key).alias(f"without_{key}") for key in ("at", "bucket")),
        F.sum("messages").alias("messages"),
        F.sum(F.when(F.col("kind").isNull(), F.col("messages"))).alias("good"),
        *(
            F.sum(F.when(F.col("variant") != "2", F.col(name)) if batches else F.col(name)).alias(f"single_{name}")
            for name in ("messages", "bytes")
        ),
        F.sum("bytes").alias("bytes"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sort_array(F.collect_set("variant")).alias("variants"),
    )
    missed: dict[int, dict[int, int]] = defaultdict(dict)
    gaps = parts.where("skipped IS NOT NULL").groupBy(place("sender", SENDERS).alias("at"), "bucket")
    for at, when, number in gaps.agg(F.sum("skipped")).collect():
        missed[at][when] = number
    by_sender: dict[int | None, list[Row]] = defaultdict(list)
    rates: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    volumes: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    sizes: dict[int, dict[int, int]] = defaultdict(dict)
    errors: dict[str, int] = defaultdict(int)
    for row in counted.collect():
        if not row["without_at"]:
            by_sender[row["at"]].append(row)
            if row["kind"] is not None:
                errors[row["kind"]] += row["messages"]
        elif row["single_messages"] is not None and not row["without_bucket"]:
            rates[row["colour"]][row["bucket"]] += row["single_messages"]
            volumes[row["colour"]][row["bucket"]] += row["single_bytes"]
        elif row["good"] is not None and row["size"] is not None:
            sizes[row["colour"]][row["size"]] = row["good"]
    if batches and any("2" in row["variants"] for rows in by_sender.values() for row in rows):
        coloured = batches.groupBy(place("sender", COLOURS).alias("at"), "bucket")
        for at, when, messages, volume in coloured.agg(F.sum("messages"), F.sum("bytes")).collect():
            rates[at][when] += messages
            volumes[at][when] += volume
    return Counts(
        senders=_senders(by_sender, names, known, missed),
        errors=largest_first(errors),
        clock=clock,
        rates=rates,
        volumes=volumes,
        sizes=sizes,
        gaps=_fold(missed),
    )


def _fold(rows: Mapping[int, Mapping[int, int]]) -> dict[int, dict[int, int]]:
    """The senders that have no colour of their own, put together."""
    folded: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for at, buckets in rows.items():
        for when, number in buckets.items():
            folded[at if at < COLOURS else OTHERS][when] += number
    return folded


def _senders(
    rows: Mapping[int | None, list[Row]], names: list[str], known: int, missed: Mapping[int, Mapping[int, int]]
) -> tuple[SenderReport, ...]:
    def order(at: int | None) -> tuple[bool, bool, int]:
        """The known first, then those beyond, then what nobody is known for."""
        return at is None, at == OTHERS, at or 0

    return tuple(
        _sender(
            None if at is None or at == OTHERS else names[at],
            rows[at],
            None if at is None else missed.get(at),
            known - len(names) if at == OTHERS else 0,
        )
        for at in sorted(rows, key=order)
    )


def _sender(name: str | None, rows: list[Row], missed: Mapping[int, int] | None, others: int) -> SenderReport:
    """A sender from its row of good messages, if any, and those of each kind of bad ones."""
    malformed = {row["kind"]: row["messages"] for row in rows if row["kind"] is not None}
    byte_count = sum(row["bytes"] or 0 for row in rows)
    good = next((row for row in rows if row["kind"] is None), None)
    if good is None:
        return SenderReport(name, bytes=byte_count, malformed=largest_first(malformed), others=others)
    passed_ns = good["last"] - good["first"]
    return SenderReport(
        name,
        variants=tuple(good["variants"]),
        messages=good["messages"],
        bytes=byte_count,
        rate=good["messages"] / passed_ns * 1e9 if passed_ns else None,
        first_received_at_ns=good["first"],
        last_received_at_ns=good["last"],
        missing=None if missed is None else sum(missed.values()),
        malformed=largest_first(malformed),
        others=others,
    )
