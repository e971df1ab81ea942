"""What several rows of a capture make up, as commands print it."""

from __future__ import annotations

import gzip
import json

import pyarrow.csv
import pyarrow.parquet
import pytest

from peers.recorded import line

AT = 1_795_251_120 * 10**9
H = b"DGBX\x01"
ASKED = [b"", H, b"\x04", b"echo", b"", b"", b"x"]
SENT = [b"", H, b"\x04", b"echo", b"c\xff", b"", b"", b"x"]
ANSWER = [b"", H, b"\x05", b"c\xff", b"", b"", b"y"]
TRIP = [("in", b"c\xff", ASKED), ("out", b"w", SENT), ("in", b"w", ANSWER), ("out", b"c\xff", ANSWER)]


@pytest.fixture
def broker(run, tmp_path):
    """A capture of as many requests as are said, each answered after 3 ms."""

    def make(count):
        with (tmp_path / "rows.jsonl").open("w") as file:
            for number, (direction, peer, frames) in enumerate(TRIP * count):
                file.write(line(frames, AT + number * 10**6, direction=direction, peer=peer, protocol="dcp"))
        run("capture", "import", "rows.jsonl", "--capture", "capture")

    return make


def test_requests_are_listed(run, broker):
    broker(2)
    out, _ = run("capture", "requests", "capture")
    head, *rows = (text.split() for text in out.splitlines())
    assert head[:3] == ["service", "outcome", "latency"]
    assert [row[:4] for row in rows] == [["echo", "reply", "3", "ms"]] * 2


def test_and_printed_as_json_or_written(run, broker, tmp_path):
    broker(2)
    out, _ = run("capture", "requests", "capture", "--json", "--until", "2026-11-21T08:52:00.002")
    (found,) = map(json.loads, out.splitlines())
    assert (found["event"], found["client"], found["worker"], found["latency_ns"]) == (
        *("request", {"base64": "Y/8="}),
        *("w", 3_000_000),
    )
    out, _ = run("capture", "requests", "capture", "--output", "found.parquet", "--json")
    assert json.loads(out) == {"event": "exported", "rows": 2, "path": "found.parquet"}
    assert pyarrow.parquet.read_table(tmp_path / "found.parquet")["outcome"].to_pylist() == ["reply"] * 2
    _, err = run("capture", "requests", "capture", "--output", "found.parquet", returncode=1)
    assert "--overwrite" in err
    run("capture", "requests", "capture", "--output", "found.parquet", "--overwrite")
    run("capture", "requests", "capture", "--output", "found.csv")
    assert pyarrow.csv.read_csv(tmp_path / "found.csv").num_rows == 2
    run("capture", "requests", "capture", "--output", "found.csv.gz")
    assert gzip.decompress((tmp_path / "found.csv.gz").read_bytes()) == (tmp_path / "found.csv").read_bytes()
    for wrong in ("found.h5", "found.root", "found.xyz"):
        _, err = run("capture", "requests", "capture", "--output", wrong, returncode=2)
        assert f"Invalid value for --output: unknown format of '{wrong}': end the name with .parquet, .arrow," in err
        assert ".root," not in err


def test_people_are_shown_the_first_thousand(run, broker):
    broker(1003)
    out, err = run("capture", "requests", "capture")
    assert len(out.splitlines()) == 1001
    assert "and 3 more rows" in err
    assert len(run("capture", "requests", "capture", "--json")[0].splitlines()) == 1003


@pytest.mark.parametrize("table", ["gaps", "topics", "contents", "rollout"])
def test_of_another_protocol_there_is_nothing(run, broker, table):
    broker(1)
    assert run("capture", table, "capture", "--json")[0] == ""
    assert run("capture", table, "capture")[0] == ""


def test_what_cannot_be_is_said_in_a_line(run, broker):
    broker(1)
    _, err = run("capture", "requests", "capture", "--sender", "x", returncode=2)
    assert "no message is of both" in err
    run("capture", "topics", "capture", "--window", "0", returncode=2)
    _, err = run("capture", "gaps", "nowhere", returncode=1)
    assert "nowhere" in err
