"""Tables of mc0 messages, by `trunkline capture decode` and `trunkline spark decode`."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from peers.recorded import write

MESSAGES = [
    [b"", b"PUT", b"TOPIC", b"t\xff", b"X-Origin", b"daq", b"", b"one", b""],
    [b"SUB", b"ID", b"1", b"", b"a", b"b"],
    [b"", b"PING"],
]


@pytest.fixture
def recorded(run, tmp_path):
    write(tmp_path / "lines", MESSAGES, protocol="mc0", peer=b"\x00p")
    run("capture", "import", "lines", "--capture", "capture")
    return tmp_path / "capture"


def check(table):
    table = table.sort_by("seq")
    assert table.column("peer").to_pylist() == [b"\x00p"] * 3
    assert table.column("verb").to_pylist() == ["PUT", "SUB", None]
    assert table.column("topic").to_pylist() == ["t\ufffd", None, None]
    assert table.column("topics").to_pylist() == [None, ["a", "b"], None]
    assert table.column("headers").to_pylist() == [[("X-Origin", "daq")], [], None]
    assert table.column("body_frames").to_pylist() == [2, None, None]
    assert table.column("body_bytes").to_pylist() == [3, None, None]
    assert table.column("error").to_pylist() == [None, None, "unknown_verb"]
    assert table.column("_corrupt_record").to_pylist() == [None, None, MESSAGES[2]]


def test_capture_decode(run, recorded, tmp_path):
    run("capture", "decode", recorded, "out.parquet", "--protocol", "mc0")
    check(pyarrow.parquet.read_table(tmp_path / "out.parquet"))
    _, err = run(
        "capture", "decode", recorded, "none.parquet", "--protocol", "mc0", "--tags", "run=bigint", returncode=2
    )
    assert "tags does not apply to MC0 messages" in err
    out, _ = run("capture", "info", recorded, "--json")
    assert json.loads(out)["errors"] == {"unknown_verb": 1}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_decode(run_in_jvm, recorded, tmp_path):
    out, _ = run_in_jvm("spark", "decode", recorded, "out", "--protocol", "mc0", "--json")
    assert json.loads(out) == {"event": "decoded", "rows": 3, "path": "out"}
    check(pyarrow.parquet.read_table(tmp_path / "out"))
