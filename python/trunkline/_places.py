"""Where captures are that are read: directories of this machine, and URLs of object stores and other file systems."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from trunkline.errors import LocalProtocolError

__all__ = ["Place", "Url", "place_of"]


@dataclass(frozen=True, slots=True, order=True)
class Url(os.PathLike[str]):
    """The URL of a folder or a file, as `pyarrow.fs.FileSystem.from_uri` takes it: ``s3://bucket/runs?region=eu-west-1``.

    As text it has neither what lets one in nor options, which `os.fspath` gives as well.

    Attributes:
        text: All of it.

    >>> url = Url("s3://me:secret@lab/runs/?region=eu-west-1")
    >>> print(url / "run7")
    s3://lab/runs/run7
    >>> os.fspath(url / "run7")
    's3://me:secret@lab/runs/run7?region=eu-west-1'
    """

    text: str

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.text)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._parts.path.rstrip("/").rpartition("/")[2]

    @property
    def scheme(self) -> str:
        """What the URL begins with, such as ``s3``."""
        return self._parts.scheme

    def __fspath__(self) -> str:
        return self.text

    def __str__(self) -> str:
        parts = self._parts
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")).rstrip("/")

    def __truediv__(self, name: str) -> Url:
        parts = self._parts
        return Url(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))

    def absolute(self) -> Url:
        """The same: no URL is relative."""
        return self


# Where a capture can be read.
Place: TypeAlias = Path | Url


def place_of(path: str | os.PathLike[str]) -> Place:
    """What a path or a URL names; a URL of this machine's file system is a path.

    Raises:
        LocalProtocolError: The URL names no path.
    """
    if isinstance(path, Path | Url):
        return path
    text = os.fspath(path)
    if "://" not in text:
        return Path(text)
    parts = urlsplit(text)
    if not parts.path.strip("/") and not parts.netloc:
        message = f"{text}: names no folder: expected a URL such as s3://bucket/runs"
        raise LocalProtocolError(message)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Url(text)
