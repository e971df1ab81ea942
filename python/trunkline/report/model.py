"""The model of a report: numbers common to all protocols, and a section for each."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NotRequired, Self, TypedDict, TypeVar

from trunkline._jsonable import text_of_bytes
from trunkline._text import OWN, amount, counted, facts_table, moment

if TYPE_CHECKING:
    from trunkline.capture.reading import Capture
    from trunkline.capture.selecting import Selection
    from trunkline.report.charts import Chart
    from trunkline.report.payloads import FieldReport
    from trunkline.report.tables import Table

__all__ = [
    "BUCKETS",
    "NAME",
    "Clock",
    "Counted",
    "Report",
    "Scope",
    "Section",
    "Tile",
    "Total",
    "largest_first",
    "to_plain",
]

# The number of time buckets.
BUCKETS = 120

# The criteria that may select a message without its answer.
_CUTS = ("type", "service", "topic", "resource", "peer", "direction", "where")

# The length at which names from the network are cut.
NAME = 200


class Tile(NamedTuple):
    """A number at the top of the page or of a section; `good` is whether the value is good, None if it is neutral."""

    title: str
    value: str
    good: bool | None = None


class Clock(NamedTuple):
    """The time buckets: `BUCKETS` of `bucket_ns` nanoseconds each, from `first_ns` since 1970 on."""

    first_ns: int
    bucket_ns: int


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a capture that a report covers, as far as it affects what can be counted.

    Attributes:
        has_runs: Whether runs are covered from begin to end: a part of a run has no condition.
        has_sequences: Whether each sender's sequence numbers are covered without gaps: else missing ones cannot be counted.
        has_records: Whether single records of messages of CDTP are selected.
        cuts: What of the selection may keep a message and not its answer.
        ordinals: The runs of each sender that are selected, where runs are: their numbers in the capture.
        has_own: Whether one of trunkline's own services or topics is selected by its name: else they are not the user's.
        said: The selection in words; None where everything is selected.
    """

    has_runs: bool = True
    has_sequences: bool = True
    has_records: bool = False
    cuts: frozenset[str] = frozenset()
    ordinals: Mapping[str, Sequence[int]] = field(default_factory=dict)
    has_own: bool = False
    said: str | None = None

    @classmethod
    def of(cls, selection: Selection, capture: Capture | None = None) -> Scope:
        """The scope of a selection of messages of this capture."""
        from trunkline.capture.selecting import of_records, ordinals, said

        has_sequences = selection.type is None and selection.where is None
        return cls(
            has_runs=has_sequences and selection.since_ns is None and selection.until_ns is None,
            has_sequences=has_sequences,
            has_records=of_records(selection) is not None,
            cuts=frozenset(name for name in _CUTS if getattr(selection, name) is not None),
            ordinals=ordinals(capture, selection) if capture and selection.run is not None else {},
            has_own=(selection.service or selection.topic or "").startswith(OWN),
            said=said(selection) or None,
        )


@dataclass(frozen=True, slots=True)
class Total:
    """What was recorded, of all protocols.

    Attributes:
        rows: Rows of the capture.
        bytes: Bytes of all frames.
        first_ns: The first receipt, in nanoseconds since 1970; None without one.
        last_ns: The last one.
    """

    rows: int
    bytes: int
    first_ns: int | None
    last_ns: int | None

    @classmethod
    def of(cls, parts: Iterable[Total]) -> Self:
        """The sum of several parts."""
        found = list(parts)
        first = (part.first_ns for part in found if part.first_ns is not None)
        last = (part.last_ns for part in found if part.last_ns is not None)
        rows, size = sum(part.rows for part in found), sum(part.bytes for part in found)
        return cls(rows, size, min(first, default=None), max(last, default=None))

    @property
    def bucket_ns(self) -> int:
        """The width of a bucket, in nanoseconds."""
        return max(1, -(-((self.last_ns or 0) - (self.first_ns or 0) + 1) // BUCKETS))

    @property
    def clock(self) -> Clock:
        """The time buckets."""
        return Clock(self.first_ns or 0, self.bucket_ns)


class Counted(TypedDict):
    """The counts of a protocol.

    Attributes:
        rows: Messages as they were received.
        bytes: Bytes of all their frames.
        first_received_at_ns: When the first was received, in nanoseconds since 1970; None without one.
        last_received_at_ns: When the last was.
        volumes: The bytes by bucket of time.
        errors: Messages that do not decode, by kind of error.
        bucket_ns: How wide a bucket is, in nanoseconds.
        section: What only this protocol has.
        runs: The runs of CDTP, a `RunCounts`, if they are covered.
    """

    rows: int
    bytes: int
    first_received_at_ns: int | None
    last_received_at_ns: int | None
    volumes: dict[int, int]
    errors: dict[str, int]
    bucket_ns: int
    section: dict[str, Any]
    runs: NotRequired[Any]


class Section(ABC):
    """The section of a report on one protocol.

    Attributes:
        protocol: The protocol.
        title: What people call it.
        options: The options of decoding for the counts.
        has_answers: Whether messages outside a selection may be answers to selected ones.

    ```pycon
    >>> import pathlib, tempfile
    >>> from trunkline import capture, report
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs, page = pathlib.Path(folder, "runs"), pathlib.Path(folder, "runs.html")
    ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
    ...     section = capture.report(runs, page).section(report.CdtpSection)
    >>> section.title, [run.condition for run in section.runs]
    ('CDTP', ['GOOD', 'GOOD', 'GOOD', 'GOOD'])
    >>> [f"{tile.title}: {tile.value}" for tile in section.tiles()]
    ['Records: 1,216', 'Senders: 2', 'Runs: 4', 'Bad runs: 0', 'Missing: 0']
    >>> [table.title for table in (*section.tables(), *section.details())], section.charts()[0].title
    (['Senders', 'Runs'], 'CDTP rate over time')
    >>> section.to_dict()["runs"][0]["condition"]
    'GOOD'

    ```
    """

    protocol: ClassVar[str]
    title: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    has_answers: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of(cls, counted: Counted, total: Total, scope: Scope) -> Self:
        """The section of what was counted."""

    @property
    @abstractmethod
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""

    @property
    @abstractmethod
    def spoken(self) -> bool:
        """Whether there are messages of the protocol."""

    @abstractmethod
    def tiles(self) -> Sequence[Tile]:
        """Its tiles."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """The tables before the plots."""

    @abstractmethod
    def charts(self) -> Sequence[Chart]:
        """The plots."""

    def details(self) -> Sequence[Table]:
        """The tables after the plots."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """What was counted, by the names of the attributes, as dicts, lists, numbers and strings."""
        found: dict[str, Any] = to_plain(self)
        return found


S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What was recorded.

    Attributes:
        path: The page.
        rows: Rows of the capture, of all protocols.
        bytes: Bytes of all their frames.
        first_received_at_ns: When the first was received, in nanoseconds since 1970; None without one.
        last_received_at_ns: When the last was.
        sections: What there is to say of each protocol, by its name, as ``"cdtp"``: a `CdtpSection`, a `DcpSection`,
            a `Mc0Section`, a `MtlSection`, a `CdtSection`.
        volumes: Bytes of all frames by protocol and bucket: the time between the first receipt and the last is divided
            into 120 of them. Empty if there is only CDTP: its section has them by sender.
        messages: Rows by protocol, likewise.
        selected: What was selected, in words; None where all was.
        bucket_ns: What time is divided into, in nanoseconds, from the first receipt on.
        payloads: The fields of payloads; None without a layout. In `to_dict` they are the section ``"payloads"``.
    """

    path: Path
    rows: int
    bytes: int
    first_received_at_ns: int | None
    last_received_at_ns: int | None
    sections: Mapping[str, Section]
    volumes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    selected: str | None = None
    bucket_ns: int = 1
    payloads: Sequence[FieldReport] | None = None

    def __repr__(self) -> str:
        parts = [f"{section.title} ({', '.join(_said(section))})" for section in self.shown]
        return f"<Report {str(self.path)!r}: {'; '.join([counted(self.rows, 'message'), *parts])}>"

    def _repr_html_(self) -> str:
        """For notebooks: a table of what the tiles of the page say."""
        first, last = self.first_received_at_ns, self.last_received_at_ns
        facts = {
            "page": str(self.path),
            "selected": self.selected or "",
            "messages": f"{self.rows:,}",
            "bytes": amount(self.bytes),
            "received (UTC)": "" if first is None or last is None else f"{moment(first)} to {moment(last)}",
            "malformed": f"{sum(self.malformed.values()):,}",
            **{section.title: ", ".join(_said(section)) for section in self.shown},
        }
        return facts_table({name: fact for name, fact in facts.items() if fact})

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages of all protocols that do not decode, by kind of error."""
        return sum((Counter(section.malformed) for section in self.sections.values()), Counter())

    def section(self, kind: type[S]) -> S:
        """The section of this kind, as `CdtpSection`."""
        section = self.sections[kind.protocol]
        assert isinstance(section, kind)
        return section

    def to_dict(self) -> dict[str, Any]:
        """Every number of the page, as dicts, lists, numbers and strings: the attributes by their names, and of `sections`
        those of protocols that were spoken.

        Bytes, as the name of a service, are text where they are printable UTF-8, else ``{"base64": …}``.
        """
        names = (field.name for field in fields(self) if field.name not in {"sections", "payloads"})
        found = {name: to_plain(getattr(self, name)) for name in names}
        found["malformed"] = dict(self.malformed)
        found["sections"] = {section.protocol: section.to_dict() for section in self.shown}
        if self.payloads is not None:
            found["sections"]["payloads"] = to_plain(list(self.payloads))
        return found

    @property
    def shown(self) -> list[Section]:
        """The sections with messages."""
        return [section for section in self.sections.values() if section.spoken]


def _said(section: Section) -> list[str]:
    """What the tiles of a section say."""
    return [f"{tile.title.lower()} {tile.value}" for tile in section.tiles()]


def to_plain(value: Any) -> Any:
    """A value of a report as dicts, lists, numbers and strings."""
    if isinstance(value, bytes):
        return text_of_bytes(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(member) for key, member in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, list | tuple):
        return [to_plain(member) for member in value]
    return value


def largest_first(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by kind, the largest first."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
