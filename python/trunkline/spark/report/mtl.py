"""What a report says of MTL: the resources with what waited in each and for how long, and the logins that were refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from trunkline._text import amount, latency, moment, readable, text_or_digits
from trunkline.columns import Decoder
from trunkline.spark._engine import F, Window, made_once
from trunkline.spark.columns import decode_keeping
from trunkline.spark.contents import CONTENT_COLUMNS, settled
from trunkline.spark.report import counting
from trunkline.spark.report.html import figure, key, legend, line, table
from trunkline.spark.report.model import BUCKETS, COLOURS, NAME, OTHERS, Clock, Scope, Section, Tile, Total

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["MtlSection", "RefusedLogin", "ResourceReport", "count"]

# How many resources are listed.
RESOURCES = 200

# How many peers with refused logins are listed.
LOGINS = 100

# What is plotted of times.
TIMES = ("p50", "p99", "max")

# How finely times are told apart for percentiles of them.
_ACCURACY = 10_000

_NOTES = (
    "What passed through a server. Time to confirm is from the moment a content was handed to a reader's connection to the "
    "receipt of its Confirm; stored is the time within which 99 % of the writers' contents were confirmed by the server. Rejected are contents that the "
    "server did not accept; discarded, those that readers rejected for good: dead, once they are delivered as dead letters. Waiting are contents that arrived and "
    "were not refused, minus those that readers settled for good; for readers that confirm nothing, minus those delivered to them."
)

_NONE_WAITED = "No content was waiting."

_LOGIN_NOTES = "Login steps that a server answered with 401, by connection."


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """What a server recorded of one resource of MTL; those of its virtual hosts and profiles that share a name are one.

    Attributes:
        resource: Its name, cut at 200 characters.
        received: Contents that came of writers.
        sent: Contents that went to readers.
        bytes: The bytes of the bodies that came.
        confirmed: Contents that readers confirmed.
        redelivered: Contents that went out not for the first time.
        rejected: Contents of writers that the server did not take.
        discarded: Contents that readers rejected for good, and that are not known to have become dead letters.
        dead_lettered: Contents that are known to have become dead letters.
        p50_ns: The time to confirm that half of the readers' Confirms stay below, in nanoseconds; None without any.
        p99_ns: Likewise 99 of 100.
        max_ns: The longest.
        stored_p99_ns: The time that 99 of 100 of the writers' contents were confirmed in; None without any.
    """

    resource: str
    received: int
    sent: int
    bytes: int
    confirmed: int
    redelivered: int
    rejected: int
    discarded: int
    dead_lettered: int
    p50_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None
    stored_p99_ns: int | None = None

    @property
    def title(self) -> str:
        """The name, or what it is if there is none, to read."""
        return readable(self.resource) or "(no name)"

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `MtlSection.COLUMNS`."""
        counts = (self.confirmed, self.redelivered, self.rejected, self.discarded, self.dead_lettered)
        times = (self.stored_p99_ns, self.p50_ns, self.p99_ns, self.max_ns)
        return (
            self.title,
            f"{self.received:,}",
            amount(self.bytes),
            f"{self.sent:,}",
            *(f"{count:,}" for count in counts),
            *("" if ns is None else latency(ns) for ns in times),
        )

    @property
    def bad(self) -> set[str]:
        """The columns that say what one does not want."""
        counts = {"rejected": self.rejected, "discarded": self.discarded, "dead": self.dead_lettered}
        return {column for column, number in counts.items() if number}


@dataclass(frozen=True, slots=True)
class RefusedLogin:
    """Steps of logins that a server refused to one peer.

    Attributes:
        peer: The peer's routing id, cut at 200 bytes; None for a client, which was refused itself.
        refused: How many there are.
        first_received_at_ns: When the first passed, in nanoseconds since 1970.
        last_received_at_ns: When the last did.
    """

    peer: bytes | None
    refused: int
    first_received_at_ns: int
    last_received_at_ns: int

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `MtlSection.LOGIN_COLUMNS`."""
        peer = "(this client)" if self.peer is None else text_or_digits(self.peer)
        return (peer, f"{self.refused:,}", moment(self.first_received_at_ns), moment(self.last_received_at_ns))


@dataclass(frozen=True, slots=True)
class MtlSection(Section):
    """What was recorded of MTL.

    Attributes:
        messages: Messages of both flows.
        resources: The 200 resources with most contents.
        resource_count: How many there are in all.
        received: Contents that came to all of them.
        sent: Contents that went out of all of them.
        redelivered: Contents that went out not for the first time.
        dead_lettered: Contents that are known to have become dead letters.
        logins: The 100 peers with most refused logins.
        logins_refused: How many steps of logins were refused in all.
        is_cut: Whether only messages of some kinds are covered: that none refuses a login says nothing then.
        errors: Messages that do not decode, by kind of error.
        bucket_ns: What time is divided into, in nanoseconds.
        first_ns: When that begins, in nanoseconds since 1970.
        rates: Contents that came by resource, or `OTHERS`, and bucket; at a client that only writes, those that went.
        depths: What waits at the end of each bucket, by resource: its index in `resources`; of those with a colour.
        latencies: Contents that readers confirmed by resource, or `OTHERS`, and class of the time to confirm: n is from
            10^(n/10) ns on.
        ages_s: How old the oldest is of what waits then, in seconds, likewise.
    """

    protocol: ClassVar[str] = "mtl"
    title: ClassVar[str] = "MTL"

    messages: int = 0
    resources: tuple[ResourceReport, ...] = ()
    resource_count: int = 0
    received: int = 0
    sent: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    logins: tuple[RefusedLogin, ...] = ()
    logins_refused: int = 0
    is_cut: bool = False
    errors: Mapping[str, int] = field(default_factory=dict)
    bucket_ns: int = 1
    first_ns: int = 0
    rates: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    depths: Mapping[int, Sequence[float]] = field(default_factory=dict)
    ages_s: Mapping[int, Sequence[float]] = field(default_factory=dict)
    latencies: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    COLUMNS: ClassVar = (
        "resource",
        "received",
        "bytes",
        "delivered",
        "confirmed",
        "redelivered",
        "rejected",
        "discarded",
        "dead",
        "stored",
        "p50",
        "p99",
        "max",
    )
    LOGIN_COLUMNS: ClassVar = ("peer", "refused", "first (UTC)", "last (UTC)")

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""
        return self.errors

    @property
    def spoken(self) -> bool:
        """Whether anybody spoke it."""
        return bool(self.messages)

    def tiles(self) -> Sequence[Tile]:
        """What came and went, what came again, and who was not let in."""
        logins = (Tile("Logins refused", f"{self.logins_refused:,}", not self.logins_refused),)
        return (
            Tile("Contents", f"{self.received:,}"),
            Tile("Delivered", f"{self.sent:,}"),
            Tile("Redelivered", f"{self.redelivered:,}", not self.redelivered),
            Tile("Dead letters", f"{self.dead_lettered:,}", not self.dead_lettered),
            *(() if self.is_cut and not self.logins_refused else logins),
        )

    def tables(self) -> str:
        """The resources, nothing where nothing passed through any."""
        if not self.resources:
            return ""
        rows = [
            line(resource.cells(), self.COLUMNS, bad=resource.bad, mark=key(min(at, COLOURS)))
            for at, resource in enumerate(self.resources)
        ]
        more = self.resource_count - len(self.resources)
        notes = _NOTES + (f" {more:,} resources with fewer contents are not listed." if more else "")
        return table("resources", "Resources", self.COLUMNS, {"resource"}, rows, notes)

    def figures(self) -> Sequence[str]:
        """How much comes, what waits, how long it has, and times to confirm."""
        if not self.resources:
            return ()
        from trunkline.spark.report import latencies, over_time

        names = {at: resource.title for at, resource in enumerate(self.resources[:COLOURS])}
        clock = Clock(self.first_ns, self.bucket_ns)
        all_names = names | {OTHERS: "all others"}
        rates = over_time.rates(
            self.rates, clock, all_names, "Contents per second over time, one line for each resource", "contents"
        )
        depths = over_time.levels(
            self.depths, clock, names, "contents", "Waiting contents over time, one line for each resource"
        )
        ages = over_time.ages(
            self.ages_s, clock, names, "Age of the oldest waiting content over time, one line for each resource"
        )
        return (
            figure(
                "content-rates",
                "Contents over time",
                "Contents per second of each resource",
                rates,
                legend(all_names if OTHERS in self.rates else names),
                "",
            ),
            figure(
                "depths",
                "Waiting contents",
                "Contents in each resource, including those delivered but unconfirmed",
                depths,
                legend(names),
                _NONE_WAITED,
            ),
            figure(
                "ages",
                "Age of waiting contents",
                "Age of the oldest content in each resource",
                ages,
                legend(names),
                _NONE_WAITED,
            ),
            *latencies.figures(
                "confirms",
                "Time to confirm",
                "the time from content to Confirm",
                of=self.resources,
                marks=TIMES,
                which="resources with the most contents",
                spread=self.latencies,
                names=all_names,
                unit="contents",
                none="No reader confirmed anything.",
            ),
        )

    def details(self) -> str:
        """The logins that were refused, nothing where none was."""
        if not self.logins:
            return ""
        rows = [line(login.cells(), self.LOGIN_COLUMNS, {"peer"}, {"refused"}) for login in self.logins]
        more = self.logins_refused - sum(login.refused for login in self.logins)
        notes = _LOGIN_NOTES + (f" {more:,} more are not listed." if more else "")
        return table("logins", "Logins refused", self.LOGIN_COLUMNS, {"peer"}, rows, notes)


def count(rows: DataFrame, total: Total, scope: Scope) -> MtlSection:
    """Counts what these rows of a capture hold."""
    if "protocol" not in {name.lower() for name in rows.columns}:
        return MtlSection()
    spoken = rows.where(F.col("protocol") == "mtl")
    messages = spoken.count()
    if not messages:
        return MtlSection()
    decoder = Decoder("mtl", properties={"redelivered": "boolean", "*": "json"}, json=None)
    kept = ("capture_id", "seq", "received_at_ns", "endpoint", "direction", "peer")
    said = ("name", "type", "status", "sequence", "resource", "multiple", "recycle", "body_bytes", "error")
    properties = ("property_redelivered", "properties")
    # A Confirm does not say what resource it is of: contents are paired before any are selected.
    decoded = made_once(decode_keeping(scope.around(rows, "mtl"), decoder, kept, (*kept, *said, *properties)))
    contents = scope.selected(_contents(decoded), spoken).persist()
    try:
        found, totals = _resources(contents)
        depths, ages = _over_time(contents, found[:COLOURS], total)
        read = contents.where("NOT comes AND fate = 'confirmed'")
        places = (F.when(F.col("resource") == one.resource, at) for at, one in enumerate(found[:COLOURS]))
        at = F.coalesce(*places, F.lit(OTHERS))
        spread = counting.spread(read, at)
        came = contents.where("comes" if totals["received"] else "NOT comes")
        rates = counting.rates(came, at, total.clock, "sent_at_ns")
    finally:
        contents.unpersist()
    logins, refused = _logins(scope.selected(_refused(decoded), spoken))
    errors = counting.errors(scope.selected(decoded, spoken))
    return MtlSection(
        messages=messages,
        resources=found,
        **totals,
        logins=logins,
        logins_refused=refused,
        is_cut=bool(scope.cuts),
        errors=errors,
        bucket_ns=total.bucket_ns,
        first_ns=total.clock.first_ns,
        rates=rates,
        depths=depths,
        ages_s=ages,
        latencies=spread,
    )


def _contents(decoded: DataFrame) -> DataFrame:
    """Contents with when each came to wait and when it did no more, as far as it did."""
    comes = F.col("direction") == "in"
    found = settled(decoded.select(*CONTENT_COLUMNS, "property_redelivered", "properties"))
    # Where a reader settles nothing, what went to it is gone.
    flow = Window.partitionBy("capture_id", "endpoint", "peer", "direction")
    settles = F.max(F.col("settled_at_ns").isNotNull()).over(flow)
    is_over = F.col("fate").isin("confirmed", "rejected", "dead_lettered")
    left = F.when(settles, F.when(is_over, F.col("settled_at_ns"))).otherwise(F.col("sent_at_ns"))
    is_taken = ~F.col("fate").isin("rejected", "refused")
    return found.select(
        F.left(F.coalesce("resource", F.lit("")), F.lit(NAME)).alias("resource"),
        comes.alias("comes"),
        "seq",
        "body_bytes",
        "redelivered",
        "fate",
        "latency_ns",
        "sent_at_ns",
        F.when(comes & is_taken, F.col("sent_at_ns")).alias("entered_at_ns"),
        F.when(~comes, left).alias("left_at_ns"),
    )


def _resources(contents: DataFrame) -> tuple[tuple[ResourceReport, ...], dict[str, int]]:
    """The resources with most contents, and what there is of all."""
    comes, fate = F.col("comes"), F.col("fate")

    def percentiles(of: Column) -> Column:
        time = F.when(of & (fate == "confirmed"), F.col("latency_ns"))
        return F.percentile_approx(time, [0.5, 0.99, 1.0], _ACCURACY)

    counted = (
        contents.groupBy("resource")
        .agg(
            F.count_if(comes).alias("received"),
            F.count_if(~comes).alias("sent"),
            F.coalesce(F.sum(F.when(comes, F.col("body_bytes"))), F.lit(0)).alias("bytes"),
            F.count_if(~comes & (fate == "confirmed")).alias("confirmed"),
            F.count_if(~comes & F.col("redelivered")).alias("redelivered"),
            F.count_if(comes & fate.isin("rejected", "refused")).alias("rejected"),
            F.count_if(~comes & (fate == "rejected")).alias("discarded"),
            F.count_if(fate == "dead_lettered").alias("dead_lettered"),
            percentiles(~comes).alias("read"),
            percentiles(comes).alias("stored"),
        )
        .select(
            "*",
            *(F.get("read", F.lit(at)).alias(f"{name}_ns") for at, name in enumerate(TIMES)),
            F.get("stored", F.lit(1)).alias("stored_p99_ns"),
        )
        .drop("read", "stored")
    )
    order = (F.desc(F.col("received") + F.col("sent")), "resource")
    largest = counted.orderBy(*order).limit(RESOURCES).collect()
    sums = ("received", "sent", "redelivered", "dead_lettered")
    (row,) = counted.agg(F.count("*").alias("resource_count"), *(F.sum(name).alias(name) for name in sums)).collect()
    totals = {name: number or 0 for name, number in row.asDict().items()}
    return tuple(ResourceReport(**each.asDict()) for each in largest), totals


def _over_time(
    contents: DataFrame, coloured: Sequence[ResourceReport], total: Total
) -> tuple[dict[int, list[int]], dict[int, list[float]]]:
    """What waits in each resource at the end of each bucket, and how old the oldest of it is, in seconds.

    What came first is taken to leave first: the oldest is the one whose number is one more than what has left.
    """
    places = {resource.resource: at for at, resource in enumerate(coloured)}
    first = total.first_ns or 0

    def bucket(name: str) -> Column:
        return F.floor((F.col(name) - first) / total.bucket_ns).cast("int")

    known = contents.where(F.col("resource").isin(list(places)))
    entered, left = (
        known.where(F.col(name).isNotNull()).groupBy("resource", bucket(name).alias("bucket")).count().collect()
        for name in ("entered_at_ns", "left_at_ns")
    )
    came, gone = (_cumulated(rows, places) for rows in (entered, left))
    depths = {at: [max(0, a - b) for a, b in zip(came[at], gone[at], strict=True)] for at in came}
    # The one that has waited longest at the end of a bucket, by its number: nobody needs any other.
    wanted = {(at, gone[at][place] + 1) for at in came for place in range(BUCKETS) if depths[at][place]}
    since: dict[tuple[int, int], int] = {}
    if wanted:
        numbers = Window.partitionBy("resource").orderBy("entered_at_ns")
        numbered = known.where("entered_at_ns IS NOT NULL").withColumn("number", F.row_number().over(numbers))
        names = {at: name for name, at in places.items()}
        chosen = numbered.where(
            F.array_contains(
                F.lit([f"{number} {names[at]}" for at, number in wanted]), F.concat_ws(" ", "number", "resource")
            )
        )
        rows = chosen.select("resource", "number", "entered_at_ns").collect()
        since = {(places[name], number): entered_at for name, number, entered_at in rows}
    ages = {at: [0.0] * BUCKETS for at in came}
    for at, place in ((at, place) for at in came for place in range(BUCKETS) if depths[at][place]):
        end = first + (place + 1) * total.bucket_ns
        ages[at][place] = max(0.0, (end - since.get((at, gone[at][place] + 1), end)) / 1e9)
    return depths, ages


def _cumulated(rows: Sequence[tuple[str, int, int]], places: Mapping[str, int]) -> dict[int, list[int]]:
    """How many there were by the end of each bucket."""
    sums = {at: [0] * BUCKETS for at in places.values()}
    for name, bucket, number in rows:
        sums[places[name]][min(max(bucket, 0), BUCKETS - 1)] += number
    for counts in sums.values():
        for place in range(1, BUCKETS):
            counts[place] += counts[place - 1]
    return sums


def _refused(decoded: DataFrame) -> DataFrame:
    """The replies that refused steps of logins."""
    in_order = Window.partitionBy("capture_id", "endpoint", "peer").orderBy("seq")
    asked = F.last(F.lower("name"), ignorenulls=True).over(in_order)
    control = decoded.where(F.col("type").isin("command", "reply")).withColumn("asked", asked)
    return control.where("type = 'reply' AND status = 401 AND asked = 'connection.authorize'")


def _logins(refused: DataFrame) -> tuple[tuple[RefusedLogin, ...], int]:
    """The peers with most steps of logins that were refused, and how many there are in all."""
    counted = (
        refused.groupBy(F.substring("peer", 1, NAME).alias("peer"))
        .agg(
            F.count("*").alias("refused"),
            F.min("received_at_ns").alias("first_received_at_ns"),
            F.max("received_at_ns").alias("last_received_at_ns"),
        )
        .persist()
    )
    try:
        largest = counted.orderBy(F.desc("refused"), "peer").limit(LOGINS).collect()
        number = counted.agg(F.sum("refused")).collect()[0][0]
    finally:
        counted.unpersist()
    found = (row.asDict() | {"peer": row["peer"] and bytes(row["peer"])} for row in largest)
    return tuple(RefusedLogin(**login) for login in found), number or 0
