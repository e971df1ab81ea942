"""Messages as text: their fields, and their payload as text or in hexadecimal."""

from __future__ import annotations

import codecs
import functools
import itertools
import json
import math
import shutil
import string
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline import errors
from trunkline._jsonable import plain
from trunkline._protocols import rooms
from trunkline._text import amount, counted, readable
from trunkline.cli.terminal.cells import cut, wide
from trunkline.cli.terminal.output import Output, on_terminal

if TYPE_CHECKING:
    from trunkline.capture import AnyMessage

__all__ = ["Content", "MessageView", "Printer", "Showing", "received", "sizes", "text_of"]

# How much of each payload is shown by default.
_LIMIT = 64

# How many frames of a payload are shown one by one.
_FRAMES = 8

# Names in a format for all messages, beside the fields of their protocol.
_OF_ALL = ("payload", "payload_hex", "payload_bytes", "type", "subject", "details")
_OF_ROWS = (
    *("segment", "seq", "received_at", "received_at_ns", "protocol", "endpoint", "peer", "direction", "reply_to"),
    *("n_frames", "n_bytes", "error"),
)


# What the columns of the fields of payloads begin with.
_FIELD = "payload_"

# The placeholder of a missing field.
_ABSENT = "-"

# With more than one control character in so many, it is not text.
_TEXT_TO_CONTROLS = 8

# The fewest cells of details beside a payload.
_LEAST_OF_DETAILS = 4


@dataclass(frozen=True, slots=True)
class MessageView:
    """What is printed of a message, in the same form for all protocols.

    Attributes:
        kind: Its type.
        subject: Its sender, or its topic, service or resource.
        fields: Its other fields, by their names in the API.
        details: The fields to print for people.
        payload: The payload frames.
        shows_payload: Whether the details show the payload already.
        columns: The fields of its payload, by the names of their columns.
    """

    kind: str
    subject: str
    fields: Mapping[str, Any]
    details: Mapping[str, Any]
    payload: Sequence[bytes]
    shows_payload: bool = False
    columns: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, message: AnyMessage) -> MessageView:
        """The view of a message."""
        return _showing()[type(message).__module__.rpartition(".")[2]].view(message)

    @property
    def line(self) -> str:
        """All but the payload, in a line."""
        return " ".join(filter(None, (self.head, self.words)))

    @property
    def head(self) -> str:
        """The subject and the kind."""
        return " ".join(filter(None, (readable(self.subject), self.kind)))

    @property
    def words(self) -> str:
        """The details as text."""
        return readable(json.dumps(plain(self.details), ensure_ascii=False)) if self.details else ""


@dataclass(frozen=True, slots=True)
class Showing:
    """How messages of a protocol are shown: what `SHOWING` in the module of its commands says.

    Attributes:
        view: The view of a message.
        fields: The names in a format that only some protocols have.
        members: Fields with members, as `{tags.run}`.
    """

    view: Callable[[Any], MessageView]
    fields: Collection[str]
    members: Collection[str] = ()


@functools.cache
def _showing() -> Mapping[str, Showing]:
    # Imported late: the commands import this module.
    return {name: room.SHOWING for name, room in rooms("trunkline.cli.commands")}


def _names() -> list[str]:
    """What a format can name."""
    return sorted({*_OF_ALL, *_OF_ROWS, *itertools.chain.from_iterable(each.fields for each in _showing().values())})


def _with_members() -> list[str]:
    return [name for each in _showing().values() for name in each.members]


def text_of(payload: Sequence[bytes], limit: int | None = _LIMIT) -> str:
    r"""A payload as text, or as hexadecimal digits with the length.

    >>> text_of([b"run 7\n"]), text_of([b"\x00\xff"]), text_of([b"a", b"b"]), text_of([b"abcdef"], 3)
    ('run 7\\n', '0x00ff (2 B)', 'a | b', 'abc… (6 B)')
    >>> text_of([b"\x1b[31mred alert"]), text_of([b"\x01\x00\x00\x00"])
    ('\\x1b[31mred alert', '0x01000000 (4 B)')
    """
    words = [_frame(frame, limit) for frame in payload[:_FRAMES]]
    more = f" | … ({len(payload)} frames)" if len(payload) > _FRAMES else ""
    return " | ".join(words) + more


def _frame(frame: bytes, limit: int | None) -> str:
    shown = frame if limit is None else frame[:limit]
    is_cut = len(shown) < len(frame)
    try:
        # The limit may cut a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(shown, final=not is_cut)
    except UnicodeDecodeError:
        text = "\0"
    controls = sum(not (character.isprintable() or character in "\t\r\n") for character in text)
    if controls * _TEXT_TO_CONTROLS <= len(text):
        return readable(text) + (f"… ({amount(len(frame))})" if is_cut else "")
    return f"0x{shown.hex()}{'…' * is_cut} ({amount(len(frame))})"


def received(ns: int) -> dict[str, Any]:
    """The fields of a time of receipt: a number, and text in UTC to the nanosecond."""
    at = datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return {"received_at_ns": ns, "received_at": f"{at}.{ns % 10**9:09}Z"}


def sizes(payload: Sequence[bytes]) -> str:
    """The size of a payload as text."""
    return f"{counted(len(payload), 'frame')}, {amount(sum(map(len, payload)))}"


def _names_help() -> str:
    return "Print this for each message, with {sender}, {topic}, {tags.run}, {payload} and other fields filled in."


@dataclass(frozen=True)
class Content:
    """How messages are printed."""

    raw: Annotated[
        bool, typer.Option("--raw", help="Print payloads only, byte for byte, with nothing between them.")
    ] = False
    template: Annotated[str | None, typer.Option("--format", metavar="TEXT", help=_names_help())] = None
    payload_limit: Annotated[
        int | None,
        typer.Option(
            "--payload-limit",
            min=0,
            metavar="N",
            help=f"Show at most N bytes of each frame. [default: {_LIMIT}, in lines cut to a terminal's width; with --json or --format all]",
        ),
    ] = None

    def printer(self, output: Output, columns: Collection[str] = ()) -> Printer:
        """The printer for these options; a format may also name the fields of payloads, which have these columns."""
        if sum((self.raw, self.template is not None, output.json)) > 1:
            message = "--raw, --format and --json exclude each other."
            raise typer.BadParameter(message)
        template = None if self.template is None else _Template(self.template, columns)
        return Printer(output, template, self.payload_limit, raw=self.raw)


class Printer:
    """Prints messages.

    Args:
        output: Where to print.
        template: The format of each; None for the default line.
        limit: The most bytes shown of a frame; None for the default.
        raw: Whether to print only payloads.
    """

    def __init__(self, output: Output, template: _Template | None, limit: int | None, *, raw: bool) -> None:
        self.output = output
        self._template = template
        self._raw = raw
        self._given_limit = limit
        self.limit = limit if limit is not None else None if template or output.json else _LIMIT

    @property
    def is_plain(self) -> bool:
        """Whether no option sets how messages are printed."""
        return not (self._raw or self._template or self.output.json or self._given_limit is not None)

    def event(self, view: MessageView, event: str = "message") -> None:
        """Prints a message as an event."""
        if self.output.json:
            self.output.event(event, **view.fields, **self.payload(view.payload))
        else:
            self.show(view)

    def show(self, view: MessageView, row: Mapping[str, Any] | None = None, start: str = "") -> None:
        """Prints a message as text, after the start of the line for a row of a capture."""
        if self._raw:
            self.output.whole(b"".join(view.payload))
        elif self._template is not None:
            fields = received(time.time_ns()) if row is None else row
            self.output.line(self._template.fill(view, fields, self.limit))
        else:
            # A single frame shows its own size if it is cut or not text.
            many = f"{sizes(view.payload)}: " if len(view.payload) > 1 else ""
            # A given limit takes precedence over the width of the terminal.
            is_fitted = self._given_limit is None
            payload = "" if view.shows_payload else f"{many}{text_of(view.payload, self.limit)}"
            words = view.words
            if is_fitted and on_terminal() and payload:
                words = _beside(words, payload, shutil.get_terminal_size().columns - wide(f"{start}{view.head} "))
            line = start + " ".join(filter(None, (view.head, words, payload)))
            (self.output.fitted if is_fitted else self.output.line)(line.rstrip())

    def payload(self, payload: Sequence[bytes]) -> dict[str, Any]:
        """A payload for JSON, with the sizes, as it may be cut."""
        shown = payload if self.limit is None else [frame[: self.limit] for frame in payload]
        return {"payload_sizes": list(map(len, payload)), "payload": shown}


def _beside(words: str, payload: str, room: int) -> str:
    """The details, cut to leave the payload the room that it needs, or a third of all.

    >>> _beside('{"run": 7}', "hello", 30), _beside('{"run": 7, "channel": 12}', "hello, world", 20)
    ('{"run": 7}', '{"run": 7, …')
    """
    most = room - 1 - min(wide(payload), -(-room // 3))
    # Very short details are left out.
    return cut(words, most) if most >= _LEAST_OF_DETAILS else ""


class _Template:
    r"""A format with names of fields.

    >>> _Template("{sender}\\t{payload}").fill(MessageView("", "a", {"sender": "Det"}, {}, [b"x"]), {}, None)
    'Det\tx'
    """

    def __init__(self, text: str, columns: Collection[str] = ()) -> None:
        fields = {name: name.removeprefix(_FIELD) for name in columns}
        known = {*_names(), *fields, *fields.values()}
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            message = f"--format: {error}."
            raise typer.BadParameter(message) from None
        self._parts = [(_unescaped(literal), name, spec or "") for literal, name, spec, _ in parts]
        for _, name, _, conversion in parts:
            if conversion is not None:
                message = (
                    f"--format: {{{name}!{conversion}}}: values are text and numbers already; leave out !{conversion}."
                )
                raise typer.BadParameter(message)
            if name is not None and name not in known and not _is_member(name):
                members = ", ".join(f"{whole}.NAME" for whole in _with_members())
                message = f"--format: there is no {{{name}}}. There are {', '.join(sorted(known))}, {members}."
                raise typer.BadParameter(message)

    def fill(self, view: MessageView, row: Mapping[str, Any], limit: int | None) -> str:
        """The line of a message, with a hyphen for a missing field, or nothing if the format wants a number."""
        line = ""
        for literal, name, spec in self._parts:
            line += literal
            if name is not None:
                value = _value(name, view, row, limit)
                try:
                    line += format(value, spec)
                except ValueError as error:
                    if value == _ABSENT:
                        continue
                    message = f"--format: {{{name}:{spec}}}: {error}"
                    raise errors.LocalProtocolError(message) from None
        return line


def _is_member(name: str) -> bool:
    whole, _, member = name.partition(".")
    return bool(member) and whole in _with_members()


def _unescaped(text: str) -> str:
    for written, meant in ((r"\n", "\n"), (r"\t", "\t"), (r"\0", "\0")):
        text = text.replace(written, meant)
    return text


def _value(name: str, view: MessageView, row: Mapping[str, Any], limit: int | None) -> str | float:
    if name == "payload" or (name == "body" and name not in view.fields):
        return text_of(view.payload, limit)
    if _is_member(name):
        whole, _, member = name.partition(".")
        members = view.fields.get(whole)
        return _shown(members.get(member) if isinstance(members, Mapping) else None)
    if name == "payload_hex":
        return b"".join(view.payload).hex()
    if name == "payload_bytes":
        return sum(map(len, view.payload))
    if name in ("subject", "details"):
        return readable(view.subject) if name == "subject" else view.words
    return _shown(next((of[name] for of in (view.columns, view.fields, row) if name in of), None))


def _shown(value: Any) -> str | float:
    if value is None:
        return _ABSENT
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    shown = plain(value)
    return readable(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False))
