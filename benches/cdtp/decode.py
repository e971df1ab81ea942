"""Decoding one message into a Python object, beside msgpack and ormsgpack: `python -m benches.cdtp.decode [--fast]`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgpack
import ormsgpack

from benches.measure import calls, machine, write
from trunkline import cdtp

TAGS = b"\x83\xa3run\x07\xa5dtype\xa5uint8\xa5event\xcf\x00\x00\x00\x00\x00\x00\x00\x01"
HEADER = b"\xa5CDTP\x01\xacDetector.one\xd7\xff\x1d\x6f\x34\x54\x65\x53\xf1\x00" + TAGS
FRAMES = [HEADER, bytes(100)]

# The timestamp as well, as a `datetime`: what is to the microsecond of it.
_TIMES = ormsgpack.OPT_DATETIME_AS_TIMESTAMP_EXT


def main(*, fast: bool) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    count, rounds = (1000, 1) if fast else (500_000, 7)
    head = machine()
    cases: dict[str, Callable[[], object]] = {
        "msgpack.unpackb": lambda: msgpack.unpackb(b"\x94" + HEADER),
        "ormsgpack.unpackb, the tags alone": lambda: ormsgpack.unpackb(TAGS),
        "ormsgpack.unpackb, the header": lambda: ormsgpack.unpackb(b"\x94" + HEADER, option=_TIMES),
        "cdtp.decode": lambda: cdtp.decode(FRAMES),
        "cdtp.decode, tags used": lambda: cdtp.decode(FRAMES).tags,
    }
    assert cdtp.decode(FRAMES).tags == msgpack.unpackb(b"\x94" + HEADER)[3] == ormsgpack.unpackb(TAGS)
    done = calls(cases, count=count, rounds=rounds)
    if not fast:
        method = (
            f"A header of 58 bytes with three tags, one core, {rounds} rounds of {count:,} calls; medians (min-max)."
        )
        write("decode", "CDTP: one message into Python", method, [("Decoding", done, "msgpack.unpackb")], head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
