"""The senders of the demo, and the expected contents of the capture."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import math
import random
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from trunkline import cdtp, msgpack
from trunkline.demo import DATA
from trunkline.errors import DecodeError

__all__ = ["LAYOUT", "PLAYERS", "Player", "Tally", "frames_of"]

Frames = tuple[bytes, ...]

# The payload of the calorimeter: the energy of an event, and the samples of its pulse. Further blocks follow.
LAYOUT = "energy f32, adc u16[48]; …"

# How often a message is left out, so that one is missing, and how often one is damaged.
_SKIP_EVERY = 211
_DAMAGE_EVERY = 307


@dataclass(frozen=True, slots=True)
class Player:
    """One sending process.

    Attributes:
        name: What it is called in the demo.
        messages: How many messages it sends at least; a recording is played until then, and to its end.
        rate: How many a second; None for as many as go.
        recording: The recorded traffic it plays; None for a synthetic detector.
    """

    name: str
    messages: int
    rate: int | None = None
    recording: str | None = None


PLAYERS = (
    Player("release 0.3", 20_000, 2_000, "cdtp1-release-0.3.jsonl.gz"),
    Player("release 0.5.1", 20_000, 2_000, "cdtp1-release-0.5.1.jsonl.gz"),
    Player("release 1.0.2", 1_200, 120, "cdtp2-release-1.0.2.jsonl.gz"),
    Player("calorimeter", 10_000, 1_000),
    Player("fast detector", 1_000_000),
)


@dataclass(slots=True)
class Tally:
    """Counts of sent messages, by the names in the headers.

    Attributes:
        wire: Messages on the wire, damaged ones too.
        messages: Good messages by sender, a CDTP2 one once a record.
        missing: Sequence numbers left out, by sender.
        malformed: Damaged messages by what is wrong with them.
    """

    wire: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    malformed: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Adds the counts of another player."""
        self.wire += other.wire
        self.messages += other.messages
        self.missing += other.missing
        self.malformed += other.malformed

    def to_json(self) -> str:
        """The counts as text, for another process."""
        return json.dumps({name: getattr(self, name) for name in self.__dataclass_fields__})

    @classmethod
    def from_json(cls, text: str) -> Tally:
        """The counts from such text."""
        given = json.loads(text)
        return cls(given["wire"], *(Counter(given[name]) for name in ("messages", "missing", "malformed")))


def frames_of(player: Player, tally: Tally) -> Iterator[Frames]:
    """The messages of a player, each counted as it is returned."""
    if player.recording is not None:
        return _played(player, tally)
    return _spec(player, tally) if player.name == "calorimeter" else _fast(player, tally)


def _recorded(name: str) -> list[Frames]:
    with gzip.open(DATA / name) as lines:
        return [_named_apart(*map(base64.b64decode, json.loads(line)["frames"])) for line in lines]


def _named_apart(header: bytes, *payload: bytes) -> Frames:
    """A message with the variant in its sender's name: all releases were recorded with the same names."""
    message = cdtp.decode((header, *payload))
    first = message[0] if isinstance(message, cdtp.Batch) else message
    names = (msgpack.encode(first.sender), msgpack.encode(f"{first.sender}-{first.variant}"))
    return header.replace(*names, 1), *payload


def _played(player: Player, tally: Tally) -> Iterator[Frames]:
    assert player.recording is not None
    recorded = _recorded(player.recording)
    contents = [_contents(frames) for frames in recorded]
    skippable = _skippable(contents)
    while tally.wire < player.messages:
        for at, frames in enumerate(recorded):
            sender = contents[at][0].sender
            if at in skippable and at % _SKIP_EVERY == _SKIP_EVERY - 1:
                tally.missing[sender] += 1
                continue
            tally.wire += 1
            tally.messages[sender] += len(contents[at])
            yield frames
            if tally.wire % _DAMAGE_EVERY == 0:
                yield _damaged(frames, tally)


def _contents(frames: Frames) -> list[cdtp.Message]:
    message = cdtp.decode(frames)
    return list(message) if isinstance(message, cdtp.Batch) else [message]


def _skippable(contents: list[list[cdtp.Message]]) -> set[int]:
    """The positions where a missing message is detected: between two others of its run."""
    by_sender: dict[str, list[int]] = {}
    for at, messages in enumerate(contents):
        by_sender.setdefault(messages[0].sender, []).append(at)
    kinds = [messages[0].type if len(messages) == 1 and messages[0].variant != "2" else None for messages in contents]
    return {
        one
        for places in by_sender.values()
        for before, one, after in zip(places, places[1:], places[2:], strict=False)
        if kinds[before] == kinds[one] == kinds[after] == "DAT"
        # The next missing message is further away.
        and after - before < _SKIP_EVERY
    }


def _damaged(frames: Frames, tally: Tally) -> Frames:
    """A message with a fault in its header, a different one each time."""
    header, *payload = frames
    faults = (
        (header[: len(header) // 2], *payload),
        (header + b"\xc0", *payload),
        (b"\xa5CDTQ\x01" + header[6:], *payload),
        (b"\x93" + header, *payload),
    )
    damaged = faults[tally.malformed.total() % len(faults)]
    try:
        cdtp.decode(damaged)
    except DecodeError as error:
        tally.wire += 1
        tally.malformed[error.kind] += 1
        return damaged
    message = "the demo has damaged a message and it is still good"
    raise AssertionError(message)


def _spec(player: Player, tally: Tally) -> Iterator[Frames]:
    """A detector with the header of the specification, tags of many types, a pulse and more blocks per message."""
    name = "Calorimeter.spec"
    chance = random.Random(7)  # noqa: S311 - energies, not secrets
    falling = [math.exp(-at / 11) for at in range(48)]
    for number in range(player.messages):
        # A line over a background that falls.
        energy = chance.gauss(511, 24) if number % 3 else 640 * chance.betavariate(1, 2)
        samples = [round(chance.gauss(100, 2) + energy * of_peak) for of_peak in falling]
        tags = {"run": 7, "event": number, "energy": energy, "trigger": number % 3 == 0}
        pulse = struct.pack(f"<f{len(samples)}H", energy, *samples)
        blocks = [pulse, *[bytes(64 * (1 + number % 7))] * (number % 4)]
        stamp = 1_700_000_000_000_000_000 + number * 1_000_000
        tally.wire += 1
        tally.messages[name] += 1
        frames = cdtp.encode(cdtp.Message(name, blocks, tags=tags, timestamp_ns=stamp))
        yield frames
        if number % _DAMAGE_EVERY == _DAMAGE_EVERY - 1:
            yield _damaged(frames, tally)


def _fast(player: Player, tally: Tally) -> Iterator[Frames]:
    """A detector as fast as Python allows: headers are assembled from constant parts."""
    name = "Tracker.fast"
    blank = cdtp.Message(name, variant="B", sequence=2**64 - 1, tags={"run": 7, "layer": 3})
    before, _, after = cdtp.encode(blank)[0].partition(b"\xff" * 8)
    payload = bytes(range(64))
    run = cdtp.encode(cdtp.Message(name, b"\x80", variant="B", type="BOR", sequence=0))
    end = cdtp.encode(cdtp.Message(name, b"\x80", variant="B", type="EOR", sequence=player.messages))
    data = ((before + number.to_bytes(8) + after, payload) for number in range(1, player.messages + 1))
    for frames in itertools.chain([run], data, [end]):
        tally.wire += 1
        tally.messages[name] += 1
        yield frames
