"""MessagePack values, against the reference implementation."""

from __future__ import annotations

import decimal
import fractions
import math
import pickle
from typing import Any

import msgpack as reference
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline import DecodeError, msgpack

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=300)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(SCALARS, inner, max_size=20),
    max_leaves=30,
)


@pytest.mark.req("CDTP-07")
@given(VALUES)
def test_values_are_written_as_the_reference_writes_them(value: Any) -> None:
    encoded = msgpack.encode(value)
    assert encoded == reference.packb(value)
    assert msgpack.decode(encoded) == value


@pytest.mark.req("CDTP-05", "CDTP-07")
@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 999_999_999))
def test_timestamps_keep_their_nanoseconds(seconds: int, nanoseconds: int) -> None:
    timestamp = msgpack.Timestamp(seconds, nanoseconds)
    encoded = msgpack.encode([timestamp])
    assert msgpack.decode(encoded) == [timestamp]
    assert msgpack.Timestamp.from_ns(timestamp.to_ns()) == timestamp
    theirs = reference.unpackb(encoded)[0]
    assert (theirs.seconds, theirs.nanoseconds) == (seconds, nanoseconds)


@pytest.mark.req("CDTP-07")
@given(st.integers(-128, 127).filter(lambda code: code != -1), st.binary(max_size=20))
def test_extensions_keep_their_type(code: int, data: bytes) -> None:
    ext = msgpack.Ext(code, data)
    assert msgpack.decode(msgpack.encode({"e": ext})) == {"e": ext}


@pytest.mark.req("CDTP-07")
def test_nan_and_minus_zero_survive() -> None:
    nan, zero = msgpack.decode(msgpack.encode([math.nan, -0.0]))
    assert math.isnan(nan)
    assert math.copysign(1, zero) == -1


def test_a_map_a_dict_cannot_hold_is_a_list_of_pairs() -> None:
    assert msgpack.decode(bytes.fromhex("82 01 02 91 01 03")) == [(1, 2), ([1], 3)]
    assert msgpack.decode(bytes.fromhex("81 80 01")) == [({}, 1)]


@pytest.mark.req("CDTP-07")
@pytest.mark.parametrize(
    ("encoded", "pairs"),
    [
        ("83 01 a178 c3 a179 cb3ff0000000000000 a17a", [(1, "x"), (True, "y"), (1.0, "z")]),
        ("82 c2 01 00 02", [(False, 1), (0, 2)]),
        ("82 cb0000000000000000 01 cb8000000000000000 02", [(0.0, 1), (-0.0, 2)]),
    ],
)
def test_different_keys_that_python_takes_for_the_same_are_a_list_of_pairs(encoded: str, pairs: list[Any]) -> None:
    decoded = msgpack.decode(bytes.fromhex(encoded))
    # As text: 1, 1.0 and True are equal.
    assert repr(decoded) == repr(pairs)


@pytest.mark.req("CDTP-07")
def test_the_last_of_the_same_keys_wins() -> None:
    assert msgpack.decode(bytes.fromhex("83 01 02 a161 07 cd0001 03")) == {1: 3, "a": 7}
    assert msgpack.decode(bytes.fromhex("82 01 02 c2 03")) == {1: 2, False: 3}


@pytest.mark.parametrize(("value", "field"), [(msgpack.Ext(5, b"a"), "code"), (msgpack.Timestamp(-1, 5), "seconds")])
def test_values_are_frozen_hashable_and_can_be_pickled(value: object, field: str) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert {value: 1}[value] == 1
    with pytest.raises(AttributeError):
        setattr(value, field, 1)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (2**64, OverflowError),
        (-(2**63) - 1, OverflowError),
        (object(), TypeError),
        ({1, 2}, TypeError),
        ("\ud800", UnicodeEncodeError),
    ],
)
def test_what_messagepack_cannot_hold_is_refused(value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        msgpack.encode({"v": value})


@pytest.mark.parametrize(
    ("code", "seconds", "nanoseconds"), [(-1, 2**63, 0), (128, -(2**63) - 1, 0), (-129, 0, -1), (-1, 0, 10**9)]
)
def test_what_no_value_can_be_is_refused(code: int, seconds: int, nanoseconds: int) -> None:
    with pytest.raises(ValueError, match="extension"):
        msgpack.Ext(code, b"")
    with pytest.raises(ValueError, match="second"):
        msgpack.Timestamp(seconds, nanoseconds)


def test_things_like_numbers_and_bytes_are_written_as_such() -> None:
    class Seven:
        def __index__(self) -> int:
            return 7

    written = msgpack.encode([Seven(), bytearray(b"x"), memoryview(b"y"), (1,)])
    assert msgpack.decode(written) == [7, b"x", b"y", [1]]


def test_scalars_of_numpy_keep_their_kind() -> None:
    numbers = [
        np.True_,
        np.False_,
        np.int8(-3),
        np.uint64(2**64 - 1),
        np.float16(0.5),
        np.float32(0.1),
        np.float64(0.1),
    ]
    read = msgpack.decode(msgpack.encode(numbers))
    assert read == [number.item() for number in numbers]
    assert [type(number) for number in read] == [bool, bool, int, int, float, float, float]


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (
            decimal.Decimal("12345678901234567890.123"),
            r"no Decimal: use float\(\) of it if that is exact enough, else str()",
        ),
        (fractions.Fraction(1, 3), "no Fraction: use float"),
        (np.longdouble("1e4000"), "no longdouble: use float"),
        (np.complex64(1 + 2j), "no complex64: use "),
        (1j, "no complex: use "),
        (np.datetime64(5, "ns"), "no datetime64: use trunkline.msgpack.Timestamp"),
        (np.arange(2), r"no ndarray: use its tolist\(\), or its tobytes\(\)"),
        (np.zeros(2, "u1"), "no ndarray: use its tolist"),
        (np.array(1.5), "no ndarray: use its tolist"),
    ],
)
def test_what_a_number_would_not_be_exact_for_is_refused(value: object, advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        msgpack.encode([value])


@pytest.mark.req("CDTP-07")
def test_nesting_ends_where_reading_ends() -> None:
    value: list[Any] = []
    for _ in range(31):
        value = [value]
    assert msgpack.decode(msgpack.encode(value)) == value
    with pytest.raises(ValueError, match="32"):
        msgpack.encode([value])


@pytest.mark.parametrize(
    ("encoded", "kind", "offset"),
    [
        ("", "truncated", 0),
        ("92 01", "truncated", 2),
        ("01 02", "trailing_bytes", 1),
        ("91 c1", "bad_header", 1),
        ("91" * 33, "too_deep", 32),
        ("a1 ff", "bad_utf8", 1),
    ],
)
def test_bytes_that_are_no_value_say_why(encoded: str, kind: str, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        msgpack.decode(bytes.fromhex(encoded))
    assert (caught.value.protocol, caught.value.kind, caught.value.offset) == ("msgpack", kind, offset)
