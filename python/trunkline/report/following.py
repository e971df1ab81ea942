"""Reports on captures that grow."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline._jsonable import encode, plain
from trunkline._locations import location_of
from trunkline._native.capture import existing
from trunkline.capture.described import Run
from trunkline.capture.passed import Passed, missing
from trunkline.capture.reading import Capture, native, parts
from trunkline.capture.reading import open as open_capture
from trunkline.columns import layout_of
from trunkline.errors import CaptureError
from trunkline.report.cdtp_runs import RunCounts, RunReport, Tally
from trunkline.report.making import made
from trunkline.report.model import Counted, Report, Scope, Total
from trunkline.report.payloads import PayloadCounts
from trunkline.report.protocols import Counter, read
from trunkline.report.sections import SECTIONS

if TYPE_CHECKING:
    from trunkline._native.capture import Capture as Part
    from trunkline.columns import Payload

__all__ = ["Following"]

_logger = logging.getLogger("trunkline.capture")

# The capture has its own record of runs.
_SCOPE = Scope(has_runs=False)


class Following:
    """Counts a capture as it grows: each segment once, and the rows of the journal whenever there are more.

    Args:
        capture: The capture directory, or its URL.
        name: The title of the page.
        payload: The layout of payloads, whose fields are reported too.
    """

    def __init__(self, capture: str | os.PathLike[str], name: str, payload: Payload | None = None) -> None:
        layout = layout_of(payload)
        self._payloads = None if layout is None else PayloadCounts(layout)
        self._path = location_of(capture)
        self._name = name
        self._counters: dict[str, Counter] = {}
        # The next segment to count.
        self._next = 0
        self._passed = Passed()
        # The rows of the journal when the page was last written; None before the first page.
        self._unpublished: int | None = None
        self._clock = Total(0, 0, None, None).clock
        self._last_ns: int | None = None

    def page(self, out: Path, refresh_s: float | None) -> Report | None:
        """Writes the page again, which refreshes itself; returns None if nothing was recorded since.

        Args:
            out: The file.
            refresh_s: How often it refreshes itself, in seconds; None for a last page, which does not.

        Raises:
            CaptureError: The capture cannot be read.
            OSError: The file cannot be written.
        """
        opened = open_capture(self._path)
        gone = self._passed.look(opened)
        published = [span for span in native(opened).segments if span[1] >= self._next]
        journal = next((part for part in parts(opened) if not part.segments), None)
        unpublished = journal.info()["messages"] if journal is not None else 0
        if not published and unpublished == self._unpublished and refresh_s is not None:
            return None
        self._unpublished = unpublished
        for first, last in published:
            # A part of a merged segment may be counted already.
            begin = max(first, self._next)
            try:
                self._count(
                    opened, native(Capture(self._path, segments=[(begin, last)])), self._counters, self._payloads
                )
            except CaptureError:
                # Skip a segment that retention deleted meanwhile.
                if existing(self._path, [(begin, last)]):
                    raise
                gone.append((begin, last))
            self._next = last + 1
        if gone:
            _logger.warning("%s", missing(opened.path, gone))
        # Rows of the journal are counted again with their segment.
        latest: dict[str, Counter] = {}
        for name, counter in self._counters.items():
            latest[name] = Counter(name, opened, None, _SCOPE, self._clock)
            counter.copy_to(latest[name])
        payloads = None if self._payloads is None else self._payloads.copy()
        if journal is not None:
            self._count(opened, journal, latest, payloads)
        for counter in latest.values():
            counter.finish()
        counted = {name: counter.counted() for name, counter in latest.items()}
        if "cdtp" in counted:
            counted["cdtp"]["runs"] = _runs(Run(**run) for run in native(opened).runs(as_opened=True)[0])
        total = Total.of(map(_total, counted.values()))
        return made(counted, total, out, self._name, Scope(), refresh_s, payloads)

    def _count(self, opened: Capture, part: Part, counters: dict[str, Counter], payloads: PayloadCounts | None) -> None:
        info = part.info()
        total = Total(info["messages"], 0, info["first_received_at_ns"], info["last_received_at_ns"])
        if self._last_ns is None:
            self._clock = total.clock
        self._last_ns = max(self._last_ns or 0, total.last_ns or 0)
        for name in info["protocols"]:
            if name in SECTIONS and name not in counters:
                counters[name] = Counter(name, opened, None, _SCOPE, self._clock)
        for counter in {*counters.values(), *self._counters.values()}:
            counter.widen(self._last_ns)
        for _, found in read(part, counters):
            for name, rows in found.items():
                counters[name].count(part, rows)
        if payloads is not None:
            payloads.count(opened, None, part)


def _total(counted: Counted) -> Total:
    """The total of a protocol, including segments deleted since."""
    return Total(counted["rows"], counted["bytes"], counted["first_received_at_ns"], counted["last_received_at_ns"])


def _runs(runs: Iterable[Run]) -> RunCounts:
    """The runs in the record of the capture."""
    import pyarrow as pa

    tally = Tally()
    maps = ("config", "metadata")
    rows = [
        {name: getattr(run, name) for name in RunReport.__dataclass_fields__ if name not in (*maps, "others")}
        | {name: None if getattr(run, name) is None else encode(plain(getattr(run, name))) for name in maps}
        for run in runs
    ]
    if rows:
        tally.add(pa.RecordBatch.from_pylist(rows))
    return tally.counts({})
