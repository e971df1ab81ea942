"""What a capture directory looks like to others, and what is taken for one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from peers import cdtp as wire
from trunkline import capture, cdt, cdtp
from trunkline.errors import CaptureError, LocalProtocolError

ANY = "tcp://127.0.0.1:*"

READERS = """
import sys
import duckdb, pandas, polars
from pyarrow import parquet
path = sys.argv[1]
tables = [
    polars.read_parquet(path),
    polars.scan_parquet(path).collect(),
    polars.read_parquet(path + "/*.parquet"),
    duckdb.sql(f"select * from read_parquet('{path}') order by seq").arrow().read_all(),
    duckdb.sql(f"select * from '{path}/*.parquet' order by seq").arrow().read_all(),
    parquet.read_table(path),
    pandas.read_parquet(path),
]
for table in tables:
    assert list(table["seq"]) == list(range(int(sys.argv[2]))) or table["seq"].to_pylist() == list(range(int(sys.argv[2])))
print(len(tables))
"""


def read_by_others(path, rows):
    command = [sys.executable, "-c", READERS, str(path), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("7\n", "")


def messages():
    runs = [(wire.BOR, 0), (wire.DAT, 1), (wire.EOR, 1)] * 3
    return [[wire.header_b(sequence, kind), b"\x80"] for kind, sequence in runs]


def plain(path):
    """Turns a capture into what an earlier version would have left."""
    (path / "_runs").mkdir()
    for file in (path / "_capture").iterdir():
        content = file.read_bytes()
        footer = int.from_bytes(content[-8:-4], "little")
        name = "_capture.json" if file.stem == "manifest" else f"_runs/{file.stem}.jsonl"
        (path / name).write_bytes(content[4 : -8 - footer])
        file.unlink()
    (path / "_capture").rmdir()
    (path / "_runs" / ".next").write_text("begun, and not ended")


def visible(path):
    return sorted(entry.name for entry in path.iterdir() if not entry.name.endswith(".parquet"))


def test_whoever_reads_parquet_opens_the_directory(record, tmp_path):
    record(messages(), segment_bytes=50).close()
    assert len(capture.open(tmp_path).segments) > 2
    assert len(list(tmp_path.glob("*.parquet"))) == len(capture.open(tmp_path).segments)
    read_by_others(tmp_path, 9)


def test_whoever_reads_parquet_opens_an_import(tmp_path):
    rows = capture.import_(sorted(wire.DATA.glob("*.jsonl.gz")), tmp_path, segment_bytes=1 << 20)
    read_by_others(tmp_path, rows)


def test_a_capture_of_an_earlier_version_is_read_and_taken_over(record, tmp_path):
    record(messages(), segment_bytes=50).close()
    info, runs = capture.open(tmp_path).info(), capture.open(tmp_path).runs()
    plain(tmp_path)
    assert json.loads((tmp_path / "_capture.json").read_text())["capture_id"] == info.capture_id
    assert (capture.open(tmp_path).info(), capture.open(tmp_path).runs()) == (info, runs)
    cdtp.Recorder(tmp_path, bind=ANY).close()
    assert visible(tmp_path) == [".lock", "_capture"]
    assert (capture.open(tmp_path).info(), capture.open(tmp_path).runs()) == (info, runs)
    record(messages()).close()
    assert [row["seq"] for row in capture.open(tmp_path).rows()] == list(range(18))
    assert capture.open(tmp_path).info().capture_id == info.capture_id
    read_by_others(tmp_path, 18)


@pytest.fixture
def foreign(tmp_path):
    """A directory with other files."""
    (tmp_path / "a.txt").write_text("words")
    (tmp_path / "b.parquet").write_text("no segment")
    return tmp_path


WRITERS = {
    "recorder": lambda path: cdtp.Recorder(path, bind=ANY),
    "sender": lambda path: cdtp.Sender("Det", bind=ANY, capture=path),
    "import": lambda path: capture.import_([], path),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_holds_something_else_is_not_written_to(foreign, writer):
    with pytest.raises(CaptureError, match=r"is not a capture: it contains a\.txt; choose an empty"):
        WRITERS[writer](foreign)
    assert sorted(path.name for path in foreign.iterdir()) == ["a.txt", "b.parquet"]


@pytest.mark.parametrize("reader", [capture.open, capture.recover])
def test_what_holds_something_else_is_not_read(foreign, reader):
    with pytest.raises(CaptureError, match=r"is not a capture: it contains a\.txt$"):
        reader(foreign)


def test_what_is_hidden_or_comes_later_is_no_hindrance(record, tmp_path):
    (tmp_path / ".gitkeep").write_text("")
    record(messages()).close()
    (tmp_path / "README.txt").write_text("of the capture")
    record(messages()).close()
    assert capture.open(tmp_path).info().messages == 18


LOCAL = {
    "recorder": lambda url: cdtp.Recorder(url, bind=ANY),
    "recorder of CDT": lambda url: cdt.Recorder(url, servers="nats://127.0.0.1:9"),
    "import": lambda url: capture.import_([], url),
    "recover": capture.recover,
    "compact": capture.compact,
    "ship": lambda url: capture.ship(url, "elsewhere"),
    "export": lambda url: capture.export("nowhere", url, format="csv"),
    "report": lambda url: capture.report("nowhere", url),
}


@pytest.mark.parametrize("url", ["s3://me:secret@lab/run7?region=eu", Path("s3://lab/run7"), "file:///lab/run7"])
@pytest.mark.parametrize("what", LOCAL)
def test_a_url_is_no_directory_of_this_machine(tmp_path, monkeypatch, what, url):
    monkeypatch.chdir(tmp_path)
    scheme = os.fspath(url).partition(":")[0]
    advice = {"s3": "trunkline capture ship copies captures to stores", "file": "give the path alone"}[scheme]
    with pytest.raises(
        LocalProtocolError, match=rf"^{scheme}://{'/' * (scheme == 'file')}lab/run7: is a URL, .*{advice}$"
    ):
        LOCAL[what](url)
    assert [*tmp_path.iterdir()] == []


def test_what_has_a_colon_is_no_url_yet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("2026-11-27T07:00", "a:b", "c:/run", "lab:/run"):
        assert capture.import_([], name) == 0
        assert capture.open(name).info().messages == 0
