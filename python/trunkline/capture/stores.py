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
from trunkline.capture.s3 import Parts
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

# The bytes that are read of a file whose size is not known.
_FIRST_BYTES = 4 << 20

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
            message = f"{self.name}: {url.hidden(explained(error))}{known}"
            raise LocalProtocolError(message) from None
        except OSError as error:
            message = f"{self.name}: {url.hidden(explained(error))}"
            raise CaptureError(message) from None
        self.root = root.rstrip("/")
        self._parts = Parts.of(self.files)

    def path(self, name: str) -> str:
        """The path of what is below the root; of the root itself for an empty name."""
        return f"{self.root}/{name}" if name else self.root

    def file(self, name: str) -> NativeFile:
        """A file as pyarrow opens it, which asks for its size.

        Raises:
            OSError: It cannot be opened; FileNotFoundError where there is none.
        """
        with _explaining_refusals():
            return self.files.open_input_file(self.path(name))

    def open(self, name: str, size: int | None = None) -> tuple[NativeFile | Part, int]:
        """What reads a file, and its bytes. If they are known, a missing file may show only when it is read.

        Raises:
            OSError: It cannot be opened; FileNotFoundError where there is none.
        """
        if self._parts is not None:
            found = (b"", size) if size is not None else self._parts.read(self.path(name), 0, _FIRST_BYTES)
            if found is not None:
                return Part(self, self._parts, name, found[0]), found[1]
        file = self.file(name)
        return file, file.size()

    def size(self, name: str) -> int:
        """The bytes of a file.

        Raises:
            OSError: It cannot be opened; FileNotFoundError where there is none.
        """
        size: int = self.file(name).size()
        return size

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

    def list(self, folder: str) -> list[tuple[str, int | None]]:
        """The names in a folder, those of files with their bytes; none where there is none.

        Raises:
            OSError: It cannot be listed.
        """
        return [(info.base_name, info.size if info.is_file else None) for info in self.infos(folder)]

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


class Part:
    """Reads parts of a file, each by one request.

    Args:
        store: Where it is.
        parts: What reads the parts of all its files.
        name: The name of the file.
        first: What is known of its beginning.
    """

    def __init__(self, store: Store, parts: Parts, name: str, first: bytes) -> None:
        self._store, self._parts, self._name, self._first = store, parts, name, first
        self._file: NativeFile | None = None

    def read_at(self, length: int, at: int) -> bytes:
        """The bytes from a position on, as pyarrow's files read them.

        Raises:
            OSError: They cannot be read; FileNotFoundError where the file is gone.
        """
        if at + length <= len(self._first):
            return self._first[at : at + length]
        if self._file is None:
            found = self._parts.read(self._store.path(self._name), at, length)
            if found is not None:
                return found[0]
            self._file = self._store.file(self._name)
        read: bytes = self._file.read_at(length, at)
        return read


@contextmanager
def _explaining_refusals() -> Iterator[None]:
    """Turns refusals of the store into `PermissionError` with advice."""
    try:
        yield
    except OSError as error:
        if not _REFUSED.search(str(error)):
            raise
        raise PermissionError(explained(error)) from error


def is_readable(location: Location) -> bool:
    """Whether captures can be read from a location: pyarrow supports its scheme."""
    return isinstance(location, Path) or location.scheme in _SCHEMES


def store(url: str | os.PathLike[str]) -> Store:
    """The store at a URL, opened once per process: a child cannot use a store of its parent."""
    return _opened(os.fspath(url), os.getpid())


@functools.lru_cache(maxsize=64)
def _opened(text: str, _process: int) -> Store:
    return Store(Url(text))


def is_folder(location: Location) -> bool:
    """Whether there is a folder; in a store it may be just a prefix of names.

    Raises:
        CaptureError: The store cannot be asked.
    """
    if isinstance(location, Path):
        return location.is_dir()
    from pyarrow.fs import FileType

    info = _asked(location, lambda opened: opened.info(""))
    return info is not None and info.type == FileType.Directory


def exists(location: Location) -> bool:
    """Whether there is a file or folder.

    Raises:
        CaptureError: The store cannot be asked.
    """
    return (
        location.exists()
        if isinstance(location, Path)
        else _asked(location, lambda opened: opened.info("") is not None)
    )


def folders(location: Location) -> list[str]:
    """The names of the folders in a folder, in order; none where it is gone.

    Raises:
        CaptureError: The store cannot be asked.
    """
    if isinstance(location, Path):
        try:
            return sorted(entry.name for entry in os.scandir(location) if entry.is_dir())
        except FileNotFoundError:
            return []
    from pyarrow.fs import FileType

    found = _asked(location, lambda opened: [*opened.infos("")])
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
