"""Places that captures are copied to: a folder of a store, and a directory."""

from __future__ import annotations

import hashlib
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from trunkline._locations import Location, Url
from trunkline._native import capture as _native
from trunkline.capture.stores import Store, store
from trunkline.errors import LocalProtocolError

__all__ = ["META", "NUMBERED", "StoreFolder", "Target", "pieces", "target"]

META = "_capture"

# The names of segments and of their notes, with their numbers.
NUMBERED = re.compile(r"(\d{10,})(?:-(\d{10,}))?\.parquet")

# Stores that show only complete objects; on others a file is renamed when it is complete.
_WHOLE = ("s3", "gcs", "abfs")

# The bytes that are read or written at a time. S3 wants parts of 5 MiB at least.
_PIECE = 8 << 20

# How often a wait for a store is interrupted.
_LOOK_S = 0.1

# What a store that keeps objects as they are says of them: their MD5.
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')

Answer = TypeVar("Answer")


def pieces(file: _native.FolderFile) -> Iterator[bytes]:
    """What is in a file."""
    at = 0
    while True:
        piece = file.read_at(at, _PIECE)
        if not piece:
            return
        yield piece
        at += len(piece)


class Target(ABC):
    """Where a capture is copied to.

    Attributes:
        name: The folder without credentials.
        look: Called while it works, several times a second; what it raises ends the work.
    """

    name: str
    look: Callable[[], object]

    def __init__(self, location: Location, name: str) -> None:
        self.location = location
        self.name = name
        self.look = lambda: None

    def contents(self, capture_id: str) -> dict[str, int]:
        """The files of segments that are there, with their sizes.

        Raises:
            LocalProtocolError: It holds another capture or other files.
            OSError: They cannot be listed.
        """
        files = self.sizes("")
        if not files and not self.sizes(META):
            return {}
        if not self.ask(lambda: _native.is_capture(self.location)):
            message = f"{self.name}: is not a capture: it contains {min(files)}; choose an empty or a new folder"
            raise LocalProtocolError(message)
        # Before the manifest is copied there are only notes and segments.
        other, _ = self.ask(lambda: _native.position(self.location))
        if other not in {None, capture_id}:
            message = f"{self.name}: holds another capture, {other}, not {capture_id}: choose another folder"
            raise LocalProtocolError(message)
        return {name: size for name, size in files.items() if NUMBERED.fullmatch(name)}

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """What a call returns or raises."""
        return question()

    def is_replaced(self) -> bool:
        """Whether the folder that was listed or written to is not the one of its name any more."""
        return False

    @abstractmethod
    def sizes(self, folder: str) -> dict[str, int]:
        """The files in a folder, with their sizes."""

    @abstractmethod
    def write(self, name: str, content: Iterator[bytes], size: int) -> None:
        """Writes a file that becomes visible only when it is complete.

        Raises:
            OSError: It cannot be written, or is not as large as it should be.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""

    def is_same(self, _name: str, _path: Path) -> bool:
        """Whether a file there, or with an empty name the folder, is one of this machine itself, by another path or a hard link."""
        return False

    @abstractmethod
    def holds(self, name: str, file: _native.FolderFile) -> bool:
        """Whether a file there has the bytes of one here: it is read, or the store has computed a checksum."""


def target(location: Location) -> Target:
    """The target at a location.

    Raises:
        CaptureError: It cannot be reached.
        LocalProtocolError: pyarrow is not installed, or knows no such URL.
    """
    return _Directory(location) if isinstance(location, Path) else StoreFolder(location)


class _Directory(Target):
    """A directory, in which no link is followed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, str(path))
        self._folder: _native.Folder | None = None
        self._opened: tuple[int, int] | None = None

    def is_replaced(self) -> bool:
        """See `Target`."""
        if self._folder is None or self._inode() == self._opened:
            return False
        self._folder = None
        return True

    def _inode(self) -> tuple[int, int] | None:
        with suppress(FileNotFoundError):
            now = Path(self.location).stat()
            return now.st_dev, now.st_ino
        return None

    def _made(self) -> _native.Folder:
        if self._folder is None:
            self._folder = _native.Folder.make(self.location)
            self._folder.make_folder(META)
            self._opened = self._inode()
        return self._folder

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Target`."""
        if self._folder is None and not Path(self.location).exists():
            return {}
        return dict((self._folder or _native.Folder(self.location)).files(folder))

    def write(self, name: str, content: Iterator[bytes], size: int) -> None:
        """See `Target`."""
        file = self._made().write(name)
        try:
            for piece in content:
                self.look()
                file.append(piece)
            file.finish()
        finally:
            file.abandon()
        _need_size(name, self._made().read(name), size)

    def remove(self, name: str) -> None:
        """See `Target`."""
        self._made().remove(name)

    def is_same(self, name: str, path: Path) -> bool:
        """See `Target`."""
        with suppress(FileNotFoundError):
            return Path(self.location, name).samefile(path)
        return False

    def holds(self, name: str, file: _native.FolderFile) -> bool:
        """See `Target`."""
        there = self._made().read(name)
        return there is not None and _are_equal(file, there.size, lambda at: there.read_at(at, _PIECE), self.look)


class StoreFolder(Target):
    """A folder of a store. It is asked in a thread of its own, as its answers cannot be interrupted."""

    def __init__(self, url: Url) -> None:
        self._store: Store = store(url)
        super().__init__(url, self._store.name)
        self._is_made = False

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """See `Target`."""
        given: list[Answer] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                given.append(question())
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread of the caller
                failed.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_S)
            self.look()
        if failed:
            raise failed[0]
        return given[0]

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Target`."""
        return self.ask(lambda: {info.base_name: info.size for info in self._store.infos(folder) if info.is_file})

    def write(self, name: str, content: Iterator[bytes], size: int) -> None:
        """See `Target`."""
        is_over = threading.Event()

        def checked() -> Iterator[bytes]:
            for piece in content:
                if is_over.is_set():
                    # The thread that waits for it has gone on.
                    raise InterruptedError
                yield piece

        try:
            self.ask(lambda: self._write(name, checked()))
        except BaseException:
            is_over.set()
            raise
        info = self.ask(lambda: self._store.info(name))
        if info is None or info.size != size:
            raise OSError(_wrong_size(name, None if info is None else info.size, size))

    def _write(self, name: str, content: Iterator[bytes]) -> None:
        path = self._store.path(name)
        if self._store.files.type_name in _WHOLE:
            self._put(path, content)
            return
        if not self._is_made:
            self._store.files.create_dir(self._store.path(META), recursive=True)
            self._is_made = True
        folder, _, last = path.rpartition("/")
        partial = f"{folder}/.{last}.partial"
        self._put(partial, content)
        self._store.files.move(partial, path)

    def _put(self, path: str, content: Iterator[bytes]) -> None:
        stream = self._store.files.open_output_stream(path)
        try:
            for piece in content:
                stream.write(piece)
                # Else all of it may wait in memory for a slow store.
                stream.flush()
            stream.close()
        except BaseException:
            # pyarrow cannot abandon an object: half of one is complete to it, and must not stay.
            with suppress(OSError):
                stream.close()
            with suppress(OSError):
                self._store.files.delete_file(path)
            raise

    def remove(self, name: str) -> None:
        """See `Target`."""
        with suppress(FileNotFoundError):
            self.ask(lambda: self._store.files.delete_file(self._store.path(name)))

    def holds(self, name: str, file: _native.FolderFile) -> bool:
        """See `Target`."""
        there, size, checksum = self.ask(lambda: self._open(name))
        if size == file.size and checksum is not None and checksum == _md5(file, self.look):
            return True
        return _are_equal(file, size, lambda at: self.ask(lambda: there.read_at(_PIECE, at)), self.look)

    def _open(self, name: str) -> tuple[Any, int, str | None]:
        """A file, its bytes, and its MD5 if the store says it."""
        there = self._store.file(name)
        size = there.size()
        said = (there.metadata() or {}).get(b"ETag", b"").decode("ascii", "replace")
        found = _MD5.fullmatch(said)
        return there, size, found and found[1]


def _md5(file: _native.FolderFile, look: Callable[[], object]) -> str:
    checksum = hashlib.md5(usedforsecurity=False)
    for piece in pieces(file):
        look()
        checksum.update(piece)
    return checksum.hexdigest()


def _are_equal(
    here: _native.FolderFile, size: int, read_at: Callable[[int], bytes], look: Callable[[], object]
) -> bool:
    """Whether the bytes of two files are equal; of the other one its size, and what reads a piece of it."""
    if here.size != size:
        return False
    at = 0
    for piece in pieces(here):
        look()
        if read_at(at) != piece:
            return False
        at += len(piece)
    return at == size


def _need_size(name: str, file: _native.FolderFile | None, size: int) -> None:
    if file is None or file.size != size:
        raise OSError(_wrong_size(name, None if file is None else file.size, size))


def _wrong_size(name: str, found: int | None, size: int) -> str:
    return f"{name} has {'no' if found is None else found} bytes there, not {size}"
