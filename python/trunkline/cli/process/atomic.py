"""Writes files atomically."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trunkline._locations import begun_name, begun_path, need_local
from trunkline._native.capture import is_capture
from trunkline._processes import runs
from trunkline.cli.process.child import removed_unless_finished
from trunkline.errors import LocalProtocolError

__all__ = ["is_report", "whole"]


# The mark of a report, near its beginning.
_REPORT = b'<meta name="generator" content="trunkline">'


def is_report(path: Path) -> bool:
    """Whether a file is a report, which another one may replace without asking."""
    try:
        with path.open("rb") as file:
            return _REPORT in file.read(1024)
    except OSError:
        return False


@contextmanager
def whole(path: Path, *, replaces: bool = True) -> Iterator[Path]:
    """A temporary name to write to; the file gets its real name at the end, or is removed after an error.

    Args:
        path: The real name.
        replaces: Whether a file of that name is replaced. A folder never is: it may hold anything.

    Raises:
        OSError: The directory is not writable; raised before any work.
        LocalProtocolError: The file exists, it is a URL, or it is inside a capture, which would take it for a part of itself.
    """
    need_local(path)
    if is_capture(path.parent):
        message = f"{path} would be inside the capture {path.parent}: choose another place"
        raise LocalProtocolError(message)
    if path.exists() and not path.is_file():
        message = f"{path} already exists: choose another name"
        raise LocalProtocolError(message)
    if path.exists() and not replaces:
        message = f"{path} already exists: choose another name, or give --overwrite"
        raise LocalProtocolError(message)
    _remove_leftovers(path)
    part = begun_path(path)
    removed_unless_finished(part)
    try:
        part.touch()
        part.unlink()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path.parent)) from None
    try:
        yield part
        part.replace(path)
    finally:
        _remove(part)


def _remove_leftovers(path: Path) -> None:
    """Removes temporary files of this name that killed processes left behind."""
    begun = begun_name(path)
    for part in path.parent.glob(f"{begun}*.part"):
        process = part.name.removeprefix(begun).removesuffix(".part")
        if process.isdecimal() and not runs(int(process)):
            with suppress(OSError):
                _remove(part)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part)
    part.unlink(missing_ok=True)
