"""Options that select messages of a capture."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from trunkline._criteria import moment_ns, routing_id
from trunkline._native import protocols
from trunkline.cli.options.shared import encodable
from trunkline.cli.terminal.output import Output
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    from trunkline.capture import Selection

__all__ = ["Selecting", "note_unmatched"]

Value = TypeVar("Value")


def _types(incomplete: str) -> list[str]:
    """The types of messages that a shell offers."""
    known = dict.fromkeys(kind for protocol in protocols() for kind in protocol.message_types)
    return [kind for kind in known if kind.lower().startswith(incomplete.lower())]


class Direction(StrEnum):
    """The direction of a message."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True)
class Selecting:
    """The selection of messages of a capture."""

    sender: Annotated[
        str | None, typer.Option("--sender", metavar="NAME", help="Only messages of this sender.", callback=encodable)
    ] = None
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="RUN", help="Only messages of this run, by its number or id.", callback=encodable
        ),
    ] = None
    type_: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only messages of this type, e.g. BOR, REQUEST or PUT.",
            autocompletion=_types,
        ),
    ] = None
    service: Annotated[
        str | None,
        typer.Option("--service", metavar="NAME", help="Only messages about this DCP service.", callback=encodable),
    ] = None
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", help="Only messages on this topic or subject.", callback=encodable),
    ] = None
    resource: Annotated[
        str | None,
        typer.Option("--resource", metavar="NAME", help="Only messages about this MTL resource.", callback=encodable),
    ] = None
    peer: Annotated[
        str | None,
        typer.Option(
            "--peer", metavar="ID", help="Only messages from or to this routing id: text, or 0x and hexadecimal digits."
        ),
    ] = None
    direction: Annotated[
        Direction | None, typer.Option("--direction", help="Only messages received, or only messages sent.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only messages since 2026-11-23T14:00 (UTC), or 90m, 2h, 3d ago."),
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only messages before this time, in the same format.")
    ] = None
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="EXPR",
            help="Only messages for which this is true, e.g. \"type = 'DAT' and tags.run = 3\".",
            callback=encodable,
        ),
    ] = None

    def selection(self, protocol: str | None = None) -> Selection | None:
        """The selection; None for all messages."""
        from trunkline.capture import Selection

        given = {
            "protocol": None if protocol == "*" else protocol,
            "sender": self.sender,
            "run": self.run,
            "type": self.type_,
            "service": self.service,
            "topic": self.topic,
            "resource": self.resource,
            "peer": _criterion("--peer", routing_id, self.peer),
            "direction": self.direction,
            "since_ns": _criterion("--since", moment_ns, self.since),
            "until_ns": _criterion("--until", moment_ns, self.until),
            "where": self.where,
        }
        if all(value is None for value in given.values()):
            return None
        try:
            return Selection(**given)  # type: ignore[arg-type]
        except LocalProtocolError as error:
            option = "--" if str(error).startswith(("type:", "where:")) else ""
            message = f"{option}{error}{'' if str(error).endswith('?') else '.'}"
            raise typer.BadParameter(message) from None

    def source_options(self, selection: Selection | None) -> dict[str, str]:
        """The same as options of Spark's data source; with the times of a selection in place of ages."""
        names = ("sender", "run", "service", "topic", "resource", "peer", "direction", "since", "until", "where")
        given = {name: getattr(self, name) for name in names} | {"type": self.type_}
        if selection is not None:
            given |= {"since": _moment(selection.since_ns), "until": _moment(selection.until_ns)}
        return {name: str(value) for name, value in given.items() if value is not None}


def _moment(at_ns: int | None) -> str | None:
    """A time as the options take it, to the microsecond."""
    if at_ns is None:
        return None
    return datetime.fromtimestamp(at_ns // 10**9, UTC).replace(microsecond=at_ns // 1000 % 10**6).isoformat()


def note_unmatched(output: Output, directory: os.PathLike[str], selection: Selection | None, found: int) -> None:
    """Notes that no message matches the selection, as an empty result is no error."""
    if selection is not None and not found:
        output.note(f"no message in {directory} matches the selection")


def _criterion(option: str, read: Callable[[str], Value], given: str | None) -> Value | None:
    """The value of an option, if given."""
    try:
        return None if given is None else read(given)
    except LocalProtocolError as error:
        message = f"{option} {error}."
        raise typer.BadParameter(message) from None
