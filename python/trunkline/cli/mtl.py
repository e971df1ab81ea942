"""`trunkline mtl`: a server, its clients, and its users."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli import mtl_client, mtl_server
from trunkline.cli.family import Family
from trunkline.cli.options import Json, encodable, example
from trunkline.cli.output import Output
from trunkline.errors import LocalProtocolError

app = typer.Typer(
    cls=Family,
    help="MTL: a broker with logins, leases and confirmed delivery.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
users = typer.Typer(
    cls=Family,
    help="Manages the users of a server, and what each may read and write. A running server reloads the file on SIGHUP.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command(epilog=mtl_server.EXAMPLE)(mtl_server.server)
app.command(epilog=mtl_client.SEND)(mtl_client.send)
app.command(epilog=mtl_client.RECEIVE)(mtl_client.receive)
app.command(epilog=mtl_client.CALL)(mtl_client.call)
app.command(epilog=mtl_client.QUEUES)(mtl_client.queues)
app.add_typer(users, name="users")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user name.", show_default=False, callback=encodable)]
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
) -> None:
    """Adds a user, or changes the password of an existing one; permissions not given stay unchanged.

    Prompts for the password, or reads it from the first line of standard input.
    """
    from trunkline.mtl.users import changing

    password = _password(name)
    with changing(file) as before:
        before.adding(name, password, read=read or None, write=write or None).write(file)
    Output(json=False).note(
        f"changed the password of {name} in {file}" if name in before else f"added {name} to {file}"
    )


@users.command(epilog=example("trunkline mtl users remove ada --file users.toml"))
def remove(name: Name, *, file: File) -> None:
    """Removes a user."""
    from trunkline.mtl.users import changing

    with changing(file) as before:
        before.removing(name).write(file)
    Output(json=False).note(f"removed {name} from {file}")


@users.command("list", epilog=example("trunkline mtl users list --file users.toml"))
def list_(*, file: File, as_json: Json = False) -> None:
    """Prints the names of the users, one per line."""
    from trunkline.mtl.users import Users

    out = Output(json=as_json)
    for name in Users.read(file):
        out.result("user", name, name=name)


def _password(name: str) -> str:
    """The password, typed twice, or the first line of standard input."""
    if sys.stdin is None or not sys.stdin.isatty():
        line = sys.stdin.buffer.readline() if sys.stdin is not None else b""
        try:
            return line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            message = "the password is not UTF-8"
            raise LocalProtocolError(message) from None
    from getpass import getpass

    password = getpass(f"Password of {name}: ")
    if getpass("Repeat the password: ") != password:
        message = "the passwords differ: nothing was changed"
        raise LocalProtocolError(message)
    return password
