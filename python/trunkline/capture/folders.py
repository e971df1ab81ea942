"""Folders of captures, read as one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trunkline._arguments import need_path, need_text
from trunkline._locations import Location, location_of
from trunkline._native import capture as _native
from trunkline._native.analysis import Fold
from trunkline.capture.described import CaptureInfo, Run
from trunkline.capture.reading import Capture
from trunkline.capture.reading import open as open_capture
from trunkline.capture.selecting import Selection, need_selection, ordinals
from trunkline.capture.stores import folders, is_folder, is_readable
from trunkline.columns import names_of
from trunkline.errors import CaptureError
from trunkline.options import DEFAULTS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Folder",
    "Readable",
    "below",
    "has_captures",
    "is_capture",
    "is_folder_of_captures",
    "open_folder",
    "opened",
]


class Folder:
    """The captures in a folder, at any depth, as one: their messages capture by capture, in the order of their paths.

    `open_folder` makes it. Messages that belong together are looked for in each capture by itself. A selection of a run is of
    the captures that have it.

    Attributes:
        path: The folder, or its URL.
        let_go: As of `Capture`, of all captures in the latest `runs`.
        unfollowed: Likewise.

    ```pycon
    >>> import pathlib, tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     for release in ("cdtp1-release-0.5.1", "cdtp2-release-1.0.2"):
    ...         imported = capture.import_(DATA / f"{release}.jsonl.gz", pathlib.Path(runs, release))
    ...     folder = capture.open_folder(runs)
    ...     [each.info().messages for each in folder], folder.info().messages
    ...     folder.decode("cdtp", columns=["sequence"]).read_all().num_rows
    ...     len(folder.runs()), folder.gaps().read_all().num_rows
    ([2124, 12], 2136)
    3340
    (13, 0)

    ```
    """

    path: Location
    let_go: int
    unfollowed: int

    def __init__(self, path: Location, locations: list[Location], max_message_bytes: int) -> None:
        self.path = path
        self.let_go = 0
        self.unfollowed = 0
        self._locations = locations
        self._max_message_bytes = max_message_bytes

    def __repr__(self) -> str:
        return f"Folder({os.fspath(self.path)!r}, {len(self)} captures)"

    def __len__(self) -> int:
        """The number of its captures."""
        return len(self._locations)

    def __iter__(self) -> Iterator[Capture]:
        """Opens its captures, one after the other."""
        for location in self._locations:
            yield open_capture(location, max_message_bytes=self._max_message_bytes)

    def info(self) -> CaptureInfo:
        """What its captures contain together; it has no `capture_id`."""
        found = [each.info() for each in self]
        first = (info.first_received_at_ns for info in found if info.first_received_at_ns is not None)
        last = (info.last_received_at_ns for info in found if info.last_received_at_ns is not None)
        counts: dict[str, Counter[str]] = {name: Counter() for name in ("protocols", "errors", "directions")}
        for info in found:
            for name, counter in counts.items():
                counter.update(getattr(info, name))
        return CaptureInfo(
            None,
            sum(info.segments for info in found),
            sum(info.messages for info in found),
            sum(info.bytes for info in found),
            min(first, default=None),
            max(last, default=None),
            **counts,
        )

    def runs(self) -> list[Run]:
        """The runs of all senders of all captures, as `Capture.runs` has them."""
        self.let_go = self.unfollowed = 0
        found: list[Run] = []
        for each in self:
            found += each.runs()
            self.let_go += each.let_go
            self.unfollowed += each.unfollowed
        return found

    def decode(
        self, protocol: str = "cdtp", *, selection: Selection | None = None, **options: Any
    ) -> pa.RecordBatchReader:
        """The messages as a stream of record batches.

        Args:
            protocol: As for `Capture.decode`.
            selection: Which messages; all of that protocol if None.
            **options: As for `Capture.decode`.

        Raises:
            CaptureError: A capture cannot be read.
            LocalProtocolError: As by `Capture.decode`; or no capture has the selected run.
        """
        need_text("protocol", protocol)
        return self._chained("decode", protocol, selection, protocol=protocol, **options)

    def gaps(self, selection: Selection | None = None) -> pa.RecordBatchReader:
        """The messages of CDTP before which sequence numbers were skipped, as `Capture.gaps` has them."""
        return self._folded("gaps", selection)

    def requests(self, selection: Selection | None = None, *, compat_dagbox: bool = False) -> pa.RecordBatchReader:
        """The requests of DCP, as `Capture.requests` has them.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture, dcp
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     for day in ("monday", "tuesday"):
        ...         with dcp.Broker(bind="tcp://127.0.0.1:*", capture=f"{runs}/{day}") as broker:
        ...             with dcp.Client(connect=broker.endpoints) as client:
        ...                 reply = client.request(b"trunkline.status", b"", timeout_s=10)
        ...     capture.open_folder(runs).requests().read_all().num_rows
        2

        ```
        """
        return self._folded("requests", selection, compat_dagbox=compat_dagbox)

    def topics(self, window_s: float = 60.0, selection: Selection | None = None) -> pa.RecordBatchReader:
        """The traffic of mc0 topics, as `Capture.topics` has it.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture, mc0
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     for day in ("monday", "tuesday"):
        ...         with mc0.Middleware(bind="tcp://127.0.0.1:*", capture=f"{runs}/{day}") as bus:
        ...             with mc0.Connector(connect=bus.endpoints) as connector:
        ...                 connector.put(f"runs.{day}", b"begins", confirm=True, timeout_s=10)
        ...     capture.open_folder(runs).topics(window_s=3600).read_all()["topic"].to_pylist()
        ['runs.monday', 'runs.tuesday']

        ```
        """
        return self._folded("topics", selection, window_s=window_s)

    def contents(self, selection: Selection | None = None) -> pa.RecordBatchReader:
        """The MTL contents, as `Capture.contents` has them.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture, mtl
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     for name in ("jobs", "logs"):
        ...         location = f"{runs}/{name}"
        ...         with mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=name, capture=location) as server:
        ...             with mtl.Client(connect=server.endpoints) as client, client.writer(name) as writer:
        ...                 writer.send(b"first")
        ...     capture.open_folder(runs).contents().read_all()["resource"].to_pylist()
        ['jobs', 'logs']

        ```
        """
        return self._folded("contents", selection)

    def rollout(
        self, selection: Selection | None = None, *, codec: Literal["json", "avro"] = "json"
    ) -> pa.RecordBatchReader:
        """The progress of configurations of CDT, as `Capture.rollout` has it.

        ```pycon
        >>> import tempfile
        >>> from trunkline import capture, cdt
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     for site in ("north", "south"):
        ...         with cdt.Target("cdp", servers=f"memory://{site}", capture=f"{runs}/{site}") as target:
        ...             config_id = target.put("app-1", f"{site}-7", b"{}")
        ...     capture.open_folder(runs).rollout().read_all()["endpoint_id"].to_pylist()
        ['north-7', 'south-7']

        ```
        """
        return self._folded("rollout", selection, codec=codec)

    def _folded(self, name: str, selection: Selection | None, **options: Any) -> pa.RecordBatchReader:
        return self._chained(name, Fold(name).protocol, selection, **options)

    def _chained(
        self, method: str, protocol: str, selection: Selection | None, /, **options: Any
    ) -> pa.RecordBatchReader:
        """What a method of each capture gives, one after the other."""
        need_selection(selection)
        captures = self._having(protocol, selection)
        first = getattr(next(captures), method)(selection=selection, **options)

        def batches() -> Iterator[pa.RecordBatch]:
            yield from first
            for each in captures:
                yield from getattr(each, method)(selection=selection, **options)

        return type(first).from_batches(first.schema, batches())

    def _having(self, protocol: str, selection: Selection | None) -> Iterator[Capture]:
        """The captures that have messages of a protocol, and the selected run; the first one where none has."""
        has_any = False
        for each in self:
            is_spoken = not each.info().protocols.keys().isdisjoint(names_of(protocol))
            if is_spoken and (selection is None or selection.run is None or ordinals(each, selection)):
                has_any = True
                yield each
        if not has_any:
            yield next(iter(self))


# What functions read: a directory, a folder of captures, or either open.
Readable = str | os.PathLike[str] | Capture | Folder


def open_folder(path: str | os.PathLike[str], *, max_message_bytes: int = DEFAULTS["max_message_bytes"]) -> Folder:
    """Opens the captures in a folder, at any depth, to read them as one.

    Args:
        path: The folder, or its URL.
        max_message_bytes: As for `open`.

    Raises:
        CaptureError: There is no folder, there is no capture in it, or it is one itself.

    ```pycon
    >>> import pathlib, tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", pathlib.Path(runs, "lab", "run7"))
    ...     capture.open_folder(runs).decode("cdtp", columns=["sequence"]).read_all().num_rows
    1216

    ```
    """
    need_path("path", path, may_be_url=True)
    location = location_of(path)
    if not is_folder(location) or is_capture(location) or not (locations := sorted(below(location), key=str)):
        what = "is a capture: open it with capture.open()" if is_capture(location) else "is no folder of captures"
        message = f"{location}: {what}"
        raise CaptureError(message)
    return Folder(location, locations, max_message_bytes)


def opened(path: Readable, *, max_message_bytes: int = DEFAULTS["max_message_bytes"]) -> Capture | Folder:
    """A capture or a folder of captures, which may be open already."""
    if isinstance(path, Capture | Folder):
        return path
    need_path("path", path, may_be_url=True)
    if is_folder_of_captures(path):
        return open_folder(path, max_message_bytes=max_message_bytes)
    return open_capture(path, max_message_bytes=max_message_bytes)


def is_folder_of_captures(path: str | os.PathLike[str]) -> bool:
    """Whether there are captures in a folder, at any depth, which is none itself.

    Raises:
        CaptureError: A store cannot be asked.
    """
    location = location_of(path)
    return is_readable(location) and is_folder(location) and not is_capture(location) and any(below(location))


def has_captures(folder: Location) -> bool:
    """Whether a folder that is no capture has captures right in it."""
    if not isinstance(folder, Path) or not is_folder(folder) or is_capture(folder):
        return False
    return any(map(is_capture, _inside(folder)))


def below(folder: Location) -> Iterator[Location]:
    """The captures below a folder; does not look inside captures."""
    for location in _inside(folder):
        if is_capture(location):
            yield location
        else:
            yield from below(location)


def _inside(folder: Location) -> Iterator[Location]:
    """The folders right in a folder, but for the internal ones of captures."""
    return (folder / name for name in folders(folder) if not name.startswith((".", "_")))


def is_capture(location: Location) -> bool:
    """Whether there is a capture."""
    # Without listing its segments, as there may be a million; of a store, its manifest is one request.
    return (isinstance(location, Path) and is_folder(location / "_capture")) or _native.is_capture(location)
