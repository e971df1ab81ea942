"""Folders of captures, read as one."""

import json
import subprocess
import sys

import pyarrow as pa
import pytest

from peers import cdtp as wire
from peers import dcp as dcp_wire
from peers import mc0 as mc0_wire
from peers.recorded import AT, line
from trunkline import capture
from trunkline.demo import DATA
from trunkline.errors import CaptureError, LocalProtocolError

RELEASES = ("cdtp1-release-0.5.1", "cdtp2-release-1.0.2")


@pytest.fixture
def folder(tmp_path):
    """Captures of two releases, and one of DCP and mc0, below a folder; and what is none."""
    runs = tmp_path / "runs"
    for release in RELEASES:
        capture.import_(DATA / f"{release}.jsonl.gz", runs / "lab" / release)
    others = [(at, "dcp", "in", dcp_wire.request(b"echo", b"x")) for at in range(3)]
    others += [(at, "mc0", "in", mc0_wire.put(b"t", b"x")) for at in range(3, 5)]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(line(frames, AT + at, protocol=name, peer=b"p") for at, name, _, frames in others))
    capture.import_(rows, runs / "others")
    (runs / "notes").mkdir()
    (runs / "read.me").touch()
    return runs


def in_each(folder, of):
    return [of(capture.open(path)) for path in (*(folder / "lab" / release for release in RELEASES), folder / "others")]


def test_the_captures_come_by_their_paths(folder):
    opened = capture.open_folder(folder)
    assert [each.path for each in opened] == [*(folder / "lab" / name for name in RELEASES), folder / "others"]
    assert len(opened) == 3
    infos = in_each(folder, lambda each: each.info())
    together = opened.info()
    assert together.capture_id is None
    assert together.messages == sum(info.messages for info in infos)
    assert together.bytes == sum(info.bytes for info in infos)
    assert together.first_received_at_ns == min(info.first_received_at_ns for info in infos)
    assert together.protocols == {"cdtp": sum(info.messages for info in infos[:2]), "dcp": 3, "mc0": 2}


@pytest.mark.parametrize("protocol", ["cdtp", "dcp", "*"])
def test_messages_are_those_of_each(folder, protocol, caplog):
    each = in_each(folder, lambda each: each.decode(protocol).read_all())
    caplog.clear()
    together = capture.open_folder(folder).decode(protocol).read_all()
    assert together.equals(pa.concat_tables(each))
    assert caplog.messages == []


def test_nothing_of_a_protocol_is_warned_of_once(folder, caplog):
    assert capture.open_folder(folder).decode("mtl").read_all().num_rows == 0
    assert len(caplog.messages) == 1


def test_tables_are_those_of_each(folder):
    opened = capture.open_folder(folder)
    for table in ("gaps", "requests", "topics", "contents", "rollout"):
        each = in_each(folder, lambda each, table=table: getattr(each, table)().read_all())
        assert getattr(opened, table)().read_all().equals(pa.concat_tables(each)), table
    assert opened.requests().read_all().num_rows == 3
    assert opened.runs() == [run for runs in in_each(folder, lambda each: each.runs()) for run in runs]


def test_a_run_is_of_the_captures_that_have_it(folder):
    runs = in_each(folder, lambda each: {run.run_id for run in each.runs()})
    only = next(run for run in runs[1] if run not in runs[0])
    selection = capture.Selection(run=only)
    expected = capture.open(folder / "lab" / RELEASES[1]).decode("cdtp", selection=selection).read_all()
    assert expected.num_rows
    assert capture.open_folder(folder).decode("cdtp", selection=selection).read_all().equals(expected)
    with pytest.raises(LocalProtocolError, match="no run 'none' in the capture"):
        capture.open_folder(folder).decode("cdtp", selection=capture.Selection(run="none"))


def test_exports_are_of_all(folder, tmp_path):
    for of in (folder, capture.open_folder(folder)):
        assert capture.export(of, tmp_path / "out.jsonl", "mc0") == 2
        assert [json.loads(text)["topic"] for text in (tmp_path / "out.jsonl").read_text().splitlines()] == ["t", "t"]
    with pytest.raises(LocalProtocolError, match="HDF5 holds a run of one capture"):
        capture.export(folder, tmp_path / "out.h5")


def test_a_report_is_of_all(folder, tmp_path):
    progress = []
    report = capture.report(folder, tmp_path / "all.html", on_progress=progress.append).to_dict()
    each = in_each(folder, lambda each: capture.report(each.path, tmp_path / "one.html").to_dict())
    assert report["rows"] == sum(one["rows"] for one in each) == progress[-1]
    assert progress == sorted(progress)
    assert report["sections"]["dcp"]["services"] == each[2]["sections"]["dcp"]["services"]
    assert report["sections"].keys() == {name for one in each for name in one["sections"]}
    with pytest.raises(LocalProtocolError, match="a run is of one capture"):
        capture.report(folder, tmp_path / "all.html", selection=capture.Selection(run="run_1"))
    only = capture.Selection(protocol="mc0")
    assert capture.report(folder, tmp_path / "some.html", selection=only).rows == 2
    # Captures of CDTP have no topics.
    topics = capture.Selection(where="topic = 't' and payload_x > 0")
    assert capture.report(folder, tmp_path / "some.html", selection=topics, payload="x u8").rows == 2
    with pytest.raises(LocalProtocolError, match="no column 'payload_y', did you mean 'payload_x'"):
        wrong = capture.Selection(where="topic = 't' and payload_y > 0")
        capture.report(folder, tmp_path / "some.html", selection=wrong, payload="x u8")


def test_what_takes_one_capture_says_so(folder):
    with pytest.raises(CaptureError, match="runs: is a folder of captures: name one of them"):
        capture.open(folder)
    with pytest.raises(CaptureError, match="is not a capture: it contains"):
        capture.open(folder.parent)


def test_a_missing_extra_is_named():
    code = "import sys; sys.modules['pyarrow'] = None; from trunkline import capture; capture.report('.', 'x.html')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "LocalProtocolError: this requires pyarrow: install trunkline[capture]" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("runs/others", "is a capture: open it with"),
        ("runs/notes", "is no folder of captures"),
        ("runs/read.me", "is no folder of captures"),
        ("none", "is no folder of captures"),
    ],
)
def test_what_is_none_is_refused(folder, path, words):
    with pytest.raises(CaptureError, match=words):
        capture.open_folder(folder.parent / path)


def test_a_folder_of_one_capture_is_as_that(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(line([wire.header_s(), b"x"], AT))
    capture.import_(rows, tmp_path / "runs/one")
    table = capture.open_folder(tmp_path / "runs").decode("cdtp").read_all()
    assert table.equals(capture.open(tmp_path / "runs/one").decode("cdtp").read_all())
