"""The package and a naive decoder, written from the specification alone, say the same of any bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack as reference
import pytest
from differential import ours, theirs
from hypothesis import example, given, settings
from hypothesis import strategies as st

VECTORS = sorted((Path(__file__).parents[1] / "vectors" / "cdtp").glob("*.json"))
HEADERS = [
    bytes.fromhex(vector["frames"][0])
    for file in VECTORS
    for vector in json.loads(file.read_text())
    if vector["frames"]
]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=10)
    | st.binary(max_size=10)
    | st.builds(reference.ExtType, st.integers(0, 127), st.binary(max_size=17))
    | st.builds(reference.Timestamp, st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SCALARS, inner, max_size=4),
    max_leaves=8,
)
TAGS = st.dictionaries(st.text(max_size=5), VALUES, max_size=5)
STAMPS = st.builds(reference.Timestamp, st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999))
TYPES = st.integers(0, 2)
SEQUENCES = st.integers(0, 2**64 - 1)
RECORDS = st.lists(st.tuples(SEQUENCES, TAGS, st.lists(st.binary(max_size=5), max_size=3)), max_size=3)

ROWS = st.one_of(
    st.tuples(st.just("CDTP\x01"), st.text(max_size=8), STAMPS, TAGS),
    st.tuples(st.just("CDTP\x01"), st.text(max_size=8), STAMPS, TYPES, SEQUENCES, TAGS),
    st.tuples(st.just("CDTP\x01"), st.text(max_size=8), TYPES, SEQUENCES, TAGS),
    st.tuples(st.just("CDTP\x02"), st.text(max_size=8), TYPES, RECORDS),
    # Rows that are nearly a header.
    st.tuples(st.sampled_from(["CDTP\x01", "CDTP\x02", "CDTP\x03", b"CDTP\x01", "CSCP\x01"]), VALUES, VALUES, VALUES),
    st.tuples(st.just("CDTP\x01"), st.text(max_size=3), VALUES, VALUES, TAGS),
    st.tuples(st.just("CDTP\x02"), st.text(max_size=3), TYPES, st.lists(st.lists(VALUES, max_size=4), max_size=2)),
)


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """A header, or one that something has happened to."""
    header = draw(st.sampled_from(HEADERS) | ROWS.map(lambda row: b"".join(map(reference.packb, row))))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(header)))
        put = draw(st.binary(max_size=3))
        over = draw(st.integers(0, 3))
        header = header[:at] + put + header[at + over :]
    return header


ACCEPT = st.sampled_from([("S", "A", "B", "2")] * 3 + [("S",), ("A", "B"), ("2",), ("S", "2"), ()])
PAYLOAD = st.lists(st.binary(max_size=4), max_size=3)


@pytest.mark.req("CDTP-01", "CDTP-02", "CDTP-03", "CDTP-05", "CDTP-07", "CDTP-09", "CDTP-11", "CDTP-12", "CDTP-13")
@settings(max_examples=1000)
@given(header=headers(), payload=PAYLOAD, accept=ACCEPT, strict=st.booleans())
@example(header=bytes.fromhex("a54344545001 a164 ce80"), payload=[], accept=("S", "A", "B", "2"), strict=True)
def test_both_say_the_same(header: bytes, payload: list[bytes], accept: tuple[str, ...], *, strict: bool) -> None:
    frames = [header, *payload]
    assert ours(frames, accept, strict=strict) == theirs(frames, accept, strict=strict)


@pytest.mark.req("CDTP-11")
@settings(max_examples=300)
@given(st.lists(st.binary(max_size=40), max_size=3))
def test_both_say_the_same_of_any_bytes(frames: list[bytes]) -> None:
    accept: Any = ("S", "A", "B", "2")
    assert ours(frames, accept, strict=True) == theirs(frames, accept, strict=True)
