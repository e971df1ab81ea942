"""`trunkline keygen`: a key pair for CURVE."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline.cli.options.shared import Json, example
from trunkline.cli.terminal.output import Output
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    from trunkline.cli.terminal.json_lines import Line

EXAMPLE = example("trunkline keygen daq1 --output keys")

_HEAD = "#   ZeroMQ CURVE certificate of {name}: {half}\n\nmetadata\ncurve\n"
_PUBLIC = '    public-key = "{}"\n'
_OWN = '    secret-key = "{}"\n'


def _plain(value: str) -> str:
    """Refuses a path in place of a file name."""
    if value in ("", ".", "..") or "/" in value or not value.isprintable():
        message = f"invalid key name {value!r}: it is also used as a file name."
        raise typer.BadParameter(message)
    return value


def keygen(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The name of the key in allow-lists.", callback=_plain),
    ],
    *,
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Where to write the files.")] = Path(),
    as_json: Json = False,
) -> None:
    """Generates a CURVE key pair: NAME.key to hand out, NAME.key_secret (mode 0600) to keep secret."""
    import zmq

    public, secret = (half.decode() for half in zmq.curve_keypair())
    output.mkdir(parents=True, exist_ok=True)
    shown, hidden = output / f"{name}.key", output / f"{name}.key_secret"
    for file in (shown, hidden):
        if file.is_symlink() or file.exists():
            message = f"{file} already exists and is not overwritten: choose another name, or remove both files"
            raise LocalProtocolError(message)
    _write(hidden, 0o600, _HEAD.format(name=name, half="secret") + _PUBLIC.format(public) + _OWN.format(secret))
    try:
        _write(shown, 0o666, _HEAD.format(name=name, half="public") + _PUBLIC.format(public))
    except BaseException:
        with suppress(OSError):
            hidden.unlink()
        raise
    out = Output(json=as_json)
    if as_json:
        out.event("key", name=name, public_key=public, public_file=str(shown), secret_file=str(hidden))
    else:
        out.line(f"{shown}  public key, to hand out: {public}")
        out.line(f"{hidden}  secret key, to keep")


def _write(path: Path, mode: int, text: str) -> None:
    """Writes a new file; refuses an existing one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def json_lines() -> dict[str, list[Line]]:
    """The lines of JSON of these commands."""
    from trunkline.cli.terminal.json_lines import line

    return {
        "keygen": [line("key", name=str, public_key=str, public_file=str, secret_file=str)],
    }
