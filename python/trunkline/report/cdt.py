"""The section of a report on CDT: versions of configurations, times to applied, lagging endpoints, and error responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from trunkline._text import latency, readable
from trunkline.report.charts import Chart
from trunkline.report.model import Clock, Counted, Scope, Section, Tile, Total, largest_first
from trunkline.report.tables import SEEN, Column, Table, count, times, when

__all__ = ["CdtSection", "LaggingEndpoint", "RefusedPull", "VersionReport"]

# The percentiles that are listed and plotted.
TIMES = ("p50", "p99", "max")

# The kinds of messages, in the order of a rollout; each has a colour.
KINDS = ("ConfigNewAvailable", "ConfigRequest", "ConfigResponse", "ConfigUpdated", "ConfigPush", "ConfigPushResponse")


def _id(config_id: str) -> str:
    """An id of a configuration as text; a hash is cut to a unique prefix."""
    shown = readable(config_id)
    return shown if len(shown) <= 24 else f"{shown[:12]}…"


_COLUMNS = (
    Column("application", "application"),
    Column("version", "config_id", _id, is_text=True),
    when("first seen", "first_received_at_ns"),
    count("announced", "announced"),
    count("pulled", "pulled"),
    count("applied", "applied"),
    count("in use", "in_use"),
    *times(TIMES),
)
_LAGGING_COLUMNS = (
    Column("endpoint", "endpoint"),
    Column("application", "app_version_name", readable, is_text=True),
    Column("announced", "announced", _id, is_text=True),
    when("since", "announced_at_ns", is_text=True),
    Column("lag", "lag_ns", latency, is_bad=bool),
    Column("pulled", "pulled", lambda pulled: "yes" if pulled else "no", is_text=True),
    Column("in use", "in_use", is_text=True),
)
_REFUSED_COLUMNS = (
    Column("status", "status"),
    Column("reason", "reason", is_text=True),
    count("count", "errors", is_bad=True),
    count("endpoints", "endpoints"),
    *SEEN,
)

_NOTES = (
    "A version is a configuration of an application: endpoints with the same content share one, unless it was given "
    "an id of its own. It is in use at an endpoint that has applied no other since. Times to applied are from the first announcement "
    "to the first report, by this recorder's clock."
)

_LAGGING_NOTES = "Endpoints that have not reported applying what was last announced to them, longest first."

_SOME = "Only some messages are selected: what is in use where cannot be determined from them."

_REFUSED_NOTES = "Answers with a status other than 2xx."


@dataclass(frozen=True, slots=True)
class VersionReport:
    """The progress of one configuration of an application.

    Attributes:
        app_version_name: The application, cut at 200 characters; None for the row of all others.
        config_id: The configuration, likewise.
        announced: Endpoints it was announced to.
        pulled: Endpoints it was answered for.
        applied: Endpoints that have reported it.
        in_use: Endpoints that have reported no other since.
        first_received_at_ns: When it was first announced, answered or reported, in nanoseconds since 1970.
        p50_ns: The time to applied that half of the endpoints stay below, in nanoseconds; None without any.
        p99_ns: Likewise 99 of 100.
        max_ns: The longest.
        others: How many versions this row stands for, beside the first 200, whose endpoints it adds up; 0 for a row of one.
    """

    app_version_name: str | None
    config_id: str | None
    announced: int
    pulled: int
    applied: int
    in_use: int
    first_received_at_ns: int
    p50_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None
    others: int = 0

    @property
    def application(self) -> str:
        """The application as text."""
        return f"{self.others:,} older versions" if self.app_version_name is None else readable(self.app_version_name)

    @property
    def title(self) -> str:
        """The application and its configuration as text."""
        return self.application + (f" · {_id(self.config_id)}" if self.config_id is not None else "")


@dataclass(frozen=True, slots=True)
class LaggingEndpoint:
    """An endpoint that has not applied the last configuration announced to it.

    Attributes:
        app_version_name: The application, cut at 200 characters; None for the row of all others.
        endpoint_id: The endpoint, likewise.
        announced: The configuration that was last announced, likewise.
        announced_at_ns: When, in nanoseconds since 1970.
        pulled: Whether it was answered with that one.
        applied: The configuration that it has reported last; None without any.
        lag_ns: How long the announcement was ago when the last row of the capture was received, in nanoseconds.
        others: How many endpoints this row stands for, beside the first 100: its times are those of the one that lags most; 0
            for a row of one.
    """

    app_version_name: str | None
    endpoint_id: str | None
    announced: str | None
    announced_at_ns: int
    pulled: bool | None
    applied: str | None
    lag_ns: int
    others: int = 0

    @property
    def endpoint(self) -> str:
        """The endpoint as text."""
        return f"{self.others:,} more endpoints" if self.endpoint_id is None else readable(self.endpoint_id)

    @property
    def in_use(self) -> str:
        """The configuration that it has reported last, or a placeholder, as text."""
        if self.others:
            return ""
        return "(none)" if self.applied is None else _id(self.applied)


@dataclass(frozen=True, slots=True)
class RefusedPull:
    """Error responses with one status and one reason.

    Attributes:
        status_code: The status, as of HTTP; None for the row of all others.
        reason_phrase: Why, cut at 200 characters; None where nothing is said.
        errors: How many there are.
        endpoints: Endpoints they were for, about.
        first_received_at_ns: When the first passed, in nanoseconds since 1970.
        last_received_at_ns: When the last did.
        others: How many statuses and reasons this row stands for, beside the first 100; 0 for a row of one.
    """

    status_code: int | None
    reason_phrase: str | None
    errors: int
    endpoints: int
    first_received_at_ns: int
    last_received_at_ns: int
    others: int = 0

    @property
    def status(self) -> str:
        """The status as text."""
        return f"{self.others:,} more" if self.status_code is None else str(self.status_code)

    @property
    def reason(self) -> str:
        """The reason, or a placeholder, as text."""
        if self.others:
            return ""
        return readable(self.reason_phrase or "") or "(no reason)"


@dataclass(frozen=True, slots=True)
class CdtSection(Section):
    """What was recorded of CDT.

    Attributes:
        versions: The 200 configurations that were last seen to begin their way, and a row of all others.
        version_count: How many there are in all.
        endpoints: Endpoints that something was announced to, or that reported something.
        lagging: The 100 endpoints that have waited longest with what was last announced to them, and a row of all others.
        lagging_count: How many there are in all.
        pulls: Answers of success.
        refused: The 100 statuses and reasons with most answers that were none, and a row of all others.
        refused_count: How many such answers there are in all.
        errors: Messages that do not decode, by kind of error.
        is_cut: Whether only messages of some kinds are covered, which do not determine versions and endpoints.
        bucket_ns: What time is divided into, in nanoseconds.
        first_ns: When that begins, in nanoseconds since 1970.
        rates: Messages by kind and bucket; a kind is its place in the order of `KINDS`. A role's own event that came back to it
            is counted once, as sent.
        latencies: Configurations that endpoints applied, by class of the time to applied: n is from 10^(n/10) ns on.
        last_received_at_ns: When the last row of the capture was received: the moment that lags are counted to.
    """

    protocol: ClassVar[str] = "cdt"
    title: ClassVar[str] = "CDT"

    versions: tuple[VersionReport, ...] = ()
    version_count: int = 0
    endpoints: int = 0
    lagging: tuple[LaggingEndpoint, ...] = ()
    lagging_count: int = 0
    pulls: int = 0
    refused: tuple[RefusedPull, ...] = ()
    refused_count: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    is_cut: bool = False
    bucket_ns: int = 1
    first_ns: int = 0
    rates: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    last_received_at_ns: int = 0
    latencies: Mapping[int, int] = field(default_factory=dict)

    KINDS: ClassVar = KINDS

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""
        return self.errors

    @property
    def spoken(self) -> bool:
        """Whether there are messages of the protocol."""
        return bool(self.rates or self.malformed)

    def tiles(self) -> Sequence[Tile]:
        """The fleet, its versions, and problems."""
        pulls = (
            Tile("Pulls", f"{self.pulls:,}"),
            Tile("Refused pulls", f"{self.refused_count:,}", not self.refused_count),
        )
        if self.is_cut:
            return pulls if self.pulls or self.refused_count else ()
        return (
            Tile("Endpoints", f"{self.endpoints:,}"),
            Tile("Versions", f"{self.version_count:,}"),
            Tile("Lagging", f"{self.lagging_count:,}", not self.lagging_count),
            *pulls,
        )

    def tables(self) -> Sequence[Table]:
        """The versions, and the lagging endpoints."""
        shown = []
        if self.versions:
            shown.append(Table("versions", "Versions", _COLUMNS, self.versions, _NOTES))
        if self.lagging:
            shown.append(Table("lagging", "Lagging endpoints", _LAGGING_COLUMNS, self.lagging, _LAGGING_NOTES))
        return shown

    def charts(self) -> Sequence[Chart]:
        """Messages over time, and times to applied."""
        if not self.rates:
            return ()
        from trunkline.report import latencies, over_time

        names = {at: name for at, name in enumerate(KINDS) if at in self.rates}
        rates = over_time.rates(self.rates, Clock(self.first_ns, self.bucket_ns), names)
        return (
            Chart("cdt-rates", "CDT messages over time", "Messages per second of each kind", rates, names),
            *latencies.charts(
                "applied",
                "Time to applied",
                "the time from announced to applied",
                of=[version for version in self.versions if version.max_ns is not None],
                marks=TIMES,
                which="newest versions",
                spread={0: self.latencies} if self.latencies else {},
                names={0: "all versions"},
                unit="endpoints",
                none=_SOME if self.is_cut else "No announced version was reported as applied.",
            ),
        )

    def details(self) -> Sequence[Table]:
        """The error responses, if any."""
        if not self.refused:
            return ()
        return (Table("refused-pulls", "Refused pulls", _REFUSED_COLUMNS, self.refused, _REFUSED_NOTES),)

    @classmethod
    def of(cls, counted: Counted, total: Total, scope: Scope) -> Self:
        """The section of what was counted."""
        found, now_ns = counted["section"], total.last_ns or 0
        same = ("version_count", "endpoints", "lagging_count", "pulls", "refused_count", "rates", "latencies")
        return cls(
            versions=tuple(VersionReport(**row) for row in found["versions"]),
            lagging=tuple(
                LaggingEndpoint(**row, lag_ns=max(0, now_ns - row["announced_at_ns"])) for row in found["lagging"]
            ),
            refused=tuple(RefusedPull(**row) for row in found["refused"]),
            errors=largest_first(counted["errors"]),
            is_cut=bool(scope.cuts),
            bucket_ns=counted["bucket_ns"],
            first_ns=total.clock.first_ns,
            last_received_at_ns=now_ns,
            **{name: found[name] for name in same},
        )
