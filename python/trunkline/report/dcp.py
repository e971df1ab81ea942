"""The section of a report on DCP: the requests of each service, with percentiles of their latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from trunkline._text import OWN, readable
from trunkline.report.charts import Chart, named
from trunkline.report.counting import levels
from trunkline.report.model import Clock, Counted, Scope, Section, Tile, Total, largest_first
from trunkline.report.tables import Column, Table, about_others, count, ranked, times

__all__ = ["DcpSection", "ServiceReport"]

# The percentiles that are listed and plotted.
LATENCIES = ("p50", "p90", "p99", "max")

_COLUMNS = (
    Column("service", "title"),
    Column("seen by", "seen_by", is_text=True),
    count("requests", "requests"),
    count("replies", "replies"),
    count("forwarded", "forwards"),
    count("unanswered", "unanswered", is_bad=True),
    *times(LATENCIES),
)

_NOTES = (
    "DCP requests and their outcomes, as seen by the role that recorded them. Latency is from a request to its reply: at a "
    "broker, from receiving it from the client to sending the reply to the client; at a client, from sending to receiving; at a worker, from receiving to sending. A request "
    "that a worker forwarded also counts for the service it was forwarded to."
)


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """What was recorded of the requests of one service of DCP, as one role saw it.

    Attributes:
        service: Its name, cut at 200 bytes; None for the row of all others.
        seen_by: The role that recorded it: ``"broker"``, ``"client"`` or ``"worker"``; see `pair_requests`. None if there are
            several.
        requests: Its requests.
        replies: Those that were replied to.
        forwards: Those that a worker sent on.
        p50_ns: The latency of replies that half of them stay below, in nanoseconds; None without a reply.
        p90_ns: Likewise nine of ten.
        p99_ns: Likewise 99 of 100.
        max_ns: The longest.
        others: How many services this row stands for, beside the first 200; 0 for a row of one.
    """

    service: bytes | None
    seen_by: str | None
    requests: int
    replies: int
    forwards: int
    p50_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None
    others: int = 0

    @property
    def title(self) -> str:
        """The name of the service, or a placeholder, as text."""
        if self.service is None:
            return f"{self.others:,} more services"
        return readable(self.service.decode(errors="backslashreplace")) or "(empty name)"

    @property
    def unanswered(self) -> int:
        """Requests without a reply or forward."""
        return self.requests - self.replies - self.forwards


@dataclass(frozen=True, slots=True)
class DcpSection(Section):
    """What was recorded of DCP.

    Attributes:
        services: The 200 services with most requests, as each role saw them, and a row of all others.
        service_count: How many there are in all.
        beyond: Requests of services beyond the first 100,000, counted together.
        left_out: Whether there are others, which are trunkline's own.
        errors: Messages that do not decode, by kind of error.
        bucket_ns: What time is divided into, in nanoseconds.
        first_ns: When that begins, in nanoseconds since 1970.
        rates: Requests by service and bucket. A service is its index in `services`; those without a colour are one.
        pending: Requests without an outcome at the end of each bucket, likewise.
        latencies: Replies by service and class of their latency: n is from 10^(n/10) ns on.
    """

    protocol: ClassVar[str] = "dcp"
    title: ClassVar[str] = "DCP"
    has_answers: ClassVar[bool] = True

    services: tuple[ServiceReport, ...] = ()
    service_count: int = 0
    beyond: int = 0
    left_out: bool = False
    errors: Mapping[str, int] = field(default_factory=dict)
    bucket_ns: int = 1
    first_ns: int = 0
    rates: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    pending: Mapping[int, Sequence[int]] = field(default_factory=dict)
    latencies: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""
        return self.errors

    @property
    def spoken(self) -> bool:
        """Whether there are messages of the protocol."""
        return bool(self.services or self.malformed)

    def tiles(self) -> Sequence[Tile]:
        """Services, requests, and unanswered ones."""
        if not self.services:
            return ()
        unanswered = sum(service.unanswered for service in self.services)
        return (
            Tile("Services", f"{self._known:,}"),
            Tile("Requests", f"{sum(service.requests for service in self.services):,}"),
            Tile("Unanswered", f"{unanswered:,}", not unanswered),
        )

    @property
    def _known(self) -> int:
        """The number of services; each of the others counts once for each role that saw it."""
        named = {service.service for service in self.services if not service.others}
        return len(named) + sum(service.others for service in self.services)

    def tables(self) -> Sequence[Table]:
        """The services, if any."""
        if not self.services:
            return ()
        notes = _NOTES + about_others(self.beyond, "requests")
        notes += f" Services of the broker itself, {OWN}*, are left out." if self.left_out else ""
        return (Table("services", "Services", _COLUMNS, self.services, notes, ranked),)

    def charts(self) -> Sequence[Chart]:
        """Requests over time, pending requests, and latencies."""
        if not self.services:
            return ()
        from trunkline.report import latencies, over_time

        names = named([service.title for service in self.services], self.service_count)
        clock = Clock(self.first_ns, self.bucket_ns)
        return (
            Chart(
                "request-rates",
                "Requests over time",
                "Requests per second of each service",
                over_time.rates(self.rates, clock, names, "requests"),
                names,
            ),
            Chart(
                "pending",
                "Pending requests",
                "Requests of each service without a reply yet, queued or with a worker; those that are never answered stay",
                over_time.levels(self.pending, clock, names, "requests"),
                names,
                "No request was pending.",
            ),
            *latencies.charts(
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

    @classmethod
    def of(cls, counted: Counted, total: Total, scope: Scope) -> Self:
        """The section of what was counted."""
        del scope
        found = counted["section"]
        rates = dict(found["rates"])
        return cls(
            services=tuple(ServiceReport(**row) for row in found["services"]),
            service_count=found["service_count"],
            beyond=found["beyond"],
            left_out=found["left_out"],
            errors=largest_first(counted["errors"]),
            bucket_ns=counted["bucket_ns"],
            first_ns=total.clock.first_ns,
            rates=rates,
            pending=levels(rates, dict(found["over"])),
            latencies=dict(found["latencies"]),
        )
