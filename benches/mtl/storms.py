"""Bad messages at an MTL server: random and mutated commands and data, JSON as large as it gets, and leases of nobody's."""

from __future__ import annotations

import base64
import json
import random
import string
import threading
import time
from dataclasses import dataclass

import zmq

from benches.harness import attack_with, dealers, listening, percentile, processes, withstand
from benches.mtl.peers import (
    EMPTY,
    OPEN,
    PING,
    PONG,
    ask,
    confirm,
    content,
    enter,
    lease,
    leased,
    redeem,
    reject,
    response,
    said,
    sequence_of,
    summon,
)

# Those who behave have a virtual host of their own.
QUIET = "quiet"

NAMES = ["jobs", "others", "jobs.dead", "gone", "resource", "", "x" * 255]
CLASSES = [
    "Connection.Open",
    "Connection.Authorize",
    "Connection.Profile",
    "Connection.Reader",
    "Connection.Writer",
    "Queue.Create",
    "Queue.Delete",
    "Queue.Purge",
    "Queue.Info",
    "Queue.List",
    "connection.OPEN",
    "Nobody.Knows",
]
LETTERS = b"tbBsUuIilLfdDSxTVFA"

# Deep, long, and twice the same: what parsers of JSON fall over.
MONSTERS = [
    b"[" * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"virtual-host": ' + b"9" * 10_000 + b"}",
    b'{"virtual-host": 1e' + b"9" * 10_000 + b"}",
    b'{"virtual-host": -0.' + b"0" * 10_000 + b"1}",
    b'{"virtual-host": "/", "virtual-host": 1, ' + b'"virtual-host": "/",' * 10_000 + b'"a": 1}',
    b'{"a": "\\ud800"}',
    b'{"a": NaN}',
    b"\xef\xbb\xbf{}",
]


def _command(chance: random.Random) -> list[bytes]:
    name = chance.choice(CLASSES)
    body: dict[str, object] = {}
    if name.lower() == "connection.open":
        body = {**OPEN, "virtual-host": chance.choice(["/", "/", "/", "nowhere"])}
    elif name == "Connection.Authorize":
        mechanism = chance.choice(["ANONYMOUS", "ANONYMOUS", "ANONYMOUS", "SCRAM-SHA-256", "PLAIN", "EXTERNAL"])
        first = b"n,,n=ada,r=" + base64.b64encode(chance.randbytes(9))
        text = chance.choice([first, b"", chance.randbytes(chance.randrange(60))])
        body = {"mechanism": mechanism, "response": base64.b64encode(text).decode()}
    elif name == "Connection.Profile":
        body = {"profile": chance.choice(["queue", "queue", "TEST", "none"])}
    elif name in ("Connection.Reader", "Connection.Writer"):
        body = {
            "resources": chance.sample(NAMES, chance.randrange(3)),
            "confirm": chance.choice(["none", "full", "full", "half"]),
            "window": chance.choice([1, 10, 1000, 0, -1, 1 << 40]),
        }
    elif name.startswith("Queue."):
        body = {"name": chance.choice(NAMES), "max-messages": chance.choice([1, 100, 0, None])}
    envelope = [chance.randbytes(4)] if chance.random() < 0.3 else []
    return [*envelope, b"", name.encode(), json.dumps(body).encode()]


def _table(chance: random.Random) -> bytes:
    fields = b""
    for _ in range(chance.randrange(4)):
        name = bytes(chance.choices(string.ascii_lowercase.encode(), k=chance.randrange(6)))
        kind = chance.choice(LETTERS)
        fields += bytes([len(name)]) + name + bytes([kind]) + chance.randbytes(chance.randrange(9))
    return len(fields).to_bytes(4, "big") + fields


class Attacker:
    """One who says anything, and uses what leases he is given."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._leases = ["nobody's"]

    def heard(self, frames: list[bytes]) -> None:
        """Keeps a lease that was given."""
        if frames[-2:-1] == [b"202"]:
            self._leases = [*self._leases[-50:], json.loads(frames[-1])["lease"]]

    def good(self) -> list[bytes]:
        """A message there may be."""
        chance = self._chance
        if chance.random() < 0.4:
            return _command(chance)
        sequence = chance.choice([1, 2, 3, chance.randrange(1000), 1 << 63, (1 << 64) - 1])
        name, body = chance.choice(NAMES), chance.randbytes(chance.randrange(64))
        return chance.choices(
            [
                lease(sequence, chance.choice(self._leases)),
                summon(sequence, name),
                [b"\x04" + summon(sequence, name)[0][1:], b""],
                content(sequence, body, name, chance.choice([EMPTY, _table(chance)])),
                confirm(sequence, multiple=chance.random() < 0.5),
                reject(sequence, multiple=chance.random() < 0.5, recycle=chance.random() < 0.5),
                response(sequence, chance.randrange(1000)),
                PING,
                PONG,
            ],
            [6, 3, 2, 12, 3, 3, 1, 1, 1],
        )[0]

    def bad(self) -> list[bytes]:
        """A message with something done to it, or nothing."""
        chance, frames = self._chance, self.good()
        at, kind = chance.randrange(len(frames)), chance.randrange(12)
        if kind == 0:
            return frames[:at] or [b""]
        if kind == 1:
            frames[at] = frames[at][: chance.randrange(len(frames[at]) + 1)]
        elif kind == 2 and frames[at]:
            bit = chance.randrange(len(frames[at]) * 8)
            frames[at] = (int.from_bytes(frames[at]) ^ 1 << bit).to_bytes(len(frames[at]))
        elif kind == 3:
            frames.insert(at, chance.choice([b"", chance.randbytes(chance.randrange(9))]))
        elif kind == 4:
            frames[at] += chance.randbytes(chance.randrange(4))
        elif kind == 5 and len(frames) > 1:
            frames.pop(at)
        elif kind == 6 and chance.random() < 0.003:
            frames[at] = bytes(chance.choice([1 << 16, 1 << 20, 4 << 20]))
        elif kind == 7 and chance.random() < 0.003:
            frames[at:at] = [b"x"] * chance.choice([100, 9990, 10_000])
        elif kind == 8 and chance.random() < 0.01:
            frames = [b"", b"Connection.Open", chance.choice(MONSTERS)]
        elif kind == 9 and chance.random() < 0.2:
            frames = [chance.randbytes(chance.randrange(20)) for _ in range(chance.randrange(1, 6))]
        return frames


def attack(endpoint: str, seed: int, count: int) -> int:
    """Sends so many messages, good and bad, from ever new peers; gives the number of peers."""
    chance = random.Random(seed)
    attacker = Attacker(chance)
    last = [b"last of all", b"", b"Connection.Open", json.dumps(OPEN).encode()]
    return attack_with(
        endpoint,
        count,
        lambda lives: [b"a%d-%d-%d" % (seed, lives, number) for number in range(50)],
        lambda _names: attacker.bad(),
        last,
        lambda frames: frames[0] == last[0],
        chance,
        attacker.heard,
    )


class Session:
    """One who writes to a queue of his own, and reads from it."""

    def __init__(
        self, control: zmq.Socket[bytes], writer: zmq.Socket[bytes], reader: zmq.Socket[bytes], name: str
    ) -> None:
        self._writer, self._reader = writer, reader
        opened, _ = ask(control, "Connection.Open", {**OPEN, "virtual-host": QUIET})
        if opened == 401:
            assert ask(control, "Connection.Authorize", {"mechanism": "ANONYMOUS", "response": ""})[0] == 201
        assert ask(control, "Connection.Profile", {"profile": "queue"})[0] == 200
        assert ask(control, "Queue.Create", {"name": name})[0] == 200
        redeem(writer, leased(control, "Writer", name))
        redeem(reader, leased(control, "Reader", name), name)

    def through(self, number: int, body: bytes) -> float:
        """The seconds that a content took to its writer's confirm and its reader."""
        start = time.perf_counter()
        self._writer.send_multipart(content(number, body))
        assert said(self._writer) == confirm(number)
        header, came = said(self._reader)
        took = time.perf_counter() - start
        assert (header[0], sequence_of(header), came) == (5, number, body)
        self._reader.send_multipart(confirm(number))
        return took


def behave(endpoint: str, name: bytes, over: threading.Event) -> list[float]:
    """One content after the other, one at least; how long each took. It fails when one does not come."""
    times: list[float] = []
    with dealers(endpoint, [name + role for role in (b"-c", b"-w", b"-r")]) as (control, writer, reader):
        session = Session(control, writer, reader, name.decode())
        while not (times and over.is_set()):
            times.append(session.through(len(times) + 1, b"x" * (len(times) % 1000)))
    return times


@dataclass
class Storm:
    """What became of a server under bad messages."""

    messages: int
    peers: int
    seconds: float
    passed: int
    p99_ms: float
    rss_mib: list[float]
    dropped: dict[str, int]


def storm(count: int, users: str, attackers: int = 2) -> Storm:
    """So many bad and good messages, while others go on."""
    options = ["--users", users, "--anonymous", "--resource", "jobs", "--resource", "others", "--session-idle", "5"]
    options += ["--virtual-host", "/", "--virtual-host", QUIET, "--ping-interval", "1", "--lease-idle", "2"]
    with listening("mtl", "server", *options) as running:
        seen = withstand(running, attack, behave, count, attackers)
    assert running.stats["received"] >= count
    p99_ms = percentile(seen.times, 0.99)
    return Storm(count, seen.peers, seen.seconds, len(seen.times), p99_ms, seen.rss_mib, running.stats["dropped"])


@dataclass
class Monsters:
    """The result for a server that received JSON of the largest size, and how long each took."""

    texts: int
    answered: int
    slowest_ms: float


def monsters(rounds: int) -> Monsters:
    """All of them, so many times, each followed by a command that is answered."""
    answered, times = 0, []
    with listening("mtl", "server", "--anonymous") as running, dealers(running.endpoint, [b"m"]) as (socket,):
        for _ in range(rounds):
            for name in (b"Connection.Open", b"Queue.Create"):
                for text in MONSTERS:
                    start = time.perf_counter()
                    socket.send_multipart([b"", name, text])
                    socket.send_multipart([b"then", b"", b"Connection.Open", json.dumps(OPEN).encode()])
                    while (frames := socket.recv_multipart())[0] != b"then":
                        answered += 1
                    times.append(time.perf_counter() - start)
                    assert frames[2] == b"201"
    return Monsters(len(times), answered, max(times) * 1000)


@dataclass
class Guesses:
    """The result of guessed leases."""

    guessed: int
    reused: int
    expired: int
    live: int
    let_in: int
    seconds: float


def _changed(chance: random.Random, text: str) -> str:
    """A lease that was never issued, one character off from an issued one."""
    at = chance.randrange(len(text))
    other = chance.choice([char for char in string.ascii_letters + string.digits if char != text[at]])
    return text[:at] + other + text[at + 1 :]


def _refused(socket: zmq.Socket[bytes], texts: list[str]) -> int:
    """Shows leases; returns how many were accepted."""
    let_in = 0
    for start in range(0, len(texts), 500):
        some = texts[start : start + 500]
        for number, text in enumerate(some):
            socket.send_multipart(lease(number, text))
        for number, _ in enumerate(some):
            let_in += said(socket) != response(number, 403)
    return let_in


def _show(endpoint: str, seed: int, count: int, live: list[str], used: list[str]) -> tuple[int, int, int]:
    """Shows leases, most of them guessed; returns how many were guessed, were used before, and were accepted."""
    chance = random.Random(seed)
    guess = [
        lambda: _changed(chance, chance.choice(live)),
        lambda: base64.urlsafe_b64encode(chance.randbytes(24)).decode(),
    ]
    texts = [chance.choice(used) if chance.random() < 0.1 else chance.choice(guess)() for _ in range(count)]
    reused = sum(text in set(used) for text in texts)
    with dealers(endpoint, [b"guess-%d" % seed]) as (socket,):
        return count - reused, reused, _refused(socket, texts)


def guesses(count: int, parts: int = 2) -> Guesses:
    """Shows so many leases, while there are unused valid ones, and after they have expired."""
    start = time.monotonic()
    with (
        listening("mtl", "server", "--anonymous", "--resource", "jobs", "--lease-idle", "60") as running,
        processes(parts) as pool,
        dealers(running.endpoint, [b"control", b"data"]) as (control, data),
    ):
        enter(control)
        used = [leased(control, "Reader", "jobs") for _ in range(200)]
        for number, text in enumerate(used):
            with dealers(running.endpoint, [b"used-%d" % number]) as (socket,):
                redeem(socket, text)
        live = [leased(control, "Reader", "jobs") for _ in range(1000)]
        shown = [pool.submit(_show, running.endpoint, seed, count // parts, live, used) for seed in range(parts)]
        guessed, reused, let_in = (sum(part) for part in zip(*(one.result() for one in shown), strict=True))
        # All of this has used up none of the good ones.
        redeem(data, live.pop(), "jobs")
    with (
        listening("mtl", "server", "--anonymous", "--resource", "jobs", "--lease-idle", "0.3") as running,
        dealers(running.endpoint, [b"control", b"data"]) as (control, data),
    ):
        enter(control)
        late = [leased(control, "Reader", "jobs") for _ in range(1000)]
        # There is no event when a lease expires.
        time.sleep(1)
        let_in += _refused(data, late)
    return Guesses(guessed, reused, len(late), len(live) + 1, let_in, time.monotonic() - start)
