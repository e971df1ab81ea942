"""What others read of a decoded capture: pandas, Polars, DuckDB, without Spark."""

import json
import subprocess
import sys

import duckdb
import msgpack
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peers import cdtp as wire
from peers.recorded import line
from trunkline import capture, cdtp, columns


def trunkline(*arguments):
    command = [sys.executable, "-m", "trunkline", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


TAGS = {"run": 7, "site": {"crate": 3, "names": ["a", "b"]}, "gain": 1.5, "big": 2**53 + 1, "raw": b"\xff\x00"}


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "capture"
    with cdtp.Recorder(path, bind="tcp://127.0.0.1:*") as recorder:
        messages = [wire.header_s(tags=msgpack.packb(TAGS)), wire.header_s(tags=msgpack.packb({"run": 8}))]
        wire.send_all(recorder.endpoints[0], [[header, b""] for header in messages])
        recorder.wait(count=2, timeout_s=60)
    return path


def test_tags_are_json_where_nothing_is_asked_for(recorded):
    found = capture.open(recorded).decode("cdtp").read_all()
    assert found.schema.field("tags").type == pa.string()
    first, second = found["tags"].to_pylist()
    assert first == '{"run":7,"site":{"crate":3,"names":["a","b"]},"gain":1.5,"big":9007199254740993,"raw":"/wA="}'
    assert second == '{"run":8}'
    assert capture.open(recorded).decode("cdtp", tags=None).schema.get_field_index("tags") == -1


def test_when_a_row_was_received_is_a_timestamp_for_every_protocol(tmp_path):
    """For other tools a time axis of their own type, to the microsecond below."""
    moments = {"cdtp": 1_700_000_000_123_456_789, "dcp": 2_999, "mc0": 1_000, "mtl": 0, "cdt": -1}
    lines = [line([b"x"], at, protocol=protocol, direction="in") for protocol, at in moments.items()]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "capture")
    for protocol, at in moments.items():
        found = capture.open(tmp_path / "capture").decode(protocol).read_all()
        assert found.schema.field(-1).equals(pa.field("received_at", pa.timestamp("us", "UTC")))
        assert found["received_at"].cast(pa.int64()).to_pylist() == [at // 1000]
        out = tmp_path / f"{protocol}.parquet"
        capture.export(tmp_path / "capture", out, protocol)
        [(micros, kind)] = duckdb.sql(f"SELECT epoch_us(received_at), typeof(received_at) FROM '{out}'").fetchall()
        assert (micros, kind) == (at // 1000, "TIMESTAMP WITH TIME ZONE")
        assert pl.read_parquet(out).schema["received_at"] == pl.Datetime("us", "UTC")


def test_others_beside_typed_tags_are_json_too(recorded):
    found = capture.open(recorded).decode("cdtp", tags={"run": "bigint", "*": "json"}).read_all()
    assert found["tag_run"].to_pylist() == [7, 8]
    assert [sorted(json.loads(tags)) for tags in found["tags"].to_pylist()] == [["big", "gain", "raw", "site"], []]


def test_a_decoded_table_is_read_by_polars_and_duckdb_at_once(recorded, tmp_path):
    table = tmp_path / "table.parquet"
    trunkline("capture", "decode", recorded, table)
    read = pl.read_parquet(table).with_columns(
        crate=pl.col("tags").str.json_path_match("$.site.crate"),
        big=pl.col("tags").str.json_path_match("$.big"),
    )
    assert read["crate"].to_list() == ["3", None]
    assert read["big"].to_list() == ["9007199254740993", None]
    crates = duckdb.sql(f"SELECT tags ->> '$.site.crate', (tags ->> '$.big')::BIGINT FROM '{table}'").fetchall()
    assert crates == [("3", 2**53 + 1), (None, None)]


def test_a_table_with_variants_says_so(recorded, tmp_path):
    reader = capture.open(recorded).decode("cdtp", tags="variant")
    assert reader.schema.field("tags").metadata[b"ARROW:extension:name"] == b"arrow.parquet.variant"
    connection = duckdb.connect()
    connection.register("found", reader.read_all())
    kinds = connection.sql("SELECT typeof(tags), tags.site.crate::INT FROM found").fetchall()
    assert kinds == [("VARIANT", 3), ("VARIANT", None)]
    table = tmp_path / "table.parquet"
    trunkline("capture", "decode", recorded, table, "--tags", "variant")
    assert pq.read_schema(table).field("tags").metadata[b"ARROW:extension:name"] == b"arrow.parquet.variant"
    assert columns.Decoder("cdtp").row_schema().field("tags").metadata is not None


def test_the_help_says_what_tags_become():
    assert "[default: json]" in " ".join(trunkline("capture", "decode", "--help").split())
    assert "[default: variant]" in " ".join(trunkline("spark", "decode", "--help").split())
