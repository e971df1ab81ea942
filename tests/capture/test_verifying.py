"""A capture held against what it says of itself."""

import json

import pytest
import zmq

from peers import cdtp as wire
from peers.capturing import command
from trunkline import capture, cdtp
from trunkline.errors import CaptureError

ANY = "tcp://127.0.0.1:*"
SEGMENTS = 5


@pytest.fixture
def recorded(tmp_path, open_socket):
    """A capture of five segments, two rows each, and a run that has not ended."""
    path = tmp_path / "capture"
    with cdtp.Recorder(path, bind=ANY) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for segment in range(SEGMENTS):
            for number in (2 * segment, 2 * segment + 1):
                push.send_multipart([wire.header_b(number, wire.BOR if number == 0 else wire.DAT), b"\x80"])
            recorder.wait(count=2 * segment + 2, timeout_s=20)
            recorder.publish(timeout_s=20)
    return path


def segment(path, number):
    return path / f"{number:010}.parquet"


def problems(path):
    return [(problem.path.name, problem.what) for problem in capture.verify(path).problems]


def test_all_is_well(recorded):
    assert capture.verify(recorded) == capture.Verification(SEGMENTS, 2 * SEGMENTS, 0, ())
    said = command("verify", recorded)
    assert (said.returncode, said.stdout) == (0, "all is well: 10 messages in 5 segments\n")
    said = command("verify", recorded, "--json")
    event = {"event": "verified", "segments": 5, "messages": 10, "unchecked": 0, "problems": 0}
    assert (said.returncode, json.loads(said.stdout)) == (0, event)


def test_a_recorder_may_be_at_work(recorded, open_socket):
    with cdtp.Recorder(recorded, bind=ANY) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for count in range(1, 20):
            push.send_multipart([wire.header_s(), b"x"])
            recorder.wait(count=count, timeout_s=20)
            (recorder.publish if count % 3 else recorder.flush)(timeout_s=20)
            found = capture.verify(recorded)
            assert (found.messages, found.unchecked, found.problems) == (2 * SEGMENTS + count, 0, ())


def test_a_recorder_may_publish_and_delete_meanwhile(recorded, open_socket):
    with cdtp.Recorder(recorded, bind=ANY, segment_bytes=100, keep_bytes=60_000) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        for count in range(300):
            push.send_multipart([wire.header_s(), bytes(100)])
            if count % 10 == 0:
                found = capture.verify(recorded)
                assert (found.unchecked, found.problems) == (0, ())
        recorder.wait(count=300, timeout_s=20)
    assert capture.verify(recorded).segments < 100


def test_what_retention_deletes_is_no_gap(recorded):
    segment(recorded, 0).unlink()
    segment(recorded, 1).unlink()
    assert capture.verify(recorded) == capture.Verification(SEGMENTS - 2, 2 * SEGMENTS - 4, 0, ())


@pytest.mark.parametrize("at", [10, -100, 700])
def test_a_bit_that_has_turned_is_found(recorded, at):
    path = segment(recorded, 2)
    contents = bytearray(path.read_bytes())
    contents[at] ^= 1
    path.write_bytes(contents)
    name, what = problems(recorded)[0]
    assert name == path.name
    assert "is not as it was published" in what
    said = command("verify", recorded, "--json")
    *found, counts = map(json.loads, said.stdout.splitlines())
    assert (said.returncode, said.stderr) == (1, f"trunkline: {len(found)} problem{'s' * (len(found) > 1)} found\n")
    assert found[0] == {"event": "problem", "path": str(path), "what": what}
    assert counts["problems"] == len(found)
    # Recovery looks at the sums as well.
    assert capture.recover(recorded).damaged == (2,)
    said = command("recover", recorded)
    assert said.returncode == 1
    assert "segments 2" in said.stderr


@pytest.mark.parametrize(
    ("gone", "what"),
    [([2], "is missing"), ([2, 3], "is missing, as are all up to 3"), ([3, 4], "is missing, as are all up to 4")],
)
def test_segments_that_are_missing(recorded, gone, what):
    for number in gone:
        segment(recorded, number).unlink()
    assert problems(recorded) == [(segment(recorded, gone[0]).name, what)]


def test_a_segment_in_the_place_of_another(recorded):
    segment(recorded, 3).write_bytes(segment(recorded, 2).read_bytes())
    found = problems(recorded)
    assert {name for name, _ in found} == {segment(recorded, 3).name, segment(recorded, 4).name}
    assert [what.split(":")[0] for _, what in found] == [
        "is not as it was published",
        "has rows of segment 2",
        "duplicate rows",
        "gap in the rows",
    ]


def test_a_segment_of_another_capture(recorded, tmp_path):
    capture.import_(wire.DATA / "cdtp2-release-1.0.2.jsonl.gz", tmp_path / "other")
    segment(recorded, 0).write_bytes(segment(tmp_path / "other", 0).read_bytes())
    assert "has rows of another capture" in problems(recorded)[1][1]


@pytest.mark.parametrize("name", ["0000000002.parquet", "_capture/0000000004.parquet", "_capture/manifest.parquet"])
def test_what_cannot_be_read_is_named_and_the_rest_is_looked_at(recorded, name):
    (recorded / name).write_bytes(b"junk")
    found = capture.verify(recorded)
    assert str(found.problems[0].path) == str(recorded / name)
    assert found.segments == SEGMENTS
    assert found.messages == (8 if name.startswith("0") else 10)


def test_a_capture_without_sums_is_told_to_be(recorded):
    for file in (recorded / "_capture").glob("0*"):
        file.unlink()
    assert capture.verify(recorded) == capture.Verification(SEGMENTS, 2 * SEGMENTS, SEGMENTS, ())
    assert "5 of them without a sum to check" in command("verify", recorded).stdout
    # The next recorder counts anew, and writes the sums down.
    cdtp.Recorder(recorded, bind=ANY).close()
    assert capture.verify(recorded).unchecked == 0


def test_an_import_has_sums(recorded):
    for _ in range(2):
        capture.import_(wire.DATA / "cdtp2-release-1.0.2.jsonl.gz", recorded, segment_bytes=50_000)
        found = capture.verify(recorded)
        assert (found.unchecked, found.problems) == (0, ())
        assert found.segments > SEGMENTS


def test_there_is_nothing_to_verify_where_no_capture_is(tmp_path):
    with pytest.raises(CaptureError, match="contains no capture"):
        capture.verify(tmp_path)
