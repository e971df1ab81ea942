"""Captures in object stores and on other file systems, through `pyarrow.fs`."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trunkline._extras import how_to_install
from trunkline._locations import Location, Url
from trunkline._text import did_you_mean
from trunkline.errors import CaptureError, LocalProtocolError

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo, FileSystem

__all__ = ["Store", "exists", "explained", "folders", "is_folder", "is_readable", "store"]

Answer = TypeVar("Answer")

# The codes by which stores refuse a user, as pyarrow reports them.
_REFUSED = re.compile(
    r"\b(ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|[A-Z_]*TOKEN[A-Z_]*|REQUEST_TIME_TOO_SKEWED"
    r"|(Expired|Invalid)Token|PERMISSION_DENIED|UNAUTHENTICATED|HTTP status 40[13])\b"
)
_CREDENTIALS_HINT = (
    "the store does not know you, or does not let you do this here. Who you are comes from the environment, as AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, ~/.aws or the role of the machine, or from the URL, as s3://KEY:SECRET@bucket/folder"
)

# The schemes that pyarrow can open, for the error about an unknown one.
_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "mock")


class Store:
    """A folder at a URL.

    Args:
        url: The URL.

    Attributes:
        name: The URL without credentials.
        files: The file system it is on.
        root: The path on that file system.

    Raises:
        CaptureError: The store cannot be opened.
        LocalProtocolError: pyarrow is not installed, or knows no such URL.
    """

    name: str
    files: FileSystem
    root: str

    def __init__(self, url: Url) -> None:
        try:
            import pyarrow as pa
            from pyarrow.fs import FileSystem
        except ImportError as error:
            message = f"a URL requires pyarrow: {how_to_install('capture')}"
            raise LocalProtocolError(message) from error
        self.name = str(url)
        try:
            self.files, root = FileSystem.from_uri(os.fspath(url))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            known = "" if url.scheme in _SCHEMES else did_you_mean(url.scheme, _SCHEMES) or ""
            message = f"{self.name}: {explained(error)}{known}"
            raise LocalProtocolError(message) from None
        except OSError as error:
            message = f"{self.name}: {explained(error)}"
            raise CaptureError(message) from error
        self.root = root.rstrip("/")

    def path(self, name: str) -> str:
        """The path of what is below the root; of the root itself for an empty name."""
        return f"{self.root}/{name}" if name else self.root

    def open(self, name: str) -> tuple[NativeFile, int]:
        """A file, and its bytes.

        Raises:
            OSError: It cannot be opened; FileNotFoundError where there is none.
        """
        with _explaining_refusals():
            file = self.files.open_input_file(self.path(name))
            return file, file.size()

    def info(self, name: str) -> FileInfo | None:
        """The entry of a name, if there is one.

        Raises:
            OSError: The store cannot be asked, or has no such bucket.
        """
        from pyarrow.fs import FileType

        with _explaining_refusals():
            (info,) = self.files.get_file_info([self.path(name)])
        if info.type != FileType.NotFound:
            return info
        self._need_bucket()
        return None

    def list(self, folder: str) -> list[str]:
        """The names in a folder; none where there is none.

        Raises:
            OSError: It cannot be listed.
        """
        return [info.base_name for info in self.infos(folder)]

    def infos(self, folder: str) -> Iterator[FileInfo]:
        """What is in a folder; nothing where there is none.

        Raises:
            OSError: It cannot be listed, or the store has no such bucket.
        """
        from pyarrow.fs import FileSelector

        with _explaining_refusals():
            found = self.files.get_file_info(FileSelector(self.path(folder), allow_not_found=True))
        if not found:
            self._need_bucket()
        yield from found

    def _need_bucket(self) -> None:
        """Refuses a missing bucket: S3 reports it as empty.

        Raises:
            OSError: It is not there.
        """
        from pyarrow.fs import FileType

        if self.files.type_name != "s3":
            return
        bucket = self.root.partition("/")[0]
        try:
            (info,) = self.files.get_file_info([bucket])
        except OSError:
            # Access to objects does not imply access to the bucket itself.
            return
        if info.type == FileType.NotFound:
            message = f"there is no bucket {bucket}"
            raise OSError(message)


@contextmanager
def _explaining_refusals() -> Iterator[None]:
    """Turns refusals of the store into `PermissionError` with advice."""
    try:
        yield
    except OSError as error:
        if not _REFUSED.search(str(error)):
            raise
        raise PermissionError(explained(error)) from error


def is_readable(place: Location) -> bool:
    """Whether captures can be read from a location: pyarrow supports its scheme."""
    return isinstance(place, Path) or place.scheme in _SCHEMES


def store(url: str | os.PathLike[str]) -> Store:
    """The store at a URL, opened once per process: a child cannot use a store of its parent."""
    return _opened(os.fspath(url), os.getpid())


@functools.lru_cache(maxsize=64)
def _opened(text: str, _process: int) -> Store:
    return Store(Url(text))


def is_folder(place: Location) -> bool:
    """Whether there is a folder; in a store it may be just a prefix of names.

    Raises:
        CaptureError: The store cannot be asked.
    """
    if isinstance(place, Path):
        return place.is_dir()
    from pyarrow.fs import FileType

    info = _asked(place, lambda opened: opened.info(""))
    return info is not None and info.type == FileType.Directory


def exists(place: Location) -> bool:
    """Whether there is a file or folder.

    Raises:
        CaptureError: The store cannot be asked.
    """
    return place.exists() if isinstance(place, Path) else _asked(place, lambda opened: opened.info("") is not None)


def folders(place: Location) -> list[str]:
    """The names of the folders in a folder, in order; none where it is gone.

    Raises:
        CaptureError: The store cannot be asked.
    """
    if isinstance(place, Path):
        try:
            return sorted(entry.name for entry in os.scandir(place) if entry.is_dir())
        except FileNotFoundError:
            return []
    from pyarrow.fs import FileType

    found = _asked(place, lambda opened: [*opened.infos("")])
    return sorted(info.base_name for info in found if info.type == FileType.Directory)


def _asked(url: Url, ask: Callable[[Store], Answer]) -> Answer:
    """The answer of a store.

    Raises:
        CaptureError: The store failed.
    """
    try:
        return ask(store(url))
    except OSError as error:
        message = f"{url}: {explained(error)}"
        raise CaptureError(message) from error


def explained(error: BaseException) -> str:
    """The text of an error, without the details that pyarrow appends; with advice if the store refuses the user."""
    text = str(error).partition(". Detail:")[0]
    # A PermissionError has the advice already.
    if _REFUSED.search(text) and not isinstance(error, PermissionError):
        return f"{text.rstrip('.')}: {_CREDENTIALS_HINT}"
    return text
