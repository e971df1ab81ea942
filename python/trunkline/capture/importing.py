"""Imports messages of other recordings into a capture."""

from __future__ import annotations

import base64
import binascii
import gzip
import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any

from trunkline._arguments import need_path
from trunkline._frames import of_row
from trunkline._native import capture as _native
from trunkline.errors import CaptureError

__all__ = ["import_"]

_GZIP_MAGIC = b"\x1f\x8b"

# The longest line: a small .gz may unpack to any size.
_LINE_BYTES = 64 << 20


def import_(
    files: str | os.PathLike[str] | BufferedReader | Iterable[str | os.PathLike[str] | BufferedReader],
    path: str | os.PathLike[str],
    *,
    protocol: str = "cdtp",
    segment_bytes: int | None = None,
    private: bool = False,
    on_progress: Callable[[int], object] = lambda _: None,
) -> int:
    """Imports recorded messages into a capture: all of them or, if anything fails, none.

    Each line of a file is a JSON object: ``received_at_ns``, ``frames`` in base64, and where known ``endpoint``,
    ``protocol``, ``direction`` ("in" or "out"), ``topic`` and ``reply_to`` of CDT, the subjects of NATS, and ``peer``, the
    routing id of a ROUTER's peer in base64. A line with ``payload`` and no ``frames`` is one printed by ``trunkline capture cat
    --json``, whose other events are skipped. The largest line is 64 MiB.

    Args:
        files: One or more files of JSON lines, plain or gzipped; one that is open, as ``sys.stdin.buffer``, is left open.
        path: The capture directory; created if it does not exist, continued if it does.
        protocol: The protocol of lines that do not name it.
        segment_bytes: The most frame bytes in a segment file.
        private: Create the directory with mode 0700 and its files with 0600; else the umask applies.
        on_progress: Called after each message with the number read so far; an exception from it ends the import, without effect.

    Returns:
        The number of messages imported, malformed ones included.

    Raises:
        CaptureError: A line is not a recorded message, or the capture cannot be written.
        LocalProtocolError: `path` is a URL.
        OSError: A file cannot be read.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     capture.import_([DATA / "cdtp1-release-0.5.1.jsonl.gz", DATA / "cdtp2-release-1.0.2.jsonl.gz"], runs)
    ...     capture.open(runs).info().protocols
    2136
    {'cdtp': 2136}

    ```
    """
    need_path("path", path)
    if isinstance(files, str | os.PathLike | BufferedReader):
        files = [files]
    lines = itertools.count(1)
    importing = _native.Import(path, segment_bytes=segment_bytes, private=private)
    try:
        for file in files:
            _import_file(file, importing, protocol, lambda: on_progress(next(lines)))
        return importing.commit()
    finally:
        # After the commit there is nothing to roll back.
        importing.abort()


def _import_file(
    file: str | os.PathLike[str] | BufferedReader,
    importing: _native.Import,
    protocol: str,
    read: Callable[[], object],
) -> None:
    name = file.name if isinstance(file, BufferedReader) else os.fspath(file)
    for number, line in enumerate(_lines(file, name), start=1):
        if len(line) > _LINE_BYTES:
            message = f"{name}, line {number}: not a recorded message (longer than {_LINE_BYTES >> 20} MiB)"
            raise CaptureError(message)
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if row.get("event", "row") == "row":
                importing.append(
                    row["received_at_ns"], **(_printed(row) if "payload" in row else _written(row, protocol))
                )
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            message = f"{name}, line {number}: not a recorded message ({_reason(error)})"
            raise CaptureError(message) from error
        read()


def _written(row: dict[str, Any], protocol: str) -> dict[str, Any]:
    """The message of a line in the import format."""
    return {
        "message": [base64.b64decode(frame, validate=True) for frame in row["frames"]],
        "protocol": row.get("protocol", protocol),
        "direction": row.get("direction", "in"),
        "endpoint": row.get("endpoint"),
        "peer": None if row.get("peer") is None else base64.b64decode(row["peer"], validate=True),
        "topic": row.get("topic"),
        "reply_to": row.get("reply_to"),
    }


def _printed(row: dict[str, Any]) -> dict[str, Any]:
    """The message of a line printed by `capture cat --json`."""
    same = ("protocol", "direction", "endpoint", "topic", "reply_to", "error")
    return {
        "message": [_bytes(frame) for frame in of_row(row)],
        "peer": None if row["peer"] is None else _bytes(row["peer"]),
        **{name: row[name] for name in same},
    }


def _bytes(printed: str | dict[str, str]) -> bytes:
    """Printed bytes, which are text if possible, else base64."""
    return printed.encode() if isinstance(printed, str) else base64.b64decode(printed["base64"], validate=True)


def _lines(file: str | os.PathLike[str] | BufferedReader, name: str) -> Iterator[bytes]:
    with ExitStack() as stack:
        plain = file if isinstance(file, BufferedReader) else stack.enter_context(Path(file).open("rb"))
        if not plain.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
            yield from _read_lines(plain)
            return
        with gzip.GzipFile(fileobj=plain) as unpacked:
            try:
                yield from _read_lines(unpacked)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                message = f"{name}: cannot be unpacked ({error})"
                raise CaptureError(message) from error


def _read_lines(file: BufferedIOBase) -> Iterator[bytes]:
    """The lines; a line that is too long is cut just above the limit."""
    return iter(lambda: file.readline(_LINE_BYTES + 1), b"")


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, binascii.Error):
        return f"frames must be base64: {error}"
    return str(error)
