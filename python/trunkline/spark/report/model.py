"""What a report is made of: numbers common to all protocols, and a section for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from trunkline._text import OWN
from trunkline.spark._engine import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from trunkline.capture import Capture, Selection

__all__ = [
    "BUCKETS",
    "COLOURS",
    "NAME",
    "OTHERS",
    "Clock",
    "Report",
    "Scope",
    "Section",
    "Tile",
    "Total",
    "largest_first",
]

# How finely time is divided.
BUCKETS = 120

# How many of what is plotted have a colour of their own; the one after these is for all others.
COLOURS = 7

# What of a selection may keep a message and not its answer.
_CUTS = ("type", "service", "topic", "resource", "peer", "direction", "where")

# The index of all together that have none.
OTHERS = -1

# Where names are cut, which come from the network.
NAME = 200


class Tile(NamedTuple):
    """A number at the top of the page, or of a protocol's part of it; `good` says whether it is what one wants, None that there is no better."""

    title: str
    value: str
    good: bool | None = None


class Clock(NamedTuple):
    """What time is divided into: `BUCKETS` of `bucket_ns` nanoseconds each, from `first_ns` since 1970 on."""

    first_ns: int
    bucket_ns: int


@dataclass(frozen=True, slots=True)
class Scope:
    """Which part of a capture a report covers, as far as it bears on what can be counted.

    Attributes:
        keep: Keeps the messages of CDTP that are selected, of a table with the columns `seq` and `record`; None where all
            messages of each row are.
        has_runs: Whether runs are covered from begin to end: of parts of runs no condition can be told.
        has_sequences: Whether each sender's sequence numbers are covered without holes: else what is missing cannot be told.
        cuts: What of the selection may keep a message and not its answer.
        ordinals: The runs of each sender that are selected, where runs are: their numbers in the capture.
        has_own: Whether one of trunkline's own services or topics is selected by its name: else they are not the user's.
        said: The selection in words; None where everything is selected.
        whole: The rows to look for answers in where there may be some that are not selected; None where there are none.
    """

    keep: Callable[[DataFrame], DataFrame] | None = None
    has_runs: bool = True
    has_sequences: bool = True
    cuts: frozenset[str] = frozenset()
    ordinals: Mapping[str, Sequence[int]] = field(default_factory=dict)
    has_own: bool = False
    said: str | None = None
    whole: DataFrame | None = None

    @classmethod
    def of(
        cls,
        selection: Selection,
        keep: Callable[[DataFrame], DataFrame] | None,
        rows: DataFrame | None = None,
        capture: Capture | None = None,
    ) -> Scope:
        """That of a selection of these rows of this capture."""
        from trunkline.capture import selecting

        has_sequences = selection.type is None and selection.where is None
        has_runs = has_sequences and selection.since_ns is None and selection.until_ns is None
        cuts = frozenset(name for name in _CUTS if getattr(selection, name) is not None)
        whole = _within(rows, selection) if cuts and rows is not None else None
        ordinals = selecting.ordinals(capture, selection) if capture and selection.run is not None else {}
        has_own = (selection.service or selection.topic or "").startswith(OWN)
        return cls(keep, has_runs, has_sequences, cuts, ordinals, has_own, selecting.said(selection) or None, whole)

    def around(self, rows: DataFrame, protocol: str) -> DataFrame:
        """The rows of a protocol that are selected, with those that may be their answers, or what they answer."""
        return (rows if self.whole is None else self.whole).where(F.col("protocol") == protocol)

    def selected(self, found: DataFrame, rows: DataFrame, seq: str = "seq") -> DataFrame:
        """Of what was found in `around`, what is of the rows that are selected, whose numbers are in the column `seq`."""
        return found if self.whole is None else found.join(rows.select(F.col("seq").alias(seq)), [seq], "left_semi")


def _within(rows: DataFrame, selection: Selection) -> DataFrame:
    """The rows of the time that is selected."""
    if selection.since_ns is not None:
        rows = rows.where(F.col("received_at_ns") >= selection.since_ns)
    return rows if selection.until_ns is None else rows.where(F.col("received_at_ns") < selection.until_ns)


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

    @property
    def bucket_ns(self) -> int:
        """What time is divided into."""
        return max(1, -(-((self.last_ns or 0) - (self.first_ns or 0) + 1) // BUCKETS))

    @property
    def clock(self) -> Clock:
        """The same, with when it begins."""
        return Clock(self.first_ns or 0, self.bucket_ns)


class Section(ABC):
    """What a report says of one protocol.

    Attributes:
        protocol: The protocol.
        title: What people call it.
    """

    protocol: ClassVar[str]
    title: ClassVar[str]

    @property
    @abstractmethod
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""

    @property
    @abstractmethod
    def spoken(self) -> bool:
        """Whether there is anything to say."""

    @abstractmethod
    def tiles(self) -> Sequence[Tile]:
        """Its tiles."""

    @abstractmethod
    def tables(self) -> str:
        """The tables before the plots, as HTML."""

    @abstractmethod
    def figures(self) -> Sequence[str]:
        """The plots, as HTML."""

    def details(self) -> str:
        """The tables after the plots, as HTML."""
        return ""


S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
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
            into 120 of them. Empty where nothing but CDTP was spoken, whose section has them by sender.
        messages: Rows by protocol, likewise.
        selected: What was selected, in words; None where all was.
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

    @property
    def malformed(self) -> Mapping[str, int]:
        """Messages of all protocols that do not decode, by kind of error."""
        return sum((Counter(section.malformed) for section in self.sections.values()), Counter())

    def section(self, kind: type[S]) -> S:
        """The section of this kind, as `CdtpSection`."""
        section = self.sections[kind.protocol]
        assert isinstance(section, kind)
        return section

    @property
    def shown(self) -> list[Section]:
        """The sections of what was spoken."""
        return [section for section in self.sections.values() if section.spoken]


def largest_first(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by kind, in an order."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
