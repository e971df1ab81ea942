"""Reports on captures, counted in this process."""

from __future__ import annotations

import functools
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from trunkline._arguments import need_callable
from trunkline._extras import needs
from trunkline.capture.decoding import read_batches
from trunkline.capture.folders import Folder, opened
from trunkline.capture.reading import Capture, native, parts
from trunkline.capture.selecting import Selection, need_selection
from trunkline.columns import layout_of
from trunkline.errors import LocalProtocolError
from trunkline.report.model import Clock, Report, Scope, Total
from trunkline.report.payloads import PayloadCounts
from trunkline.report.protocols import Counter, read, within
from trunkline.report.selecting import deciding, selected, spoken

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline._native.capture import Capture as Part
    from trunkline.columns import Layout, Payload

__all__ = ["now_of", "report", "total_of"]

# The most batches of a protocol in its queue.
_AHEAD = 2

# How often a waiting thread checks whether to end.
_LOOK_S = 0.05


@needs("capture", "pyarrow")
def report(
    capture: str | os.PathLike[str],
    out_html: str | os.PathLike[str],
    *,
    name: str | None = None,
    selection: Selection | None = None,
    payload: Payload | None = None,
    on_progress: Callable[[int], object] = lambda _rows: None,
) -> Report:
    """Writes the same page as `trunkline.spark.report`, without Spark and Java.

    It is counted in this process: each message is read once, and the memory does not depend on the number of messages.

    Args:
        capture: A capture directory or a folder of captures, or its URL.
        out_html: The file to write. It replaces an older one once it is complete.
        name: The title of the page; the capture's path if None.
        selection: Which messages to report; all if None.
        payload: The layout of payloads, whose fields are reported too: as `trunkline.columns.CdtpOptions.payload`.
        on_progress: Called with the number of messages read so far.

    Returns:
        The content of the page.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
        LocalProtocolError: The extra ``report`` is not installed, no run is selected, or one is of a folder of captures.
        OSError: The file cannot be written.

    ```pycon
    >>> import pathlib, tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs, page = pathlib.Path(folder, "runs"), pathlib.Path(folder, "runs.html")
    ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
    ...     report = capture.report(runs, page)
    ...     report.rows, page.exists()
    (12, True)

    ```
    """
    from trunkline.report.making import checked, made

    need_selection(selection)
    need_callable("on_progress", on_progress)
    layout = layout_of(payload)
    out, found = checked(out_html), opened(capture)
    captures = deciding([found] if isinstance(found, Capture) else [*found], selection, layout)
    if selection is not None and selection.run is not None and isinstance(found, Folder):
        message = "a run is of one capture: name the capture"
        raise LocalProtocolError(message)
    scope = Scope() if selection is None else Scope.of(selection, captures[0])
    total = Total.of(total_of(each, selection, layout) for each in captures)
    counters: dict[str, Counter] = {}
    payloads = None if layout is None else PayloadCounts(layout)
    rows = 0
    for each in captures:
        counting = _Counting(each, selection, scope, total.clock, layout)
        rows += counting.run(functools.partial(_further, on_progress, rows))
        for protocol, counter in counting.counters.items():
            if protocol in counters:
                counters[protocol].merge(counter.state())
            else:
                counters[protocol] = counter
        if payloads is not None:
            payloads.count(each, selection)
    counted = {protocol: counter.counted() for protocol, counter in counters.items()}
    counted = {protocol: counts for protocol, counts in counted.items() if counts["rows"]}
    return made(counted, total, out, name or str(found.path), scope, payloads=payloads)


def _further(on_progress: Callable[[int], object], before: int, rows: int) -> None:
    """Reports the progress of a capture that is read after others."""
    on_progress(before + rows)


def now_of(capture: Capture) -> int | None:
    """Now, in nanoseconds since 1970, if the recorder of a capture may go on."""
    return None if native(capture).is_over() else time.time_ns()


def total_of(capture: Capture, selection: Selection | None, layout: Layout | None = None) -> Total:
    """The total, and its time range."""
    if selection is None:
        info = capture.info()
        return Total(info.messages, info.bytes, info.first_received_at_ns, info.last_received_at_ns)
    from pyarrow import compute

    found = []
    for protocol in spoken(capture, selection, layout):
        wanted = selected(capture, selection, protocol, layout, columns=("seq",))
        around = within(selection, [protocol], capture)
        columns = ["seq", "received_at_ns", "n_bytes"]
        readers = (part.reader(columns, around) for part in parts(capture))
        for batch in itertools.chain.from_iterable(map(read_batches, readers)):
            chosen = batch.filter(wanted.mask(batch))
            times = compute.min_max(chosen["received_at_ns"]).as_py()
            size = compute.sum(chosen["n_bytes"]).as_py() or 0
            found.append(Total(chosen.num_rows, size, times["min"], times["max"]))
    return Total.of(found)


class _Counting:
    """Threads that count a capture: one reads, and one for each protocol decodes and counts.

    Attributes:
        counters: The counts of each protocol.
    """

    def __init__(
        self, capture: Capture, selection: Selection | None, scope: Scope, clock: Clock, layout: Layout | None
    ) -> None:
        self._parts = parts(capture)
        names = spoken(capture, selection, layout)
        now_ns = now_of(capture)
        self.counters = {name: Counter(name, capture, selection, scope, clock, now_ns, layout) for name in names}
        self._queues: dict[str, queue.Queue[tuple[Part, pa.RecordBatch] | None]] = {
            name: queue.Queue(_AHEAD) for name in names
        }
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self._rows = 0
        self._within = within(selection, names, capture)

    def run(self, on_progress: Callable[[int], object]) -> int:
        """Counts all rows, in threads that end when this returns or raises, and returns how many were read."""
        work = [self._read, *(lambda name=name: self._count(name) for name in self.counters)]
        threads = [threading.Thread(target=self._guarded, args=(each,), daemon=True) for each in work]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(_LOOK_S)
                    on_progress(self._rows)
        finally:
            self._is_over.set()
        if self._failures:
            raise self._failures[0]
        on_progress(self._rows)
        return self._rows

    def _guarded(self, work: Callable[[], None]) -> None:
        """Runs the work of a thread, and records its exception."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread of the caller
            self._failures.append(error)
            self._is_over.set()

    def _read(self) -> None:
        """Reads batches of rows, and queues them by protocol."""
        for part in self._parts:
            for count, found in read(part, self.counters, self._within):
                for name, rows in found.items():
                    self._put(name, (part, rows))
                if self._is_over.is_set():
                    return
                self._rows += count
        for name in self.counters:
            self._put(name, None)

    def _put(self, name: str, what: tuple[Part, pa.RecordBatch] | None) -> None:
        while not self._is_over.is_set():
            with suppress(queue.Full):
                self._queues[name].put(what, timeout=_LOOK_S)
                return

    def _count(self, name: str) -> None:
        """Counts the queued rows of a protocol."""
        protocol = self.counters[name]
        while not self._is_over.is_set():
            try:
                what = self._queues[name].get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if what is None:
                protocol.finish()
                return
            protocol.count(*what)
