"""Reports on captures that grow."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline._jsonable import encode, plain
from trunkline._locations import location_of
from trunkline._native.capture import existing
from trunkline.capture.described import Run
from trunkline.capture.reading import Capture, native, parts
from trunkline.capture.reading import open as open_capture
from trunkline.errors import CaptureError
from trunkline.report.cdtp_runs import RunCounts, RunReport, Tally
from trunkline.report.counting import OPTIONS
from trunkline.report.making import made
from trunkline.report.model import Counted, Report, Scope, Total
from trunkline.report.protocols import Counter, read

if TYPE_CHECKING:
    from trunkline._native.capture import Capture as Part

__all__ = ["Following"]


# Of runs a capture has an account of its own, which is there at once.
_SCOPE = Scope(has_runs=False)


class Following:
    """Counts a capture as it grows: each segment once, and what is in none yet whenever there is more of it.

    Args:
        capture: The capture directory, or its URL.
        name: The title of the page.
    """

    def __init__(self, capture: str | os.PathLike[str], name: str) -> None:
        self._path = location_of(capture)
        self._name = name
        self._counters: dict[str, Counter] = {}
        # The segment that is counted next.
        self._next = 0
        # How many rows were in no segment when the page was written last; None before there is one.
        self._unpublished: int | None = None
        self._clock = Total(0, 0, None, None).clock
        self._last_ns: int | None = None

    def page(self, out: Path, refresh_s: float | None) -> Report | None:
        """Writes the page anew, which refreshes itself; None where nothing was recorded since the last time.

        Args:
            out: The file.
            refresh_s: How often it refreshes itself, in seconds; None for a last page, which does not.

        Raises:
            CaptureError: The capture cannot be read.
            OSError: The file cannot be written.
        """
        opened = open_capture(self._path)
        published = [span for span in native(opened).segments if span[1] >= self._next]
        journal = next((part for part in parts(opened) if not part.segments), None)
        unpublished = journal.info()["messages"] if journal is not None else 0
        if not published and unpublished == self._unpublished and refresh_s is not None:
            return None
        self._unpublished = unpublished
        for first, last in published:
            # Some of a merged one may be counted already.
            begin = max(first, self._next)
            try:
                self._count(opened, native(Capture(self._path, segments=[(begin, last)])), self._counters)
            except CaptureError:
                # One that was deleted meanwhile, to make room, is missed by nothing else.
                if existing(self._path, [(begin, last)]):
                    raise
            self._next = last + 1
        # What is only in the journal is counted again with its segment.
        latest: dict[str, Counter] = {}
        for name, counter in self._counters.items():
            latest[name] = Counter(name, opened, None, _SCOPE, self._clock)
            counter.copy_to(latest[name])
        if journal is not None:
            self._count(opened, journal, latest)
        for counter in latest.values():
            counter.finish()
        counted = {name: counter.counted() for name, counter in latest.items()}
        if "cdtp" in counted:
            counted["cdtp"]["runs"] = _runs(opened.runs())
        return made(counted, Total.of(map(_total, counted.values())), out, self._name, Scope(), refresh_s)

    def _count(self, opened: Capture, part: Part, counters: dict[str, Counter]) -> None:
        info = part.info()
        total = Total(info["messages"], 0, info["first_received_at_ns"], info["last_received_at_ns"])
        if self._last_ns is None:
            self._clock = total.clock
        self._last_ns = max(self._last_ns or 0, total.last_ns or 0)
        for name in info["protocols"]:
            if name in OPTIONS and name not in counters:
                counters[name] = Counter(name, opened, None, _SCOPE, self._clock)
        for counter in {*counters.values(), *self._counters.values()}:
            counter.widen(self._last_ns)
        for _, found in read(part, counters):
            for name, rows in found.items():
                counters[name].count(part, rows)


def _total(counted: Counted) -> Total:
    """How much there is of a protocol; segments that are deleted count on."""
    return Total(counted["rows"], counted["bytes"], counted["first_received_at_ns"], counted["last_received_at_ns"])


def _runs(runs: Iterable[Run]) -> RunCounts:
    """The runs of a capture's own account."""
    import pyarrow as pa

    tally = Tally()
    maps = ("config", "metadata")
    rows = [
        {name: getattr(run, name) for name in RunReport.__dataclass_fields__ if name not in maps}
        | {name: None if getattr(run, name) is None else encode(plain(getattr(run, name))) for name in maps}
        for run in runs
    ]
    if rows:
        tally.add(pa.RecordBatch.from_pylist(rows))
    return tally.counts({})
