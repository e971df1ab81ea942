"""Hours of mixed load, in pieces that run side by side: `python -m benches.endurance [--seconds S] [--pieces N] [--fast]`.

A piece is a broker, a middleware, an MTL server and a recorder, commands in processes of their own, two of the four with CURVE;
their peers, half of them bare sockets and half of them roles of ours, come, send bursts and go, while strangers connect, break off
and send what makes no sense. Nothing may be lost; memory is flat; no descriptor is left. Each run is added to those before it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

import msgpack
import zmq

from benches.harness import Keys, bare, certificates, listening
from benches.mc0.peers import answers, noop, put, sub
from benches.measure import RESULTS, machine, save
from benches.mtl.peers import confirm, content, dismiss, enter, leased, redeem, response, said, sequence_of
from benches.processes import PATIENCE_S, RoleProcess
from trunkline import Curve, cdtp, dcp, mc0, mtl

NAME = "endurance"
HEAD = [b"", b"DGBX\x01"]
# Peers of one role rest for up to this long after each burst: many pieces are to run side by side.
QUIET_S = 8.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


@dataclass
class Watched:
    """A role that was looked at over its whole life.

    Attributes:
        messages: Sent by its peers, or by it to them, each counted once and none lost.
        lives: Peers that came and went.
        strangers: Those of them that meant no good.
        rss_mib: Its memory in the last quarter of its life.
        grown_mib: By how much that is more than in the second quarter.
        files_left: The descriptors it has after its last peer had gone beyond those before its first one.
        wrong: What was not as it has to be.
    """

    messages: int = 0
    lives: int = 0
    strangers: int = 0
    rss_mib: float = 0.0
    grown_mib: float = 0.0
    files_left: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Target:
    """Where peers connect to, and with what keys."""

    endpoint: str
    keys: Keys | None
    chance: random.Random

    def bare(self, kind: int) -> contextlib.AbstractContextManager[Any]:
        """A socket of pyzmq."""
        return bare(kind, self.endpoint, {} if self.keys is None else self.keys.bare)

    @property
    def options(self) -> dict[str, Any]:
        """For a role of ours."""
        if self.keys is None:
            return {"connect": self.endpoint}
        return {"connect": self.endpoint, "curve": Curve(self.keys.secret, server_key=self.keys.server)}

    def bodies(self) -> list[bytes]:
        """A burst: mostly of small messages, now and then of large ones."""
        sizes = (0, 40, 200, 1000, 8192, 70_000)
        return [self.chance.randbytes(self.chance.choices(sizes, (2, 8, 8, 4, 2, 1))[0]) for _ in range(self.count())]

    def count(self) -> int:
        """Messages of a burst: fewer than libzmq's high-water marks."""
        return self.chance.randrange(1, 300)


Life = Callable[[Target], int]


def requests_bare(target: Target) -> int:
    """A worker and a client of DCP: every request is answered with its own data."""
    service = target.chance.randbytes(8)
    with target.bare(zmq.DEALER) as worker, target.bare(zmq.DEALER) as client:
        worker.send_multipart([*HEAD, b"\x01", service])
        bodies = target.bodies()
        for number, body in enumerate(bodies):
            client.send_multipart([*HEAD, b"\x04", service, b"", b"%d" % number, b"", body])
        for _ in bodies:
            while (frames := worker.recv_multipart())[2] != b"\x04":
                pass
            worker.send_multipart([*HEAD, b"\x05", *frames[4:]])
        for number, body in enumerate(bodies):
            while (frames := client.recv_multipart())[2] != b"\x05":
                pass
            assert frames[-3:] == [b"%d" % number, b"", body], frames[:6]
        return len(bodies)


def requests_ours(target: Target) -> int:
    """The same with our own."""
    service = target.chance.randbytes(8)
    with dcp.Worker(service, **target.options) as worker, dcp.Client(**target.options) as client:
        thread = threading.Thread(target=worker.serve, args=[lambda request: request.data])
        thread.start()
        bodies = target.bodies()
        waiting = [client.submit(service, body) for body in bodies]
        for body, one in zip(bodies, waiting, strict=True):
            assert [bytes(part) for part in one.result(PATIENCE_S).data] == [body]
        worker.stop()
        thread.join(PATIENCE_S)
        return len(bodies)


def topics_bare(target: Target) -> int:
    """Two subscribers and a publisher of mc0: each has every message, in order."""
    topic = target.chance.randbytes(8)
    with target.bare(zmq.DEALER) as first, target.bare(zmq.DEALER) as second, target.bare(zmq.DEALER) as publisher:
        for subscriber in (first, second):
            subscriber.send_multipart(sub(topic, id_=b"s"))
            assert answers(subscriber.recv_multipart(), b"s")
        bodies = target.bodies()
        for body in bodies:
            publisher.send_multipart(put(topic, body))
        publisher.send_multipart(noop(b"end"))
        assert answers(publisher.recv_multipart(), b"end")
        for subscriber in (first, second):
            for body in bodies:
                assert subscriber.recv_multipart()[-1] == body
        return 2 * len(bodies)


def topics_ours(target: Target) -> int:
    """The same with our own."""
    topic = target.chance.randbytes(8)
    with mc0.Connector(**target.options) as subscriber, mc0.Connector(**target.options) as publisher:
        subscriber.subscribe(topic)
        bodies = target.bodies()
        for body in bodies:
            publisher.put(topic, body)
        for body in bodies:
            assert bytes(subscriber.receive(timeout_s=PATIENCE_S).body[0]) == body
        return len(bodies)


def contents_bare(target: Target) -> int:
    """A writer and a reader of MTL: every content is delivered and confirmed, both ways."""
    with (
        target.bare(zmq.DEALER) as control,
        target.bare(zmq.DEALER) as writer,
        target.bare(zmq.DEALER) as reader,
    ):
        enter(control)
        redeem(writer, leased(control, "Writer", "bare"))
        redeem(reader, leased(control, "Reader", "bare", window=1000), "bare")
        bodies = target.bodies()
        for number, body in enumerate(bodies):
            writer.send_multipart(content(2 + number, body))
        for body in bodies:
            header, got = said(reader)
            assert got == body
            reader.send_multipart(confirm(sequence_of(header)))
        confirmed = 1
        while confirmed < 1 + len(bodies):
            header = said(writer)[0]
            assert header[:1] == b"\x06", header
            assert sequence_of(header) == confirmed + 1 or header[9], (header, confirmed)
            confirmed = sequence_of(header)
        reader.send_multipart(dismiss(3, "bare"))
        assert said(reader) == response(3, 200)
        return len(bodies)


def contents_ours(target: Target) -> int:
    """The same with our own."""
    with mtl.Client(profile="queue", **target.options) as client:
        with client.writer("ours", confirm="full") as writer, client.reader("ours", confirm="full") as reader:
            reader.summon("ours")
            bodies = target.bodies()
            for body in bodies:
                writer.send(body, timeout_s=PATIENCE_S)
            for body in bodies:
                got = reader.receive(timeout_s=PATIENCE_S)
                assert bytes(got.body) == body
                reader.confirm(got)
            writer.flush(timeout_s=PATIENCE_S)
        return len(bodies)


def data_bare(target: Target) -> int:
    """A sender of CDTP."""
    with target.bare(zmq.PUSH) as push:
        bodies = target.bodies()
        name = msgpack.packb(target.chance.randbytes(4).hex())
        for body in bodies:
            push.send_multipart([b"\xa5CDTP\x01" + name + msgpack.packb(msgpack.Timestamp(1, 0)) + b"\x80", body])
        return len(bodies)


def data_ours(target: Target) -> int:
    """The same with our own: the BOR and the EOR count as well."""
    with cdtp.Sender(target.chance.randbytes(4).hex(), header="A", **target.options) as sender:
        sender.begin_run({})
        bodies = target.bodies()
        for body in bodies:
            sender.send(body, timeout_s=PATIENCE_S)
        sender.end_run({})
        sender.flush(timeout_s=PATIENCE_S)
        return len(bodies) + 2


ROLES: dict[str, tuple[list[str], tuple[Life, Life]]] = {
    "dcp broker": ([], (requests_bare, requests_ours)),
    "mc0 middleware": ([], (topics_bare, topics_ours)),
    "mtl server": (["--anonymous", "--resource", "bare", "--resource", "ours"], (contents_bare, contents_ours)),
    "cdtp record": (
        ["--segment-bytes", "8000000", "--keep-bytes", "32000000"],
        (data_bare, data_ours),
    ),
}


def stranger(target: Target) -> None:
    """Connects, says something that is no good, or nothing, and is gone."""
    host, port = target.endpoint.removeprefix("tcp://").rsplit(":", 1)
    chance = target.chance
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=PATIENCE_S) as stream:
        begun = GREETING + READY + b"\x01\x04abcd" * chance.randrange(20)
        said = chance.choice(
            [b"", chance.randbytes(chance.randrange(200)), begun, begun[: chance.randrange(len(begun))]]
        )
        stream.sendall(said)
        time.sleep(chance.choice([0, 0, 0.01, 0.5]))
        if chance.random() < 0.5:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def exercise(name: str, running: RoleProcess, keys: Keys | None, seed: int, end: float, watched: Watched) -> None:
    """Lets peers come and go at a role until the end."""
    target = Target(running.endpoint, keys, random.Random(seed))
    lives = ROLES[name][1]
    files_before, rss = running.files, []
    began = time.monotonic()
    quarter = (end - began) / 4
    try:
        while time.monotonic() < end:
            watched.messages += target.chance.choice(lives)(target)
            watched.lives += 1
            for _ in range(target.chance.randrange(3)):
                stranger(target)
                watched.strangers += 1
            rss.append((time.monotonic(), running.rss_mib))
            time.sleep(target.chance.uniform(0, min(QUIET_S, quarter / 10)))
        if name == "cdtp record":
            running.until(lambda stats: stats["received"] >= watched.messages)
            if (received := running.stats["received"]) != watched.messages:
                watched.wrong.append(f"{received} messages recorded of {watched.messages}")
        # Strangers that were cut off within a handshake have ten seconds.
        until = time.monotonic() + PATIENCE_S
        while (left := running.files - files_before) > 0 and time.monotonic() < until:
            time.sleep(0.1)
        watched.files_left = max(left, 0)
        second = statistics.median(mib for at, mib in rss if quarter <= at - began < 2 * quarter)
        watched.rss_mib = statistics.median(mib for at, mib in rss if at - began >= 3 * quarter)
        watched.grown_mib = watched.rss_mib - second
    except Exception as error:  # noqa: BLE001 - it is reported
        where = traceback.extract_tb(error.__traceback__)[-1]
        watched.wrong.append(f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")


def piece(seed: int, seconds: float) -> dict[str, Watched]:
    """Runs one piece in this process."""
    chance = random.Random(seed)
    guarded = set(chance.sample(sorted(ROLES), len(ROLES) // 2))
    watched = {name: Watched() for name in ROLES}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        keys = certificates(folder)
        roles = {}
        for name, (options, _) in ROLES.items():
            more = [*options, *(keys.options if name in guarded else [])]
            if name == "cdtp record":
                more += ["--capture", f"{folder}/capture", "--segment-seconds", str(min(30.0, seconds / 2))]
            roles[name] = stack.enter_context(listening(*name.split(), *more, interval_s=1.0))
        # The time begins once all have started, which may take as long on a busy machine.
        end = time.monotonic() + seconds
        threads = []
        for name, running in roles.items():
            of_it = keys if name in guarded else None
            arguments = (name, running, of_it, chance.getrandbits(32), end, watched[name])
            threads.append(threading.Thread(target=exercise, args=arguments))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return watched


def table(runs: list[dict[str, Any]]) -> list[str]:
    """All runs so far, role by role."""
    hours = sum(run["hours"] for run in runs)
    lines = [f"{hours:.1f} hours in {sum(run['pieces'] for run in runs)} pieces.", ""]
    lines += [
        "| role | messages, none lost | peers | strangers | memory, MiB | grown by: median, most | descriptors left | seen |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for name in ROLES:
        ones = [Watched(**one[name]) for run in runs for one in run["watched"]]
        growth = [one.grown_mib for one in ones]
        lines.append(
            f"| {name} | {sum(one.messages for one in ones):,} | {sum(one.lives for one in ones):,} "
            f"| {sum(one.strangers for one in ones):,} | {statistics.median(one.rss_mib for one in ones):.0f} "
            f"| {statistics.median(growth):.1f}, {max(growth):.1f} | {sum(one.files_left for one in ones)} "
            f"| {'; '.join(wrong for one in ones for wrong in one.wrong) or 'as it has to be'} |"
        )
    return lines


def result(process: subprocess.Popen[str], log: TextIO) -> dict[str, Any]:
    """What a piece came to."""
    said, _ = process.communicate()
    if process.returncode:
        log.seek(0)
        lines = [line for line in log if not line.startswith("trunkline: ")]
        return {name: asdict(Watched(wrong=["".join(lines[-40:])])) for name in ROLES}
    watched: dict[str, Any] = json.loads(said)
    return watched


def main(seconds: float, pieces: int, *, is_kept: bool = True) -> int:
    """Runs pieces side by side, and writes what came out of all that ran."""
    command = [sys.executable, "-m", "benches.endurance", "--seconds", str(seconds), "--seed"]
    first = random.SystemRandom().getrandbits(31)
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(pieces)]
        running = [
            subprocess.Popen([*command, str(first + at)], stdout=subprocess.PIPE, stderr=log, text=True)
            for at, log in enumerate(logs)
        ]
        watched = [result(process, log) for process, log in zip(running, logs, strict=True)]
    run = {
        "hours": seconds * pieces / 3600,
        "pieces": pieces,
        "first_seed": first,
        "machine": machine(),
        "watched": watched,
    }
    before = RESULTS / f"{NAME}.json"
    runs = [*(json.loads(before.read_text())["runs"] if is_kept and before.exists() else []), run]
    lines = ["# Hours of mixed load", "", machine(), "", (__doc__ or "").partition("\n\n")[2].strip(), "", *table(runs)]
    if is_kept:
        save(NAME, lines, {"runs": runs})
    else:
        print("\n".join(lines))
    return any(one["wrong"] for part in watched for one in part.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--pieces", type=int, default=2)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.seed is not None:
        print(json.dumps({name: asdict(one) for name, one in piece(chosen.seed, chosen.seconds).items()}))
    elif chosen.fast:
        sys.exit(main(6.0, 1, is_kept=False))
    else:
        sys.exit(main(chosen.seconds, chosen.pieces))
