"""CDTP: a sender, judged by the messages that it sends to a raw receiver."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import zmq

from trunkline._text import counted
from trunkline.conform.checks import Failed, Limits, Skipped, Subject, Suite
from trunkline.conform.sockets import Peer, ZmqBench, need_endpoint
from trunkline.conform.unpacking import Ext, Map, objects
from trunkline.errors import TrunklineError

__all__ = ["SUITE"]

_ONE, _TWO = "CDTP\x01", "CDTP\x02"
_DAT, _BOR, _EOR = range(3)
_TIMESTAMP = -1
_NANOSECONDS = 1_000_000_000

_HEADER_BYTES = 1 << 20

# How many messages are looked at, and how long they may take to come, as parts of all the time.
_MESSAGES = 1000
_FIRST, _ALL = 4, 8


@dataclass(frozen=True)
class _Message:
    """A message of a sender.

    Attributes:
        frames: Its frames.
        objects: The objects in its header.
        why: Why the header could not be read to its end; None if it could.
    """

    frames: list[bytes]
    objects: list[Any]
    why: str | None

    @property
    def header(self) -> str | None:
        """The form of its header by its first and third objects: S, A, B or 2; None if it has none."""
        kinds = self.objects
        if len(kinds) > 2 and kinds[0] == _TWO:
            return "2"
        if len(kinds) < 4 or kinds[0] != _ONE:
            return None
        if _is_timestamp(kinds[2]):
            return "S" if isinstance(kinds[3], Map) else "A"
        return "B"

    @property
    def kind(self) -> object:
        """Its type, of A, B and 2."""
        return self.objects[3] if self.header == "A" else self.objects[2]

    @property
    def sequence(self) -> object:
        """Its sequence number, of A and B."""
        return self.objects[4 if self.header == "A" else 3] if len(self.objects) > 4 else None

    @property
    def tags(self) -> Iterator[object]:
        """Its maps of tags: one, or that of each record."""
        if self.header == "2":
            yield from (record[1] for record in self.records if len(record) > 1)
        elif self.header is not None:
            yield self.objects[-1] if not isinstance(self.objects[3], Map) else self.objects[3]

    @property
    def records(self) -> list[list[Any]]:
        """The records of 2, as far as they are such."""
        every = self.objects[3] if len(self.objects) > 3 else None
        return [record for record in every if isinstance(record, list)] if isinstance(every, list) else []


def _is_timestamp(value: object) -> bool:
    return isinstance(value, Ext) and value.code == _TIMESTAMP


def _read(frames: list[bytes]) -> _Message:
    size = len(frames[0])
    if size > _HEADER_BYTES:
        return _Message(frames, [], f"the header has {size:,} bytes, which is more than this reads")
    return _Message(frames, *objects(frames[0]))


class _Bench(ZmqBench):
    """A receiver, whose messages all checks look at."""

    def __init__(self, subject: Subject, limits: Limits) -> None:
        super().__init__(subject, limits, zmq.PULL, lambda _: True, "a sender of CDTP")
        self.messages: list[_Message] = []
        self._seconds = limits.left_s

    def speaks(self) -> None:
        """Makes sure that the sender sends, and receives what it sends for a while."""
        if self.messages:
            return
        super().speaks()
        # The connection of the greeting, as another one would share the messages.
        (receiver,) = self._peers
        greeting = receiver.greeting()
        if greeting is not None and greeting.kind not in ("PUSH", None):
            message = f"{self.subject.endpoint} is a {greeting.kind}, and a sender of CDTP a PUSH"
            raise TrunklineError(message)
        self._collect(receiver)

    def _collect(self, receiver: Peer) -> None:
        first = self._seconds / _FIRST
        frames = receiver.next(first)
        if frames is None:
            message = f"{self.subject.endpoint} sent nothing within {first:g} s: let it send while it is tested"
            raise TrunklineError(message)
        for _ in self.limits.wait(self._seconds / _ALL):
            if frames is None or len(self.messages) == _MESSAGES:
                break
            self.messages.append(_read(frames))
            frames = receiver.next()

    def show(self, message: _Message) -> None:
        """Shows a message in the result of a check."""
        self.transcript.add(self.transcript.received, "receiver", message.frames)

    def every(
        self, judge: Callable[[_Message], str | None], headers: Sequence[str] = (), what: str = "message"
    ) -> None:
        """Judges each message with one of these headers, or each of them.

        Raises:
            Failed: What is wrong with one, as `judge` says.
            Skipped: There is none.
        """
        chosen = [message for message in self.messages if not headers or message.header in headers]
        if not chosen:
            wanted = f" with the header {' or '.join(headers)}" if headers else ""
            message = f"none of {counted(len(self.messages), 'message')} is a {what}{wanted}"
            raise Skipped(message)
        for at, each in enumerate(chosen):
            wrong = judge(each)
            if wrong is not None:
                self.show(each)
                failed = f"message {at + 1} of {len(chosen)}: {wrong}"
                raise Failed(failed)
        self.show(chosen[0])


SUITE = Suite(
    "a sender of CDTP",
    _Bench,
    {
        "CDTP-06": "only its user knows of which time a message is",
        "CDTP-08": "it allows, and asks for nothing",
        "CDTP-09": "receivers do this",
        "CDTP-11": "receivers do this",
        "CDTP-14": "it is for receivers",
        "CDTP-15": "trunkline conform chirp tests this",
        "CDTP-16": "receivers do this",
        "CDTP-17": "receivers do this",
        "CDTP-18": "the queue of a sender cannot be seen",
        "CDTP-19": "the end of a sender cannot be brought about from outside",
        "CDTP-20": "it takes a second receiver, which would take messages of others",
        "CDTP-23": "receivers do this",
    },
    need_endpoint,
)


@SUITE.check(
    "CDTP-02",
    "The header is MessagePack objects one after another, without an array around them",
    "MessagePack from the first byte of the first frame to its last, of four objects or more (in CDTP2 of four)",
)
def _objects(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        if message.why is not None:
            return message.why
        if message.objects and isinstance(message.objects[0], list | Map):
            return "there is an array or a map around the header"
        return None if len(message.objects) >= 4 else f"it has {counted(len(message.objects), 'object')}"

    bench.every(judge)


@SUITE.check(
    "CDTP-03",
    "The first object is the protocol's name and version",
    "the string CDTP with a byte 1, or 2 of CDTP2",
    needs=("CDTP-02",),
)
def _version(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        first = message.objects[0]
        return None if first in (_ONE, _TWO) else f"the first object is {first!r}"

    bench.every(judge)


@SUITE.check(
    "CDTP-04",
    "The second object is the sender's name, any UTF-8, possibly empty",
    "a string",
    needs=("CDTP-02",),
)
def _sender(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        second = message.objects[1]
        return None if isinstance(second, str) else f"the second object is {second!r:.100}"

    bench.every(judge)


@SUITE.check(
    "CDTP-12",
    "The third object decides which header it is",
    "a timestamp and then the tags (S), or a type and a sequence number (A); or a type and a sequence number alone (B)",
    needs=("CDTP-03",),
)
def _third(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        third, fourth = message.objects[2:4]
        if message.header == "2":
            return None
        if _is_timestamp(third):
            return None if isinstance(fourth, Map | int) else f"the fourth object is {fourth!r:.100}"
        if not isinstance(third, int) or isinstance(third, bool):
            return f"the third object is {third!r:.100}, neither a timestamp nor a type"
        return "a plain number stands for the timestamp" if isinstance(fourth, Map) else None

    bench.every(judge)


@SUITE.check(
    "CDTP-05",
    "The timestamp is MessagePack's timestamp extension, of any width",
    "an extension of type -1 with 4, 8 or 12 bytes, and less than a second of nanoseconds",
    needs=("CDTP-12",),
)
def _timestamps(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        data = message.objects[2].data
        nanoseconds = 0
        if len(data) == 8:
            nanoseconds = struct.unpack(">Q", data)[0] >> 34
        elif len(data) == 12:
            nanoseconds = struct.unpack(">Iq", data)[0]
        elif len(data) != 4:
            return f"the timestamp has {len(data)} bytes"
        return None if nanoseconds < _NANOSECONDS else f"the timestamp has {nanoseconds:,} nanoseconds"

    bench.every(judge, ("S", "A"))


@SUITE.check(
    "CDTP-07",
    "Keys of the tags are strings, their values anything MessagePack has",
    "a map with strings for keys",
    needs=("CDTP-12",),
)
def _keys(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        for tags in message.tags:
            if not isinstance(tags, Map):
                return f"the tags are {tags!r:.100}, not a map"
            for key, _ in tags:
                if not isinstance(key, str):
                    return f"{key!r:.100} is the key of a tag"
        return None

    bench.every(judge, ("S", "A", "B", "2"))


@SUITE.check(
    "CDTP-10",
    "Bytes after the header are an error, unless they are allowed",
    "nothing behind the tags in the first frame",
    needs=("CDTP-12",),
)
def _trailing(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        count = {"S": 4, "A": 6, "B": 5, "2": 4}[message.header or "S"]
        more = len(message.objects) - count
        return None if more <= 0 else f"{counted(more, 'object')} stands behind the header"

    bench.every(judge, ("S", "A", "B", "2"))


@SUITE.check(
    "CDTP-01",
    "A message has a header frame and payload frames; A and B allow data without payload",
    "a payload frame at least (S), exactly one of a message of type BOR or EOR (A, B), and none in CDTP2",
    needs=("CDTP-12",),
)
def _payload(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        payload = len(message.frames) - 1
        if message.header == "S":
            return None if payload else "there is no payload"
        if message.header == "2":
            return None if not payload else f"{counted(payload, 'frame')} follow it"
        return (
            None if message.kind == _DAT or payload == 1 else f"its type is {message.kind!r}, and its payload {payload}"
        )

    bench.every(judge, ("S", "A", "B", "2"))


@SUITE.check(
    "CDTP-13",
    "Types are 0, 1 and 2; a sequence number has 64 bits and no sign",
    "a type of 0, 1 or 2 and a sequence number that is not below 0, in A and B; such a type in CDTP2",
    needs=("CDTP-12",),
)
def _types(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        if not isinstance(message.kind, int) or isinstance(message.kind, bool) or not 0 <= message.kind <= 2:
            return f"its type is {message.kind!r:.100}"
        sequence = message.sequence
        if message.header != "2" and (not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0):
            return f"its sequence number is {sequence!r:.100}"
        return None

    bench.every(judge, ("A", "B", "2"))


@SUITE.check(
    "CDTP-22",
    "Each record of a CDTP2 message is a message",
    "an array of records: a sequence number, a map of tags, and an array of blocks of bytes each",
    needs=("CDTP-12",),
)
def _records(bench: _Bench) -> None:
    def judge(message: _Message) -> str | None:
        every = message.objects[3]
        if not isinstance(every, list):
            return f"in place of records there is {every!r:.100}"
        for record in every:
            good = isinstance(record, list) and not isinstance(record, Map) and len(record) == 3
            if not good or not isinstance(record[0], int) or record[0] < 0 or not isinstance(record[2], list):
                return f"{record!r:.100} is no record"
            if not all(isinstance(block, bytes) for block in record[2]):
                return f"a block of record {record[0]} is not bytes"
        return None

    bench.every(judge, ("2",))


def _steps(messages: Sequence[_Message]) -> Iterator[tuple[_Message, str, int, int]]:
    """The messages of runs: each with its sender, its type and its sequence number; of CDTP2 each record of data."""
    for message in messages:
        name = str(message.objects[1])
        if message.header in ("A", "B"):
            yield message, name, int(message.kind), int(message.sequence)  # type: ignore[call-overload]
        elif message.header == "2":
            kind = int(message.kind)  # type: ignore[call-overload]
            numbers = [int(record[0]) for record in message.records] if kind == _DAT else [0]
            for number in numbers:
                yield message, name, kind, number


@SUITE.check(
    "CDTP-21",
    "Sequence numbers of a run are followed and gaps counted",
    "BOR, then data with numbers that rise by one, then EOR, which has the last one of them or the next",
    needs=("CDTP-13", "CDTP-22"),
)
def _runs(bench: _Bench) -> None:
    # What is known of a sender: the type of its last message, and the last number of its data.
    last: dict[str, tuple[int, int | None]] = {}
    missing = steps = 0
    for message, name, kind, number in _steps(bench.messages):
        steps += 1
        before, at = last.get(name, (None, None))
        wrong = None
        if kind == _BOR and before in (_BOR, _DAT):
            wrong = "a run begins within another"
        elif kind == _DAT and before == _EOR:
            wrong = f"data {number} comes after the end of its run"
        elif kind == _DAT and at is not None and number <= at:
            wrong = f"data {number} comes after data {at}"
        elif kind == _EOR and message.header != "2" and at is not None and number not in (at, at + 1):
            wrong = f"the run ends with {number} after data {at}"
        if wrong is not None:
            bench.show(message)
            raise Failed(wrong)
        if kind == _DAT:
            missing += 0 if at is None else number - at - 1
            last[name] = (kind, number)
        else:
            last[name] = (kind, None)
    if not steps:
        why = "a message with header S belongs to no run"
        raise Skipped(why)
    if missing:
        why = f"{counted(missing, 'message')} are missing, which another receiver may have"
        raise Skipped(why)
