"""Decoded rows are divided so that those that belong together stay together, in their order."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline._native.analysis import divide
from trunkline._protocols import RECORDED

NAMES = st.sampled_from([None, "", "a", "b", "ab"])
BYTES = st.sampled_from([None, b"", b"a", b"b", b"ab"])
COPIED = st.lists(BYTES, max_size=2)
COLUMNS = {
    "cdtp": {"capture_id": NAMES, "sender": NAMES},
    "mc0": {"topic": NAMES},
    "mtl": {"capture_id": NAMES},
    "cdt": {"app_version_name": NAMES, "endpoint_id": NAMES},
    "dcp": {"capture_id": NAMES, "direction": NAMES, "type": NAMES, "peer": BYTES, "client": BYTES, "metadata": COPIED},
}


def _type(values):
    return pa.list_(pa.binary()) if values is COPIED else pa.binary() if values is BYTES else pa.string()


def test_every_protocol_is_divided():
    assert set(COLUMNS) == {protocol.name for protocol in RECORDED}


@pytest.mark.parametrize("protocol", COLUMNS)
@given(st.data())
def test_rows_of_a_key_are_of_one_part_and_keep_their_order(protocol, data):
    columns = COLUMNS[protocol]
    rows = data.draw(st.lists(st.tuples(*columns.values()), max_size=50))
    batch = pa.record_batch(
        [
            *(pa.array([row[at] for row in rows], _type(values)) for at, values in enumerate(columns.values())),
            pa.array(range(len(rows)), pa.int64()),
        ],
        names=[*columns, "number"],
    )
    parts = data.draw(st.integers(1, 9))
    divided = divide(protocol, batch, parts)
    numbers = [some["number"].to_pylist() for _, some in divided]
    assert sorted(number for some in numbers for number in some) == [*range(len(rows))]
    assert all(some == sorted(some) for some in numbers)
    places = [place for place, _ in divided]
    assert places == sorted({*places})
    assert all(0 <= place < parts for place in places)
    at = {number: place for (place, _), some in zip(divided, numbers, strict=True) for number in some}
    keys = {}
    for number, row in enumerate(rows):
        assert keys.setdefault(repr(row), at[number]) == at[number]
    # The same in one batch or in many.
    for number in range(len(rows)):
        ((place, _),) = divide(protocol, batch.slice(number, 1), parts)
        assert place == at[number]


def test_what_cannot_be_divided_is_refused():
    batch = pa.record_batch([pa.array(["a"])], names=["topic"])
    for protocol in ("dcp", "smtp"):
        with pytest.raises(ValueError, match=r"no column capture_id|no protocol smtp"):
            divide(protocol, batch, 4)
