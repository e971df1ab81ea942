"""What a report says of DCP: the requests of each service, with percentiles of their latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from trunkline._text import OWN, latency, readable
from trunkline.columns import Decoder
from trunkline.spark._engine import F
from trunkline.spark.columns import decode_keeping
from trunkline.spark.report import counting
from trunkline.spark.report.html import figure, key, legend, line, table
from trunkline.spark.report.model import COLOURS, NAME, OTHERS, Clock, Scope, Section, Tile, Total
from trunkline.spark.requests import pair_requests

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

__all__ = ["DcpSection", "ServiceReport", "count"]

# How many services are listed.
SERVICES = 200

# What is plotted of latencies.
LATENCIES = ("p50", "p90", "p99", "max")

_NOTES = (
    "DCP requests and their outcomes, as seen by the role that recorded them. Latency is from a request to its reply: at a "
    "broker, from receiving it from the client to sending the reply to the client; at a client, from sending to receiving; at a worker, from receiving to sending. A request "
    "that a worker forwarded also counts for the service it was forwarded to."
)


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """What was recorded of the requests of one service of DCP, as one role saw it.

    Attributes:
        service: Its name, cut at 200 bytes.
        seen_by: The role that recorded it: ``"broker"``, ``"client"`` or ``"worker"``; see `pair_requests`.
        requests: Its requests.
        replies: Those that were replied to.
        forwards: Those that a worker sent on.
        p50_ns: The latency of replies that half of them stay below, in nanoseconds; None without a reply.
        p90_ns: Likewise nine of ten.
        p99_ns: Likewise 99 of 100.
        max_ns: The longest.
    """

    service: bytes
    seen_by: str
    requests: int
    replies: int
    forwards: int
    p50_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None

    @property
    def title(self) -> str:
        """The name of the service, or what it is if there is none, to read."""
        return readable(self.service.decode(errors="backslashreplace")) or "(empty name)"

    @property
    def unanswered(self) -> int:
        """Requests that nothing came of."""
        return self.requests - self.replies - self.forwards

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `DcpSection.COLUMNS`."""
        counts = (self.requests, self.replies, self.forwards, self.unanswered)
        latencies = (self.p50_ns, self.p90_ns, self.p99_ns, self.max_ns)
        return (
            self.title,
            self.seen_by,
            *(f"{count:,}" for count in counts),
            *("" if ns is None else latency(ns) for ns in latencies),
        )


@dataclass(frozen=True, slots=True)
class DcpSection(Section):
    """What was recorded of DCP.

    Attributes:
        services: The 200 services with most requests, as each role saw them.
        service_count: How many there are in all.
        left_out: Whether there are others, which are trunkline's own.
        errors: Messages that do not decode, by kind of error.
        bucket_ns: What time is divided into, in nanoseconds.
        first_ns: When that begins, in nanoseconds since 1970.
        rates: Requests by service and bucket. A service is its index in `services`; those without a colour are one.
        pending: Requests that nothing has come of by the end of each bucket, likewise.
        latencies: Replies by service and class of their latency: n is from 10^(n/10) ns on.
    """

    protocol: ClassVar[str] = "dcp"
    title: ClassVar[str] = "DCP"

    services: tuple[ServiceReport, ...] = ()
    service_count: int = 0
    left_out: bool = False
    errors: Mapping[str, int] = field(default_factory=dict)
    bucket_ns: int = 1
    first_ns: int = 0
    rates: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    pending: Mapping[int, Sequence[int]] = field(default_factory=dict)
    latencies: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    COLUMNS: ClassVar = (
        "service",
        "seen by",
        "requests",
        "replies",
        "forwarded",
        "unanswered",
        "p50",
        "p90",
        "p99",
        "max",
    )

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""
        return self.errors

    @property
    def spoken(self) -> bool:
        """Whether anybody spoke it."""
        return bool(self.services or self.malformed)

    def tiles(self) -> Sequence[Tile]:
        """Services, requests, and those that nothing came of."""
        if not self.services:
            return ()
        unanswered = sum(service.unanswered for service in self.services)
        return (
            Tile("Services", f"{len({service.service for service in self.services}):,}"),
            Tile("Requests", f"{sum(service.requests for service in self.services):,}"),
            Tile("Unanswered", f"{unanswered:,}", not unanswered),
        )

    def tables(self) -> str:
        """The services, nothing where nobody asked for one."""
        if not self.services:
            return ""
        left = {"service", "seen by"}
        rows = [
            line(
                service.cells(),
                self.COLUMNS,
                left,
                {"unanswered"} if service.unanswered > 0 else (),
                key(min(at, COLOURS)),
            )
            for at, service in enumerate(self.services)
        ]
        more = self.service_count - len(self.services)
        notes = _NOTES + (f" {more:,} services with fewer requests are not listed." if more else "")
        notes += f" Services of the broker itself, {OWN}*, are left out." if self.left_out else ""
        return table("services", "Services", self.COLUMNS, left, rows, notes)

    def figures(self) -> Sequence[str]:
        """Requests over time, those that wait, and latencies."""
        if not self.services:
            return ()
        from trunkline.spark.report import latencies, over_time

        names = {at: service.title for at, service in enumerate(self.services[:COLOURS])}
        if self.service_count > len(names):
            names[OTHERS] = f"{self.service_count - len(names):,} more"
        clock = Clock(self.first_ns, self.bucket_ns)
        rates = over_time.rates(
            self.rates, clock, names, "Requests per second over time, one line for each service", "requests"
        )
        pending = over_time.levels(
            self.pending, clock, names, "requests", "Pending requests over time, one line for each service"
        )
        return (
            figure(
                "request-rates", "Requests over time", "Requests per second of each service", rates, legend(names), ""
            ),
            figure(
                "pending",
                "Pending requests",
                "Requests of each service without a reply yet, queued or with a worker; those that are never answered stay",
                pending,
                legend(names),
                "No request was pending.",
            ),
            *latencies.figures(
                "latencies",
                "Latency",
                "the time from request to reply",
                of=self.services,
                marks=LATENCIES,
                which="services with the most requests",
                spread=self.latencies,
                names=names,
                unit="requests",
                none="No request was answered.",
            ),
        )


def count(rows: DataFrame, total: Total, scope: Scope) -> DcpSection:
    """Counts the requests in these rows of a capture."""
    if "protocol" not in {name.lower() for name in rows.columns}:
        return DcpSection()
    spoken = rows.where(F.col("protocol") == "dcp")
    if spoken.isEmpty():
        return DcpSection()
    service = F.substring("service", 1, NAME).alias("service")
    # What a worker has sent on, or what could not be delivered, is over with the worker's response.
    took = F.coalesce("latency_ns", F.coalesce("queued_ns", F.lit(0)) + F.col("worked_ns"))
    over = (F.col("requested_at_ns") + took).alias("over_at_ns")
    chosen = (service, "seen_by", "outcome", "latency_ns", "requested_at_ns", over)
    # A reply does not say what service it is of: calls are paired before any are selected.
    paired = scope.selected(pair_requests(scope.around(rows, "dcp")), spoken, "request_seq")
    every = paired.select(*chosen).persist()
    is_own = F.substring("service", 1, len(OWN)) == F.lit(OWN.encode())
    requests = every if scope.has_own else every.where(~is_own)
    try:
        left_out = not scope.has_own and not every.where(is_own).isEmpty()
        found, number = _largest(requests)
        at = _place(found[:COLOURS])
        rates = counting.rates(requests, at, total.clock, "requested_at_ns")
        over_at = counting.rates(requests.where("over_at_ns IS NOT NULL"), at, total.clock, "over_at_ns")
        latencies = counting.spread(requests, at)
    finally:
        every.unpersist()
    decoded = decode_keeping(spoken, Decoder("dcp"), (), ("error",))
    errors = counting.errors(decoded)
    return DcpSection(
        services=found,
        service_count=number,
        left_out=left_out,
        errors=errors,
        bucket_ns=total.bucket_ns,
        first_ns=total.clock.first_ns,
        rates=rates,
        pending=counting.levels(rates, over_at),
        latencies=latencies,
    )


def _largest(requests: DataFrame) -> tuple[tuple[ServiceReport, ...], int]:
    """The services with most requests, and how many there are in all."""
    latency = F.percentile_approx("latency_ns", [0.5, 0.9, 0.99], 10_000)
    services = (
        requests.groupBy("service", "seen_by")
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
    return tuple(map(_service, largest)), number


def _place(coloured: Sequence[ServiceReport]) -> Column:
    """The index of a service as a role saw it, `OTHERS` for one without a colour."""

    def is_of(service: ServiceReport) -> Column:
        return (F.col("service") == service.service) & (F.col("seen_by") == service.seen_by)

    return F.coalesce(*(F.when(is_of(service), at) for at, service in enumerate(coloured)), F.lit(OTHERS))


def _service(row: Row) -> ServiceReport:
    p50, p90, p99 = row["latency"] or (None, None, None)
    counts = {name: row[name] for name in ("seen_by", "requests", "replies", "forwards", "max_ns")}
    return ServiceReport(bytes(row["service"]), p50_ns=p50, p90_ns=p90, p99_ns=p99, **counts)
