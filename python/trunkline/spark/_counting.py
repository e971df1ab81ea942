"""Counts what a capture holds, in Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trunkline.columns import Decoder
from trunkline.spark.columns import decode_keeping, need_columns
from trunkline.spark.report import RunReport, SenderReport, ServiceReport
from trunkline.spark.requests import pair_requests
from trunkline.spark.runs import runs, skipped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

__all__ = ["BUCKETS", "COLOURS", "OTHERS", "Counts", "RequestCounts", "count", "count_requests", "latest_runs"]

# How finely time is divided.
BUCKETS = 120

# How many senders have a row of their own. Names come from the network: what they are told apart by is bounded.
SENDERS = 200
NAME = 200

# How many runs are listed.
RUNS = 200

# How many services are listed.
SERVICES = 200

# How many of the senders have a colour of their own, and the index of all others together.
COLOURS = 7
OTHERS = -1

_NEEDED = ("capture_id", "seq", "received_at_ns", "endpoint", "n_frames", "n_bytes", "header")


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted.

    Attributes:
        senders: A row a sender, the one with most messages first.
        rows: Rows of the capture.
        bytes: Bytes of all frames.
        first_ns: The first receipt; None without one.
        last_ns: The last one.
        bucket_ns: What time is divided into.
        rates: Messages by sender and bucket. A sender is its index in `senders`; those without a colour are `OTHERS`.
        sizes: Messages by sender and the number of binary digits of their payload's bytes.
        gaps: Sequence numbers that were skipped, by sender and bucket.
        errors: What does not decode, by kind.
    """

    senders: tuple[SenderReport, ...]
    rows: int
    bytes: int
    first_ns: int | None
    last_ns: int | None
    bucket_ns: int
    rates: Mapping[int, Mapping[int, int]]
    sizes: Mapping[int, Mapping[int, int]]
    gaps: Mapping[int, Mapping[int, int]]
    errors: Mapping[str, int]


def count(rows: DataFrame) -> Counts:
    """Counts what these rows of a capture hold."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    need_columns(rows, _NEEDED, "a report takes")
    total = rows.agg(
        F.count("*").alias("rows"),
        F.sum("n_bytes").alias("bytes"),
        F.min("received_at_ns").alias("first"),
        F.max("received_at_ns").alias("last"),
    ).first()
    assert total is not None
    first, last = total["first"] or 0, total["last"] or 0
    bucket_ns = max(1, -(-(last - first + 1) // BUCKETS))

    def bucket(moment: str) -> Column:
        return F.floor((F.col(moment) - first) / bucket_ns).cast("int").alias("bucket")

    # It is small, and a session may well make hundreds of partitions of it.
    parts = _parts(rows, bucket("received_at_ns")).coalesce(4).persist()
    try:
        return _gather(parts, _gaps(rows, bucket("received_at_ns")), total.asDict(), bucket_ns)
    finally:
        parts.unpersist()


def _decoded(rows: DataFrame, kept: tuple[str, ...], only: tuple[str, ...]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    decoder = Decoder("cdtp", tags=None)
    decoded = decode_keeping(rows, decoder, kept, kept + only)
    return decoded.withColumn("sender", F.left("sender", F.lit(NAME)))


def _parts(rows: DataFrame, bucket: Column) -> DataFrame:
    """The messages, counted by all that the report tells apart."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    only = ("record", "variant", "sender", "sequence", "payload_bytes", "error")
    messages = _decoded(rows, ("endpoint", "received_at_ns", "n_bytes"), only)
    good = F.col("variant").isNotNull()
    size = F.when(F.col("payload_bytes") == 0, 0).otherwise(F.length(F.bin("payload_bytes")))
    parts = messages.groupBy(
        "endpoint", "sender", "variant", F.when(~good, F.col("error")).alias("kind"), bucket, size.alias("size")
    ).agg(
        F.count("*").alias("messages"),
        F.sum(F.when(F.col("record") == 0, F.col("n_bytes"))).alias("bytes"),
        F.min("received_at_ns").alias("first"),
        F.max("received_at_ns").alias("last"),
    )
    endpoint = Window.partitionBy("endpoint")
    only_one = F.min("sender").over(endpoint) == F.max("sender").over(endpoint)
    return parts.withColumn("owner", F.coalesce("sender", F.when(only_one, F.min("sender").over(endpoint))))


def _gaps(rows: DataFrame, bucket: Column) -> DataFrame:
    """The sequence numbers that were skipped, by sender and bucket.

    Each number is held against the highest one before it since the begin of the run, as a receiver does (CDTP-21).
    """
    from pyspark.sql import functions as F  # noqa: N812

    only = ("record", "sender", "type", "sequence")
    messages = _decoded(rows, ("capture_id", "seq", "endpoint", "received_at_ns"), only)
    missed = skipped(messages, ("capture_id", "endpoint", "sender"), ("sender", "received_at_ns"))
    return missed.groupBy("sender", bucket).agg(F.sum("missed").alias("skipped"))


def latest_runs(rows: DataFrame) -> tuple[tuple[RunReport, ...], int]:
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


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """What was counted of DCP.

    Attributes:
        services: A row a service and role that saw it, the one with most requests first.
        service_count: How many such rows there would be.
        errors: What does not decode, by kind.
    """

    services: tuple[ServiceReport, ...] = ()
    service_count: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)


def count_requests(rows: DataFrame) -> RequestCounts:
    """Counts the requests of DCP in these rows of a capture."""
    from pyspark.sql import functions as F  # noqa: N812

    if "protocol" not in {name.lower() for name in rows.columns}:
        return RequestCounts()
    spoken = rows.where(F.col("protocol") == "dcp")
    if spoken.isEmpty():
        return RequestCounts()
    latency = F.percentile_approx("latency_ns", [0.5, 0.9, 0.99], 10_000)
    services = (
        pair_requests(spoken)
        .groupBy(F.substring("service", 1, NAME).alias("service"), "seen_by")
        .agg(
            F.count("*").alias("requests"),
            F.count_if(F.col("outcome") == "reply").alias("replies"),
            F.count_if(F.col("outcome") == "forward").alias("forwards"),
            latency.alias("latency"),
            F.max("latency_ns").alias("max_ns"),
        )
        .persist()
    )
    try:
        largest = services.orderBy(F.desc("requests"), "service", "seen_by").limit(SERVICES).collect()
        number = len(largest) if len(largest) < SERVICES else services.count()
    finally:
        services.unpersist()
    decoded = decode_keeping(spoken, Decoder("dcp"), (), ("error",))
    errors = {
        row["error"]: row["count"] for row in decoded.where("error IS NOT NULL").groupBy("error").count().collect()
    }
    return RequestCounts(tuple(map(_service, largest)), number, _largest_first(errors))


def _service(row: Row) -> ServiceReport:
    p50, p90, p99 = row["latency"] or (None, None, None)
    counts = {name: row[name] for name in ("seen_by", "requests", "replies", "forwards", "max_ns")}
    return ServiceReport(bytes(row["service"]), p50_ns=p50, p90_ns=p90, p99_ns=p99, **counts)


def _gather(parts: DataFrame, gaps: DataFrame, total: Mapping[str, int | None], bucket_ns: int) -> Counts:
    """Brings the counts here, with the senders there is no room for folded into one."""
    from pyspark.sql import functions as F  # noqa: N812

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
        F.sum("bytes").alias("bytes"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sort_array(F.collect_set("variant")).alias("variants"),
    )
    skipped: dict[int, dict[int, int]] = defaultdict(dict)
    for at, bucket, number in (
        gaps.groupBy(place("sender", SENDERS).alias("at"), "bucket").agg(F.sum("skipped")).collect()
    ):
        skipped[at][bucket] = number
    by_sender: dict[int | None, list[Row]] = defaultdict(list)
    rates: dict[int, dict[int, int]] = defaultdict(dict)
    sizes: dict[int, dict[int, int]] = defaultdict(dict)
    errors: dict[str, int] = defaultdict(int)
    for row in counted.collect():
        if not row["without_at"]:
            by_sender[row["at"]].append(row)
            if row["kind"] is not None:
                errors[row["kind"]] += row["messages"]
        elif row["good"] is not None and not row["without_bucket"]:
            rates[row["colour"]][row["bucket"]] = row["good"]
        elif row["good"] is not None and row["size"] is not None:
            sizes[row["colour"]][row["size"]] = row["good"]
    return Counts(
        senders=_senders(by_sender, names, known, skipped),
        rows=total["rows"] or 0,
        bytes=total["bytes"] or 0,
        first_ns=total["first"],
        last_ns=total["last"],
        bucket_ns=bucket_ns,
        rates=rates,
        sizes=sizes,
        gaps=_fold(skipped),
        errors=_largest_first(errors),
    )


def _fold(rows: Mapping[int, Mapping[int, int]]) -> dict[int, dict[int, int]]:
    """The senders that have no colour of their own, put together."""
    folded: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for at, buckets in rows.items():
        for bucket, number in buckets.items():
            folded[at if at < COLOURS else OTHERS][bucket] += number
    return folded


def _senders(
    rows: Mapping[int | None, list[Row]], names: list[str], known: int, skipped: Mapping[int, Mapping[int, int]]
) -> tuple[SenderReport, ...]:
    def order(at: int | None) -> tuple[bool, bool, int]:
        """The known first, then those beyond, then what nobody is known for."""
        return at is None, at == OTHERS, at or 0

    return tuple(
        _sender(
            None if at is None or at == OTHERS else names[at],
            rows[at],
            None if at is None else skipped.get(at),
            known - len(names) if at == OTHERS else 0,
        )
        for at in sorted(rows, key=order)
    )


def _sender(name: str | None, rows: list[Row], skipped: Mapping[int, int] | None, others: int) -> SenderReport:
    """A sender from its row of good messages, if any, and those of each kind of bad ones."""
    malformed = {row["kind"]: row["messages"] for row in rows if row["kind"] is not None}
    byte_count = sum(row["bytes"] or 0 for row in rows)
    good = next((row for row in rows if row["kind"] is None), None)
    if good is None:
        return SenderReport(name, bytes=byte_count, malformed=_largest_first(malformed), others=others)
    passed_ns = good["last"] - good["first"]
    return SenderReport(
        name,
        variants=tuple(good["variants"]),
        messages=good["messages"],
        bytes=byte_count,
        rate=good["messages"] / passed_ns * 1e9 if passed_ns else None,
        first_received_at_ns=good["first"],
        last_received_at_ns=good["last"],
        missing=None if skipped is None else sum(skipped.values()),
        malformed=_largest_first(malformed),
        others=others,
    )


def _largest_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
