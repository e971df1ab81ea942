"""Peers of commands that are none of ours: pyzmq sockets, and messages packed by hand."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import msgpack
import zmq


class Peer:
    """A raw socket that listens."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], kind: int) -> None:
        self.socket = context.socket(kind)
        self.socket.sndtimeo = 20_000
        self.endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"

    def send(self, *messages: list[bytes]) -> None:
        for message in messages:
            self.socket.send_multipart(message)

    def offer(self, *messages: list[bytes]) -> None:
        """Sends what may come too late, to one who has gone when he has what he wants."""
        with contextlib.suppress(zmq.Again):
            for message in messages:
                self.socket.send_multipart(message, zmq.DONTWAIT)

    def receive(self) -> list[bytes]:
        return self.socket.recv_multipart()


def spec(
    sender: str, *payload: bytes, tags: dict[str, Any] | None = None, ns: int = 1_700_000_000_000_000_007
) -> list[bytes]:
    """A message with the specification's header."""
    stamp = msgpack.Timestamp(*divmod(ns, 10**9))
    return [b"".join(map(msgpack.packb, ("CDTP\x01", sender, stamp, tags or {}))), *(payload or (b"payload",))]


def release(sender: str, kind: int, sequence: int, *payload: bytes, tags: dict[str, Any] | None = None) -> list[bytes]:
    """A message with the header of releases 0.4 and 0.5 (B)."""
    return [b"".join(map(msgpack.packb, ("CDTP\x01", sender, kind, sequence, tags or {}))), *payload]


def batch(sender: str, *records: list[Any], kind: int = 0) -> list[bytes]:
    """A message of CDTP2."""
    return [b"".join(map(msgpack.packb, ("CDTP\x02", sender, kind, list(records))))]


def wrong(err: str) -> str:
    """What standard error has to say but who has come and who is gone."""
    news = re.compile(
        r"^trunkline: (?!WARNING|ERROR|error).*: .* (connected|disconnected|found|registered|offers|is leaving)( .+)?$"
    )
    return "".join(line for line in err.splitlines(keepends=True) if not news.match(line.rstrip("\n")))


# What is in the capture that most tests of commands look at: four messages, one of them none.
RECORDED = [
    spec("D.one", b"a", b"\x00\xff", tags={"run": 7}),
    [b"nonsense", b"x"],
    release("D.two", 0, 3, b"abc"),
    batch("D.three", [1, {}, [b"12"]], [2, {}, []]),
]


def besides_progress(err: str) -> str:
    """What a command says on standard error, but for how far it is: that it says when it takes its time."""
    return re.sub(r"^trunkline: [^:\n]+: [\d,]+( of [\d,]+)?\n", "", err, flags=re.MULTILINE)


def unpack(header: bytes) -> list[Any]:
    """The objects of a header."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(header)
    return list(unpacker)
