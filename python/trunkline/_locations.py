"""The locations of captures: directories of this machine, and URLs of object stores and other file systems."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from trunkline.errors import LocalProtocolError

__all__ = [
    "Location",
    "Url",
    "begun_name",
    "begun_path",
    "location_of",
    "need_local",
    "whole_or_none",
    "without_secrets",
]

# The start of a URL; pathlib.Path keeps one of its two slashes. A drive of Windows has a single character.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)")


# What a URL has before its host: a name, and behind a colon a secret. Secrets of stores may have slashes. Our own advice names
# both in capitals.
_CREDENTIALS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/{1,2})(?!KEY:SECRET@)(?:[^\s'\"@:/]*:[^\s'\"@]*|[^\s'\"@:/]*)@")


def without_secrets(text: str) -> str:
    """A text without the credentials of the URLs in it.

    >>> without_secrets("s3://me:se/cret@lab/runs: cannot be read")
    's3://lab/runs: cannot be read'
    """
    return _CREDENTIALS.sub(r"\1", text) if "@" in text else text


@dataclass(frozen=True, slots=True, order=True, repr=False)
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
    def parent(self) -> Url:
        """The folder it is in."""
        return Url(urlunsplit(self._parts._replace(path=self._parts.path.rstrip("/").rpartition("/")[0])))

    @property
    def scheme(self) -> str:
        """The scheme of the URL, such as ``s3``."""
        return self._parts.scheme

    def __fspath__(self) -> str:
        return self.text

    def __str__(self) -> str:
        parts = urlsplit(without_secrets(self.text))
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")).rstrip("/")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def hidden(self, text: str) -> str:
        """A text about this URL, such as an error of a library, without its credentials and options."""
        return without_secrets(text.replace(self.text, str(self)))

    def __truediv__(self, name: str) -> Url:
        parts = self._parts
        return Url(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}")))

    def absolute(self) -> Url:
        """The same: no URL is relative."""
        return self


# Where a capture can be read from.
Location: TypeAlias = Path | Url


def location_of(path: str | os.PathLike[str]) -> Location:
    """The location of a path or a URL; a ``file://`` URL, which pyarrow knows as ``local://`` as well, becomes a path.

    Raises:
        LocalProtocolError: The URL names no path, or a file of another machine.
    """
    if isinstance(path, Path | Url):
        return path
    text = os.fspath(path)
    if "://" not in text:
        return Path(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        message = f"{without_secrets(text)}: is not a URL: {error}"
        raise LocalProtocolError(message) from None
    if not parts.path.strip("/") and not parts.netloc:
        message = f"{without_secrets(text)}: names no folder: expected a URL such as s3://bucket/runs"
        raise LocalProtocolError(message)
    if parts.scheme not in ("file", "local"):
        return Url(text)
    if parts.netloc not in ("", "localhost"):
        message = f"{without_secrets(text)}: is on another machine, {parts.netloc.rpartition('@')[2]}: a file's URL begins with file:///"
        raise LocalProtocolError(message)
    return Path(unquote(parts.path))


def begun_name(path: Path) -> str:
    """The beginning of the hidden names for what is written beside a file first.

    Its length is always the same: the name of the file may be as long as the file system allows.
    """
    return f".{hashlib.blake2b(os.fsencode(path.name), digest_size=8).hexdigest()}."


def begun_path(path: Path) -> Path:
    """Where this process writes what is renamed to `path` in the end."""
    return path.parent / f"{begun_name(path)}{os.getpid()}.part"


@contextmanager
def whole_or_none(path: Path) -> Iterator[None]:
    """Removes what an error leaves of a file that is being written: a part of a table looks like a whole one."""
    try:
        yield
    except BaseException:
        # Not a device or a pipe.
        if path.is_file():
            path.unlink()
        raise


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
