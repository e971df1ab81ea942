"""Tables of DCP messages, by `trunkline capture decode` and `trunkline spark decode`."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from peers.recorded import write

H = b"DGBX\x01"
MESSAGES = [
    [b"", H, b"\x04", b"echo", b"", b"m", b"", b"one", b""],
    [b"", H, b"\x05", b"c", b"", b"m", b"", b"two"],
    [b"", H, b"\x07"],
]


@pytest.fixture
def recorded(run, tmp_path):
    write(tmp_path / "lines", MESSAGES, protocol="dcp", peer=b"\x00p")
    run("capture", "import", "lines", "--capture", "capture")
    return tmp_path / "capture"


def check(table):
    table = table.sort_by("seq")
    assert table.column("peer").to_pylist() == [b"\x00p"] * 3
    assert table.column("type").to_pylist() == ["request", "reply", None]
    assert table.column("service").to_pylist() == [b"echo", None, None]
    assert table.column("metadata").to_pylist() == [[b"m"], [b"m"], None]
    assert table.column("data_parts").to_pylist() == [2, 1, None]
    assert table.column("data_bytes").to_pylist() == [3, 3, None]
    assert table.column("error").to_pylist() == [None, None, "bad_type"]
    assert table.column("_corrupt_record").to_pylist() == [None, None, MESSAGES[2]]


def test_capture_decode(run, recorded, tmp_path):
    run("capture", "decode", recorded, "out.parquet", "--protocol", "dcp")
    check(pyarrow.parquet.read_table(tmp_path / "out.parquet"))
    _, err = run(
        "capture", "decode", recorded, "none.parquet", "--protocol", "dcp", "--tags", "run=bigint", returncode=2
    )
    assert "tags does not apply to DCP messages" in err
    out, _ = run("capture", "info", recorded, "--json")
    assert json.loads(out)["errors"] == {"bad_type": 1}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_decode(run_in_jvm, recorded, tmp_path):
    out, _ = run_in_jvm("spark", "decode", recorded, "out", "--protocol", "dcp", "--json")
    assert json.loads(out) == {"event": "decoded", "rows": 3, "path": "out"}
    check(pyarrow.parquet.read_table(tmp_path / "out"))
