"""`trunkline mtl users`: who may log in to a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.family import Family
from trunkline.cli.options import Json, encodable, example
from trunkline.cli.output import Output
from trunkline.errors import LocalProtocolError

__all__ = ["PasswordFile", "password_in", "users"]

users = typer.Typer(
    cls=Family,
    help="Manages the users of a server, and what each may read and write. A running server reloads the file on SIGHUP.",
    no_args_is_help=True,
    rich_markup_mode=None,
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
    """Prints the names of the users, one per line."""
    from trunkline.mtl.users import Users

    out = Output(json=as_json)
    for name in Users.read(file, may_be_empty=True):
        out.result("user", name, name=name)


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
