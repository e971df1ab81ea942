"""How far a capture has come, and some of its segments by number."""

import shutil

import pytest

from peers.commands import release
from peers.recorded import write
from trunkline import capture
from trunkline._native.capture import position, published
from trunkline.errors import CaptureError


@pytest.fixture
def add(tmp_path):
    """Adds a segment of two messages."""

    def add():
        lines = write(tmp_path / "lines.jsonl", [release("Det", 0, 1, b"x"), release("Det", 0, 2, b"y")])
        capture.import_(lines, tmp_path / "capture")
        return tmp_path / "capture"

    return add


def test_a_capture_has_come_as_far_as_its_last_segment(add, tmp_path):
    for _ in range(3):
        path = add()
    capture_id = capture.open(path).info().capture_id
    assert position(path) == (capture_id, 3)
    assert published(path) == [(0, 0), (1, 1), (2, 2)]
    # Those that were deleted are not read again.
    capture.open(path).segments[0].unlink()
    assert position(path) == (capture_id, 3)
    assert published(path) == [(1, 1), (2, 2)]
    (tmp_path / "empty").mkdir()
    for what in (position, published):
        with pytest.raises(CaptureError, match="contains no capture"):
            what(tmp_path / "empty")
        with pytest.raises(CaptureError, match="nowhere"):
            what(tmp_path / "nowhere")
    (tmp_path / "begun" / "_capture").mkdir(parents=True)
    assert position(tmp_path / "begun") == (None, 0)
    assert published(tmp_path / "begun") == []


def test_a_segment_whose_writer_was_killed_before_it_noted_it_counts(add):
    path = add()
    manifest = path / "_capture/manifest.parquet"
    before = manifest.read_bytes()
    add()
    add()
    manifest.write_bytes(before)
    assert position(path)[1] == 3


def test_a_capture_without_a_manifest_has_come_as_far_as_its_files_say(add):
    add()
    path = add()
    capture_id = capture.open(path).info().capture_id
    shutil.rmtree(path / "_capture")
    assert position(path) == (capture_id, 2)


def test_segments_are_read_by_number(add):
    for _ in range(3):
        path = add()
    some = capture.Capture(path, segments=[0, 2])
    assert [row["seq"] for row in some.rows()] == [0, 1, 4, 5]
    assert (len(some), [segment.stem for segment in some.segments]) == (4, ["0000000000", "0000000002"])
    assert some.decode("cdtp", columns=["seq", "sequence"]).read_all().to_pydict() == {
        "seq": [0, 1, 4, 5],
        "sequence": [1, 2, 1, 2],
    }
    with pytest.raises(CaptureError, match="0000000007"):
        list(capture.Capture(path, segments=[0, 7]).rows())
