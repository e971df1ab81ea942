"""Files that are there whole or not at all."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trunkline._locations import need_local
from trunkline._native.capture import is_capture
from trunkline._processes import runs
from trunkline.cli.apart import removed_unless_finished
from trunkline.errors import LocalProtocolError

__all__ = ["is_report", "whole"]


# What every report has near its beginning.
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
    """A name to write under; what is there gets its real name at the end, or is removed if anything went wrong.

    Args:
        path: The real name.
        replaces: Whether a file of that name is replaced. A folder never is: it may hold anything.

    Raises:
        OSError: Nothing can be written there, said before any work is done.
        LocalProtocolError: Something is there, it is a URL, or it would be in a capture, whose readers would take it for a part
            of that.
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
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
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
    """Removes what processes that were killed have left of a file of this name."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        process = part.name.removeprefix(f".{path.name}.").removesuffix(".part")
        if process.isdecimal() and not runs(int(process)):
            with suppress(OSError):
                _remove(part)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part)
    part.unlink(missing_ok=True)
