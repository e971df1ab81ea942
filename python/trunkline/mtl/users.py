"""Users files in TOML: who may log in, and what each user may read and write."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Self

from trunkline._locations import begun_name
from trunkline.errors import LocalProtocolError
from trunkline.mtl.saslprep import saslprep
from trunkline.mtl.scram import DEFAULT_ITERATIONS, Verifier, digest, unbase64

__all__ = ["User", "Users", "changing"]

_VERIFIER = "scram-sha-256"
_LIMITS = ("read", "write")
_SEED = "secret"
_SEED_BYTES = 32
# The iterations and the salt's bytes of new verifiers.
_USUAL = (DEFAULT_ITERATIONS, 16)


@dataclass(frozen=True, slots=True)
class User:
    """A user.

    Attributes:
        name: The name.
        verifier: The verifier of the password; None if the user has no password and logs in by a key.
        read: Patterns of the resources the user may read; None for all.
        write: Patterns of the resources the user may write to; None for all.
    """

    name: str
    verifier: Verifier | None = None
    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None

    def is_within(self, other: User) -> bool:
        """Whether the other user has all permissions of this one."""
        return _covers(other.read, self.read) and _covers(other.write, self.write)


class Users:
    """The users by name; immutable.

    A users file has a table for each, ``[users.NAME]``, with ``scram-sha-256`` (the verifier of the password), and ``read`` and
    ``write`` (lists of the resources they may use, where ``*`` matches any characters and ``?`` any one; all resources if
    omitted). Passwords are not stored. ``secret``, above the tables, is what salts of names that are no users are derived from:
    a server, started again or another one with the same file, has the same ones, as it has those of users.
    """

    def __init__(self, users: Iterable[User] = (), *, secret: bytes | None = None) -> None:
        self._users = {user.name: user for user in users}
        self._secret = secret
        verifiers = [user.verifier for user in self._users.values() if user.verifier is not None]
        self._shapes = sorted({(verifier.iterations, len(verifier.salt)) for verifier in verifiers}) or [_USUAL]
        # A file written by hand has no secret: salts for unknown names then change with its passwords.
        keys = b"".join(sorted(verifier.server_key for verifier in verifiers)) or os.urandom(_SEED_BYTES)
        self._seed = digest(keys) if secret is None else secret

    @classmethod
    def read(cls, source: str | os.PathLike[str] | Mapping[str, str], *, may_be_empty: bool = False) -> Self:
        """The users of a file, or of a mapping from names to passwords.

        Args:
            source: The file, or the mapping.
            may_be_empty: Whether the file may be empty, as a truncated one is: without users it still has its ``secret``.

        Raises:
            LocalProtocolError: The file is invalid or empty; the message names the file, the user and the key.
            OSError: The file cannot be read.
        """
        if isinstance(source, Mapping):
            return cls(User(_checked(name), _verifier(name, password)) for name, password in source.items())
        path = os.fspath(source)
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            _refuse(path, f"not valid TOML: {error}")
        return cls.parse(text, path, may_be_empty=may_be_empty)

    @classmethod
    def parse(cls, text: str, path: str, *, may_be_empty: bool = False) -> Self:
        """The users in the text of a file.

        Raises:
            LocalProtocolError: As by `read`; `path` is what the message names.
        """
        try:
            parsed = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            _refuse(path, f"not valid TOML: {error}")
        if not parsed and not may_be_empty:
            _refuse(path, "it is empty: users are [users.NAME], as written by `trunkline mtl users add`")
        for key in parsed:
            if key not in ("users", _SEED):
                _refuse(path, f"unknown key {key!r}: users are [users.NAME]")
        tables = parsed.get("users", {})
        if not isinstance(tables, dict):
            _refuse(path, "users must be tables: [users.NAME]")
        users = [_user(path, name, table) for name, table in tables.items()]
        return cls(users, secret=_secret(path, parsed.get(_SEED)))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the users to a file with mode 0600, atomically.

        A comment at the beginning of the file is kept; others are not.

        Raises:
            OSError: The file cannot be written.
        """
        # Writes to the target of a link, so that the link stays.
        target = Path(os.path.realpath(path))
        head = ""
        owner = None
        with suppress(FileNotFoundError):
            text = target.read_text(encoding="utf-8")
            head = "".join(re.match(r"(?:[ \t]*#.*\n)*", text).group())  # type: ignore[union-attr]
            owner = target.stat()
        try:
            _replace(target, (head + self.to_toml()).encode(), owner)
        except OSError as error:
            # Not of the file that is written first.
            raise OSError(error.errno, error.strerror, str(target)) from None

    def to_toml(self) -> str:
        """The text of a file of these users."""
        secret = os.urandom(_SEED_BYTES) if self._secret is None else self._secret
        line = f"{_SEED} = {_quoted(base64.b64encode(secret).decode())}\n"
        return "\n".join([line, *(_table(self._users[name]) for name in sorted(self._users))])

    def get(self, name: str) -> User | None:
        """The user of this name; None if unknown."""
        return self._users.get(name)

    def shape(self, name: str) -> tuple[int, bytes]:
        """The iterations and the salt for an unknown name: the same each time, and like those of users.

        Of several kinds of verifiers each name has one, which it keeps as long as there are any of that kind.
        """
        iterations, size = min(self._shapes, key=lambda shape: digest(self._seed + f"{shape} {name}".encode()))
        return iterations, hashlib.shake_256(self._seed + name.encode()).digest(size)

    def adding(
        self, name: str, password: str, *, read: Iterable[str] | None = None, write: Iterable[str] | None = None
    ) -> Users:
        """These users with one added, or with a new password for an existing one, who keeps the permissions that are not given.

        Raises:
            LocalProtocolError: The name or the password is empty, or has characters that are not allowed.
        """
        user = self._users.get(name) or User(_checked(name))
        added = replace(
            user,
            verifier=_verifier(name, password),
            read=user.read if read is None else tuple(read),
            write=user.write if write is None else tuple(write),
        )
        return Users((self._users | {name: added}).values(), secret=self._secret)

    def removing(self, name: str) -> Users:
        """These users without one.

        Raises:
            LocalProtocolError: No such user.
        """
        if name not in self._users:
            message = f"no user {name!r}"
            raise LocalProtocolError(message)
        return Users((user for user in self._users.values() if user.name != name), secret=self._secret)

    def changed(self, other: Users) -> frozenset[str]:
        """The names of users who are missing in `other`, or have fewer permissions there; passwords do not matter."""

        def may_less(user: User) -> bool:
            then = other.get(user.name)
            return then is None or not user.is_within(then)

        return frozenset(filter(lambda name: may_less(self._users[name]), self._users))

    def __contains__(self, name: object) -> bool:
        return name in self._users

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._users))

    def __len__(self) -> int:
        return len(self._users)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Users) and self._users == other._users

    def __hash__(self) -> int:
        return hash(frozenset(self._users.values()))

    def __repr__(self) -> str:
        return f"<trunkline.mtl.Users {len(self)}>"


@contextmanager
def changing(path: str | os.PathLike[str]) -> Iterator[Users]:
    """The users of a file, empty if it does not exist yet, while a lock keeps others from changing it."""
    import fcntl

    directory = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        try:
            users = Users.read(path, may_be_empty=True)
        except FileNotFoundError:
            users = Users()
        yield users
    finally:
        os.close(directory)


def _covers(wider: tuple[str, ...] | None, narrower: tuple[str, ...] | None) -> bool:
    """Whether patterns match everything that others do; False if in doubt."""
    if wider is None or narrower is None:
        return wider is None
    # Only a star of the wider pattern covers a star, which may match any number of characters.
    return all(any(_takes_in(pattern, each) for pattern in wider) for each in narrower)


def _takes_in(pattern: str, text: str) -> bool:
    """Whether a pattern matches all that another pattern does; only a star matches the star of the other."""
    star = None
    at = place = began = 0
    while place < len(text):
        char = pattern[at : at + 1]
        if char == "*":
            star, began = at, place
            at += 1
        elif char == text[place] or (char == "?" and text[place] != "*"):
            at += 1
            place += 1
        elif star is not None:
            # The last star takes one character more.
            began += 1
            at, place = star + 1, began
        else:
            return False
    return not pattern[at:].strip("*")


def _user(path: str, name: str, table: object) -> User:
    """One table of the file."""
    where = f"user {name!r}"
    try:
        _checked(name)
    except LocalProtocolError as error:
        _refuse(path, str(error))
    if not isinstance(table, dict):
        _refuse(path, f"{where} must be a table: [users.NAME]")
    for key in table:
        if key not in (_VERIFIER, *_LIMITS):
            _refuse(path, f"{where}: unknown key {key!r}: a user has {_VERIFIER}, read and write")
    verifier = table.get(_VERIFIER)
    if verifier is not None:
        if not isinstance(verifier, str):
            _refuse(path, f"{where}: {_VERIFIER} must be text, as written by `trunkline mtl users add`")
        try:
            verifier = Verifier.parse(verifier)
        except ValueError as error:
            _refuse(path, f"{where}: invalid {_VERIFIER}: {error}")
    return User(name, verifier, *(_patterns(path, where, key, table.get(key)) for key in _LIMITS))


def _secret(path: str, given: Any) -> bytes | None:
    if given is None:
        return None
    try:
        secret = unbase64(given) if isinstance(given, str) else b""
    except ValueError:
        secret = b""
    if len(secret) < _SEED_BYTES:
        _refuse(path, f"{_SEED} must be {_SEED_BYTES} bytes in BASE64, as written by `trunkline mtl users add`")
    return secret


def _patterns(path: str, where: str, key: str, given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(pattern, str) for pattern in given):
        _refuse(path, f'{where}: {key} must be a list of names or patterns, e.g. ["jobs*"]')
    return tuple(given)


def _checked(name: str) -> str:
    """Refuses names that cannot log in."""
    try:
        prepared = saslprep(name, stored=True)
    except ValueError as error:
        message = f"{name!r} is not a user name: {error}"
        raise LocalProtocolError(message) from None
    if not prepared or prepared != name:
        advice = f"write it as {prepared!r}" if prepared else "it is empty"
        message = f"{name!r} is not a user name: {advice}"
        raise LocalProtocolError(message)
    return name


def _verifier(name: str, password: str) -> Verifier:
    try:
        return Verifier.of(password)
    except ValueError as error:
        message = f"user {name!r}: invalid password: {error}"
        raise LocalProtocolError(message) from None


def _refuse(path: str, why: str) -> NoReturn:
    message = f"{path}: {why}"
    raise LocalProtocolError(message)


def _table(user: User) -> str:
    """The table of a user in the file."""
    name = user.name if re.fullmatch("[A-Za-z0-9_-]+", user.name) else _quoted(user.name)
    lines = [f"[users.{name}]"]
    if user.verifier is not None:
        lines.append(f"{_VERIFIER} = {_quoted(str(user.verifier))}")
    for key, patterns in (("read", user.read), ("write", user.write)):
        if patterns is not None:
            lines.append(f"{key} = [{', '.join(map(_quoted, patterns))}]")
    return "\n".join((*lines, ""))


def _quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub("[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found.group()):04X}", escaped) + '"'


def _replace(target: Path, text: bytes, owner: os.stat_result | None) -> None:
    """Replaces a file atomically and durably."""
    scratch = target.with_name(f"{begun_name(target)}{os.getpid()}")
    with suppress(FileNotFoundError):
        scratch.unlink()
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None and (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                # Keep the owner: a server may run as another user.
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        try:
            scratch.replace(target)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            why = "it is a mount of its own, which cannot be replaced: mount its directory"
            raise OSError(errno.EBUSY, why, str(target)) from None
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
