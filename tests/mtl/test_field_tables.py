"""Field tables, held against two libraries for AMQP that read and write the same dialect.

Their limits: pika has no float and truncates those it reads; pamqp has no bytes, writes the smallest type that holds a
number, half floats among them, and takes times from 2106 on for milliseconds. Both write decimals without trailing zeros.
"""

import math
import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pamqp.decode
import pamqp.encode
import pika.data
import pika.exceptions
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trunkline import DecodeError, mtl
from trunkline.errors import LocalProtocolError

NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(  # noqa: DTZ001 - it has its zone from the next line
    lambda time: time.replace(microsecond=0, fold=0, tzinfo=UTC)
)
DECIMALS = st.builds(
    lambda digits, places: Decimal(digits).scaleb(-places), st.integers(-(2**31), 2**31 - 1), st.integers(0, 20)
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
OTHERS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT | TIMES
COMMON = OTHERS | DECIMALS


def tables(scalars):
    values = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=10
    )
    return st.dictionaries(NAMES, values, max_size=6)


def by_pika(fields):
    pieces = []
    pika.data.encode_table(pieces, fields)
    return b"".join(pieces)


def exact(value):
    """Text in which True is not 1, and NaN is itself; a number of pika's and bytes of pamqp's are those of Python."""
    match value:
        case bool() | None | str() | float():
            return repr(value)
        case int():
            return repr(int(value))
        case bytes() | bytearray():
            return repr(bytes(value))
        case list():
            return [exact(inner) for inner in value]
        case dict():
            return {name: exact(inner) for name, inner in value.items()}
        case _:
            return repr(value)


@pytest.mark.req("MTL-60")
@settings(max_examples=300, deadline=None)
@given(tables(COMMON | st.binary(max_size=8) | st.floats()))
def test_what_is_written_is_read(fields):
    assert exact(mtl.decode_table(mtl.encode_table(fields))) == exact(fields)


@pytest.mark.req("MTL-60")
@settings(max_examples=300, deadline=None)
@given(tables(COMMON | st.binary(max_size=8)))
def test_pika_reads_what_is_written_here_and_is_read(fields):
    written = mtl.encode_table(fields)
    read, end = pika.data.decode_table(written, 0)
    assert (exact(read), end) == (exact(fields), len(written))
    assert mtl.decode_table(by_pika(fields)) == fields


@pytest.mark.req("MTL-60")
@settings(max_examples=200, deadline=None)
@given(tables(OTHERS | st.binary(max_size=8)))
def test_pika_writes_the_same_bytes(fields):
    assert by_pika(fields) == mtl.encode_table(fields)


@pytest.mark.req("MTL-60")
@settings(max_examples=300, deadline=None)
@given(tables(COMMON | st.floats()))
def test_pamqp_reads_what_is_written_here_and_is_read(fields):
    written = mtl.encode_table(fields)
    consumed, read = pamqp.decode.field_table(written)
    assert (consumed, exact(read)) == (len(written), exact(fields))


@pytest.mark.req("MTL-60")
@settings(max_examples=300, deadline=None)
@given(tables(COMMON | st.floats(width=32, allow_nan=False)))
def test_what_pamqp_writes_is_read_here(fields):
    # Half a float is as good as a whole one for what fits into it.
    assert mtl.decode_table(pamqp.encode.field_table(fields)) == fields


@pytest.mark.req("MTL-60")
def test_what_the_others_do_not_do():
    written = mtl.encode_table({"k": 1.5})
    assert pika.data.decode_table(written, 0)[0] == {"k": 1}
    with pytest.raises(pika.exceptions.UnsupportedAMQPFieldException):
        by_pika({"k": 1.5})
    with pytest.raises(TypeError):
        pamqp.encode.field_table({"k": b"bytes"})
    assert pamqp.decode.field_table(mtl.encode_table({"k": b"bytes"}))[1] == {"k": bytearray(b"bytes")}
    assert mtl.decode_table(pamqp.encode.field_table({"k": 0.1})) == {"k": struct.unpack("f", struct.pack("f", 0.1))[0]}
    letters = {1: b"b", 200: b"s", 40_000: b"u", 70_000: b"I", 2**31: b"i", 2**32: b"l"}
    for number, letter in letters.items():
        theirs = pamqp.encode.field_table({"k": number})
        assert theirs[6:7] == letter
        assert mtl.decode_table(theirs) == {"k": number}


@pytest.mark.req("MTL-60")
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, b"t\x01"),
        (-1, b"I" + b"\xff" * 4),
        (2**31, b"l\0\0\0\0\x80\0\0\0"),
        (1.5, b"d\x3f\xf8" + bytes(6)),
        ("ä", b"S\0\0\0\x02\xc3\xa4"),
        (b"\xff", b"x\0\0\0\x01\xff"),
        (bytearray(b"\xff"), b"x\0\0\0\x01\xff"),
        (datetime(1970, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC), b"T" + bytes(7) + b"\x01"),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), b"T" + bytes(8)),
        (Decimal("-3.14"), b"D\x02\xff\xff\xfe\xc6"),
        (Decimal("1E3"), b"D\0\0\0\x03\xe8"),
        (None, b"V"),
        ([None], b"A\0\0\0\x01V"),
        ((None,), b"A\0\0\0\x01V"),
        ({}, b"F\0\0\0\0"),
        (np.True_, b"t\x01"),
        (np.int16(-2), b"I\xff\xff\xff\xfe"),
        (np.float32(1.5), b"d\x3f\xf8" + bytes(6)),
    ],
    ids=repr,
)
def test_each_type_has_its_letter(value, written):
    inside = b"\x01k" + written
    assert mtl.encode_table({"k": value}) == len(inside).to_bytes(4, "big") + inside


@pytest.mark.req("MTL-60")
@settings(max_examples=300)
@given(st.integers(0, 253_402_300_799) | st.integers(0, 2_932_896).map(lambda day: day * 86_400 + 86_399))
def test_every_time_of_python_is_read_and_written(seconds):
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    table = b"\0\0\0\x0b\x01kT" + seconds.to_bytes(8, "big")
    read = mtl.decode_table(table)["k"]
    assert (read, type(read), read.tzinfo) == (time, datetime, UTC)
    # What is less than a second is left out, however late it is.
    assert mtl.encode_table({"k": time.replace(microsecond=999_999)}) == table


@pytest.mark.req("MTL-60")
@pytest.mark.parametrize("digits", [0, 5, -12, 1234, 10**9, 2**31 - 1, -(2**31)])
def test_a_decimal_has_all_its_places(digits):
    for places in range(256):
        table = b"\0\0\0\x08\x01kD" + bytes([places]) + digits.to_bytes(4, "big", signed=True)
        expected = (digits < 0, tuple(map(int, str(abs(digits)))), -places)
        assert mtl.decode_table(table)["k"].as_tuple() == expected


@pytest.mark.req("MTL-60")
def test_a_time_that_python_has_none_for_is_a_number():
    table = b"\0\0\0\x0b\x01kT" + (253_402_300_800).to_bytes(8, "big")
    assert mtl.decode_table(table) == {"k": 253_402_300_800}


@pytest.mark.req("MTL-60")
@pytest.mark.parametrize(
    ("inside", "offset"),
    [
        # The first fault counts: a name that was there, before what stands under it.
        (b"\x01aV\x01aV", 7),
        (b"\x01aV\x01aZ", 7),
        (b"\x01aF\0\0\0\x06\x01bV\x01bV", 14),
        (b"\x01aZ\x01aV", 6),
        # A name that is no text, or too long, before what stands under it or is not there.
        (b"\x02\xffaZ", 4),
        (b"\x81" + b"n" * 129 + b"Z", 4),
        (b"\x81" + b"n" * 128, 5),
    ],
)
def test_the_first_fault_is_the_one_that_is_told(inside, offset):
    with pytest.raises(DecodeError) as caught:
        mtl.decode_table(len(inside).to_bytes(4, "big") + inside)
    assert (caught.value.kind, caught.value.offset) == ("bad_field_table", offset)


@pytest.mark.req("MTL-60")
@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ([], TypeError, "fields"),
        ({1: 2}, TypeError, "fields"),
        ({"k": frozenset()}, TypeError, "not frozenset"),
        ({"k": 1j}, TypeError, "not complex"),
        ({"k": 2**63}, OverflowError, "fields"),
        ({"k": -(2**63) - 1}, OverflowError, "fields"),
        ({"k": Decimal(2**31)}, OverflowError, "Decimal"),
        ({"k": Decimal("1E-256")}, OverflowError, "Decimal"),
        ({"k": Decimal("NaN")}, OverflowError, "Decimal"),
        ({"k": Decimal("Infinity")}, OverflowError, "Decimal"),
        ({"k": datetime(2026, 1, 1)}, ValueError, "tzinfo"),  # noqa: DTZ001 - that is what is wrong with it
        ({"k": datetime(1969, 12, 31, tzinfo=UTC)}, ValueError, "1970"),
        ({"n" * 129: 1}, LocalProtocolError, "128"),
        ({"ä" * 65: 1}, LocalProtocolError, "128"),
        ({"\ud800": 1}, UnicodeEncodeError, "surrogates"),
        ({"k": "\ud800"}, UnicodeEncodeError, "surrogates"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_cannot_be_written_says_so(fields, error, says):
    with pytest.raises(error, match=says):
        mtl.encode_table(fields)


@pytest.mark.req("MTL-60")
def test_sixteen_are_inside_each_other():
    fields: dict = {}
    for _ in range(15):
        fields = {"k": fields}
    assert mtl.decode_table(mtl.encode_table(fields)) == fields
    with pytest.raises(LocalProtocolError, match="16"):
        mtl.encode_table({"k": fields})


@pytest.mark.req("MTL-60")
@pytest.mark.parametrize(
    ("table", "offset"), [(b"", 0), (bytes(3), 0), (bytes(5), 4), (b"\0\0\0\x01", 4), (b"\0\0\0\x03\x01kVmore", 7)]
)
def test_a_table_is_all_of_its_bytes(table, offset):
    with pytest.raises(DecodeError) as caught:
        mtl.decode_table(table)
    assert (caught.value.kind, caught.value.frame, caught.value.offset) == ("bad_field_table", 0, offset)


@pytest.mark.req("MTL-60")
def test_numbers_keep_their_bits():
    special = {"nan": math.nan, "inf": math.inf, "zero": -0.0, "least": 5e-324}
    assert exact(mtl.decode_table(mtl.encode_table(special))) == exact(special)


def test_a_table_has_a_million_values_at_most():
    """Each takes a byte, and sixty where it is an object."""

    def table(count):
        array = b"\x01kA" + count.to_bytes(4, "big") + b"V" * count
        return len(array).to_bytes(4, "big") + array

    most = 1_000_000 - 1
    assert mtl.decode_table(table(most)) == {"k": [None] * most}
    assert mtl.encode_table({"k": [None] * most}) == table(most)
    with pytest.raises(DecodeError, match="1,000,000") as caught:
        mtl.decode_table(table(most + 1))
    assert caught.value.offset == 4 + 7 + most
    with pytest.raises(LocalProtocolError, match="1,000,000"):
        mtl.encode_table({"k": [None] * (most + 1)})
