"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline._locations import Location, location_of
from trunkline._native import protocols
from trunkline._roles.endpoints import Side, host_and_port, what_is_wrong
from trunkline._text import did_you_mean, readable
from trunkline.cli.options.help import FRAMES
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    from trunkline.columns import Layout

    CapturePath = os.PathLike[str]
else:
    # Help shows the name of the type: as that of other paths.
    CapturePath = type("path", (), {})

__all__ = [
    "DECODABLE",
    "DEFAULT",
    "SOMEWHERE",
    "CapturePath",
    "Captures",
    "Check",
    "Chirp",
    "ChirpOption",
    "Codec",
    "DecodingCodec",
    "Directory",
    "DrainSeconds",
    "Group",
    "Idle",
    "Json",
    "Metrics",
    "NeededGroup",
    "Overwrite",
    "Payload",
    "Readable",
    "StatsInterval",
    "Tags",
    "decoding_options",
    "dials",
    "encodable",
    "ending_after",
    "example",
    "listed",
    "listens",
    "location",
    "need_decodable",
    "serves",
    "spoken",
]


class Codec(StrEnum):
    """The encoding of bodies of CDT."""

    JSON = "json"
    AVRO = "avro"


class Chirp(StrEnum):
    """How announcements go out."""

    MULTICAST = "multicast"
    BROADCAST = "broadcast"


def encodable(value: str | list[str] | None) -> str | list[str] | None:
    """Refuses arguments that are not UTF-8, as they cannot be sent."""
    for name in [value] if isinstance(value, str) else value or ():
        try:
            name.encode()
        except UnicodeEncodeError:
            message = f"{name!r} is not UTF-8."
            raise typer.BadParameter(message) from None
    return value


def listens(value: list[str] | None) -> list[str] | None:
    """Refuses endpoints that cannot be bound."""
    return _endpoints("bind", value)


def dials(value: list[str] | None) -> list[str] | None:
    """Refuses endpoints that cannot be dialled."""
    return _endpoints("connect", value)


def serves(value: str | None) -> str | None:
    """Refuses invalid addresses of metrics."""
    if value is not None:
        try:
            host_and_port(value)
        except LocalProtocolError as error:
            message = f"{str(error).removeprefix('metrics=')}."
            raise typer.BadParameter(message) from None
    return value


def _endpoints(side: Side, value: list[str] | None) -> list[str] | None:
    for endpoint in value or ():
        wrong = what_is_wrong(side, endpoint)
        if endpoint.startswith("inproc://"):
            wrong = "is for sockets of one process, which no other command has: use ipc:// or tcp://"
        if wrong is not None:
            message = f"{endpoint!r} {wrong}."
            raise typer.BadParameter(message)
    return value


ChirpOption = Annotated[
    Chirp,
    typer.Option("--chirp", help="How announcements are sent: broadcast for releases up to 0.4. Both are received."),
]
NeededGroup = Annotated[str, typer.Option("--group", metavar="G", help="The CHIRP group.", callback=encodable)]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="G", help="Discover and be discovered by CHIRP in this group.", callback=encodable),
]
Payload = Annotated[
    str | None,
    typer.Option(
        "--payload",
        metavar="[LAYOUT]",
        help="Add payloads: frames, or columns by a layout such as 'adc u16[]'.",
    ),
]
PayloadFile = Annotated[
    Path | None,
    typer.Option("--payload-file", metavar="FILE", help="Take the layout from a file.", dir_okay=False),
]
DecodingCodec = Annotated[
    Codec | None, typer.Option("--codec", help="The encoding of bodies, of CDT only. [default: json]")
]


def location(given: str) -> Location:
    """The location of a capture to read."""
    try:
        return location_of(given)
    except LocalProtocolError as error:
        message = f"{error}."
        raise typer.BadParameter(message) from None


# A capture to read, or a folder of them, and one to write.
Readable = Annotated[
    CapturePath, typer.Argument(metavar="DIR", help="The capture directory, or its URL.", parser=location)
]
Captures = Annotated[
    CapturePath,
    typer.Argument(metavar="DIR", help="Capture directory, folder of captures, or URL.", parser=location),
]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The capture directory.")]

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
Check = Annotated[
    bool,
    typer.Option("--check", help="Check the options and the files they name, and exit; nothing is recorded or stored."),
]
# The address of a role that is only checked.
SOMEWHERE = "tcp://127.0.0.1:*"
MaxMessageBytes = Annotated[
    int,
    typer.Option(
        "--max-message-bytes",
        min=1,
        metavar="BYTES",
        help="End with an error at a larger frame or value.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Idle = Annotated[
    float | None,
    typer.Option("--idle", min=0, metavar="S", help="End when nothing has arrived for S seconds."),
]
StatsInterval = Annotated[
    float | None,
    typer.Option("--stats-interval", min=0.01, metavar="S", help="Print the counters every S seconds."),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve the counters for Prometheus here, and /healthz; a port alone is on 127.0.0.1, and 0 a free one.",
        callback=serves,
    ),
]
DrainSeconds = Annotated[
    float,
    typer.Option(
        "--drain-seconds",
        min=0,
        metavar="S",
        help="How long to keep processing what has arrived, after a signal.",
    ),
]


def ending_after(what: str) -> Any:
    """`--count` of a command that ends by itself after so many of something."""
    return typer.Option("--count", min=0, metavar="N", help=f"End after {what}.")


def _tags(default: str) -> Any:
    text = f"Tags as columns, e.g. run=bigint,*={default}; or variant, json, none. [default: {default}]"
    return typer.Option("--tags", metavar="K=TYPE,...", help=text)


# Defaults for tables of Spark, and for other readers: only Spark and DuckDB support VARIANT.
Tags = Annotated[str | None, _tags("variant")]
CaptureTags = Annotated[str | None, _tags("json")]


# Stands for all protocols together, as in `trunkline.columns`.
_EVERY = "*"

# The protocols that can be decoded, as text, and the default one.
DECODABLE = f"{', '.join(protocol.name for protocol in protocols())}, or '{_EVERY}' for all in one table"
DEFAULT = protocols()[0].name


def decoding_options(
    tags: str | None, codec: Codec | None, *, payload: str | None, payload_file: Path | None = None
) -> dict[str, Any]:
    """The options of decoding that the command line gives."""
    options: dict[str, Any] = {} if tags is None else {"tags": _tag_columns(tags)}
    if codec is not None:
        options["codec"] = codec.value
    found = payload_of(payload, payload_file)
    if found is not False:
        options["payload"] = found
    return options


def payload_of(payload: str | None, file: Path | None) -> bool | str:
    """Whether the frames of payloads are asked for, or the layout of their bytes."""
    if file is not None:
        if payload is not None:
            message = "--payload and --payload-file exclude each other."
            raise typer.BadParameter(message)
        try:
            return file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            message = f"--payload-file {file}: {getattr(error, 'strerror', None) or 'it is not text'}."
            raise typer.BadParameter(message) from None
    if payload is None:
        return False
    word = payload.strip().lower()
    return word == FRAMES if word in {FRAMES, "false"} else payload


def report_layout(payload: str | None, file: Path | None) -> Layout | None:
    """The layout of payloads for a report; None without one."""
    from trunkline._native.columns import Layout

    given = payload_of(payload, file)
    if given is True:
        message = "--payload of a report takes a layout, such as 'adc u16[]'."
        raise typer.BadParameter(message)
    try:
        return Layout(given) if isinstance(given, str) else None
    except LocalProtocolError as error:
        message = f"--payload: {error}."
        raise typer.BadParameter(message) from None


def _tag_columns(given: str) -> dict[str, str] | str | None:
    if given in {"variant", "json"}:
        return given
    if given == "none":
        return None
    columns = {}
    for pair in given.split(","):
        name, equals, kind = pair.rpartition("=")
        if not equals or not name or not kind:
            message = f"--tags takes K=TYPE,... such as run=bigint,*=json, or variant, json or none, not {given!r}."
            raise typer.BadParameter(message)
        columns[name] = kind
    return columns


def spoken(value: str | None) -> str | None:
    """Refuses unknown protocols."""
    known = [*(protocol.name for protocol in protocols()), _EVERY]
    if value is not None and value not in known:
        hint = did_you_mean(value, known) or f" (choose from {', '.join(map(repr, known))})."
        message = f"{value!r} is no protocol{hint}"
        raise typer.BadParameter(message)
    return value


def need_decodable(protocol: str, options: Mapping[str, Any]) -> None:
    """Checks options of decoding before any work begins."""
    from trunkline._native.columns import Decoder

    try:
        Decoder(protocol, **options)
    except LocalProtocolError as error:
        message = f"{error}."
        raise typer.BadParameter(message) from None


def listed(counts: Mapping[str, int]) -> str:
    """Counts by name in brackets; empty without counts."""
    return f" ({', '.join(f'{count:,} {readable(name)}' for name, count in counts.items())})" if counts else ""


def example(*commands: str) -> str:
    """The examples at the end of a command's help."""
    # \\b keeps typer from wrapping them.
    return "\n\n".join(("Example:", *(f"\b\n  {command}" for command in commands)))
