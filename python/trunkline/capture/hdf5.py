"""A run as an HDF5 file, in the layout of Constellation's H5DataWriter with concurrent readers.

A group for each sender holds `BOR`, `EOR`, and of all data messages `data`, the concatenated payloads, and `meta`, their tags as
JSON; `data_idx` and `meta_idx` hold the end of each. As in Constellation, the tags of the BOR and the configuration are
attributes, the tags of the EOR and the metadata are JSON padded with zeros, and the metadata includes the conditions that the
receiver found. Of two entries with the same name, the second is `name#2`.

In addition there are `sequence` and `received_at_ns` beside the data, attributes in `EOR`, and values that Constellation's
writer fails on, as lists of text.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trunkline import _native
from trunkline._conditions import GOOD
from trunkline._extras import needs
from trunkline._frames import of_row
from trunkline._locations import whole_or_none
from trunkline._text import as_text, counted
from trunkline.capture import reading
from trunkline.capture.selecting import Selection
from trunkline.errors import DecodeError, LocalProtocolError
from trunkline.msgpack import Timestamp

if TYPE_CHECKING:
    import h5py

    from trunkline.capture.described import Run

__all__ = ["write"]

# The group of the writer: the type and the name of a satellite.
_WRITER = "H5DataWriter.trunkline"

# The size of a chunk, and of the buffer in memory.
_CHUNK_BYTES = 32_000
_HELD_BYTES = 16 << 20

# How many numbers an index grows by. Constellation's reader finds its end by a zero after the last one.
_STEP = 100

# The least room for the JSON of an EOR.
_EOR_BYTES = 1000

# Of a run without an EOR.
_ABORTED = ("ABORTED", 8)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_logger = logging.getLogger(__name__)


@needs("hdf5", "h5py", "numpy")
def write(
    path: reading.Readable,
    out: str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    on_progress: Callable[[int], object] | None = None,
) -> int:
    """Writes a run of CDTP, of all senders or of those that are selected.

    Args:
        path: The capture directory, or a capture that is open.
        out: The file to write, which is replaced.
        selection: Which messages to write; all if None. At most one run of each sender may be selected.
        on_progress: Called from time to time with the number of messages written so far.

    Returns:
        The number of messages written.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
        LocalProtocolError: The extra ``hdf5`` is not installed, or a sender has several runs.
        OSError: The file cannot be written.
    """
    import h5py

    capture = reading.opened(path)
    rows = capture.chosen(dataclasses.replace(selection or Selection(), protocol="cdtp"))
    messages = bad = 0
    with h5py.File(out, "w", libver="v110") as file, whole_or_none(Path(out)), _Run(file, capture.runs()) as run:
        for row, chosen in rows:
            try:
                decoded = _native.decode("cdtp", of_row(row), row["topic"])
                assert decoded is not None
                found = [message for at, message in enumerate(decoded) if chosen is None or at in chosen]
                run.add(row, found)
            except DecodeError:
                bad += 1
                continue
            messages += len(found)
            if on_progress is not None:
                on_progress(messages)
    if bad:
        _logger.warning("%s: left out %s that cannot be decoded", capture.path, counted(bad, "message"))
    return messages


class _Run:
    """Writes a run."""

    def __init__(self, file: h5py.File, runs: Iterable[Run]) -> None:
        self._file = file
        self._runs = {run.bor_seq: run for run in runs}
        self._senders: dict[str, _Sender] = {}
        self._held = 0
        about = {"constellation_version": f"trunkline {_native.__version__}", "swmr_mode": True}
        _describe(file.create_group(_WRITER), about | {"date_utc": datetime.now(UTC).isoformat()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
            for sender in self._senders.values():
                sender.finish()

    def add(self, row: Mapping[str, Any], messages: Sequence[Any]) -> None:
        """Adds the messages of a row, which have one sender and one type."""
        name, kind = messages[0].sender, messages[0].type
        if kind == "BOR" and name in self._senders:
            message = f"a file holds one run, and {name!r} has several: choose one (capture runs lists them)"
            raise LocalProtocolError(message)
        if name not in self._senders:
            self._senders[name] = _Sender(self._file.require_group(_name(name)))
        sender = self._senders[name]
        if kind == "BOR":
            sender.begin(messages, self._runs.get(row["seq"]))
            return
        if kind == "EOR":
            sender.end(messages)
            return
        for each in messages:
            self._held += sender.add(each, row["received_at_ns"])
        if self._held >= _HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        for sender in self._senders.values():
            sender.flush()
        self._held = 0


class _Sender:
    """The group of a sender, and its buffered data."""

    def __init__(self, group: h5py.Group) -> None:
        self._group = group
        self._bytes = {name: _Growing(group, name, "u1", kind) for name, kind in _TEXTS.items()}
        self._ends = {name: _Growing(group, f"{name}_idx", "u8", "INDEX") for name in _TEXTS}
        self._numbers = {name: _Growing(group, name, "i8") for name in ("sequence", "received_at_ns")}
        self._run: Run | None = None
        self._eor: tuple[dict[str, Any], dict[str, Any]] | None = None

    def add(self, message: Any, received_at_ns: int) -> int:
        """Adds a data message, and returns its bytes."""
        frames = message.payload
        tags = message.tags
        if "block_lengths" in tags:
            free = _free("block_lengths", tags)
            tags[free] = tags.pop("block_lengths")
        meta = _json(tags | {"block_lengths": [len(frame) for frame in frames]})
        size = 0
        for name, parts in (("data", frames), ("meta", [meta])):
            self._ends[name].values.append(self._bytes[name].extend(parts))
            size += sum(map(len, parts))
        # Header S has no number, and a number may exceed HDF5's signed integers.
        sequence = -1 if message.sequence is None else min(message.sequence, (1 << 63) - 1)
        self._numbers["sequence"].values.append(sequence)
        self._numbers["received_at_ns"].values.append(received_at_ns)
        return size + 4 * 8

    def begin(self, messages: Sequence[Any], run: Run | None) -> None:
        """Writes a BOR; `run` is the record of its run, if known."""
        self._run = run
        group = self._group.create_group("BOR")
        for name, values in zip(("user_tags", "configuration"), _tags_and_content(messages), strict=True):
            _describe(group.create_group(name), values)

    def end(self, messages: Sequence[Any]) -> None:
        """Keeps an EOR; the first one if there are several."""
        self._eor = self._eor or _tags_and_content(messages)

    def flush(self) -> None:
        """Writes buffered data."""
        for column in (*self._bytes.values(), *self._ends.values(), *self._numbers.values()):
            column.flush()

    def finish(self) -> None:
        """Ends the indices as Constellation's reader expects, and writes the EOR, or a substitute for a missing one."""
        for column in self._ends.values():
            column.pad()
        # A file ends here, so what was in progress has no end in it.
        condition, code = (GOOD, 0) if self._run is None else (self._run.condition, self._run.condition_code)
        if code is None:
            condition, code = _ABORTED
        is_good = not code
        if self._eor is None and is_good:
            return
        tags, metadata = self._eor or ({}, {})
        if not is_good:
            metadata |= {"condition_code": code, "condition": condition}
        group = self._group.create_group("EOR")
        for name, values in (("user_tags", tags), ("run_metadata", metadata)):
            text = _json(values)
            size = max(len(text), _EOR_BYTES)
            dataset = group.create_dataset(name, (size,), maxshape=(None,), dtype="u1", chunks=(_EOR_BYTES,))
            dataset[: len(text)] = list(text)
            _describe(dataset, values)


# The datasets of bytes, and Constellation's description of each.
_TEXTS = {"data": "DETECTOR_DATA", "meta": "META_DATA"}


class _Growing:
    """A dataset that grows, a chunk at a time."""

    def __init__(self, group: h5py.Group, name: str, kind: str, called: str | None = None) -> None:
        chunk = _CHUNK_BYTES // int(kind[1:])
        self._dataset = group.create_dataset(name, (0,), maxshape=(None,), dtype=kind, chunks=(chunk,))
        if called is not None:
            self._dataset.attrs["CLASS"] = called
        self.values: Any = bytearray() if kind == "u1" else []
        self._written = 0

    def extend(self, parts: Sequence[bytes]) -> int:
        """Buffers bytes, and returns their end offset."""
        for part in parts:
            self.values += part
        return self._written + len(self.values)

    def flush(self) -> None:
        """Writes the buffer."""
        import numpy as np

        kind = self._dataset.dtype
        new = np.frombuffer(self.values, kind) if isinstance(self.values, bytearray) else np.array(self.values, kind)
        self._dataset.resize(self._written + len(new), axis=0)
        self._dataset[self._written :] = new
        self._written += len(new)
        self.values = type(self.values)()

    def pad(self) -> None:
        """Appends zeros."""
        self._dataset.resize((self._written // _STEP + 1) * _STEP, axis=0)


def _tags_and_content(messages: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tags of a BOR or EOR, and its configuration or metadata."""
    tags: dict[str, Any] = {}
    content: dict[str, Any] = {}
    for message in messages:
        found = message.config if message.type == "BOR" else message.metadata
        content |= found or {}
        # The tags of the second record of CDTP2 hold only the configuration or metadata.
        tags |= message.tags if found is None or message.variant != "2" else {}
    return tags, content


def _name(sender: str) -> str:
    """The name of a sender's group; a slash would begin a subgroup."""
    escaped = sender.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    return escaped if escaped.strip(".") else escaped.replace(".", "%2E") or "%"


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), default=_text).encode()


def _text(value: Any) -> str:
    """Values that JSON cannot hold, as text; timestamps as Constellation writes them, to the microsecond."""
    if isinstance(value, Timestamp):
        with suppress(OverflowError):
            return str(_EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanoseconds // 1000))
    return as_text(value)


def _free(name: str, taken: Container[str]) -> str:
    """The first free name: `gain`, `gain#2`, `gain#3`."""
    numbered = itertools.chain([name], (f"{name}#{number}" for number in itertools.count(2)))
    return next(free for free in numbered if free not in taken)


def _describe(where: h5py.Group | h5py.Dataset, values: Mapping[str, Any], prefix: str = "") -> None:
    """Writes a map as attributes, a nested one as `outer.inner`, each under the first free name."""
    for key, value in values.items():
        name = f"{prefix}{key}".replace("\0", "%00") or "%"
        if isinstance(value, dict):
            _describe(where, value, f"{name}.")
            continue
        name = _free(name, where.attrs)
        try:
            where.attrs[name] = _attribute(value)
        except (TypeError, ValueError, OverflowError):
            # HDF5 has no type for it.
            where.attrs[name] = json.dumps(value, default=_text)


def _attribute(value: Any) -> Any:
    """A value as HDF5 has it: numbers and text, and lists of either."""
    import h5py
    import numpy as np

    if value is None:
        return "None"
    if isinstance(value, list):
        is_text = bool(value) and all(isinstance(each, str) for each in value)
        found = np.array(value, h5py.string_dtype() if is_text else None)
        # Refuse integers that no common type holds: numpy would round them.
        each_as_it_is = list(np.array(value, object).flat)
        is_rounded = found.dtype.kind == "f" and any(
            isinstance(each, int) and float(each) != each for each in each_as_it_is
        )
        # Refuse booleans mixed with numbers.
        is_mixed = found.dtype.kind != "b" and any(isinstance(each, bool) for each in each_as_it_is)
        if is_rounded or is_mixed or (not is_text and found.dtype.kind not in "biuf"):
            raise TypeError
        return found
    if isinstance(value, bytes) and b"\0" in value:
        return np.void(value)
    return _text(value) if isinstance(value, Timestamp) else value
