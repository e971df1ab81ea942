"""What others read of a decoded capture: pandas, Polars, DuckDB, without Spark."""

import csv
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
from trunkline._text import as_text
from trunkline.capture import exporting
from trunkline.errors import CaptureError, LocalProtocolError


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


def test_tags_of_another_type_are_counted(recorded, caplog):
    tags = {"run": "string", "gain": "double", "site": "boolean", "none": "bigint"}
    found = capture.open(recorded).decode("cdtp", tags=tags)
    assert "another type" not in caplog.text
    assert found.read_all()["tag_run"].null_count == 2
    words = "3 values of another type than requested in the rows read, decoded as null: run (2), site (1)"
    assert caplog.messages == [words]
    caplog.clear()
    capture.open(recorded).decode("cdtp", tags={"run": "bigint"}).read_all()
    assert caplog.messages == []


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


def test_a_table_of_json_lines_is_json_whatever_its_numbers_are(tmp_path):
    with cdtp.Recorder(tmp_path / "capture", bind="tcp://127.0.0.1:*") as recorder:
        odd = [float("nan"), float("inf"), float("-inf"), 1e308]
        headers = [wire.header_s(tags=msgpack.packb({"gain": value, "raw": b"\xff"})) for value in odd]
        wire.send_all(recorder.endpoints[0], [[header, b""] for header in headers])
        recorder.wait(count=len(odd), timeout_s=60)
    out = tmp_path / "table.jsonl"
    capture.export(tmp_path / "capture", out, tags={"gain": "double", "raw": "binary"})

    def refuse(name):
        raise AssertionError(name)

    rows = [json.loads(row, parse_constant=refuse) for row in out.read_text().splitlines()]
    assert [row["tag_gain"] for row in rows] == ["NaN", "Infinity", "-Infinity", 1e308]
    assert {row["tag_raw"] for row in rows} == {"0xff"}


@pytest.mark.parametrize("write", [exporting.to_json, exporting._cell], ids=["jsonl", "csv"])
def test_what_is_inside_lists_and_structs_is_json_too(write):
    inside = {"a": [float("nan"), {"b": float("inf")}], "c": [b"text", b"\xff"], "d": None}
    assert write(inside) == '{"a": ["NaN", {"b": "Infinity"}], "c": ["text", "0xff"], "d": null}'


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (b"text", "text"),
        (b'{"rate": 1}\n\t"\xc3\xa9"\r\n', '{"rate": 1}\n\t"é"\r\n'),
        (b"", ""),
        (b"\xff", "0xff"),
        (b"0xff", "0x30786666"),
        (b"a\x00", "0x6100"),
        (b"\x1b[31m", "0x1b5b33316d"),
        ("\u202e".encode(), "0xe280ae"),
    ],
)
def test_bytes_are_text_or_digits_and_never_both(value, written):
    assert as_text(value) == written


def test_a_moment_of_any_year_is_a_row(tmp_path):
    moments = {
        253_402_300_800_000: ("10000-01-01T00:00:00+00:00", "10000-01-01 00:00:00.000000Z"),
        1_700_000_000_123: ("2023-11-14T22:13:20.123000+00:00", "2023-11-14 22:13:20.123000Z"),
        # pyarrow's CSV has no such year.
        2**53 - 1: ("287396-10-12T08:59:00.991000+00:00", None),
    }
    about = {"correlationId": "c", "timeout": -1, "endpointMessageId": "m", "appVersionName": "a", "endpointId": "e"}
    topic = "kaa.v1.service.cdp.cmx2cdp.ConfigRequest"
    bodies = [json.dumps({**about, "timestamp": moment}).encode() for moment in moments]
    lines = [line([body], 1, protocol="cdt", direction="in", topic=topic) for body in bodies]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    capture.import_(tmp_path / "rows.jsonl", tmp_path / "capture")
    for out in ("table.jsonl", "table.csv"):
        assert capture.export(tmp_path / "capture", tmp_path / out, "cdt") == len(moments)
    rows = [json.loads(row) for row in (tmp_path / "table.jsonl").read_text().splitlines()]
    assert [(row["timestamp_ms"], row["timestamp"]) for row in rows] == [(at, said[0]) for at, said in moments.items()]
    with (tmp_path / "table.csv").open(newline="") as table:
        for row, (_, said) in zip(csv.DictReader(table), moments.values(), strict=True):
            assert said is None or row["timestamp"] == said


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


def test_formulas_are_escaped_where_that_is_asked_for(recorded, tmp_path):
    formulas = ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\tx", "\rx"]
    others = ["a=1", "a\n=1", "'=1", ""]
    batch = pa.record_batch({"text": [*formulas, *others, None], "number": [-1] * 11})
    escaped = exporting._escaped(batch)
    assert escaped["text"].to_pylist() == [*("'" + formula for formula in formulas), *others, None]
    assert escaped["number"].to_pylist() == [-1] * 11
    out = tmp_path / "out.csv"
    trunkline("capture", "export", recorded, out, "--escape-formulas")
    assert len(list(csv.DictReader(out.read_text().splitlines()))) == 2
    with pytest.raises(LocalProtocolError, match="escape_formulas is for csv"):
        capture.export(recorded, tmp_path / "out.jsonl", escape_formulas=True)


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.csv.gz", "out.jsonl", "out.arrow", "out.h5"])
def test_an_export_that_fails_leaves_no_file(recorded, tmp_path, name):
    def fail(_count):
        raise KeyboardInterrupt

    out = tmp_path / name
    with pytest.raises(KeyboardInterrupt):
        capture.export(recorded, out, on_progress=fail)
    assert not out.exists()
    out.write_text("mine")
    with pytest.raises(CaptureError):
        capture.export(tmp_path / "nothing", out)
    assert out.read_text() == "mine"
