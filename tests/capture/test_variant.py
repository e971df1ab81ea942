"""VARIANT in Parquet files that are written without Spark: other readers know it for what it is."""

import duckdb
import pyarrow.parquet
import pytest

from peers.commands import spec
from trunkline import CaptureError, capture
from trunkline._native.capture import mark_variants

KINDS = {"*": "variant", "run": "bigint"}


@pytest.fixture
def exported(record, tmp_path):
    record([spec("D", tags={"run": 7, "deep": {"a": [1, "two", None]}}), spec("D"), [b"nonsense", b"x"]]).close()
    out = tmp_path / "table.parquet"
    assert capture.export(tmp_path, out, "cdtp", tags=KINDS) == 3
    return out


def test_duckdb_looks_into_it(exported):
    rows = duckdb.sql(
        f"select typeof(tags), tags.deep.a[2]::varchar, tag_run from '{exported}' order by seq"
    ).fetchall()
    assert rows == [("VARIANT", "two", 7), ("VARIANT", None, None), ("VARIANT", None, None)]


def test_who_does_not_know_it_reads_its_bytes(exported):
    file = pyarrow.parquet.ParquetFile(exported)
    assert "tags (Variant(1))" in str(file.schema)
    # As the schema says, and so do the rows: nothing has moved.
    table = file.read()
    assert table.num_rows == 3
    assert table["tag_run"].to_pylist() == [7, None, None]
    assert set(table["tags"][0].as_py()) == {"value", "metadata"}


def test_a_table_without_any_is_as_it_was(record, tmp_path):
    record([spec("D", tags={"run": 7})]).close()
    capture.export(tmp_path, tmp_path / "table.parquet", "cdtp", tags={"run": "bigint"})
    assert "Variant" not in str(pyarrow.parquet.ParquetFile(tmp_path / "table.parquet").schema)


def test_columns_of_many_names_and_depths(record, tmp_path):
    """More fields than the short form of a list has room for, with lists and structs before and after."""
    record([spec("D", tags={"run": 7})]).close()
    out = tmp_path / "table.parquet"
    tags = {**{f"value{number}": "double" for number in range(40)}, "*": "variant"}
    capture.export(tmp_path, out, "cdtp", tags=tags, payload=True)
    assert duckdb.sql(f"select tags.run::bigint, payload[1]::varchar from '{out}'").fetchall() == [(7, "payload")]


def test_what_is_no_parquet_file_stays_as_it_is(tmp_path):
    (tmp_path / "words").write_bytes(b"words that end in no footer")
    with pytest.raises(CaptureError, match="words"):
        mark_variants(tmp_path / "words", ["tags"])
    assert (tmp_path / "words").read_bytes() == b"words that end in no footer"
