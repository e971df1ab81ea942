"""The section of a report on MTL: resources with their depths and ages, and refused logins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from trunkline._text import latency, readable, text_or_digits
from trunkline.report.charts import Chart
from trunkline.report.colours import COLOURS, OTHERS
from trunkline.report.model import Clock, Counted, Scope, Section, Tile, Total, largest_first
from trunkline.report.tables import BYTES, SEEN, Column, Table, about_others, count, ranked, times

__all__ = ["MtlSection", "RefusedLogin", "ResourceReport"]

# The percentiles that are listed and plotted.
TIMES = ("p50", "p99", "max")

_COLUMNS = (
    Column("resource", "title"),
    count("received", "received"),
    BYTES,
    count("delivered", "sent"),
    count("confirmed", "confirmed"),
    count("redelivered", "redelivered"),
    count("rejected", "rejected", is_bad=True),
    count("discarded", "discarded", is_bad=True),
    count("dead", "dead_lettered", is_bad=True),
    Column("stored", "stored_p99_ns", latency),
    *times(TIMES),
)
_LOGIN_COLUMNS = (
    Column("peer", "title"),
    count("refused", "refused", is_bad=True),
    *SEEN,
)

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
        resource: Its name, cut at 200 characters; None for the row of all others.
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
        others: How many resources this row stands for, beside the first 200; 0 for a row of one.
    """

    resource: str | None
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
    others: int = 0

    @property
    def title(self) -> str:
        """The name, or a placeholder, as text."""
        if self.resource is None:
            return f"{self.others:,} more resources"
        return readable(self.resource) or "(no name)"


@dataclass(frozen=True, slots=True)
class RefusedLogin:
    """Steps of logins that a server refused to one peer.

    Attributes:
        peer: The peer's routing id, cut at 200 bytes; None for a client, which was refused itself.
        refused: How many there are.
        first_received_at_ns: When the first passed, in nanoseconds since 1970.
        last_received_at_ns: When the last did.
        others: How many peers this row stands for, beside the first 100; 0 for a row of one.
    """

    peer: bytes | None
    refused: int
    first_received_at_ns: int
    last_received_at_ns: int
    others: int = 0

    @property
    def title(self) -> str:
        """The peer as text."""
        if self.others:
            return f"{self.others:,} more peers"
        return "(this client)" if self.peer is None else text_or_digits(self.peer)


@dataclass(frozen=True, slots=True)
class MtlSection(Section):
    """What was recorded of MTL.

    Attributes:
        messages: Messages of both flows.
        resources: The 200 resources with most contents, and a row of all others.
        resource_count: How many there are in all.
        beyond: Contents of resources beyond the first 100,000, counted together.
        received: Contents that came to all of them.
        sent: Contents that went out of all of them.
        redelivered: Contents that went out not for the first time.
        dead_lettered: Contents that are known to have become dead letters.
        logins: The 100 peers with most refused logins, and a row of all others.
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
    options: ClassVar[Mapping[str, Any]] = {"properties": {"redelivered": "boolean", "*": "json"}, "json": None}
    has_answers: ClassVar[bool] = True

    messages: int = 0
    resources: tuple[ResourceReport, ...] = ()
    resource_count: int = 0
    beyond: int = 0
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

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""
        return self.errors

    @property
    def spoken(self) -> bool:
        """Whether there are messages of the protocol."""
        return bool(self.messages)

    def tiles(self) -> Sequence[Tile]:
        """Contents received and sent, redelivered ones, and refused logins."""
        logins = (Tile("Logins refused", f"{self.logins_refused:,}", not self.logins_refused),)
        return (
            Tile("Contents", f"{self.received:,}"),
            Tile("Delivered", f"{self.sent:,}"),
            Tile("Redelivered", f"{self.redelivered:,}", not self.redelivered),
            Tile("Dead letters", f"{self.dead_lettered:,}", not self.dead_lettered),
            *(() if self.is_cut and not self.logins_refused else logins),
        )

    def tables(self) -> Sequence[Table]:
        """The resources, if any."""
        if not self.resources:
            return ()
        notes = _NOTES + about_others(self.beyond, "contents")
        return (Table("resources", "Resources", _COLUMNS, self.resources, notes, ranked),)

    def charts(self) -> Sequence[Chart]:
        """Rates, depths, ages, and times to confirm."""
        if not self.resources:
            return ()
        from trunkline.report import latencies, over_time

        names = {at: resource.title for at, resource in enumerate(self.resources[:COLOURS])}
        clock = Clock(self.first_ns, self.bucket_ns)
        all_names = names | {OTHERS: "all others"}
        return (
            Chart(
                "content-rates",
                "Contents over time",
                "Contents per second of each resource",
                over_time.rates(self.rates, clock, all_names, "contents"),
                all_names if OTHERS in self.rates else names,
            ),
            Chart(
                "depths",
                "Waiting contents",
                "Contents in each resource, including those delivered but unconfirmed",
                over_time.levels(self.depths, clock, names, "contents"),
                names,
                _NONE_WAITED,
            ),
            Chart(
                "ages",
                "Age of waiting contents",
                "Age of the oldest content in each resource",
                over_time.ages(self.ages_s, clock, names),
                names,
                _NONE_WAITED,
            ),
            *latencies.charts(
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

    def details(self) -> Sequence[Table]:
        """The refused logins, if any."""
        if not self.logins:
            return ()
        return (Table("logins", "Logins refused", _LOGIN_COLUMNS, self.logins, _LOGIN_NOTES),)

    @classmethod
    def of(cls, counted: Counted, total: Total, scope: Scope) -> Self:
        """The section of what was counted."""
        found = counted["section"]
        levels = dict(enumerate(found["levels"]))
        same = ("resource_count", "beyond", "received", "sent", "redelivered", "dead_lettered", "logins_refused")
        return cls(
            messages=counted["rows"],
            resources=tuple(ResourceReport(**row) for row in found["resources"]),
            logins=tuple(RefusedLogin(**row) for row in found["logins"]),
            is_cut=bool(scope.cuts),
            errors=largest_first(counted["errors"]),
            bucket_ns=counted["bucket_ns"],
            first_ns=total.clock.first_ns,
            rates=dict(found["rates"]),
            depths={at: [level["depth"] for level in line] for at, line in levels.items()},
            ages_s={at: [level["age_s"] for level in line] for at, line in levels.items()},
            latencies=dict(found["latencies"]),
            **{name: found[name] for name in same},
        )
