"""`trunkline mtl users`: who may log in to a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.options.commands import Commands
from trunkline.cli.options.shared import Json, encodable, example
from trunkline.cli.terminal.output import Output
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    from trunkline.mtl.users import User

__all__ = ["PasswordFile", "password_in", "users"]

users = Commands(
    help="Manages the users of a server, and what each may read and write. A running server reloads the file on SIGHUP."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user name.", show_default=False, callback=encodable)]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from the first line of this file. [default: $TRUNKLINE_PASSWORD]",
        dir_okay=False,
    ),
]
File = Annotated[Path, typer.Option("--file", metavar="FILE", help="The users file.", dir_okay=False)]


@users.command(epilog=example("trunkline mtl users add ada --file users.toml --read 'jobs*' --write jobs"))
def add(
    name: Name,
    *,
    file: File,
    read: Annotated[
        list[str] | None,
        typer.Option(
            "--read",
            metavar="PATTERN",
            help="The resources the user may read. Repeatable. [default: all]",
            callback=encodable,
        ),
    ] = None,
    write: Annotated[
        list[str] | None,
        typer.Option(
            "--write",
            metavar="PATTERN",
            help="The resources the user may write to. Repeatable. [default: all]",
            callback=encodable,
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="Read the password from the first line of this file. [default: ask for it, or standard input]",
            dir_okay=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Adds a user, or changes the password of an existing one; permissions not given stay unchanged.

    Prompts for the password, or reads it from the first line of standard input or of a file.
    """
    from trunkline.mtl.users import changing

    password = _password(name) if password_file is None else password_in(password_file)
    with changing(file) as before:
        before.adding(name, password, read=read or None, write=write or None).write(file)
    output = Output(json=as_json)
    if name in before:
        output.remark("changed", f"changed the password of {name} in {file}", name=name, file=str(file))
    else:
        output.remark("added", f"added {name} to {file}", name=name, file=str(file))


@users.command(epilog=example("trunkline mtl users remove ada --file users.toml"))
def remove(name: Name, *, file: File, as_json: Json = False) -> None:
    """Removes a user."""
    from trunkline.mtl.users import changing

    with changing(file) as before:
        before.removing(name).write(file)
    Output(json=as_json).remark("removed", f"removed {name} from {file}", name=name, file=str(file))


@users.command("list", epilog=example("trunkline mtl users list --file users.toml"))
def list_(*, file: File, as_json: Json = False) -> None:
    """Prints the users: what each may read and write, and whether there is a password; without one a user logs in by a key."""
    from trunkline.mtl.users import Users

    found = Users.read(file, may_be_empty=True)
    users = [_described(user) for user in map(found.get, found) if user is not None]
    out = Output(json=as_json)
    out.listing("user", ("name", "password", "read", "write"), users if as_json else [*map(_in_words, users)])


def _described(user: User) -> dict[str, Any]:
    """A user as JSON has it: what may be read and written are lists of patterns, or null for everything."""
    return {"name": user.name, "password": user.verifier is not None, "read": user.read, "write": user.write}


def _in_words(user: dict[str, Any]) -> dict[str, str]:
    limits = {key: "all" if user[key] is None else ", ".join(user[key]) or "none" for key in ("read", "write")}
    return {"name": user["name"], "password": "yes" if user["password"] else "no", **limits}


def password_in(file: Path) -> str:
    """The password in the first line of a file.

    Raises:
        LocalProtocolError: It is not UTF-8.
    """
    return _decoded(file.read_bytes(), f"{file}: ")


def _password(name: str) -> str:
    """The password, typed twice, or the first line of standard input."""
    if sys.stdin is None or not sys.stdin.isatty():
        line = sys.stdin.buffer.readline() if sys.stdin is not None else b""
        return _decoded(line)
    from getpass import getpass

    password = getpass(f"Password of {name}: ")
    if getpass("Repeat the password: ") != password:
        message = "the passwords differ: nothing was changed"
        raise LocalProtocolError(message)
    return password


def _decoded(data: bytes, where: str = "") -> str:
    """The password in the first line of these bytes."""
    first, _, _ = data.partition(b"\n")
    try:
        return first.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        message = f"{where}the password is not UTF-8"
        raise LocalProtocolError(message) from None
