"""Recovers captures after a killed recorder, verifies them, and merges their segments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from trunkline._arguments import need_choice, need_number, need_path
from trunkline._extras import needs
from trunkline._locations import Location, location_of
from trunkline._native import capture as _native
from trunkline._native import protocols
from trunkline.capture.reading import DECODED
from trunkline.errors import CaptureError

__all__ = [
    "TARGET_BYTES",
    "Compaction",
    "Decode",
    "DecodedFiles",
    "Problem",
    "Recovery",
    "Verification",
    "compact",
    "decode_files",
    "is_recorded",
    "need_decodable",
    "recover",
    "verify",
]

# Large enough that opening a segment costs little beside reading it, and the size of a task of Spark.
TARGET_BYTES = 64 << 20

# What to decode: of each protocol, the options of decoding.
Decode: TypeAlias = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of `recover`.

    Attributes:
        rows: Rows that were moved into a segment.
        cut_bytes: Bytes of an incomplete message that were cut off; it was never reported durable.
        segment: The segment made of the rows; None if there were none.
        damaged: The numbers of segments that do not match their checksum, which cannot be repaired.
    """

    rows: int
    cut_bytes: int
    segment: int | None
    damaged: tuple[int, ...] = ()


def recover(path: str | os.PathLike[str]) -> Recovery:
    """Publishes the rows that a killed recorder left unpublished, as the next recorder would, and verifies all checksums.

    Args:
        path: The capture directory.

    Raises:
        CaptureError: There is no capture, it is being recorded to, or it cannot be written.
        LocalProtocolError: `path` is a URL.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
    ...     capture.recover(runs)
    Recovery(rows=0, cut_bytes=0, segment=None, damaged=())

    ```
    """
    need_path("path", path)
    rows, cut_bytes, segment, damaged = _native.recover(path)
    return Recovery(rows, cut_bytes, segment, tuple(damaged))


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a capture.

    Attributes:
        path: The file.
        what: The problem.
    """

    path: Location
    what: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify`.

    Attributes:
        segments: Published segments.
        messages: Rows that can be read, published or not.
        unchecked: Segments without a checksum, as written by earlier versions.
        problems: The problems; empty if there are none.
    """

    segments: int
    messages: int
    unchecked: int
    problems: tuple[Problem, ...]


def verify(path: str | os.PathLike[str]) -> Verification:
    """Reads a whole capture and checks its consistency. It changes nothing, and a recorder may be running.

    It checks that each segment matches its CRC and can be read, that rows and segments are numbered without gaps or
    duplicates apart from what retention has deleted, that the metadata can be read, and that decoded messages beside segments
    are what these decode to.

    Args:
        path: The capture directory, or its URL.

    Raises:
        CaptureError: There is no capture, or its directory cannot be read.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
    ...     capture.verify(runs)
    Verification(segments=1, messages=12, unchecked=0, problems=())

    ```
    """
    need_path("path", path, may_be_url=True)
    segments, messages, unchecked, problems = _native.verify(location_of(path))
    found = [Problem(location_of(file), what) for file, what in problems]
    found += _differences(location_of(path))
    return Verification(segments, messages, unchecked, tuple(found))


def _differences(location: Location) -> Iterator[Problem]:
    """The files of decoded messages that are not what their segments decode to."""
    if isinstance(location, Path) and (location / DECODED).is_dir():
        yield from (Problem(file, what) for file, what in _files().differences(location))


@dataclass(frozen=True, slots=True)
class DecodedFiles:
    """What was done to the files of decoded messages beside segments.

    Attributes:
        written: Files that were written.
        messages: The messages in them.
        removed: Files that were removed, as their segments were merged or deleted.
    """

    written: int = 0
    messages: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of `compact`.

    Attributes:
        replaced: Files of segments that were merged.
        merged: Files that they were merged into.
        bytes_before: The bytes of all segments before.
        bytes_after: The bytes of all segments after.
        decoded: What was decoded beside them.
    """

    replaced: int
    merged: int
    bytes_before: int
    bytes_after: int
    decoded: DecodedFiles = field(default_factory=DecodedFiles)


def compact(
    path: str | os.PathLike[str],
    *,
    target_bytes: int = TARGET_BYTES,
    decode: Decode | None = None,
    shred: bool = False,
) -> Compaction:
    """Merges segments that follow each other into larger ones. Rows stay as they are, with their `segment` and `seq`.

    Readers of this package and streams may run meanwhile, and read each row once; who reads the files as plain Parquet must
    not, for a moment both are there. If it is killed, no row is lost, and the next one goes on. A segment that is merged is as old as
    its file is: a recorder with ``keep_days`` keeps it from then on.

    Decoding is done once for all readers: of the protocols named by `decode`, each segment gets a Parquet file
    ``_decoded/PROTOCOL/SEGMENT`` with its messages as `Capture.decode` has them. Where such a file has the columns that are asked for,
    `Capture.decode`, `export` and the data source of Spark read it instead of the segment; any other engine reads the folder.
    Decoded anew with other options it has another name, ``FIRST-LAST.2.parquet``, in place of the one before.

    Args:
        path: The capture directory.
        target_bytes: The most bytes that segments have together which are merged.
        decode: The protocols to decode, each with the options of `Capture.decode`; tags and the like are VARIANT by default.
        shred: Shred VARIANTs as Parquet specifies it: what one in ten of the first messages has is a column of its own, so that
            Spark and DuckDB read it alone. Readers that do not know VARIANT then see other columns in each file.

    Raises:
        CaptureError: There is no capture, it is being recorded to, cannot be written, or a segment is not as it was published.
        LocalProtocolError: `path` is a URL, or a protocol has no such option; or pyarrow is not installed, to decode.
        ValueError: `target_bytes` is not positive, or there is no such protocol.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     for release in "cdtp1-release-0.3", "cdtp1-release-0.5.1":
    ...         imported = capture.import_(DATA / f"{release}.jsonl.gz", runs)
    ...     done = capture.compact(runs, decode={"cdtp": {"tags": {"run": "bigint", "*": "variant"}}})
    >>> done.replaced, done.merged, done.decoded.written
    (2, 1, 1)

    ```
    """
    need_path("path", path)
    need_number("target_bytes", target_bytes, least=1)
    decode = decode or {}
    need_decodable(decode)
    done = _native.compact(path, target_bytes)
    return Compaction(*done, decode_files(path, decode, shred=shred))


def need_decodable(decode: Decode) -> None:
    """Refuses protocols and options that cannot be decoded.

    Raises:
        ValueError: There is no such protocol.
        LocalProtocolError: It has no such option, or no such value of it; or pyarrow is not installed.
    """
    for protocol, options in decode.items():
        need_choice("decode", protocol, [known.name for known in protocols()])
        _files().decoding_of(protocol, options)


def decode_files(
    path: str | os.PathLike[str], decode: Decode, goes_on: Callable[[], bool] = lambda: True, *, shred: bool = False
) -> DecodedFiles:
    """Decodes the published segments that are not decoded yet, and removes the files whose segments were merged or deleted.

    Args:
        path: The capture directory; it may be recorded to.
        decode: The protocols, each with the options of decoding.
        goes_on: Called before each file: whether to go on.
        shred: Whether to shred VARIANTs.

    Raises:
        CaptureError: A segment cannot be read, or a file cannot be written.
    """
    directory = Path(path)
    if not decode and not (directory / DECODED).is_dir():
        return DecodedFiles()
    done: DecodedFiles = _files().update(directory, decode, goes_on, shred=shred)
    return done


def is_recorded(path: str | os.PathLike[str]) -> bool:
    """Whether a recorder, or another command that writes, has the capture open."""
    try:
        _native.need_unlocked(path)
    except CaptureError:
        return True
    return False


@needs("capture", "pyarrow")
def _files() -> Any:
    from trunkline.capture import decoded_files

    return decoded_files
