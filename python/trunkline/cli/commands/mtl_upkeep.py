"""`trunkline mtl backup`, `export` and `import`: the store of a server, and what it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from trunkline._locations import begun_path
from trunkline._text import amount, counted
from trunkline.cli.options.shared import Json, Overwrite, example
from trunkline.cli.process.atomic import whole
from trunkline.cli.process.child import apart, removed_unless_finished
from trunkline.cli.terminal.output import Output
from trunkline.errors import LocalProtocolError

__all__ = ["BACKUP", "EXPORT", "IMPORT", "backup", "export", "import_"]

BACKUP = example("trunkline mtl backup store store-monday")
EXPORT = example("trunkline mtl export definitions.json --users users.toml --durable store")
IMPORT = example("trunkline mtl import definitions.json --users users.toml --durable store")

Store = Annotated[
    Path | None, typer.Option("--durable", metavar="DIR", help="The store of the server, for its queues.")
]
UsersFile = Annotated[
    Path | None, typer.Option("--users", metavar="FILE", help="The users file of the server.", dir_okay=False)
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile", metavar="NAME", help="A profile of the server that has queues. Repeatable. [default: queue]"
    ),
]


@apart
def backup(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The directory that --durable of the server names.")],
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="The directory to make; --durable takes it.")],
    *,
    as_json: Json = False,
) -> None:
    """Copies the store of an MTL server, also while the server uses it: its queues and contents at one moment."""
    from trunkline.mtl.definitions import back_up

    removed_unless_finished(begun_path(copy))
    copied = back_up(store, copy)
    text = f"copied {counted(copied.queues, 'queue')} with {counted(copied.contents, 'content')} ({amount(copied.bytes)}) to {copy}"
    Output(json=as_json).remark(
        "copied", text, path=str(copy), queues=copied.queues, contents=copied.contents, bytes=copied.bytes
    )


def export(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, which only its owner can read.")],
    *,
    users: UsersFile = None,
    durable: Store = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Writes the users with their permissions, and the queues with their bounds, to one file; a server may run meanwhile."""
    _need_some(users, durable)
    from trunkline.mtl.definitions import Definitions

    found = Definitions.of(users=users, durable=durable)
    with whole(out, replaces=overwrite) as part:
        part.touch(mode=0o600)
        part.write_text(found.to_json(), encoding="utf-8")
    _report("exported", f"to {out}", out, found.users, len(found.queues or ()), as_json=as_json)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that export has written.", dir_okay=False)],
    *,
    users: UsersFile = None,
    durable: Store = None,
    profile: Profiles = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Makes a users file, and adds queues to a store that no server uses, from a file that export has written."""
    _need_some(users, durable)
    from trunkline.mtl.definitions import Definitions

    found = Definitions.read(file, profiles=profile or ("queue",))
    for what, wanted, has in (("users", users, found.users), ("queues", durable, found.queues)):
        if wanted is not None and has is None:
            message = f"{file} has no {what}"
            raise LocalProtocolError(message)
    if users is not None and users.exists() and not overwrite:
        message = f"{users} already exists: choose another name, or give --overwrite"
        raise LocalProtocolError(message)
    with nullcontext() if users is None else _restored_after_an_error(users):
        if users is not None and found.users is not None:
            found.users.write(users)
        added = 0 if durable is None else found.add_queues(durable)
    _report("imported", f"from {file}", file, found.users if users is not None else None, added, as_json=as_json)


@contextmanager
def _restored_after_an_error(file: Path) -> Iterator[None]:
    """Leaves a file as it was, if what comes with it fails."""
    before = file.read_bytes() if file.exists() else None
    try:
        yield
    except BaseException:
        if before is None:
            file.unlink(missing_ok=True)
        elif file.read_bytes() != before:
            file.write_bytes(before)
        raise


def _need_some(users: Path | None, durable: Path | None) -> None:
    if users is None and durable is None:
        message = "Nothing to do: give --users, --durable or both."
        raise typer.BadParameter(message)


def _report(event: str, where: str, path: Path, users: object, queues: int, *, as_json: bool) -> None:
    count = 0 if users is None else len(users)  # type: ignore[arg-type]
    text = f"{event} {counted(count, 'user')} and {counted(queues, 'queue')} {where}"
    Output(json=as_json).remark(event, text, path=str(path), users=count, queues=queues)
