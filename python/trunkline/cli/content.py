"""Messages as text: their fields, and their payload as text or in hexadecimal."""

from __future__ import annotations

import codecs
import json
import shutil
import string
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline import errors
from trunkline._jsonable import plain
from trunkline._text import amount, counted, readable, text_or_digits
from trunkline.cli.cells import cut, wide
from trunkline.cli.output import Output, on_terminal

if TYPE_CHECKING:
    from trunkline.capture import AnyMessage

__all__ = ["Content", "MessageView", "Printer", "received", "sizes", "text_of"]

# How much of each payload is shown by default.
_LIMIT = 64

# How many frames of a payload are shown one by one.
_FRAMES = 8

# Names in a format for all messages, beside the fields of their protocol.
_OF_ALL = ("payload", "payload_hex", "payload_bytes", "type", "subject", "details")
_OF_PROTOCOLS = (
    *("sender", "variant", "sequence", "timestamp_ns", "tags", "config", "metadata"),
    *("service", "client", "verb", "topic", "topics", "headers", "id", "text", "ttl_ms"),
    *("name", "status", "body", "resource", "properties", "multiple", "recycle", "lease", "redelivered"),
    *("app_version_name", "endpoint_id", "config_id", "content_type", "status_code", "reason_phrase"),
    *("correlation_id", "originator_replica_id", "timestamp_ms", "timeout_ms"),
)
_OF_ROWS = (
    *("segment", "seq", "received_at", "received_at_ns", "protocol", "endpoint", "peer", "direction", "reply_to"),
    *("n_frames", "n_bytes", "error"),
)
NAMES = frozenset((*_OF_ALL, *_OF_PROTOCOLS, *_OF_ROWS))

# Fields with members, as `{tags.run}`.
_WITH_MEMBERS = ("tags", "config", "metadata", "properties", "body")


# The placeholder of a missing field.
_ABSENT = "-"

_CORRELATION_BYTES = 16

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
    """

    kind: str
    subject: str
    fields: Mapping[str, Any]
    details: Mapping[str, Any]
    payload: Sequence[bytes]
    shows_payload: bool = False

    @classmethod
    def of(cls, message: AnyMessage) -> MessageView:
        """The view of a message."""
        return _VIEWS[type(message).__module__.rpartition(".")[2]](message)

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


def _cdtp(message: Any) -> MessageView:
    names = ("sender", "variant", "timestamp_ns", "type", "sequence")
    fields = {name: getattr(message, name) for name in names}
    # Tags beyond the limits are left out.
    fields["tags"] = content = None
    with suppress(errors.DecodeError):
        fields["tags"] = message.tags
    name = {"BOR": "config", "EOR": "metadata"}.get(message.type)
    if name is not None:
        with suppress(errors.DecodeError):
            fields[name] = content = getattr(message, name)
    kind = "" if message.type is None else f"{message.type} {message.sequence}"
    details = fields["tags"] if content is None else content
    return MessageView(kind, message.sender, fields, details, message.payload, shows_payload=content is not None)


def _is_correlation(part: bytes) -> bool:
    """Whether it is a correlation id of our client: 8 random bytes and a number."""
    return len(part) == _CORRELATION_BYTES and text_or_digits(part).startswith("0x")


def _dcp(message: Any) -> MessageView:
    fields = {name: getattr(message, name) for name in ("type", "service", "client", "metadata")}
    shown = [part for at, part in enumerate(message.metadata) if at or not _is_correlation(part)]
    details = {"metadata": shown} if shown else {}
    service = "" if message.service is None else message.service.decode(errors="backslashreplace")
    return MessageView(message.type, service, fields, details, message.data)


def _mc0(message: Any) -> MessageView:
    names = ("verb", "topic", "topics", "headers", "id", "version", "ttl_ms", "text")
    fields = {name: getattr(message, name) for name in names}
    subject = " ".join(message.topics) or message.topic or ""
    # The other headers are separate fields.
    details = {name: value for name, value in message.headers if name.startswith("X-")}
    details |= {name: fields[name] for name in ("id", "ttl_ms", "text") if fields[name]}
    return MessageView(message.verb, subject, {"type": message.verb, **fields}, details, message.body)


def _mtl(message: Any) -> MessageView:
    kind = type(message).__name__
    if kind == "Message":
        names = ("type", "resource", "sequence", "properties", "multiple", "recycle", "status", "lease")
        fields = {name: getattr(message, name) for name in names}
        known = ("properties", "multiple", "recycle", "status")
        details = {name: fields[name] for name in known if fields[name] not in (None, {})}
        number = "" if message.sequence is None else f" {message.sequence}"
        payload = () if message.body is None else (message.body,)
        return MessageView(f"{message.type}{number}", message.resource or "", fields, details, payload)
    if kind == "Command":
        return MessageView(
            "command", message.name, {"type": "command", "name": message.name, "body": message.body}, message.body, ()
        )
    return MessageView(
        "reply",
        str(message.status),
        {"type": "reply", "status": message.status, "body": message.body},
        message.body,
        (),
    )


def _cdt(message: Any) -> MessageView:
    kind = type(message).__name__
    names = ("app_version_name", "endpoint_id", "config_id", "content_type", "status_code", "reason_phrase")
    more = ("correlation_id", "originator_replica_id", "timestamp_ms", "timeout_ms")
    fields = {name: getattr(message, name) for name in (*names, *more) if hasattr(message, name)}
    shown = ("config_id", "content_type", "status_code", "reason_phrase")
    details = {name: fields[name] for name in shown if fields.get(name)}
    content = getattr(message, "content", None)
    subject = f"{message.app_version_name}/{message.endpoint_id}"
    return MessageView(kind, subject, {"type": kind, **fields}, details, () if content is None else (content,))


_VIEWS: dict[str, Callable[[Any], MessageView]] = {"cdtp": _cdtp, "dcp": _dcp, "mc0": _mc0, "mtl": _mtl, "cdt": _cdt}


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

    def printer(self, output: Output) -> Printer:
        """The printer for these options."""
        if sum((self.raw, self.template is not None, output.json)) > 1:
            message = "--raw, --format and --json exclude each other."
            raise typer.BadParameter(message)
        template = None if self.template is None else _Template(self.template)
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

    def __init__(self, text: str) -> None:
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
            if name is not None and name not in NAMES and not _is_member(name):
                members = ", ".join(f"{whole}.NAME" for whole in _WITH_MEMBERS)
                message = f"--format: there is no {{{name}}}. There are {', '.join(sorted(NAMES))}, {members}."
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
    return whole in _WITH_MEMBERS and bool(member)


def _unescaped(text: str) -> str:
    for written, meant in ((r"\n", "\n"), (r"\t", "\t"), (r"\0", "\0")):
        text = text.replace(written, meant)
    return text


def _value(name: str, view: MessageView, row: Mapping[str, Any], limit: int | None) -> str | int:
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
    return _shown(view.fields.get(name, row.get(name)))


def _shown(value: Any) -> str | int:
    if value is None:
        return _ABSENT
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    shown = plain(value)
    return readable(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False))
