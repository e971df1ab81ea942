"""A run as HDF5, read back by h5py from what the layout says, and by the reader of a released Constellation."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import subprocess
import sys
from pathlib import Path

import h5py
import msgpack
import numpy as np
import pytest

from peers import hdf5
from peers.commands import batch, release, spec
from peers.recorded import AT, write
from trunkline import capture
from trunkline.errors import CaptureError, LocalProtocolError

PYTHON = Path(__file__).parents[2] / ".peers" / "0.5.1" / "bin" / "python"

CONFIG = {
    "voltage": 1.5,
    "mask": {"rows": [1, 2, 3], "deep": {"on": True}},
    "names": ["a", "b"],
    "mixed": [1, "a"],
    "wide": [2**64 - 1, -1],
}
METADATA = {"run_id": "run_1", "condition": "GOOD", "since": msgpack.Timestamp(1_700_000_000, 5000), "raw": b"a\0b"}

RUN = [
    release("D.one", 1, 0, msgpack.packb(CONFIG), tags={"licence": "ODC-By-1.0"}),
    batch("D/two", [0, {"shift": 3}, []], [1, {"gain": 2, "none": None}, []], kind=1),
    *(release("D.one", 0, 1 + at, np.arange(at, dtype="<i4").tobytes(), tags={"dtype": "<i4"}) for at in range(300)),
    batch("D/two", [1, {"trigger": 1}, [b"abc", b"", b"de"]], [2, {}, []], [4, {"x": "é"}, [b"\xff"]]),
    spec("D.spec", b"no run", tags={"when": msgpack.Timestamp(0, 0)}),
    release("D.one", 2, 301, msgpack.packb(METADATA)),
    batch("D/two", [0, {}, []], [1, {"run_id": "run_1"}, []], kind=2),
]


def imported(path, messages):
    capture.import_(write(path.with_suffix(".jsonl"), messages), path)
    return path


def parts(group, name):
    """What one dataset holds one after the other, cut where the other says; behind that there are zeros."""
    ends = group[f"{name}_idx"][:]
    count = len(group["sequence"])
    assert len(ends) > count
    assert not ends[count:].any()
    whole = group[name][:].tobytes()
    return [whole[begin:end] for begin, end in zip([0, *map(int, ends)], map(int, ends[:count]), strict=False)]


def said(dataset):
    """The JSON of an EOR, behind which there are zeros."""
    return json.loads(dataset[:].tobytes().rstrip(b"\0"))


@pytest.fixture
def run(tmp_path):
    path = imported(tmp_path / "capture", [*RUN, [b"nonsense"]])
    out = tmp_path / "run.h5"
    # Records of CDTP2 are messages, and those of its BOR and EOR too.
    assert capture.export(path, out) == 300 + 2 + 3 + 1 + 2 + 2
    return out


def test_payloads_and_tags_are_in_order_by_sender(run):
    with h5py.File(run) as file:
        assert sorted(file) == ["D%2Ftwo", "D.one", "D.spec", "H5DataWriter.trunkline"]
        one, two, other = file["D.one"], file["D%2Ftwo"], file["D.spec"]
        assert parts(one, "data") == [np.arange(at, dtype="<i4").tobytes() for at in range(300)]
        assert one["data"].attrs["CLASS"] == "DETECTOR_DATA"
        assert [json.loads(meta) for meta in parts(one, "meta")] == [
            {"dtype": "<i4", "block_lengths": [4 * at]} for at in range(300)
        ]
        assert one["sequence"][:].tolist() == [*range(1, 301)]
        assert one["received_at_ns"][:].tolist() == [*range(AT + 2, AT + 302)]
        assert parts(two, "data") == [b"abcde", b"", b"\xff"]
        assert [json.loads(meta) for meta in parts(two, "meta")] == [
            {"trigger": 1, "block_lengths": [3, 0, 2]},
            {"block_lengths": []},
            {"x": "é", "block_lengths": [1]},
        ]
        assert two["sequence"][:].tolist() == [1, 2, 4]
        assert (parts(other, "data"), other["sequence"][:].tolist()) == ([b"no run"], [-1])
        assert "BOR" not in other
        about = file["H5DataWriter.trunkline"].attrs
        assert (about["swmr_mode"], about["constellation_version"].partition(" ")[0]) == (True, "trunkline")
        assert dt.datetime.fromisoformat(about["date_utc"]).tzinfo is not None


def test_configuration_and_metadata_are_attributes(run):
    with h5py.File(run) as file:
        config = dict(file["D.one/BOR/configuration"].attrs)
        assert config.pop("mask.rows").tolist() == [1, 2, 3]
        assert config.pop("names").tolist() == ["a", "b"]
        assert config == {
            "voltage": 1.5,
            "mask.deep.on": True,
            "mixed": '[1, "a"]',
            "wide": "[18446744073709551615, -1]",
        }
        assert dict(file["D.one/BOR/user_tags"].attrs) == {"licence": "ODC-By-1.0"}
        assert dict(file["D%2Ftwo/BOR/user_tags"].attrs) == {"shift": 3}
        assert dict(file["D%2Ftwo/BOR/configuration"].attrs) == {"gain": 2, "none": "None"}
        metadata = file["D.one/EOR/run_metadata"]
        found = dict(metadata.attrs)
        assert found.pop("raw").tobytes() == b"a\0b"
        assert (found["run_id"], found["condition"]) == ("run_1", "GOOD")
        assert said(metadata) == METADATA | {"since": "2023-11-14 22:13:20.000005+00:00", "raw": "0x610062"}
        assert said(file["D%2Ftwo/EOR/run_metadata"]) == {
            "run_id": "run_1",
            "condition_code": 2,
            "condition": "INCOMPLETE",
        }
        assert said(file["D%2Ftwo/EOR/user_tags"]) == {}


def test_entries_of_one_name_are_both_kept(tmp_path):
    config = {
        "hv": {"max": 1500},
        "hv.max": 9,
        "": 1,
        "%": 2,
        "a\0": 1,
        "a%00": 2,
        "mask": [True, 2],
        "on": [True, False],
    }
    messages = [
        release("D.one", 1, 0, msgpack.packb(config)),
        release("D.one", 0, 1, b"abc", tags={"block_lengths": "mine", "block_lengths#2": "too"}),
    ]
    capture.export(imported(tmp_path / "capture", messages), tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5") as file:
        found = dict(file["D.one"]["BOR"]["configuration"].attrs)
        assert (found["hv.max"], found["hv.max#2"]) == (1500, 9)
        assert (found["%"], found["%#2"], found["a%00"], found["a%00#2"]) == (1, 2, 1, 2)
        assert (json.loads(found["mask"]), found["on"].tolist()) == ([True, 2], [True, False])
        (meta,) = parts(file["D.one"], "meta")
    assert json.loads(meta) == {"block_lengths": [3], "block_lengths#2": "too", "block_lengths#3": "mine"}


def test_a_run_without_an_end_has_that_of_a_receiver(tmp_path):
    path = imported(tmp_path / "capture", [RUN[0], release("D.one", 0, 1, b"x"), release("D.one", 0, 3, b"y")])
    capture.export(path, tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5") as file:
        assert said(file["D.one/EOR/run_metadata"]) == {"condition_code": 10, "condition": "INCOMPLETE|ABORTED"}


def test_it_is_as_a_live_writer_has_it(tmp_path):
    """As tests/live/test_h5_writer.py sees one write it; we say more of what an EOR says, and beside each message."""
    path = imported(tmp_path / "capture", itertools.chain.from_iterable(hdf5.MESSAGES.values()))
    capture.export(path, tmp_path / "run.h5")
    ours, theirs = hdf5.described(tmp_path / "run.h5"), hdf5.golden()
    for name in (name for name in theirs if "/EOR/" in name):
        assert ours[name].pop("attributes").keys() >= theirs[name].pop("attributes").keys()
    assert {name: ours[name] for name in theirs} == theirs
    assert {name.partition("/")[2] for name in ours.keys() - theirs.keys()} == {"sequence", "received_at_ns"}


def test_more_than_is_held_in_memory_is_written_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr("trunkline.capture.hdf5._HELD_BYTES", 1000)
    payloads = [bytes([at]) * (at % 50) for at in range(250)]
    path = imported(tmp_path / "capture", [release(f"D.{at % 3}", 0, at, part) for at, part in enumerate(payloads)])
    capture.export(path, tmp_path / "run.hdf5")
    with h5py.File(tmp_path / "run.hdf5") as file:
        for at in range(3):
            assert parts(file[f"D.{at}"], "data") == payloads[at::3]


@pytest.mark.skipif(not PYTHON.exists(), reason="make peers installs it")
def test_constellations_own_reader_reads_it(run):
    """That of release 0.5.1, the last to have one."""
    code = (
        "import json, sys\n"
        "from constellation.tools.H5datareader import H5DataReader\n"
        "reader = H5DataReader(sys.argv[1])\n"
        "data = [part.tolist() for chunk in reader.read_chunks_swmr('D.one', 7) for part in chunk]\n"
        "config = dict(reader.get_BOR_payload('D.one')['configuration'].attrs)\n"
        "print(json.dumps([reader.groups(), data, config['voltage'], sorted(reader.get_EOR_payload('D.one'))]))\n"
    )
    done = subprocess.run([PYTHON, "-c", code, run], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    groups, data, voltage, eor = json.loads(done.stdout)
    assert groups == ["D%2Ftwo", "D.one", "D.spec", "H5DataWriter.trunkline"]
    assert data == [list(range(at)) for at in range(len(data))]
    # It leaves out a last one that is alone.
    assert len(data) in {299, 300}
    assert (voltage, eor) == (1.5, ["run_metadata", "user_tags"])


def test_a_file_holds_one_run(tmp_path):
    again = release("D.one", 1, 0, msgpack.packb({"voltage": 2}))
    path = imported(tmp_path / "capture", [*RUN, again, release("D.one", 0, 1, b"later")])
    with pytest.raises(LocalProtocolError, match=r"'D.one' has several: .*capture runs"):
        capture.export(path, tmp_path / "run.h5")
    assert capture.export(path, tmp_path / "run.h5", selection=capture.Selection(run=2)) == 2
    with h5py.File(tmp_path / "run.h5") as file:
        assert parts(file["D.one"], "data") == [b"later"]
        assert said(file["D.one/EOR/run_metadata"])["condition"] == "ABORTED"


def test_what_is_no_run_of_cdtp_is_refused(tmp_path):
    path = imported(tmp_path / "capture", RUN)
    out = tmp_path / "run.h5"
    with pytest.raises(LocalProtocolError, match="not dcp"):
        capture.export(path, out, "dcp")
    with pytest.raises(LocalProtocolError, match="leave out tags"):
        capture.export(path, out, tags={"run": "bigint"})
    with pytest.raises(LocalProtocolError, match="both cdtp and dcp"):
        capture.export(path, out, selection=capture.Selection(service="s"))
    with pytest.raises(CaptureError, match="does not exist"):
        capture.export(tmp_path / "absent", out)
    assert not out.exists()


def test_the_extra_is_named_where_it_is_not_there(tmp_path, monkeypatch):
    path = imported(tmp_path / "capture", RUN)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(LocalProtocolError, match=r"this requires h5py: install trunkline\[hdf5\]"):
        capture.export(path, tmp_path / "run.h5")
