"""What a report says of CDT: which configuration is where, how long each took, who lags, and what was answered with an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from trunkline._text import latency, moment, readable
from trunkline.columns import Decoder
from trunkline.spark._engine import F, Window
from trunkline.spark.columns import decode_keeping
from trunkline.spark.report import counting
from trunkline.spark.report.html import figure, legend, line, table
from trunkline.spark.report.model import NAME, Clock, Scope, Section, Tile, Total
from trunkline.spark.rollout import ROLLOUT_COLUMNS, once, ways

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["CdtSection", "LaggingEndpoint", "RefusedPull", "VersionReport", "count"]

# How many versions are listed.
VERSIONS = 200

# How many endpoints that lag, and errors, are listed.
LAGGING = 100
REFUSED = 100

# What is plotted of times.
TIMES = ("p50", "p99", "max")

# The kinds of messages, in the order of a configuration's way; each has a colour.
KINDS = ("ConfigNewAvailable", "ConfigRequest", "ConfigResponse", "ConfigUpdated", "ConfigPush", "ConfigPushResponse")

# How finely times are told apart for percentiles of them.
_ACCURACY = 10_000

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
    """How far one configuration of an application has come.

    Attributes:
        app_version_name: The application, cut at 200 characters.
        config_id: The configuration, likewise.
        announced: Endpoints it was announced to.
        pulled: Endpoints it was answered for.
        applied: Endpoints that have reported it.
        in_use: Endpoints that have reported no other since.
        first_received_at_ns: When it was first announced, answered or reported, in nanoseconds since 1970.
        p50_ns: The time to applied that half of the endpoints stay below, in nanoseconds; None without any.
        p99_ns: Likewise 99 of 100.
        max_ns: The longest.
    """

    app_version_name: str
    config_id: str
    announced: int
    pulled: int
    applied: int
    in_use: int
    first_received_at_ns: int
    p50_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None

    @property
    def title(self) -> str:
        """The application and its configuration, to read."""
        return f"{readable(self.app_version_name)} · {_id(self.config_id)}"

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `CdtSection.COLUMNS`."""
        endpoints = (self.announced, self.pulled, self.applied, self.in_use)
        return (
            readable(self.app_version_name),
            _id(self.config_id),
            moment(self.first_received_at_ns),
            *(f"{number:,}" for number in endpoints),
            *("" if ns is None else latency(ns) for ns in (self.p50_ns, self.p99_ns, self.max_ns)),
        )


@dataclass(frozen=True, slots=True)
class LaggingEndpoint:
    """An endpoint that has not applied what was last announced to it.

    Attributes:
        app_version_name: The application, cut at 200 characters.
        endpoint_id: The endpoint, likewise.
        announced: The configuration that was last announced, likewise.
        announced_at_ns: When, in nanoseconds since 1970.
        pulled: Whether it was answered with that one.
        applied: The configuration that it has reported last; None without any.
    """

    app_version_name: str
    endpoint_id: str
    announced: str
    announced_at_ns: int
    pulled: bool
    applied: str | None

    def cells(self, now_ns: int) -> tuple[str, ...]:
        """What a table shows of it at `now_ns`, in the order of `CdtSection.LAGGING_COLUMNS`."""
        return (
            readable(self.endpoint_id),
            readable(self.app_version_name),
            _id(self.announced),
            moment(self.announced_at_ns),
            latency(max(0, now_ns - self.announced_at_ns)),
            "yes" if self.pulled else "no",
            _id(self.applied) if self.applied is not None else "(none)",
        )


@dataclass(frozen=True, slots=True)
class RefusedPull:
    """Answers with one status and one reason that are not those of success.

    Attributes:
        status_code: The status, as of HTTP.
        reason_phrase: Why, cut at 200 characters; None where nothing is said.
        errors: How many there are.
        endpoints: Endpoints they were for, about.
        first_received_at_ns: When the first passed, in nanoseconds since 1970.
        last_received_at_ns: When the last did.
    """

    status_code: int
    reason_phrase: str | None
    errors: int
    endpoints: int
    first_received_at_ns: int
    last_received_at_ns: int

    def cells(self) -> tuple[str, ...]:
        """What a table shows of it, in the order of `CdtSection.REFUSED_COLUMNS`."""
        return (
            str(self.status_code),
            readable(self.reason_phrase or "") or "(no reason)",
            f"{self.errors:,}",
            f"{self.endpoints:,}",
            moment(self.first_received_at_ns),
            moment(self.last_received_at_ns),
        )


@dataclass(frozen=True, slots=True)
class CdtSection(Section):
    """What was recorded of CDT.

    Attributes:
        versions: The 200 configurations that were last seen to begin their way.
        version_count: How many there are in all.
        endpoints: Endpoints that something was announced to, or that reported something.
        lagging: The 100 endpoints that have waited longest with what was last announced to them.
        lagging_count: How many there are in all.
        pulls: Answers of success.
        refused: The 100 statuses and reasons with most answers that were none.
        refused_count: How many such answers there are in all.
        errors: Messages that do not decode, by kind of error.
        is_cut: Whether only messages of some kinds are covered, which do not tell versions and endpoints.
        bucket_ns: What time is divided into, in nanoseconds.
        first_ns: When that begins, in nanoseconds since 1970.
        rates: Messages by kind and bucket; a kind is its place in the order of `KINDS`. An event that came back to the role that told it
            is counted as it went out.
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
    COLUMNS: ClassVar = (
        "application",
        "version",
        "first seen (UTC)",
        "announced",
        "pulled",
        "applied",
        "in use",
        "p50",
        "p99",
        "max",
    )
    LAGGING_COLUMNS: ClassVar = ("endpoint", "application", "announced", "since (UTC)", "lag", "pulled", "in use")
    REFUSED_COLUMNS: ClassVar = ("status", "reason", "count", "endpoints", "first (UTC)", "last (UTC)")

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""
        return self.errors

    @property
    def spoken(self) -> bool:
        """Whether anybody spoke it."""
        return bool(self.rates or self.malformed)

    def tiles(self) -> Sequence[Tile]:
        """The fleet, its versions, and what is not as it should be."""
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

    def tables(self) -> str:
        """The versions, and the endpoints that lag."""
        shown = ""
        if self.versions:
            rows = [line(version.cells(), self.COLUMNS, {"version"}) for version in self.versions]
            more = self.version_count - len(self.versions)
            notes = _NOTES + (f" {more:,} older versions are not listed." if more else "")
            shown += table("versions", "Versions", self.COLUMNS, {"application", "version"}, rows, notes)
        if self.lagging:
            left = set(self.LAGGING_COLUMNS) - {"lag"}
            rows = [
                line(one.cells(self.last_received_at_ns), self.LAGGING_COLUMNS, left, {"lag"}) for one in self.lagging
            ]
            more = self.lagging_count - len(self.lagging)
            notes = _LAGGING_NOTES + (f" {more:,} more are not listed." if more else "")
            shown += table("lagging", "Lagging endpoints", self.LAGGING_COLUMNS, left, rows, notes)
        return shown

    def figures(self) -> Sequence[str]:
        """Messages over time, and times to applied."""
        if not self.rates:
            return ()
        from trunkline.spark.report import latencies, over_time

        names = {at: name for at, name in enumerate(KINDS) if at in self.rates}
        clock = Clock(self.first_ns, self.bucket_ns)
        rates = over_time.rates(self.rates, clock, names, "Messages per second over time, one line for each kind")
        shown = [version for version in self.versions if version.max_ns is not None]
        return (
            figure("cdt-rates", "CDT messages over time", "Messages per second of each kind", rates, legend(names), ""),
            *latencies.figures(
                "applied",
                "Time to applied",
                "the time from announced to applied",
                of=shown,
                marks=TIMES,
                which="newest versions",
                spread={0: self.latencies} if self.latencies else {},
                names={0: "all versions"},
                unit="endpoints",
                none=_SOME if self.is_cut else "No announced version was reported as applied.",
            ),
        )

    def details(self) -> str:
        """The answers that were errors, nothing where none was."""
        if not self.refused:
            return ""
        rows = [line(refusal.cells(), self.REFUSED_COLUMNS, {"reason"}, {"count"}) for refusal in self.refused]
        more = self.refused_count - sum(refusal.errors for refusal in self.refused)
        notes = _REFUSED_NOTES + (f" {more:,} more are not listed." if more else "")
        return table("refused-pulls", "Refused pulls", self.REFUSED_COLUMNS, {"status", "reason"}, rows, notes)


def _id(config_id: str) -> str:
    """An id of a configuration, to read: of one that is a hash, as much as tells it apart."""
    shown = readable(config_id)
    return shown if len(shown) <= 24 else f"{shown[:12]}…"


def count(rows: DataFrame, total: Total, scope: Scope) -> CdtSection:
    """Counts what these rows of a capture hold."""
    if "protocol" not in {name.lower() for name in rows.columns}:
        return CdtSection()
    spoken = rows.where(F.col("protocol") == "cdt")
    if spoken.isEmpty():
        return CdtSection()
    kept = ("received_at_ns", "direction")
    said = (*(name for name in ROLLOUT_COLUMNS if name not in kept), "reason_phrase", "error")
    decoded = decode_keeping(spoken, Decoder("cdt"), kept, (*kept, *said))
    names = ("app_version_name", "endpoint_id", "config_id", "reason_phrase")
    messages = once(decoded).withColumns({name: F.left(name, F.lit(NAME)) for name in names}).persist()
    try:
        # Which endpoint has what, the announcements, the answers and the reports tell together.
        fleet = _fleet(messages.where("false") if scope.cuts else messages).persist()
        try:
            versions, version_count = _versions(fleet)
            lagging, lagging_count, endpoints = _lagging(fleet)
            took = counting.spread(fleet.withColumnRenamed("time_to_applied_ns", "latency_ns"), F.lit(0))
        finally:
            fleet.unpersist()
        refused, refused_count, pulls = _refused(messages)
        errors = counting.errors(messages)
        kind = F.coalesce(*(F.when(F.col("type") == name, at) for at, name in enumerate(KINDS)))
        rates = counting.rates(messages.where(F.col("type").isin(*KINDS)), kind, total.clock)
    finally:
        messages.unpersist()
    return CdtSection(
        versions=versions,
        version_count=version_count,
        endpoints=endpoints,
        lagging=lagging,
        lagging_count=lagging_count,
        pulls=pulls,
        refused=refused,
        refused_count=refused_count,
        errors=errors,
        is_cut=bool(scope.cuts),
        bucket_ns=total.bucket_ns,
        first_ns=total.clock.first_ns,
        rates=rates,
        last_received_at_ns=total.last_ns or 0,
        latencies=took.get(0, {}),
    )


def _fleet(messages: DataFrame) -> DataFrame:
    """The ways of configurations, and whether each is what its endpoint was told of last, and what it has."""
    endpoint = Window.partitionBy("app_version_name", "endpoint_id")

    def is_last(name: str) -> Column:
        return F.coalesce(F.col(name) == F.max(name).over(endpoint), F.lit(False))  # noqa: FBT003 - a literal

    return (
        ways(messages)
        .where("config_id IS NOT NULL")
        .select(
            "*",
            F.least("available_ns", "pulled_ns", "applied_ns").alias("first_ns"),
            is_last("last_available_ns").alias("is_wanted"),
            is_last("last_applied_ns").alias("is_in_use"),
            F.max_by("config_id", "last_applied_ns").over(endpoint).alias("has"),
        )
    )


def _versions(fleet: DataFrame) -> tuple[tuple[VersionReport, ...], int]:
    """The newest versions, and how many there are in all."""
    counted = (
        fleet.groupBy("app_version_name", "config_id")
        .agg(
            F.count("available_ns").alias("announced"),
            F.count("pulled_ns").alias("pulled"),
            F.count("applied_ns").alias("applied"),
            F.count_if("is_in_use").alias("in_use"),
            F.min("first_ns").alias("first_received_at_ns"),
            F.percentile_approx("time_to_applied_ns", [0.5, 0.99, 1.0], _ACCURACY).alias("took"),
        )
        .select("*", *(F.get("took", F.lit(at)).alias(f"{name}_ns") for at, name in enumerate(TIMES)))
        .drop("took")
        .persist()
    )
    try:
        order = (F.desc("first_received_at_ns"), "app_version_name", "config_id")
        newest = counted.orderBy(*order).limit(VERSIONS).collect()
        number = counted.count()
    finally:
        counted.unpersist()
    return tuple(VersionReport(**row.asDict()) for row in newest), number


def _lagging(fleet: DataFrame) -> tuple[tuple[LaggingEndpoint, ...], int, int]:
    """The endpoints that have waited longest, how many wait in all, and how many there are."""
    lagging = fleet.where("is_wanted AND NOT is_in_use")
    found = lagging.select(
        "app_version_name",
        "endpoint_id",
        F.col("config_id").alias("announced"),
        F.col("last_available_ns").alias("announced_at_ns"),
        F.col("pulled_ns").isNotNull().alias("pulled"),
        F.col("has").alias("applied"),
    )
    order = ("announced_at_ns", "app_version_name", "endpoint_id")
    longest = found.orderBy(*order).limit(LAGGING).collect()
    told = fleet.where("available_ns IS NOT NULL OR applied_ns IS NOT NULL")
    endpoints = told.select("app_version_name", "endpoint_id").distinct().count()
    return tuple(LaggingEndpoint(**row.asDict()) for row in longest), found.count(), endpoints


def _refused(messages: DataFrame) -> tuple[tuple[RefusedPull, ...], int, int]:
    """The statuses and reasons with most answers, how many such answers there are in all, and how many of success."""
    answers = messages.where("type = 'ConfigResponse' AND status_code IS NOT NULL")
    is_good = F.col("status_code").between(200, 299)
    counted = (
        answers.where(~is_good)
        .groupBy("status_code", "reason_phrase")
        .agg(
            F.count("*").alias("errors"),
            F.approx_count_distinct("endpoint_id").alias("endpoints"),
            F.min("received_at_ns").alias("first_received_at_ns"),
            F.max("received_at_ns").alias("last_received_at_ns"),
        )
        .persist()
    )
    try:
        order = (F.desc("errors"), "status_code", "reason_phrase")
        largest = counted.orderBy(*order).limit(REFUSED).collect()
        number = counted.agg(F.sum("errors")).collect()[0][0]
    finally:
        counted.unpersist()
    return tuple(RefusedPull(**row.asDict()) for row in largest), number or 0, answers.where(is_good).count()
