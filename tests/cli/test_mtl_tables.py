"""Tables of MTL messages, by `trunkline capture decode` and `trunkline spark decode`."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from peers.mtl import content, reject
from peers.recorded import write

MESSAGES = [
    [b"", b"Queue.Info", b'{"name": "jobs"}'],
    [b"200", b'{"messages": 1}'],
    content(7, "jobs", b"body", b"\0\0\0\x09\x03runI\0\0\0\x05"),
    reject(7, recycle=True),
    [b"\x05", b"body"],
]


@pytest.fixture
def recorded(run, tmp_path):
    write(tmp_path / "lines", MESSAGES, protocol="mtl", peer=b"\x00p")
    run("capture", "import", "lines", "--capture", "capture")
    return tmp_path / "capture"


def check(table):
    table = table.sort_by("seq")
    assert table.column("peer").to_pylist() == [b"\x00p"] * 5
    assert table.column("flow").to_pylist() == ["control", "control", "data", "data", None]
    assert table.column("type").to_pylist() == ["command", "reply", "content", "reject", None]
    assert table.column("name").to_pylist() == ["Queue.Info", *[None] * 4]
    assert table.column("status").to_pylist() == [None, 200, None, None, None]
    assert table.column("sequence").to_pylist() == [None, None, 7, 7, None]
    assert table.column("resource").to_pylist() == [None, None, "jobs", None, None]
    assert table.column("recycle").to_pylist() == [None, None, None, True, None]
    assert table.column("body_bytes").to_pylist() == [None, None, 4, None, None]
    assert table.column("error").to_pylist() == [*[None] * 4, "truncated"]
    assert table.column("_corrupt_record").to_pylist() == [*[None] * 4, MESSAGES[4]]


def test_capture_decode(run, recorded, tmp_path):
    run("capture", "decode", recorded, "out.parquet", "--protocol", "mtl")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    check(table)
    properties = [text and json.loads(text) for text in table.sort_by("seq").column("properties").to_pylist()]
    assert properties == [None, None, {"run": 5}, None, None]
    said = [text and json.loads(text) for text in table.sort_by("seq").column("json").to_pylist()]
    assert said == [{"name": "jobs"}, {"messages": 1}, None, None, None]
    _, err = run(
        "capture", "decode", recorded, "none.parquet", "--protocol", "mtl", "--tags", "run=bigint", returncode=2
    )
    assert "tags does not apply to MTL messages" in err


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_decode(run_in_jvm, recorded, tmp_path):
    out, _ = run_in_jvm("spark", "decode", recorded, "out", "--protocol", "mtl", "--json")
    assert json.loads(out) == {"event": "decoded", "rows": 5, "path": "out"}
    check(pyarrow.parquet.read_table(tmp_path / "out"))
