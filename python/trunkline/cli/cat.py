"""Prints the rows of a capture."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trunkline import errors
from trunkline._frames import of_row
from trunkline._native import decode as decode_frames
from trunkline._text import text_or_digits
from trunkline.cli.content import MessageView, Printer, received
from trunkline.cli.output import on_terminal

if TYPE_CHECKING:
    from trunkline.capture import AnyMessage, Selection

__all__ = ["Cat", "moment"]

# How often `--follow` looks for new rows.
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class _Row:
    """A row to print: its columns, its selected messages, and its error."""

    row: dict[str, Any]
    messages: list[AnyMessage]
    error: str | None


class Cat:
    """Prints the rows of a capture.

    Args:
        directory: The capture.
        selection: Which rows; all if None.
        printer: Prints their messages.
        max_message_bytes: The most bytes that a value of a row may have.
    """

    def __init__(
        self, directory: os.PathLike[str], selection: Selection | None, printer: Printer, *, max_message_bytes: int
    ) -> None:
        from trunkline import capture

        self._open = functools.partial(capture.open, directory, max_message_bytes=max_message_bytes)
        self._selection = selection
        self._printer = printer
        self._next_seq = 0

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
        for row, chosen in self._open().chosen(self._selection, first_seq=self._next_seq):
            self._next_seq = row["seq"] + 1
            decoded, error = _decoded(row)
            messages = [message for at, message in enumerate(decoded) if chosen is None or at in chosen]
            # As JSON a row is one object with whole frames, as `capture import` takes it.
            if self._printer.output.json or len(messages) < 2:
                yield _Row(row, messages, error)
            else:
                yield from (_Row(row, [message], error) for message in messages)

    def show(self, one: _Row) -> None:
        """Prints a row: each of its messages, or its error."""
        error, frames = one.error, of_row(one.row)
        row = {**one.row, **received(one.row["received_at_ns"])}
        views = [_view(message, row) for message in one.messages]
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


def _view(message: AnyMessage, row: dict[str, Any]) -> MessageView:
    view = MessageView.of(message)
    if row["protocol"] == "mtl" and view.fields.get("resource") == "":
        # A content without a resource is for the only one of its lease, which the row has.
        return replace(view, subject=row["topic"] or "", fields={**view.fields, "resource": row["topic"]})
    return view


def moment(ns: int) -> str:
    """A time in UTC, to the microsecond."""
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S") + f".{ns % 10**9 // 1000:06}"
