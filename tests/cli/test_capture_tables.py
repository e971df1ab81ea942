"""`trunkline capture decode` and `capture export`."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from peers.recorded import write
from trunkline import _formats


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrow", "parquet"])
def test_export_is_read_by_others(run, recorded, tmp_path, form):
    import pyarrow as pa
    from pyarrow import csv, parquet

    out, _ = run("capture", "export", recorded, f"out.{form}", "--sender", "D.one", "--payload", "--json")
    assert json.loads(out) == {"event": "exported", "rows": 1, "path": f"out.{form}"}
    path = tmp_path / f"out.{form}"
    if form == "csv":
        (row,) = csv.read_csv(path).to_pylist()
        assert row["payload"] == '["a", "0x00ff"]'
    elif form == "jsonl":
        row = json.loads(path.read_text())
        assert row["payload"] == ["a", "0x00ff"]
    else:
        table = parquet.read_table(path) if form == "parquet" else pa.ipc.open_file(path).read_all()
        (row,) = table.to_pylist()
        assert row["payload"] == [b"a", b"\x00\xff"]
    assert (row["sender"], row["tags"]) == ("D.one", {"run": 7} if form == "jsonl" else '{"run":7}')


@pytest.mark.parametrize("more", [[], ["--since", "1d"]], ids=["all", "selected"])
@pytest.mark.parametrize("command", ["decode", "export"])
def test_a_protocol_that_was_not_recorded_is_said(run, recorded, command, more):
    _, err = run("capture", command, recorded, "out.parquet", "--protocol", "dcp", *more)
    assert "rows is dcp: name the protocol that was recorded, cdtp" in err


def test_the_help_of_an_export_lists_all_that_is_written(run, recorded, tmp_path):
    said = " ".join(run("capture", "export", "--help")[0].split())
    listed = re.search(r"The file: (.*) with \.gz too; or - for", said)[1]
    suffixes = set(re.findall(r"\.\w+", listed))
    assert {_formats.format_of(f"out{suffix}") for suffix in suffixes} == set(_formats.FORMATS)
    for suffix in suffixes:
        run("capture", "export", recorded, f"out{suffix}", "--sender", "D.one")
        assert (tmp_path / f"out{suffix}").stat().st_size > 0
    said = " ".join(run("capture", "gaps", "--help")[0].split())
    assert f"Write all rows to this file: {_formats.in_words(_formats.TABLES)}." in said


def test_an_export_that_does_not_say_what_it_is(run, recorded):
    _, err = run("capture", "export", recorded, "out.xyz", returncode=2)
    assert "unknown format of 'out.xyz'" in err
    assert err.endswith("; or give --format.\n")
    _, err = run("capture", "export", recorded, "out.xyz", "--format", "cvs", returncode=2)
    assert "'cvs' is no format: did you mean 'csv'?" in " ".join(err.split())
    run("capture", "export", recorded, "out.xyz", "--format", "csv")
    assert (recorded.parent / "out.xyz").read_text().startswith('"capture_id",')


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_text_goes_to_standard_output_and_into_gzip(run, recorded, tmp_path, form):
    run("capture", "export", recorded, f"out.{form}")
    text = (tmp_path / f"out.{form}").read_text()
    assert run("capture", "export", recorded, "-", "--format", form)[0] == text
    run("capture", "export", recorded, f"out.{form}.gz")
    assert gzip.decompress((tmp_path / f"out.{form}.gz").read_bytes()).decode() == text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-"], "- takes --format csv or jsonl"),
        (["-", "--format", "parquet"], "- takes --format csv or jsonl"),
        (["-", "--format", "csv", "--json"], "exclude each other"),
        (["out.parquet.gz"], "unknown format of 'out.parquet.gz'"),
    ],
)
def test_what_is_no_text_goes_into_files(run, recorded, arguments, why):
    _, err = run("capture", "export", recorded, *arguments, returncode=2)
    assert why in " ".join(err.split())


def test_decode_makes_a_table_without_spark(run, recorded, tmp_path):
    from pyarrow import parquet

    out, _ = run("capture", "decode", recorded, "out.parquet", "--tags", "run=bigint", "--json")
    assert json.loads(out) == {"event": "decoded", "rows": 5, "path": "out.parquet"}
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("sender").to_pylist() == ["D.one", None, "D.two", "D.three", "D.three"]
    assert table.column("tag_run").to_pylist() == [7, None, None, None, None]
    assert table.column("error").to_pylist() == [None, "bad_header", None, None, None]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "out.parquet", "recorded.jsonl"]


def test_decode_writes_parquet_and_nothing_else(run, recorded, tmp_path):
    _, err = run("capture", "decode", recorded, "out.csv", returncode=2)
    assert "this writes Parquet: for .csv take trunkline capture export" in " ".join(err.split())
    assert not list(tmp_path.glob("*out.csv*"))


def test_decode_overwrites_nothing_unless_told_to(run, recorded, tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("words")
    _, err = run("capture", "decode", recorded, "precious.txt", returncode=1)
    assert err == ("trunkline: error: precious.txt already exists: choose another name, or give --overwrite\n")
    assert precious.read_text() == "words"
    run("capture", "decode", recorded, "precious.txt", "--overwrite")
    assert precious.read_bytes().startswith(b"PAR1")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["capture", "decode"], "t.parquet"),
        (["spark", "decode", "--protocol", "cdtp"], "t"),
        (["spark", "report"], "r.html"),
    ],
)
def test_a_capture_takes_in_nothing_that_is_no_part_of_it(run, recorded, command, name):
    _, err = run(*command, recorded, f"{recorded}/{name}", returncode=1)
    assert "would be inside the capture" in err


def test_a_decode_that_fails_leaves_nothing(run, recorded, tmp_path):
    (segment,) = recorded.glob("*.parquet")
    segment.write_bytes(segment.read_bytes()[:1000])
    _, err = run("capture", "decode", recorded, "out.parquet", returncode=1)
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.glob("*out.parquet*"))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--tags", "run"], "--tags takes K=TYPE"),
        (["--tags", "run=date"], "unknown type"),
        (["--tags", "*=bigint"], '"variant"'),
        (["--protocol", "foo"], "'cdtp', 'dcp', 'mc0', 'mtl', 'cdt'"),
        (["--protocol", "dcp", "--tags", "run=bigint"], "leave it out"),
        (["--protocol", "cdtp", "--codec", "avro"], "codec does not apply to CDTP messages: leave it out"),
        (["--protocol", "cdt", "--codec", "cbor"], "'json', 'avro'"),
    ],
)
@pytest.mark.parametrize("command", [["capture", "decode"], ["spark", "decode"]], ids=" ".join)
def test_what_cannot_be_decoded_is_wrong_usage(run, recorded, command, wrong, why):
    given = wrong if "--protocol" in wrong else [*wrong, "--protocol", "cdtp"]
    _, err = run(*command, recorded, "out", *given, returncode=2)
    assert why in " ".join(err.split())


DCP = [[b"", b"DGBX\x01", b"\x04", b"echo", b"", b"m", b"", b"x"], [b"", b"DGBX\x01", b"\x02"]]


def import_dcp(run, tmp_path):
    write(tmp_path / "dcp.jsonl", DCP, protocol="dcp")
    run("capture", "import", "dcp.jsonl", "--capture", "capture")


def test_decode_takes_the_only_protocol_there_is(run, tmp_path):
    import_dcp(run, tmp_path)
    out, err = run("capture", "decode", "capture", "out.parquet")
    assert (out, err) == ("2 rows in out.parquet\n", "")
    _, err = run("capture", "decode", "capture", "out.parquet", "--tags", "run=bigint", returncode=2)
    assert "tags does not apply to DCP" in " ".join(err.split())


@pytest.mark.usefixtures("recorded")
def test_decode_says_what_else_there_is(run, tmp_path):
    import_dcp(run, tmp_path)
    out, err = run("capture", "decode", "capture", "out.parquet")
    assert out == "5 rows in out.parquet\n"
    assert err == "trunkline: decodes cdtp; --protocol decodes others (2 dcp)\n"
    assert run("capture", "decode", "capture", "dcp.parquet", "--protocol", "dcp") == ("2 rows in dcp.parquet\n", "")


def test_decode_says_where_it_cannot_write(run, recorded):
    _, err = run("capture", "decode", recorded, "/proc/nowhere/out.parquet", returncode=1)
    (line,) = err.splitlines()
    assert "/proc/nowhere: No such file or directory: check the path" in line
