"""`trunkline capture runs`, and a run as HDF5."""

from __future__ import annotations

import json

import h5py
import msgpack
import pytest

from peers.commands import besides_progress, release
from peers.recorded import write


@pytest.fixture
def with_runs(run, tmp_path):
    """A capture of two runs, one with a gap and without an end."""
    empty = msgpack.packb({})
    messages = [
        release("D.two", 1, 0, msgpack.packb({"gain": 2, "mask": b"\xff"})),
        release("D.two", 0, 1, b"abc"),
        release("D.two", 2, 1, msgpack.packb({"run_id": "run 1"})),
        release("D.two", 1, 0, empty),
        release("D.two", 0, 3, b"abc"),
    ]
    write(tmp_path / "recorded.jsonl", messages, step_ns=500_000_000)
    run("capture", "import", "recorded.jsonl", "--capture", "capture")
    return tmp_path / "capture"


def test_runs_are_listed(run, with_runs):
    out, err = run("capture", "runs", with_runs)
    head, first, second = out.splitlines()
    # What there is none of in any run, as numbers that came again, has no column.
    assert head.split() == [
        *("sender", "run", "id", "condition", "messages", "bytes", "missed", "first", "(UTC)", "took")
    ]
    assert first.split() == [
        *("D.two", "1", "run", "1", "GOOD", "1", "77", "B", "0", "2023-11-14", "22:13:20", "1.0", "s")
    ]
    assert second.split()[:6] == ["D.two", "2", "INCOMPLETE|ABORTED", "1", "34", "B"]
    assert err == ""


def test_runs_are_json_too(run, with_runs):
    first, second = map(json.loads, run("capture", "runs", with_runs, "--json")[0].splitlines())
    assert (first["event"], first["sender"], first["ordinal"], first["run_id"]) == ("run", "D.two", 1, "run 1")
    assert (first["config"], first["metadata"]) == ({"gain": 2, "mask": {"base64": "/w=="}}, {"run_id": "run 1"})
    assert (second["missed"], second["condition"], second["condition_code"]) == (2, "INCOMPLETE|ABORTED", 10)
    assert (second["eor_seq"], second["metadata"]) == (None, None)


def test_a_run_is_exported_as_hdf5(run, with_runs, tmp_path):
    out, err = run("capture", "export", with_runs, "run.h5", "--run", "run 1", "--sender", "D.two")
    assert (out, besides_progress(err)) == ("3 rows in run.h5\n", "")
    with h5py.File(tmp_path / "run.h5") as file:
        assert file["D.two/BOR/configuration"].attrs["gain"] == 2
        assert file["D.two/data"][:].tobytes() == b"abc"
    _, err = run("capture", "export", with_runs, "run.h5", "--tags", "run=bigint", "--overwrite", returncode=1)
    assert "leave out tags" in err
    assert "run.h5" in {path.name for path in tmp_path.iterdir()}
    assert not list(tmp_path.glob(".*.part"))


def test_names_do_not_reach_the_terminal_as_they_are(run, tmp_path):
    name = "D\x1b[2J\n"
    run_id = msgpack.packb({"run_id": name})
    messages = [release(name, 1, 0, run_id), release(name, 2, 0, run_id)]
    write(tmp_path / "recorded.jsonl", messages)
    run("capture", "import", "recorded.jsonl", "--capture", "capture")
    for command in ("cat", "runs"):
        out, _ = run("capture", command, "capture")
        # Two messages, or a head and a run.
        assert len(out.splitlines()) == 2
        assert "D\\x1b[2J\\n" in out
