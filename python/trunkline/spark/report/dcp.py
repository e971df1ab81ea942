"""What a report says of DCP: the requests of each service, with percentiles of their latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from trunkline._text import latency, readable
from trunkline.columns import Decoder
from trunkline.spark.columns import decode_keeping
from trunkline.spark.report.html import figure, key, line, table
from trunkline.spark.report.model import NAME, Section, Tile, Total, largest_first
from trunkline.spark.requests import pair_requests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = ["DcpSection", "ServiceReport", "count"]

# How many services are listed, and how many plotted.
SERVICES = 200
PLOTTED = 12

# What is plotted of latencies.
LATENCIES = ("p50", "p90", "p99", "max")

_NOTES = (
    "Requests of DCP with what came of them, as the role that recorded saw it. Latency is from a request to its reply: at a "
    "broker received from the client and sent to it, at a client sent and received, at a worker received and sent. A request "
    "that a worker sent on counts for the service it went to as well."
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
        errors: Messages that do not decode, by kind of error.
    """

    protocol: ClassVar[str] = "dcp"

    services: tuple[ServiceReport, ...] = ()
    service_count: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)

    COLUMNS: ClassVar = (
        "service",
        "seen by",
        "requests",
        "replies",
        "sent on",
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
            line(service.cells(), self.COLUMNS, left, {"unanswered"} if service.unanswered > 0 else ())
            for service in self.services
        ]
        more = self.service_count - len(self.services)
        notes = _NOTES + (f" {more:,} services with fewer requests are not listed." if more else "")
        return table("services", "Services", self.COLUMNS, left, rows, notes)

    def figures(self) -> Sequence[str]:
        """Latencies."""
        if not self.services:
            return ()
        from trunkline.spark.report.plots import latencies

        legend = "".join(f"<span>{key(at)}{name}</span>" for at, name in enumerate(LATENCIES))
        caption = "Percentiles of the time from request to reply" + (
            f", of the {PLOTTED} services with most requests" if len(self.services) > PLOTTED else ""
        )
        rows = [
            (service.title, [getattr(service, f"{name}_ns") for name in LATENCIES])
            for service in self.services[:PLOTTED]
            if service.max_ns is not None
        ]
        drawn = latencies(rows, "Latency of replies, a row for each service with its percentiles")
        return (figure("latencies", "Latency", caption, drawn, legend, "No request was replied to."),)


def count(rows: DataFrame, _: Total) -> DcpSection:
    """Counts the requests in these rows of a capture."""
    from pyspark.sql import functions as F  # noqa: N812

    if "protocol" not in {name.lower() for name in rows.columns}:
        return DcpSection()
    spoken = rows.where(F.col("protocol") == "dcp")
    if spoken.isEmpty():
        return DcpSection()
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
    return DcpSection(tuple(map(_service, largest)), number, largest_first(errors))


def _service(row: Row) -> ServiceReport:
    p50, p90, p99 = row["latency"] or (None, None, None)
    counts = {name: row[name] for name in ("seen_by", "requests", "replies", "forwards", "max_ns")}
    return ServiceReport(bytes(row["service"]), p50_ns=p50, p90_ns=p90, p99_ns=p99, **counts)
