"""CDTP packed by hand: what the tests send to our roles, and how they read what our roles send."""

import gzip
import json
from base64 import b64decode
from pathlib import Path

import msgpack
import zmq

DATA = Path(__file__).parents[1] / "data"
RELEASES = ["cdtp1-release-0.3", "cdtp1-release-0.5.1", "cdtp2-release-1.0.2"]

DAT, BOR, EOR = range(3)


def header_s(name="Det", seconds=1_700_000_000, tags=b"\x80"):
    return b"\xa5CDTP\x01" + msgpack.packb(name) + b"\xd6\xff" + seconds.to_bytes(4) + tags


def header_b(sequence, kind=DAT, name="Det"):
    return b"\xa5CDTP\x01" + msgpack.packb(name) + msgpack.packb(kind) + msgpack.packb(sequence) + b"\x80"


def batch(sequences, kind=DAT, name="Det"):
    records = [[sequence, {}, [b"block"]] for sequence in sequences]
    return b"\xa5CDTP\x02" + msgpack.packb(name) + msgpack.packb(kind) + msgpack.packb(records)


def unpack(header):
    """The objects of a header."""
    unpacker = msgpack.Unpacker(strict_map_key=False, timestamp=0)
    unpacker.feed(header)
    return list(unpacker)


def send_all(endpoint, messages):
    """Sends messages, and waits until the system has the last of them: they have arrived, on this machine."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(endpoint)
        for frames in messages:
            push.send_multipart(frames)


def recorded(release):
    """The messages of a released peer, as they came off its socket."""
    with gzip.open(DATA / f"{release}.jsonl.gz", "rt") as lines:
        return [[b64decode(frame) for frame in json.loads(line)["frames"]] for line in lines]
