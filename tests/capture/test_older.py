"""Captures written before there was a column `n_head`: all that read captures read them, and go on in them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peers.older import again, copied
from trunkline import capture
from trunkline._native.capture import position
from trunkline.errors import CaptureError

# How many payload frames stand before the body, of each row of the stored capture.
HEADS = [0, 0, 0, 0, 0, 0, 2, 5, 6, 5, 5, 5, 2]


def test_a_segment_without_the_column_has_it_null(tmp_path):
    path = copied("without-n-head", tmp_path / "capture")
    assert "n_head" not in pq.read_schema(path / "0000000000.parquet").names
    rows = again(path)
    assert {row["n_head"] for row in rows} == {None}
    both = list(capture.open(path).rows())
    assert [row["n_head"] for row in both] == [*[None] * len(rows), *HEADS]
    apart = ("capture_id", "segment", "seq", "n_head")
    assert [{name: row[name] for name in row if name not in apart} for row in both] == 2 * [
        {name: row[name] for name in row if name not in apart} for row in rows
    ]
    table = capture.open(path).read_all()
    assert table.schema == capture.schema()
    assert table["n_head"].to_pylist() == [*[None] * len(rows), *HEADS]
    assert capture.schema().names.index("n_head") == capture.schema().names.index("payload") + 1


def test_rows_with_and_without_the_column_decode_alike(tmp_path):
    path = copied("without-n-head", tmp_path / "capture")
    again(path)
    for protocol, number in (("cdtp", 6), ("dcp", 7)):
        table = pa.Table.from_batches(capture.open(path).decode(protocol, payload=True)).drop(["segment", "seq"])
        assert table.num_rows == 2 * number
        assert table.slice(0, number).to_pylist() == table.slice(number).to_pylist()
    assert len(list(capture.open(path))) == 2 * 9


def test_pyarrow_reads_both_segments(tmp_path):
    path = copied("without-n-head", tmp_path / "capture")
    rows = again(path)
    assert pq.read_table(path)["seq"].to_pylist() == list(range(2 * len(rows)))
    assert pq.read_table(path, schema=capture.schema())["n_head"].to_pylist() == [*[None] * len(rows), *HEADS]


def test_what_is_newer_says_what_to_install(tmp_path):
    path = copied("without-n-head", tmp_path / "capture")
    manifest = path / "_capture.json"
    said = {"version": 2, "capture_id": "a", "next_segment": 1, "next_seq": 1}
    manifest.write_text(json.dumps(said))
    with pytest.raises(
        CaptureError, match=f"{manifest}: was written by a newer trunkline: install its version, or a later one"
    ):
        position(path)


def test_a_journal_without_the_column_is_read_and_recovered(tmp_path):
    path = copied("without-n-head-journal", tmp_path / "capture")
    before = list(capture.open(path).rows())
    assert {row["protocol"] for row in before} == {"dcp"}
    assert capture.recover(path).rows == len(before) > 10
    assert list(capture.open(path).rows()) == before
    assert pq.read_table(path)["n_head"].null_count == len(before)
