"""What an MTL server is made of besides its contents, as one file: users with their permissions, and queues with their bounds.

A store may be read while a server uses it; it is written only where no server does.
"""

from __future__ import annotations

import json
import os
import reprlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from trunkline._locations import begun_path
from trunkline._native import mtl as _native
from trunkline._text import did_you_mean
from trunkline.errors import LocalProtocolError
from trunkline.mtl.profiles import NAME_BYTES, is_resource_name
from trunkline.mtl.users import Users

__all__ = ["Copied", "Definitions", "back_up"]

_FILE = "queues.sqlite"
# The id of the application in the header of a store.
_APPLICATION = 0x544B4C51
_FORMAT = "trunkline-mtl-definitions"
_VERSION = 1

# The largest number of a bound.
_MOST = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Copied:
    """What a backup has copied.

    Attributes:
        queues: The number of queues.
        contents: The number of contents in them.
        bytes: The size of the file.
    """

    queues: int
    contents: int
    bytes: int


def back_up(store: str | os.PathLike[str], copy: str | os.PathLike[str]) -> Copied:
    """Copies the store of an MTL server, also while a server uses it: as it stood at one moment, after whole commits.

    Not in the process of that server: SQLite loses its locks where two copies of it have a file open in one process.

    Args:
        store: The directory of ``durable``.
        copy: The directory of the copy, which must not exist; a server can be started with it.

    Raises:
        LocalProtocolError: The store is none, or the copy exists or would be inside the store.
        OSError: The copy cannot be written.
    """
    target, part = Path(copy), begun_path(Path(copy))
    with _reading(Path(store)) as source:
        if target.exists():
            message = f"{target} already exists: choose another name"
            raise LocalProtocolError(message)
        if Path(store).resolve() in target.resolve().parents:
            message = f"{target} would be inside the store {store}: choose another place"
            raise LocalProtocolError(message)
        try:
            queues, contents = _write(source, part / _FILE)
            copied = Copied(queues, contents, (part / _FILE).stat().st_size)
            part.rename(target)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(target)) from None
        except sqlite3.Error as error:
            _refuse(target, error)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return copied


def _write(source: sqlite3.Connection, file: Path) -> tuple[int, int]:
    """Copies a store to a file in a new directory.

    Returns:
        The numbers of its queues and contents.
    """
    file.parent.mkdir(mode=0o700)
    file.touch(mode=0o600)
    with closing(sqlite3.connect(file)) as written:
        # In one step, which is one view of the store: in several, each change would begin it anew.
        source.backup(written)
        # The file is complete in itself, without a log beside it.
        written.execute("PRAGMA journal_mode = DELETE")
        (verdict,) = written.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            message = f"the store is damaged: {verdict}"
            raise LocalProtocolError(message)
        (queues,) = written.execute("SELECT count(*) FROM queue").fetchone()
        (contents,) = written.execute("SELECT count(*) FROM content").fetchone()
    _sync(file)
    _sync(file.parent)
    return queues, contents


@dataclass(frozen=True, slots=True)
class Definitions:
    """Users and queues of a server.

    Attributes:
        users: The users with their permissions; None if they were not asked for.
        queues: The queues, each with its ``virtual-host``, ``profile``, ``name``, ``maker`` and bounds as `Queue.Create` takes
            them; None if they were not asked for.
    """

    users: Users | None = None
    queues: tuple[dict[str, Any], ...] | None = None

    @classmethod
    def of(
        cls, *, users: str | os.PathLike[str] | None = None, durable: str | os.PathLike[str] | None = None
    ) -> Definitions:
        """The definitions of a users file and of a store, which a server may use meanwhile.

        Raises:
            LocalProtocolError: The file is invalid, or the directory has no store.
            OSError: The file cannot be read.
        """
        found = None if users is None else Users.read(users, may_be_empty=True)
        if durable is None:
            return cls(found)
        with _reading(Path(durable)) as store:
            rows = store.execute("SELECT description FROM queue ORDER BY number").fetchall()
        return cls(found, tuple(json.loads(bytes(description)) for (description,) in rows))

    def to_json(self) -> str:
        """As the text of a file. It has the verifiers of passwords: keep it as the users file."""
        said: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
        if self.users is not None:
            said["users"] = self.users.to_toml()
        if self.queues is not None:
            said["queues"] = list(self.queues)
        return json.dumps(said, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, profiles: Sequence[str] = ("queue",)) -> Definitions:
        """The definitions in a file that `to_json` made.

        Args:
            path: The file.
            profiles: The profiles of the server that has queues.

        Raises:
            LocalProtocolError: It is none, or a server could not have such a queue; the message names the queue and the field.
            OSError: It cannot be read.
        """
        text = Path(path).read_bytes()
        try:
            said = json.loads(text)
            if not isinstance(said, dict) or said.get("format") != _FORMAT:
                raise ValueError(_FORMAT)  # noqa: TRY301 - one word for all of it
        except (ValueError, RecursionError):
            message = f"{os.fspath(path)}: is not a file of definitions, as `trunkline mtl export` writes them"
            raise LocalProtocolError(message) from None
        if said.get("version") != _VERSION:
            message = f"{os.fspath(path)}: has version {said.get('version')}, but this release supports only {_VERSION}"
            raise LocalProtocolError(message)
        users, queues = said.get("users"), said.get("queues")
        if users is not None:
            if not _is_text(users):
                message = f"{os.fspath(path)}: users is not the text of a users file"
                raise LocalProtocolError(message)
            users = Users.parse(users, f"{os.fspath(path)}, users")
        if queues is not None:
            _need_queues(os.fspath(path), queues, profiles)
        return cls(users, None if queues is None else tuple(queues))

    def add_queues(self, durable: str | os.PathLike[str]) -> int:
        """Adds the queues that a store does not have yet; the directory is made if it does not exist.

        Returns:
            How many were added.

        Raises:
            OSError: A server uses the store, or it cannot be written.
            LocalProtocolError: Its file is none.
        """
        known = set()
        if (Path(durable) / _FILE).exists():
            known = {_key(queue) for queue in Definitions.of(durable=durable).queues or ()}
        new = [queue for queue in self.queues or () if _key(queue) not in known]
        _native.define_queues(os.fspath(durable), [json.dumps(queue).encode() for queue in new])
        return len(new)


def _need_queues(path: str, queues: object, profiles: Sequence[str]) -> None:
    """Refuses queues that a server would not create, by the rules of `Queue.Create`."""
    if not (isinstance(queues, list) and all(isinstance(queue, dict) for queue in queues)):
        message = f"{path}: queues must be a list of objects with virtual-host, profile and name"
        raise LocalProtocolError(message)
    known = set()
    for number, queue in enumerate(queues, 1):
        name = queue.get("name")
        who = f"{path}: queue {number}" + (f" ({name!r})" if isinstance(name, str) and is_resource_name(name) else "")
        for field in (*_NEEDED, *queue):
            fault = _fault(field, queue.get(field), profiles)
            if fault is not None:
                message = f"{who}: {fault}"
                raise LocalProtocolError(message)
        if _key(queue) in known:
            message = f"{who}: name: another queue of its virtual-host and profile has it"
            raise LocalProtocolError(message)
        known.add(_key(queue))


def _fault(field: str, value: object, profiles: Sequence[str]) -> str | None:
    """What is wrong with a field of a queue."""
    if field not in _FIELDS:
        return f"there is no field {reprlib.repr(field)}{did_you_mean(field, _FIELDS)}"
    if field == "profile":
        is_right, expected = value in profiles, " or ".join(map(repr, profiles))
    else:
        check, expected = _FIELDS[field]
        is_right = check(value) or (value is None and field not in _NEEDED)
    if is_right:
        return None
    return f"{field}: expected {expected}, not {reprlib.repr(value)}" if value is not None else f"{field} is missing"


def _is_text(value: object) -> bool:
    """Whether it is text that UTF-8 can express."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_name(value: object) -> bool:
    return isinstance(value, str) and is_resource_name(value)


def _is_bound(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


_NAME = _is_name, f"printable text of 1 to {NAME_BYTES} bytes"
_BOUND = _is_bound, "a whole number from 1"
_TEXT = _is_text, "text"
# The fields of a queue, each with its check and what it takes. Those that may be left out may be null as well.
_FIELDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "virtual-host": _TEXT,
    "profile": _TEXT,
    "name": _NAME,
    "maker": _TEXT,
    "max-messages": _BOUND,
    "max-bytes": _BOUND,
    "ttl-ms": _BOUND,
    "dead-letter": _NAME,
}
_NEEDED = ("virtual-host", "profile", "name")


def _key(queue: dict[str, Any]) -> tuple[Any, Any, Any]:
    return queue.get("virtual-host"), queue.get("profile"), queue.get("name")


@contextmanager
def _reading(store: Path) -> Iterator[sqlite3.Connection]:
    """The file of a store, to be read.

    Raises:
        LocalProtocolError: There is no store.
    """
    file = store / _FILE
    if not file.is_file():
        message = f"{store} is not the store of an MTL server: it has no {_FILE}"
        raise LocalProtocolError(message)
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as connection:
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if application != _APPLICATION:
                message = f"{file}: is a database of another program"
                raise LocalProtocolError(message)
            yield connection
        except sqlite3.Error as error:
            _refuse(file, error)


def _refuse(file: Path, error: sqlite3.Error) -> NoReturn:
    message = f"{file}: {error}"
    raise LocalProtocolError(message) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
