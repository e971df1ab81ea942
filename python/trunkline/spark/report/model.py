"""What a report is made of: numbers common to all protocols, and a section for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

__all__ = ["BUCKETS", "COLOURS", "NAME", "OTHERS", "Clock", "Report", "Section", "Tile", "Total", "largest_first"]

# How finely time is divided.
BUCKETS = 120

# How many of what is plotted have a colour of their own; the one after these is for all others.
COLOURS = 7

# The index of all together that have none.
OTHERS = -1

# Where names are cut, which come from the network.
NAME = 200


class Tile(NamedTuple):
    """A number at the top of the page; `good` says whether it is what one wants, None that there is no better."""

    title: str
    value: str
    good: bool | None = None


class Clock(NamedTuple):
    """What time is divided into: `BUCKETS` of `bucket_ns` nanoseconds each, from `first_ns` since 1970 on."""

    first_ns: int
    bucket_ns: int


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
    """

    protocol: ClassVar[str]

    @property
    @abstractmethod
    def malformed(self) -> Mapping[str, int]:
        """Messages that do not decode, by kind of error."""

    @property
    @abstractmethod
    def spoken(self) -> bool:
        """Whether there is anything to say."""

    def headline(self) -> Sequence[Tile]:
        """The tiles that come first of all."""
        return ()

    @abstractmethod
    def tiles(self) -> Sequence[Tile]:
        """The other tiles."""

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
    """

    path: Path
    rows: int
    bytes: int
    first_received_at_ns: int | None
    last_received_at_ns: int | None
    sections: Mapping[str, Section]
    volumes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

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
        """The sections of what was spoken; the first one where nothing was."""
        sections = list(self.sections.values())
        return [section for section in sections if section.spoken] or sections[:1]


def largest_first(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by kind, in an order."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
