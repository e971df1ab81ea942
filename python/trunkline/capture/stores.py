"""Captures in object stores and on other file systems, through `pyarrow.fs`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trunkline._extras import how_to_install
from trunkline._places import Place, Url
from trunkline._text import did_you_mean
from trunkline.errors import CaptureError, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo, FileSystem

__all__ = ["Store", "exists", "folders", "is_folder", "is_readable", "store", "words"]

Answer = TypeVar("Answer")

# What pyarrow can open, of which a name that is none is told.
_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "mock")


class Store:
    """What is below a URL.

    Args:
        url: The URL.

    Attributes:
        name: The URL as people may see it.
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
            message = f"{self.name}: {words(error)}{known}"
            raise LocalProtocolError(message) from None
        except OSError as error:
            message = f"{self.name}: {words(error)}"
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
        file = self.files.open_input_file(self.path(name))
        return file, file.size()

    def info(self, name: str) -> FileInfo | None:
        """What is there under a name, if anything is.

        Raises:
            OSError: The store cannot be asked.
        """
        from pyarrow.fs import FileType

        (info,) = self.files.get_file_info([self.path(name)])
        return None if info.type == FileType.NotFound else info

    def list(self, folder: str) -> list[str]:
        """The names in a folder; none where there is none.

        Raises:
            OSError: It cannot be listed.
        """
        return [info.base_name for info in self.infos(folder)]

    def infos(self, folder: str) -> Iterator[FileInfo]:
        """What is in a folder; nothing where there is none.

        Raises:
            OSError: It cannot be listed.
        """
        from pyarrow.fs import FileSelector

        yield from self.files.get_file_info(FileSelector(self.path(folder), allow_not_found=True))


def is_readable(place: Place) -> bool:
    """Whether a place is one that captures can be read from: pyarrow knows how."""
    return isinstance(place, Path) or place.scheme in _SCHEMES


def store(url: str | os.PathLike[str]) -> Store:
    """What is below a URL, opened once a process: a child cannot use what its parent has opened."""
    return _opened(os.fspath(url), os.getpid())


@functools.lru_cache(maxsize=64)
def _opened(text: str, _process: int) -> Store:
    return Store(Url(text))


def is_folder(place: Place) -> bool:
    """Whether there is a folder, in a store also one that is nothing but the beginning of names.

    Raises:
        CaptureError: The store cannot be asked.
    """
    if isinstance(place, Path):
        return place.is_dir()
    from pyarrow.fs import FileType

    info = _asked(place, lambda opened: opened.info(""))
    return info is not None and info.type == FileType.Directory


def exists(place: Place) -> bool:
    """Whether there is anything.

    Raises:
        CaptureError: The store cannot be asked.
    """
    return place.exists() if isinstance(place, Path) else _asked(place, lambda opened: opened.info("") is not None)


def folders(place: Place) -> list[str]:
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
    """What a store answers.

    Raises:
        CaptureError: It does not.
    """
    try:
        return ask(store(url))
    except OSError as error:
        message = f"{url}: {words(error)}"
        raise CaptureError(message) from error


def words(error: BaseException) -> str:
    """What an error says, without the names of codes and of source files that libraries put around it."""
    return str(error).partition(". Detail:")[0]
