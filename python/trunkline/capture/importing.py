"""Messages recorded elsewhere, brought into a capture."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from trunkline._frames import of_row
from trunkline._native import capture as _native
from trunkline.errors import CaptureError

__all__ = ["import_"]

_GZIP_MAGIC = b"\x1f\x8b"

# The longest line that is read: a few bytes of a .gz may unpack to any.
_LINE_BYTES = 64 << 20


def import_(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    protocol: str = "cdtp",
    segment_bytes: int | None = None,
    private: bool = False,
) -> int:
    """Brings recorded messages into a capture, all of them or, when anything goes wrong, none.

    Each line of a file is a JSON object: ``received_at_ns``, ``frames`` in base64, and where known ``endpoint``,
    ``protocol``, ``direction`` ("in" or "out"), ``topic`` and ``reply_to`` of CDT, the subjects of NATS, and ``peer``, the
    routing id of a ROUTER's peer in base64. A line that has ``payload`` and no ``frames`` is one that ``trunkline capture cat
    --json`` has printed; those that are no rows are left out. A line has at most 64 MiB.

    Args:
        files: JSON lines, plain or gzipped: one file or several.
        path: The capture directory; made if it does not exist, continued if it does.
        protocol: What the messages speak whose line does not say.
        segment_bytes: The frame bytes of one segment file, at most.
        private: Make the directory for this user alone (0700), and its files (0600); else they are as the umask has it.

    Returns:
        How many messages came in, those that do not decode too.

    Raises:
        CaptureError: A line is no recorded message, or the capture cannot be written.
        OSError: A file cannot be read.
    """
    if isinstance(files, str | os.PathLike):
        files = [files]
    importing = _native.Import(path, segment_bytes=segment_bytes, private=private)
    try:
        for file in files:
            _import_file(Path(file), importing, protocol)
        return importing.commit()
    finally:
        # Nothing is left to take back once it is committed.
        importing.abort()


def _import_file(file: Path, importing: _native.Import, protocol: str) -> None:
    for number, line in enumerate(_lines(file), start=1):
        if len(line) > _LINE_BYTES:
            message = f"{file}, line {number}: no recorded message (it has more than {_LINE_BYTES >> 20} MiB)"
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
            message = f"{file}, line {number}: no recorded message ({_reason(error)})"
            raise CaptureError(message) from error


def _written(row: dict[str, Any], protocol: str) -> dict[str, Any]:
    """What a line of our own says of a message."""
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
    """What a row that was printed says of a message."""
    same = ("protocol", "direction", "endpoint", "topic", "reply_to", "error")
    return {
        "message": [_bytes(frame) for frame in of_row(row)],
        "peer": None if row["peer"] is None else _bytes(row["peer"]),
        **{name: row[name] for name in same},
    }


def _bytes(printed: str | dict[str, str]) -> bytes:
    """Bytes that were printed: as text where they are text, else in base64."""
    return printed.encode() if isinstance(printed, str) else base64.b64decode(printed["base64"], validate=True)


def _lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as plain:
        if not plain.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
            yield from _read_lines(plain)
            return
        with gzip.GzipFile(fileobj=plain) as unpacked:
            try:
                yield from _read_lines(unpacked)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                message = f"{file}: cannot be unpacked ({error})"
                raise CaptureError(message) from error


def _read_lines(file: BufferedIOBase) -> Iterator[bytes]:
    """The lines, of one that is too long only so much that it shows."""
    return iter(lambda: file.readline(_LINE_BYTES + 1), b"")


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it lacks {error.args[0]}"
    if isinstance(error, binascii.Error):
        return f"frames are base64: {error}"
    return str(error)
