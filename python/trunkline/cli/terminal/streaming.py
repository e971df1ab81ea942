"""Fast JSON lines for messages of CDTP: hundreds of thousands a second."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING

from trunkline._jsonable import encode, text_of_bytes

if TYPE_CHECKING:
    from trunkline.cdtp import Message

__all__ = ["Lines"]

# Types that JSON holds as they are. Not floats, which may be NaN, nor maps, which may have other keys than strings.
_SIMPLE = {str, int, bool, type(None)}

# How many encoded names of senders are cached, and their longest length: strangers choose them.
_NAMES = 1000
_NAME = 200


class Lines:
    """Writes the same lines as `Printer.event` for the most frequent messages: data with simple tags.

    Args:
        limit: The most bytes that are shown of a frame; None for all.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._names: dict[str, str] = {}

    def of(self, message: Message) -> str | None:
        """The line of a message; None if `Printer.event` has to write it."""
        if message.type in ("BOR", "EOR"):
            return None
        tags = message.tags
        if not _SIMPLE.issuperset(map(type, tags.values())):
            return None
        name = self._names.get(message.sender) or self._name(message.sender)
        kind, sequence, timestamp = message.type, message.sequence, message.timestamp_ns
        payload = message.payload
        return (
            f'{{"event": "message", "sender": {name}, "variant": "{message.variant}", '
            f'"timestamp_ns": {"null" if timestamp is None else timestamp}, '
            f'"type": {"null" if kind is None else f"{chr(34)}{kind}{chr(34)}"}, '
            f'"sequence": {"null" if sequence is None else sequence}, '
            f'"tags": {encode(tags) if tags else "{}"}, '
            f'"payload_sizes": [{", ".join([str(len(frame)) for frame in payload])}], '
            f'"payload": [{", ".join([self._frame(frame) for frame in payload])}]}}'
        )

    def _name(self, sender: str) -> str:
        name = encode_basestring_ascii(sender)
        if len(sender) <= _NAME:
            if len(self._names) == _NAMES:
                self._names.clear()
            self._names[sender] = name
        return name

    def _frame(self, frame: bytes) -> str:
        shown = text_of_bytes(frame if self._limit is None else frame[: self._limit])
        return encode_basestring_ascii(shown) if isinstance(shown, str) else encode(shown)
