"""Field tables beside pamqp and pika: `python -m benches.mtl.tables [--fast]`."""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pamqp.decode
import pamqp.encode
import pika.data

from benches.measure import calls, machine, write
from trunkline import mtl

# What all three can say: pika has no float.
FIELDS: dict[str, Any] = {
    "content-type": "application/json",
    "priority": 3,
    "run": 1 << 40,
    "final": True,
    "nothing": None,
    "at": dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC),
    "price": Decimal("12.34"),
    "route": ["a", "b", {"hop": 3}],
    "x-death": {"queue": "jobs", "count": 2},
}


def pika_encoded() -> bytes:
    """A table by pika, which writes pieces."""
    pieces: list[bytes] = []
    pika.data.encode_table(pieces, FIELDS)
    return b"".join(pieces)


def main(*, fast: bool) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    count, rounds = (100, 1) if fast else (50_000, 7)
    head = machine()
    table = mtl.encode_table(FIELDS)
    assert mtl.decode_table(table) == FIELDS
    encoding: dict[str, Callable[[], object]] = {
        "pamqp": lambda: pamqp.encode.field_table(FIELDS),
        "pika": pika_encoded,
        "mtl.encode_table": lambda: mtl.encode_table(FIELDS),
    }
    decoding: dict[str, Callable[[], object]] = {
        "pamqp": lambda: pamqp.decode.field_table(table),
        "pika": lambda: pika.data.decode_table(table, 0),
        "mtl.decode_table": lambda: mtl.decode_table(table),
    }
    parts = [
        ("Encoding", calls(encoding, count=count, rounds=rounds), "pamqp"),
        ("Decoding", calls(decoding, count=count, rounds=rounds), "pamqp"),
    ]
    if not fast:
        method = (
            f"A table of {len(table)} bytes with nine fields, two of them nested, one core, {rounds} rounds of "
            f"{count:,} calls; medians (min-max)."
        )
        write("mtl-tables", "MTL: field tables", method, parts, head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
