"""The locations of captures: directories of this machine, and URLs of object stores and other file systems."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from trunkline.errors import LocalProtocolError

__all__ = ["Location", "Url", "location_of", "need_local"]

# The start of a URL; pathlib.Path keeps one of its two slashes. A drive of Windows has a single character.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)")


@dataclass(frozen=True, slots=True, order=True)
class Url(os.PathLike[str]):
    """The URL of a folder or a file, as `pyarrow.fs.FileSystem.from_uri` takes it: ``s3://bucket/runs?region=eu-west-1``.

    As text it has neither credentials nor options; `os.fspath` gives all of it.

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
        """The scheme of the URL, such as ``s3``."""
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


# Where a capture can be read from.
Location: TypeAlias = Path | Url


def location_of(path: str | os.PathLike[str]) -> Location:
    """The location of a path or a URL; a ``file://`` URL becomes a path.

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


def need_local(path: str | os.PathLike[str]) -> None:
    """Refuses a URL where only a path of this machine is supported.

    Raises:
        LocalProtocolError: It is one.
    """
    text = os.fsdecode(path)
    found = _SCHEME.match(text)
    if found is None or (isinstance(path, str) and not found[2]):
        return
    scheme, rest = found[1], text[found.end() :].lstrip("/")
    # A file's URL names no host.
    url, advice = Url(f"{scheme}://{rest}"), "trunkline capture ship copies captures to stores"
    if scheme == "file":
        url, advice = Url(f"file:///{rest}"), "give the path alone"
    message = f"{url}: is a URL, and this takes paths of this machine alone: {advice}"
    raise LocalProtocolError(message)
