"""Captures on disk, as Python's objects."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self, TypeAlias, final

import pyarrow as pa

from trunkline._frames import Bytes

__all__ = [
    "Capture",
    "Folder",
    "FolderFile",
    "Import",
    "MessageIterator",
    "NewFile",
    "RowIterator",
    "Stager",
    "Writer",
    "compact",
    "existing",
    "groups",
    "is_capture",
    "mark_variants",
    "need_unlocked",
    "position",
    "publish",
    "published",
    "put_back",
    "read_file",
    "recover",
    "replace",
    "schema",
    "segments",
    "sizes",
    "sums",
    "verify",
]

# A staged file: its name, its rows, the bytes of their frames, its bytes and their CRC, and the captures and numbers of its
# first and its last row.
_Staged: TypeAlias = tuple[str, int, int, int, int, tuple[str, int], tuple[str, int]]

@final
class Capture:
    """A capture as it was when it was opened, or some of its published segments."""

    def __new__(
        cls,
        place: str | os.PathLike[str],
        max_message_bytes: int,
        segments: Sequence[tuple[int, int]] | None = None,
        sizes: Sequence[int] | None = None,
        within: tuple[int, int] | None = None,
    ) -> Self: ...
    @property
    def segments(self) -> list[tuple[int, int]]:
        """The numbers of the segments published, oldest first: the first and the last of each file."""

    @property
    def gone(self) -> list[tuple[int, int]]:
        """Those that were gone when they were to be read, if their sizes are known: else that is an error."""

    @property
    def files(self) -> list[str]:
        """The names of their files."""

    def parts(self) -> list[Self]:
        """The same in parts, oldest first: each segment, and what is only in the journal."""

    def info(self) -> dict[str, Any]:
        """The capture's id and counts, by name."""

    def is_over(self) -> bool:
        """Whether its recorder is known to have ended. In a store, and of a copy without its lock, it is not known."""

    def runs(self, *, as_opened: bool = False) -> tuple[list[dict[str, Any]], int, int]:
        """The runs in the order they began, how often a sender was let go, and how many messages were not followed: as of
        now, or as the capture was when it was opened.
        """

    def reader(
        self, columns: Sequence[str] | None = None, selection: dict[str, Any] | None = None
    ) -> pa.RecordBatchReader:
        """A pyarrow reader of rows, or of some of their columns."""

    def rows(self, selection: dict[str, Any] | None = None) -> RowIterator:
        """Rows, each as a dict of its columns."""

    def messages(self) -> MessageIterator:
        """All rows, each as ``(protocol, error, frames)``."""

@final
class RowIterator(Iterator[dict[str, Any]]):
    """What `Capture.rows` gives."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> dict[str, Any]: ...

@final
class MessageIterator(Iterator[tuple[str, str | None, tuple[bytes, ...], str | None]]):
    """What `Capture.messages` gives."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> tuple[str, str | None, tuple[bytes, ...], str | None]: ...

@final
class Folder:
    """A directory whose files are read and written piece by piece, and without following links; names are below it.

    Raises:
        CaptureError: There is no such directory; and in each method, what is wrong with a file.
    """

    def __new__(cls, path: str | os.PathLike[str]) -> Self: ...
    @staticmethod
    def make(path: str | os.PathLike[str]) -> Folder:
        """The directory, which is made if there is none."""

    def make_folder(self, name: str) -> None:
        """Makes a directory in it, if there is none."""

    def files(self, folder: str) -> list[tuple[str, int]]:
        """The regular files in a directory below, with their bytes; none where there is no such directory."""

    def read(self, name: str) -> FolderFile | None:
        """Opens a file for reading; None where there is none."""

    def write(self, name: str) -> NewFile:
        """Begins a file."""

    def remove(self, name: str) -> bool:
        """Removes a file; gives whether there was one."""

@final
class FolderFile:
    """A file that is read."""

    @property
    def size(self) -> int:
        """The bytes it had when it was opened."""

    def read_at(self, at: int, length: int) -> bytes:
        """Up to so many bytes at a position; none at the end."""

@final
class NewFile:
    """A file that is written, and gets its name when it is complete; without that it is removed."""

    def append(self, piece: bytes) -> None:
        """Appends bytes."""

    def finish(self) -> None:
        """Gives it its name, once its bytes are on the disk."""

    def abandon(self) -> None:
        """Removes it."""

@final
class Import:
    """Imported rows, all or none."""

    def __new__(
        cls, directory: str | os.PathLike[str], *, segment_bytes: int | None = None, private: bool = False
    ) -> Self: ...
    def append(
        self,
        received_at_ns: int,
        message: Iterable[Bytes],
        *,
        protocol: str = "cdtp",
        direction: str = "in",
        endpoint: str | None = None,
        peer: bytes | None = None,
        topic: str | None = None,
        reply_to: str | None = None,
        error: str | None = None,
    ) -> None:
        """Adds a message. What is wrong with its bytes is found out here; `error` is what else was, as that it was cut."""

    def commit(self) -> int:
        """Moves the rows in, durable and visible; gives how many."""

    def abort(self) -> None:
        """Takes the rows back, unless they are moved in."""

@final
class Stager:
    """Writes the rows of a task into a directory, which may be that of other tasks too, as files that `publish` takes."""

    def __new__(cls, directory: str | os.PathLike[str], *, segment_bytes: int | None = None) -> Self: ...
    def append(self, batch: pa.RecordBatch) -> None:
        """Adds rows with the columns of captures, in any order. Those that come in order are written at once.

        Raises:
            CaptureError: The columns are others, a value is none of a capture, or the disk refuses.
        """

    def finish(self) -> list[_Staged]:
        """Writes what is left, and gives the files, none of which has rows between those of another."""

@final
class Writer:
    """A capture being written by who has no engine."""

    def __new__(cls, directory: str | os.PathLike[str], protocol: str, options: dict[str, Any]) -> Self: ...
    def append(
        self,
        direction: str,
        endpoint: str | None,
        topic: str | None,
        reply_to: str | None,
        message: tuple[bytes, ...],
        error: str | None,
    ) -> bool:
        """Adds a message, with the time of this moment; false where there is no room for it."""

    def idle(self) -> float | None:
        """Has it do what is due; gives the seconds until there is more."""

    def flush(self, *, publish: bool = False) -> None:
        """Waits until all so far is durable, or also to be seen by readers of segments."""

    def progress(self) -> tuple[tuple[int, int, int, int, int], int | None, str | None]:
        """How far it has come: rows recorded, rows durable, segments, segments deleted and those of them that were not shipped; the
        bytes the disk has left where these are few, and what has gone wrong.
        """

    def close(self) -> tuple[int, int, int, int, int] | None:
        """Makes all durable and visible, and ends it; gives the last counts."""

def is_capture(place: str | os.PathLike[str]) -> bool:
    """Whether there is a capture."""

def position(place: str | os.PathLike[str]) -> tuple[str | None, int]:
    """The capture's id, None before its first row, and the number of the segment after the last published one.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
    """

def published(place: str | os.PathLike[str]) -> list[tuple[int, int]]:
    """The published segments, in order: the numbers of the first and the last of each file.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
    """

def publish(
    directory: str | os.PathLike[str],
    staging: str | os.PathLike[str],
    staged: Sequence[_Staged],
    *,
    batch: tuple[str, int] | None = None,
) -> bool:
    """Publishes the staged files of all tasks as segments of a capture, which is made if there is none, in the order of the
    rows' captures and numbers. Files with rows between each other's are merged first.

    Segments of a `batch`, of a query and with a number, are seen by readers together. Gives false if it was published before.

    Raises:
        CaptureError: The capture is being written, or the disk refuses: then none is published.
    """

def existing(place: str | os.PathLike[str], segments: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which of some segments exist, given and returned as by `published`.

    Raises:
        CaptureError: The capture cannot be read.
    """

def read_file(place: str | os.PathLike[str], name: str) -> bytes | None:
    """What is in a manifest or in notes, by their name below the capture; None where there is no such file. Links are not followed.

    Raises:
        CaptureError: It cannot be read, is no regular file, or larger than notes may be.
    """

def segments(
    place: str | os.PathLike[str], wanted: Sequence[tuple[int, int]] | None = None, *, notes: int = 0
) -> list[tuple[int, int, int, int | None, int | None]]:
    """The existing files of some segments, or of all: ``[(first, last, bytes, rows, frame_bytes)]``, the last two as far as
    up to so many files of notes say.
    """

def groups(place: str | os.PathLike[str], segment: tuple[int, int], size: int) -> list[tuple[int, int]]:
    """The row groups of a segment: the numbers of the first and the last row of each, as far as it says them."""

def sizes(place: str | os.PathLike[str], numbers: Sequence[int]) -> list[int]:
    """The bytes of the files of segments, those of a merged one shared among them; 0 for what is not there."""

def sums(place: str | os.PathLike[str]) -> list[tuple[int, int, int, int]]:
    """What was written down of the bytes of segments: ``[(first, last, bytes, crc)]``.

    Raises:
        CaptureError: There is no capture, or it cannot be read.
    """

def compact(directory: str | os.PathLike[str], target_bytes: int) -> tuple[int, int, int, int]:
    """Merges segments up to so many bytes: ``(replaced, merged, bytes_before, bytes_after)``.

    Raises:
        CaptureError: There is no capture, it is being recorded to, cannot be written, or a segment is not as it was published.
    """

def need_unlocked(directory: str | os.PathLike[str]) -> None:
    """Refuses a capture that is being written.

    Raises:
        CaptureError: It is being written.
    """

def replace(made: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Puts a capture where another one is, which is removed, or where nothing is.

    Raises:
        CaptureError: The other one is being written, or the names cannot be changed.
    """

def put_back(aside: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Gives a capture its name again that a killed `replace` left aside, if it did.

    Raises:
        CaptureError: The name cannot be changed.
    """

def mark_variants(path: str | os.PathLike[str], columns: list[str]) -> None:
    """Says of columns of a Parquet file that they are VARIANT, which are written as the structs they are.

    Raises:
        CaptureError: The file is no Parquet file, or cannot be written.
    """

def recover(directory: str | os.PathLike[str]) -> tuple[int, int, int | None, list[int]]:
    """Publishes what a killed recorder left: ``(rows, cut_bytes, segment, damaged)``."""

def verify(place: str | os.PathLike[str]) -> tuple[int, int, int, list[tuple[str, str]]]:
    """Holds a capture against what it says of itself: ``(segments, messages, unchecked, [(path, what)])``."""

def schema() -> pa.Schema:
    """The columns of a capture."""
