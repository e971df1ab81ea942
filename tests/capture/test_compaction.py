"""Many small segments that become few large ones."""

import itertools
import json
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from peers.capturing import command
from peers.commands import release
from peers.recorded import write
from trunkline import capture, cdtp
from trunkline._native.capture import existing, position, published, sums
from trunkline.errors import CaptureError
from trunkline.report.following import Following

SEGMENTS = 12
ROWS = 3 * SEGMENTS


def add(directory, segments, first=0):
    """Adds segments of three messages each."""
    for segment in range(first, first + segments):
        messages = [release("Det", 0, 3 * segment + at, b"x" * 100) for at in (1, 2, 3)]
        capture.import_(write(directory.parent / "lines.jsonl", messages), directory)


@pytest.fixture
def small(tmp_path):
    """A capture of small segments."""
    add(tmp_path / "capture", SEGMENTS)
    return tmp_path / "capture"


def seqs(recorded):
    return [row["seq"] for row in recorded.rows()]


def test_rows_stay_as_they_are(small):
    before = capture.open(small)
    rows, runs, size = list(before.rows()), before.runs(), published(small)
    assert len(size) == SEGMENTS
    done = capture.compact(small)
    assert (done.replaced, done.merged) == (SEGMENTS, 1)
    assert done.bytes_after < done.bytes_before
    after = capture.open(small)
    assert (list(after.rows()), after.runs()) == (rows, runs)
    assert [segment.name for segment in after.segments] == ["0000000000-0000000011.parquet"]
    assert sorted(path.name for path in small.glob("*.parquet")) == ["0000000000-0000000011.parquet"]
    assert capture.verify(small) == capture.Verification(1, ROWS, 0, ())
    # Who opened it before reads the same rows from the new file.
    assert list(before.rows()) == rows
    assert position(small)[1] == SEGMENTS
    assert capture.compact(small).merged == 0


def test_a_private_capture_stays_private(tmp_path):
    directory = tmp_path / "capture"
    lines = write(tmp_path / "lines.jsonl", [release("Det", 0, 1, b"x")])
    for _ in range(3):
        capture.import_(lines, directory, private=True)
    capture.compact(directory)
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_recorder_goes_on_after_it(small):
    capture.compact(small)
    add(small, 3, SEGMENTS)
    assert published(small) == [(0, 11), (12, 12), (13, 13), (14, 14)]
    assert seqs(capture.open(small)) == list(range(ROWS + 9))
    assert capture.verify(small).problems == ()
    capture.compact(small)
    assert published(small) == [(0, 14)]
    assert capture.verify(small) == capture.Verification(1, ROWS + 9, 0, ())
    assert [(first, last) for first, last, _, _ in sums(small) if first < last] == [(0, 14)]


def test_no_more_is_merged_than_fits(small):
    size = (small / "0000000000.parquet").stat().st_size
    capture.compact(small, target_bytes=4 * size + 100)
    spans = published(small)
    assert [first for first, _ in spans] == [0, *(last + 1 for _, last in spans[:-1])]
    assert 1 < len(spans) < SEGMENTS
    assert seqs(capture.open(small)) == list(range(ROWS))


def test_some_segments_are_read_by_their_numbers(small):
    capture.compact(small)
    for numbers in ([0], [11], [3, 4, 9], [*range(SEGMENTS)]):
        expected = [3 * number + at for number in numbers for at in range(3)]
        some = capture.Capture(small, segments=numbers)
        assert seqs(some) == expected
        assert len(some) == len(expected)
        assert [row["seq"] for row in some.rows(capture.Selection(sender="Det"))] == expected
        assert some.decode("cdtp").read_all()["seq"].to_pylist() == expected
    assert seqs(capture.Capture(small, segments=[(2, 5)])) == list(range(6, 18))
    assert existing(small, [(2, 2), (3, 3), (20, 20)]) == [(2, 3)]
    with pytest.raises(CaptureError, match=r"0000000012\.parquet: does not exist"):
        list(capture.Capture(small, segments=[12]).rows())


def test_a_gap_is_left_as_it_is(small):
    for number in (0, 5, 6):
        (small / f"{number:010}.parquet").unlink()
    capture.compact(small)
    assert published(small) == [(1, 4), (7, 11)]
    assert existing(small, [(number, number) for number in range(SEGMENTS)]) == [(1, 4), (7, 11)]
    assert [problem.what for problem in capture.verify(small).problems] == ["is missing, as are all up to 6"]


def test_not_while_it_is_recorded(small):
    with (
        cdtp.Recorder(small, bind="tcp://127.0.0.1:*"),
        pytest.raises(CaptureError, match="is being written by process"),
    ):
        capture.compact(small)
    assert len(published(small)) == SEGMENTS


def test_what_is_not_as_it_was_published_stays(small):
    spoilt = small / "0000000007.parquet"
    content = bytearray(spoilt.read_bytes())
    content[60] ^= 1
    spoilt.write_bytes(content)
    with pytest.raises(CaptureError, match=r"0000000007\.parquet: is not as it was published"):
        capture.compact(small)
    assert len(published(small)) == SEGMENTS
    assert not list(small.glob("_capture/.*merged*"))


def test_a_merged_segment_that_is_spoilt_is_found(small):
    capture.compact(small)
    (merged,) = capture.open(small).segments
    content = bytearray(merged.read_bytes())
    content[200] ^= 1
    merged.write_bytes(content)
    what = [problem.what for problem in capture.verify(small).problems]
    assert what[0].startswith("is not as it was published: CRC")
    assert capture.recover(small).damaged == tuple(range(SEGMENTS))


def test_others_read_it_as_plain_parquet(small):
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    capture.compact(small)
    assert polars.read_parquet(small)["seq"].to_list() == list(range(ROWS))
    assert duckdb.sql(f"select count(*) from read_parquet('{small}')").fetchall() == [(ROWS,)]


def test_a_report_that_follows_counts_each_message_once(small, tmp_path):
    following = Following(small, "small")
    assert following.page(tmp_path / "page.html", 1.0).rows == ROWS
    capture.compact(small)
    assert following.page(tmp_path / "page.html", 1.0) is None
    add(small, 2, SEGMENTS)
    capture.compact(small)
    assert published(small) == [(0, 13)]
    assert following.page(tmp_path / "page.html", None).rows == ROWS + 6


def test_readers_beside_many_merges_see_each_row_once(tmp_path):
    directory, over, failures = tmp_path / "capture", threading.Event(), []
    add(directory, 4)

    def read():
        while not over.is_set():
            try:
                found = seqs(capture.open(directory))
                if found != list(range(len(found))) or len(found) < 12:
                    failures.append(found)
            except CaptureError as error:
                failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for first in range(4, 24, 2):
            add(directory, 2, first)
            capture.compact(directory)
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert failures == []


def test_killed_at_any_moment_it_loses_nothing(tmp_path):
    directory = tmp_path / "capture"
    add(directory, 60)
    rows = 180
    for delay_ms in itertools.count(1, 3):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        code = "import sys; from trunkline import capture; print(flush=True); capture.compact(sys.argv[1])"
        process = subprocess.Popen([sys.executable, "-c", code, str(copy)], stdout=subprocess.PIPE)
        process.stdout.readline()
        try:
            process.wait(delay_ms / 1000)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        assert seqs(capture.open(copy)) == list(range(rows)), delay_ms
        assert capture.verify(copy).problems == ()
        if process.returncode == 0:
            break
        capture.compact(copy)
        assert published(copy) == [(0, 59)]
        assert capture.verify(copy) == capture.Verification(1, rows, 0, ())


def test_the_command(small):
    said = command("compact", small, "--target-bytes", "1")
    assert (said.returncode, said.stdout) == (0, "nothing to merge\n")
    said = command("compact", small)
    assert said.returncode == 0
    assert said.stdout.startswith("12 segments merged into 1; ")
    add(small, 1, SEGMENTS)
    event = json.loads(command("compact", small, "--json").stdout)
    assert (event["event"], event["replaced"], event["merged"]) == ("compacted", 2, 1)
    assert event["bytes_after"] < event["bytes_before"]
    said = command("compact", small.parent / "nowhere")
    assert (said.returncode, "nowhere: does not exist" in said.stderr) == (1, True)
    with pytest.raises(ValueError, match="target_bytes"):
        capture.compact(small, target_bytes=0)
