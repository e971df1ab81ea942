"""Layouts of payloads on the command line."""

import json
import struct

import pytest
from pyarrow import parquet

from peers import cdtp as wire
from peers.recorded import write


@pytest.fixture
def samples(tmp_path):
    """Messages with samples, and one whose payload is none."""
    frames = [struct.pack("<B3H", 1, 2, 3, 4), struct.pack("<B", 9), b""]
    write(tmp_path / "samples.jsonl", [[wire.header_s(), frame] for frame in frames], protocol="cdtp")
    return tmp_path / "samples.jsonl"


@pytest.fixture
def run7(run, samples):
    run("capture", "import", samples, "--capture", "run7")
    return samples.parent / "run7"


def test_a_layout_makes_columns(run, run7):
    run("capture", "decode", run7, "out.parquet", "--payload", "n u8, adc u16[]")
    table = parquet.read_table(run7.parent / "out.parquet")
    assert table["payload_adc"].to_pylist() == [[2, 3, 4], [], None]
    assert table["error"].to_pylist() == [None, None, "payload_short"]


def test_a_layout_may_be_in_a_file(run, run7):
    (run7.parent / "adc.layout").write_text("n u8,\nadc u16[]\n")
    run("capture", "export", run7, "out.jsonl", "--payload-file", "adc.layout")
    rows = [json.loads(line) for line in (run7.parent / "out.jsonl").read_text().splitlines()]
    assert [row["payload_n"] for row in rows] == [1, 9, None]


@pytest.mark.parametrize("words", [["--payload"], ["--payload", "--overwrite"], ["--payload=true"]])
def test_alone_it_asks_for_the_frames(run, run7, words):
    run("capture", "decode", run7, "out.parquet", *words)
    table = parquet.read_table(run7.parent / "out.parquet")
    assert table["payload"].to_pylist()[1] == [b"\x09"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--payload", "adc u17[]"], "payload: line 1, column 5: expected a type"),
        (["--payload-file", "missing"], "--payload-file missing: No such file"),
        (["--payload", "a u8", "--payload-file", "x"], "--payload and --payload-file exclude each other"),
        (["--payload", "adc u16[]", "--protocol", "*"], "decode one protocol"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(run, run7, words, said):
    _, err = run("capture", "export", run7, "out.jsonl", *words, returncode=2)
    assert said in " ".join(err.split())
    assert not (run7.parent / "out.jsonl").exists()


@pytest.mark.parametrize(
    "command", [["export", "-", "--format", "jsonl"], ["report", "r.html"], ["decode", "o.parquet"]]
)
@pytest.mark.parametrize("empty", [["--payload="], ["--payload", ""], ["--payload-file", "empty"]])
def test_an_empty_layout_is_none(run, run7, tmp_path, command, empty):
    (tmp_path / "empty").touch()
    empty = [str(tmp_path / word) if word == "empty" else word for word in empty]
    _, err = run("capture", command[0], run7, *command[1:], *empty, returncode=2)
    assert "expected the name of a field, not the end" in " ".join(err.split())


def test_csv_refuses_arrays(run, run7):
    _, err = run("capture", "export", run7, "out.csv", "--payload", "n u8, adc u16[]", returncode=1)
    assert "CSV has no arrays, and payload_adc is one" in err


def test_cat_prints_fields(run, run7):
    out, _ = run("capture", "cat", run7, "--payload", "n u8, adc u16[]")
    first, second, third = out.splitlines()
    assert first.endswith('"n": 1, "adc": [2, 3, 4]}')
    assert second.endswith('"n": 9, "adc": []}')
    assert '"error": "payload_short"' in third
    _, err = run("capture", "cat", run7, "--payload", "adc u17", returncode=2)
    assert "--payload: line 1, column 5" in " ".join(err.split())


def test_a_report_says_what_was_in_fields(run, run7):
    out, _ = run("capture", "report", run7, "report.html", "--payload", "n u8, adc u16[]", "--json")
    (adc, n) = json.loads(out)["sections"]["payloads"]
    assert (adc["field"], adc["mean"], adc["malformed"]) == ("adc", 3.0, 1)
    assert (n["field"], n["min"], n["max"]) == ("n", 1, 9)
    _, err = run("capture", "report", run7, "other.html", "--payload", returncode=2)
    assert "--payload of a report takes a layout" in " ".join(err.split())


def test_cat_names_fields_apart_from_what_messages_have(run, run7):
    out, _ = run("capture", "cat", run7, "--payload", "sender u8, adc u16[]", "--json", "--head", "1")
    [message] = json.loads(out)["messages"]
    assert (message["sender"], message["payload_sender"], message["adc"]) == ("Det", 1, [2, 3, 4])


def test_cat_selects_by_fields(run, run7):
    layout = ("--payload", "n u8, adc u16[]", "--json")
    out, _ = run("capture", "cat", run7, *layout, "--where", "payload_n = 9")
    assert [json.loads(row)["seq"] for row in out.splitlines()] == [1]
    out, _ = run("capture", "cat", run7, *layout, "--where", "error = 'payload_short'")
    assert [json.loads(row)["seq"] for row in out.splitlines()] == [2]


def test_a_format_of_cat_names_fields(run, run7):
    layout = ("--payload", "sender u8, adc u16[]")
    out, _ = run("capture", "cat", run7, *layout, "--format", "{sender} {payload_sender:03d} {adc} {payload_adc}")
    assert out.splitlines() == ["Det 001 [2, 3, 4] [2, 3, 4]", "Det 009 [] []", "Det  - -"]
    out, _ = run("capture", "cat", run7, "--payload", "x f32, y u8[]", "--format", "{x:.1e}", "--head", "1")
    assert out == "3.8e-37\n"
    _, err = run("capture", "cat", run7, *layout, "--format", "{acd}", returncode=2)
    assert "there is no {acd}. There are adc," in " ".join(err.split())
    _, err = run("capture", "cat", run7, "--format", "{adc}", returncode=2)
    assert "there is no {adc}" in " ".join(err.split())
