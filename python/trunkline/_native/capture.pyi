"""Captures on disk, as Python's objects."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self, final

import pyarrow as pa
from typing_extensions import Buffer

__all__ = [
    "Capture",
    "Import",
    "MessageIterator",
    "RowIterator",
    "Writer",
    "compact",
    "existing",
    "is_capture",
    "mark_variants",
    "need_unlocked",
    "position",
    "published",
    "put_back",
    "read_file",
    "recover",
    "replace",
    "schema",
    "sizes",
    "sums",
    "verify",
]

@final
class Capture:
    """A capture as it was when it was opened, or some of its published segments."""

    def __new__(
        cls,
        place: str | os.PathLike[str],
        max_message_bytes: int,
        segments: Sequence[tuple[int, int]] | None = None,
    ) -> Self: ...
    @property
    def segments(self) -> list[tuple[int, int]]:
        """The numbers of the segments published, oldest first: the first and the last of each file."""

    @property
    def files(self) -> list[str]:
        """The names of their files."""

    def parts(self) -> list[Self]:
        """The same in parts, oldest first: each segment, and what is only in the journal."""

    def info(self) -> dict[str, Any]:
        """The capture's id and counts, by name."""

    def runs(self) -> tuple[list[dict[str, Any]], int, int]:
        """The runs in the order they began, how often a sender was let go, and how many messages were not followed."""

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
class Import:
    """Imported rows, all or none."""

    def __new__(
        cls, directory: str | os.PathLike[str], *, segment_bytes: int | None = None, private: bool = False
    ) -> Self: ...
    def append(
        self,
        received_at_ns: int,
        message: Iterable[Buffer],
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

    def progress(self) -> tuple[int, int, int, int | None, str | None]:
        """How far it has come: rows recorded, rows durable, segments, the bytes the disk has left where these are few, and what has
        gone wrong.
        """

    def close(self) -> tuple[int, int, int] | None:
        """Makes all durable and visible, and ends it; gives rows recorded, rows durable and segments."""

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

def existing(place: str | os.PathLike[str], segments: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which of some segments exist, given and returned as by `published`.

    Raises:
        CaptureError: The capture cannot be read.
    """

def read_file(place: str | os.PathLike[str], name: str) -> bytes | None:
    """What is in a file of a capture, by its name below; None where there is none. Links are not followed.

    Raises:
        CaptureError: It cannot be read, or is no regular file.
    """

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
