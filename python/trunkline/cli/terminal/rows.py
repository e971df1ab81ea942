"""Prints the rows of a capture."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from trunkline import errors
from trunkline._frames import of_row
from trunkline._native import decode as decode_frames
from trunkline._text import counted, text_or_digits
from trunkline.cli.terminal.content import MessageView, Printer, received
from trunkline.cli.terminal.output import on_terminal

if TYPE_CHECKING:
    from trunkline._locations import Location
    from trunkline.capture import AnyMessage, Selection
    from trunkline.capture.passed import Span

__all__ = ["Cat", "Fields", "moment"]

_logger = logging.getLogger("trunkline.capture")

# How often `--follow` looks for new rows.
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class _Row:
    """A row to print: its columns, its selected messages with the fields of their payloads, and its error."""

    row: dict[str, Any]
    messages: list[tuple[AnyMessage, dict[str, Any] | None]]
    error: str | None


class Fields:
    """The fields of payloads by a layout.

    Args:
        layout: Its text.

    Raises:
        typer.BadParameter: It is none, or pyarrow is not installed.
    """

    def __init__(self, layout: str) -> None:
        from trunkline.columns import Decoder, Layout

        try:
            self.layout = Layout(layout)
        except errors.LocalProtocolError as error:
            message = f"--payload: {error}."
            raise typer.BadParameter(message) from None
        self._decoder = functools.cache(lambda protocol: Decoder(protocol, payload=self.layout))

    def of(self, row: dict[str, Any], messages: int) -> list[dict[str, Any] | None]:
        """Those of each message of a row, by their columns; of a payload that is not of the layout its error."""
        import pyarrow as pa

        from trunkline.columns import FIELD

        try:
            decoder = self._decoder(row["protocol"])
        except errors.LocalProtocolError:
            # Messages of this protocol lack the tag that says what their bytes are.
            return [None] * messages
        if not messages:
            return []
        types = {"header": pa.binary(), "topic": pa.string(), "n_frames": pa.int64(), "n_bytes": pa.int64()}
        frames = {name: pa.array([row[name]], types.get(name, pa.list_(pa.binary()))) for name, _, _ in decoder.inputs}
        found: list[dict[str, Any] | None] = []
        wanted = [*self.layout.columns, "error"]
        for _, batch in decoder.decode_rows(**frames, only=wanted):
            for each in batch.to_pylist():
                wrong = each.pop("error")
                is_wrong = wrong is not None and wrong.startswith(FIELD)
                found.append(
                    {"error": wrong} if is_wrong else each if any(v is not None for v in each.values()) else None
                )
        return found if len(found) == messages else [None] * messages


class Cat:
    """Prints the rows of a capture.

    Args:
        directory: The capture.
        selection: Which rows; all if None.
        printer: Prints their messages.
        max_message_bytes: The most bytes that a value of a row may have.
        fields: What the bytes of payloads are; their bytes are printed if None.
    """

    def __init__(
        self,
        directory: os.PathLike[str],
        selection: Selection | None,
        printer: Printer,
        *,
        max_message_bytes: int,
        fields: Fields | None = None,
    ) -> None:
        from trunkline import capture
        from trunkline.capture.passed import Passed

        self._open = functools.partial(capture.open, directory, max_message_bytes=max_message_bytes)
        self._selection = selection
        self._printer = printer
        self._fields = fields
        self._next_seq = 0
        self._passed = Passed()

    def rows(self, head: int | None, tail: int | None, *, follow: bool) -> Iterator[_Row]:
        """The wanted rows: the first, the last or all, and with `follow` new ones.

        Without --json, each message is a row, so that `head` and `tail` count printed lines.
        """
        rows = self._rest()
        yield from deque(rows, maxlen=tail) if tail is not None else itertools.islice(rows, head)
        while follow:
            time.sleep(_LOOK_S)
            self._printer.output.need_reader()
            yield from self._rest()

    def _rest(self) -> Iterator[_Row]:
        """The rows since the last time."""
        opened = self._open()
        gone = self._passed.look(opened)
        if gone:
            self._warn(opened.path, gone, next(opened.rows(first_seq=self._next_seq), None))
        for row, chosen in opened.chosen(
            self._selection, first_seq=self._next_seq, payload=False if self._fields is None else self._fields.layout
        ):
            self._next_seq = row["seq"] + 1
            decoded, error = _decoded(row)
            read = [None] * len(decoded) if self._fields is None else self._fields.of(row, len(decoded))
            messages = [
                (message, fields)
                for at, (message, fields) in enumerate(zip(decoded, read, strict=True))
                if chosen is None or at in chosen
            ]
            # As JSON a row is one object with whole frames, as `capture import` takes it.
            if self._printer.output.json or len(messages) < 2:
                yield _Row(row, messages, error)
            else:
                yield from (_Row(row, [message], error) for message in messages)

    def _warn(self, path: Location, gone: Sequence[Span], row: dict[str, Any] | None) -> None:
        """Warns of segments that were deleted since the last time; `row` is the first one after them."""
        from trunkline.capture.passed import missing

        text = missing(path, gone)
        if self._selection is None and row is not None:
            messages = row["seq"] - self._next_seq
            if not messages:
                # They were read in the journal.
                return
            text += f"; {counted(messages, 'message')}"
        _logger.warning("%s", text)

    def show(self, one: _Row) -> None:
        """Prints a row: each of its messages, or its error."""
        error, frames = one.error, of_row(one.row)
        row = {**one.row, **received(one.row["received_at_ns"])}
        views = [_view(message, row, fields) for message, fields in one.messages]
        if self._printer.output.json:
            messages = [{**one.fields, **self._printer.payload(one.payload)} for one in views]
            self._printer.output.event("row", **row, messages=messages)
            return
        peer = None if row["peer"] is None else text_or_digits(row["peer"])
        fields = {**row, "error": error, "peer": peer}
        at = moment(row["received_at_ns"])
        # On a terminal without the year, and to the millisecond.
        start = (
            f"{row['seq']:>6} {at[5:-3]} {row['direction']:<3} "
            if on_terminal()
            else f"{row['seq']:>8} {at} {row['direction']:<3} "
        )
        # Brokers and servers have several peers.
        start += f"{peer} " if peer else ""
        if error is not None:
            views = [MessageView("", f"error {error}", {}, {}, frames)]
        for each in views or [MessageView("", row["protocol"], {}, {}, frames)]:
            self._printer.show(each, fields, start)


def _decoded(row: dict[str, Any]) -> tuple[list[AnyMessage], str | None]:
    """The messages of a row, and its error."""
    try:
        return list(decode_frames(row["protocol"], of_row(row), row["topic"]) or ()), row["error"]
    except errors.DecodeError as fault:
        return [], fault.kind


def _view(message: AnyMessage, row: dict[str, Any], fields: dict[str, Any] | None) -> MessageView:
    view = MessageView.of(message)
    if fields is not None:
        from trunkline.columns import FIELD

        # The name that a field has in the layout, unless the message has one of that name.
        own = {*view.fields, *view.details, *row, "payload", "payload_sizes", "error"}
        plain = {name: name.removeprefix(FIELD) for name in fields}
        named = {name if plain[name] in own else plain[name]: value for name, value in fields.items()}
        view = replace(
            view,
            fields={**view.fields, **named},
            details={**view.details, **named},
            shows_payload="error" not in named,
            columns={name: value for name, value in fields.items() if name.startswith(FIELD)},
        )
    if row["protocol"] == "mtl" and view.fields.get("resource") == "":
        # A content without a resource is for the only one of its lease, which the row has.
        return replace(view, subject=row["topic"] or "", fields={**view.fields, "resource": row["topic"]})
    return view


def moment(ns: int) -> str:
    """A time in UTC, to the microsecond."""
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S") + f".{ns % 10**9 // 1000:06}"
