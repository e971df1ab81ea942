"""Captures in a store that speaks S3, and on the way there."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from pyarrow import parquet

from peers.capturing import command
from peers.commands import release
from peers.recorded import write
from peers.s3 import S3
from peers.waiting import until
from trunkline import capture, cdtp
from trunkline._locations import Url, location_of
from trunkline._native.capture import existing, is_capture, position, published, sizes, sums
from trunkline.capture.shipping import Shipment
from trunkline.capture.targets import target
from trunkline.errors import CaptureError, LocalProtocolError

SEGMENTS = 5
ROWS = 3 * SEGMENTS


@pytest.fixture
def folder(request):
    """A folder of the test's own."""
    return "runs/" + "".join(char if char.isalnum() else "_" for char in request.node.name)


@pytest.fixture
def url(s3, folder):
    """The URL of the folder."""
    return s3.url(folder)


@pytest.fixture
def below(s3, folder):
    """The names of what is in it."""
    return lambda: [name.removeprefix(f"{folder}/") for name in s3.names(f"{folder}/")]


def add(directory, segments=1):
    for _ in range(segments):
        number = len(capture.open(directory)) if directory.exists() else 0
        messages = [release("Det", 0, number + at, b"x" * 100) for at in (1, 2, 3)]
        capture.import_(write(directory.parent / "lines.jsonl", messages), directory)


@pytest.fixture
def recorded(tmp_path):
    add(tmp_path / "capture", SEGMENTS)
    return tmp_path / "capture"


def watch(directory, url, *more):
    command = [sys.executable, "-m", "trunkline", "capture", "ship", directory, url, "--watch", "--json", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def seqs(opened):
    return [row["seq"] for row in opened.rows()]


def test_what_is_shipped_is_the_same_capture(recorded, url, folder, below):
    done = capture.ship(recorded, url)
    size = sum(segment.stat().st_size for segment in recorded.glob("*.parquet"))
    assert done == capture.Shipped(segments=SEGMENTS, bytes=size)
    here = sorted(str(path.relative_to(recorded)) for path in recorded.rglob("*.parquet"))
    assert below() == here
    near, far = capture.open(recorded), capture.open(url)
    assert list(far.rows()) == list(near.rows())
    assert (far.info(), far.runs()) == (near.info(), near.runs())
    assert [message.sender for message in far.messages("cdtp")] == ["Det"] * ROWS
    assert far.read_all() == near.read_all()
    assert far.decode("cdtp").read_all() == near.decode("cdtp").read_all()
    selection = capture.Selection(where="sequence > 10")
    assert far.gaps().read_all() == near.gaps().read_all()
    assert len(list(far.rows(selection))) == len(list(near.rows(selection))) > 0
    assert capture.verify(url) == capture.verify(recorded) == capture.Verification(SEGMENTS, ROWS, 0, ())
    assert (position(url), published(url), sums(url)) == (position(recorded), published(recorded), sums(recorded))
    numbers = [*range(SEGMENTS)]
    assert sizes(url, numbers) == sizes(recorded, numbers)
    assert existing(url, [(1, 1), (7, 7)]) == [(1, 1)]
    # Neither who reads nor an option is shown.
    shown = f"s3://lab/{folder}"
    assert str(far.path) == shown
    assert repr(far) == f"<Capture {shown!r}: 15 rows, 5 segments>"
    assert str(far.segments[0]) == f"{shown}/0000000000.parquet"
    assert "secret" not in f"{far!r} {far._repr_html_()}"


def test_it_goes_on_where_it_was(recorded, url, below):
    capture.ship(recorded, url)
    assert capture.ship(recorded, url).already == SEGMENTS
    add(recorded, 2)
    done = capture.ship(recorded, url)
    assert (done.segments, done.already) == (2, SEGMENTS)
    assert seqs(capture.open(url)) == list(range(ROWS + 6))
    # Notes that later ones repeat are gone there too.
    assert below() == sorted(str(path.relative_to(recorded)) for path in recorded.rglob("*.parquet"))
    assert capture.verify(url).problems == ()


def test_half_a_segment_is_copied_again(recorded, s3, url, folder):
    capture.ship(recorded, url)
    name = f"{folder}/0000000003.parquet"
    s3.put(name, s3.get(name)[:100])
    with pytest.raises(CaptureError, match=r"0000000003\.parquet"):
        seqs(capture.open(url))
    assert next(problem.what for problem in capture.verify(url).problems).startswith("is not as it was published: 100")
    assert capture.ship(recorded, url).segments == 1
    assert capture.verify(url).problems == ()


def test_what_is_not_as_it_was_published_is_not_copied(recorded, url, below):
    spoilt = recorded / "0000000002.parquet"
    content = bytearray(spoilt.read_bytes())
    content[60] ^= 1
    spoilt.write_bytes(content)
    with pytest.raises(CaptureError, match=r"0000000002\.parquet: is not as it was published, and is not copied"):
        capture.ship(recorded, url)
    # Those before it are there, and it says so.
    assert [name for name in below() if "/" not in name] == ["0000000000.parquet", "0000000001.parquet"]


def test_what_is_there_may_be_deleted_here(recorded, url):
    done = capture.ship(recorded, url, delete_shipped=True)
    assert done.deleted == SEGMENTS - 1
    assert published(recorded) == [(SEGMENTS - 1, SEGMENTS - 1)]
    assert capture.verify(recorded).problems == ()
    add(recorded, 2)
    done = capture.ship(recorded, url, delete_shipped=True)
    assert (done.segments, done.deleted) == (2, 2)
    assert seqs(capture.open(url)) == list(range(ROWS + 6))
    assert capture.open(url).runs() == capture.open(recorded).runs()
    assert capture.verify(url).problems == ()


def test_what_was_deleted_too_early_is_told(recorded, url):
    capture.ship(recorded, url)
    add(recorded, 4)
    for number in (5, 6):
        (recorded / f"{number:010}.parquet").unlink()
    said = command("ship", recorded, url, "--json")
    event = json.loads(said.stdout.splitlines()[0])
    assert (said.returncode, event["missed"], event["segments"]) == (1, 2, 2)
    assert "2 segments were deleted before being copied" in said.stderr


def test_a_link_is_not_followed(recorded, tmp_path, url, below):
    linked = recorded / "0000000003.parquet"
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CaptureError, match=r"0000000003\.parquet: is a symbolic link, and links are not followed"):
        capture.ship(recorded, url)
    assert linked.name not in below()


def test_a_merged_capture_is_shipped_as_it_is(recorded, url, below):
    capture.ship(recorded, url)
    before = capture.open(url)
    add(recorded, 2)
    capture.compact(recorded)
    done = capture.ship(recorded, url)
    assert done.segments == 1
    assert "0000000000-0000000006.parquet" in below()
    assert seqs(capture.open(url)) == list(range(ROWS + 6))
    assert published(url) == [(0, 6)]
    assert seqs(before) == list(range(ROWS))
    assert capture.verify(url).problems == ()
    assert capture.ship(recorded, url).already == 1


def test_a_capture_is_not_shipped_over_another(recorded, tmp_path, s3, url):
    other = tmp_path / "other" / "capture"
    other.parent.mkdir()
    add(other, 1)
    capture.ship(other, url)
    with pytest.raises(LocalProtocolError, match="holds another capture"):
        capture.ship(recorded, url)
    s3.put("runs/foreign/photo.jpg", b"x")
    with pytest.raises(LocalProtocolError, match=r"runs/foreign: is not a capture: it contains photo.jpg"):
        capture.ship(recorded, s3.url("runs/foreign"))


def test_to_a_directory_and_a_url_of_one(recorded, tmp_path):
    assert capture.ship(recorded, tmp_path / "copy").segments == SEGMENTS
    assert capture.ship(recorded, (tmp_path / "copy").as_uri()).already == SEGMENTS
    copy = capture.open((tmp_path / "copy").as_uri())
    assert copy.path == tmp_path / "copy"
    assert list(copy.rows()) == list(capture.open(recorded).rows())
    assert not list((tmp_path / "copy").rglob("*.partial"))
    # A recorder goes on with the copy.
    add(tmp_path / "copy", 1)
    assert capture.verify(tmp_path / "copy") == capture.Verification(SEGMENTS + 1, ROWS + 3, 0, ())


@pytest.mark.parametrize("killed_after", range(1, 12, 2))
def test_killed_after_any_object_it_is_whole_in_the_end(recorded, url, killed_after):
    code = """
import os, signal, sys
from trunkline.capture import shipping, targets
write, left = targets.StoreFolder.write, [int(sys.argv[3])]
def one(self, *given):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, *given)
targets.StoreFolder.write = one
shipping.ship(sys.argv[1], sys.argv[2])
"""
    done = subprocess.run([sys.executable, "-c", code, recorded, url, str(killed_after)], check=False)
    if done.returncode:
        assert done.returncode == -signal.SIGKILL
        found = seqs(capture.open(url)) if is_capture(url) else []
        assert found == list(range(len(found)))
        assert position(url)[1] in {0, len(found) // 3}
    capture.ship(recorded, url)
    assert capture.verify(url) == capture.Verification(SEGMENTS, ROWS, 0, ())


def test_beside_a_recorder_that_deletes(tmp_path, url, open_socket):
    import zmq

    directory = tmp_path / "capture"
    with cdtp.Recorder(directory, bind="tcp://127.0.0.1:*", segment_bytes=2000, keep_bytes=10**9) as recorder:
        push = open_socket(zmq.PUSH, connect=recorder.endpoints[0])
        watching = watch(directory, url, "--delete-shipped")
        ready = json.loads(watching.stdout.readline())
        assert (ready["event"], ready["role"]) == ("ready", "capture.ship")
        events = []
        reader = threading.Thread(target=lambda: events.extend(map(json.loads, watching.stdout)))
        reader.start()
        for number in range(200):
            push.send_multipart(release("Det", 0, number + 1, b"x" * 500))
        recorder.wait(count=200, timeout_s=20)
        recorder.publish(timeout_s=20)
        end = position(directory)[1]
        assert end > 20
        until(lambda: is_capture(url) and position(url)[1] == end, patience_s=60)
        until(lambda: len(published(directory)) == 1, patience_s=60)
    watching.send_signal(signal.SIGINT)
    assert watching.wait(30) == 0
    reader.join()
    watching.stdout.close()
    assert events[-1]["event"] == "stopped"
    assert events[-1]["stats"]["segments"] == end
    assert seqs(capture.open(url)) == list(range(200))
    assert capture.verify(url).problems == ()


def test_a_store_that_goes_away_and_comes_back(recorded):
    server = S3()
    url, port = server.url("runs/x"), server.port
    watching = watch(recorded, url)
    events = iter(map(json.loads, watching.stdout))
    assert [next(events)["event"], next(events)["event"]] == ["ready", "shipped"]
    server.close()
    add(recorded, 1)
    retry = next(events)
    assert (retry["event"], retry["wait_s"]) == ("retry", 2.0)
    assert retry["error"].startswith("s3://lab/runs/x: ")
    again = S3(port)
    try:
        capture.ship(recorded, url)  # what is in it is gone with the server
        event = next(event for event in events if event["event"] == "shipped")
        assert event["segments"] == 1
    finally:
        watching.send_signal(signal.SIGTERM)
        assert watching.wait(30) == 0
        watching.stdout.close()
        again.close()


def test_commands_take_a_url(recorded, tmp_path, url):
    said = command("ship", recorded, url)
    assert (said.returncode, said.stdout.startswith("5 segments, ")) == (0, True), said.stderr
    for name, *more in (["info"], ["cat", "--json"], ["runs", "--json"], ["verify"], ["gaps", "--json"]):
        there, here = command(name, url, *more), command(name, recorded, *more)
        assert (there.returncode, there.stdout) == (0, here.stdout), name
    said = command("decode", url, tmp_path / "t.parquet")
    assert (said.returncode, parquet.read_table(tmp_path / "t.parquet").num_rows) == (0, ROWS), said.stderr
    said = command("report", url, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert said.returncode == 0
    assert "s3://lab/runs/test_commands_take_a_url" in page
    assert "secret" not in page + said.stdout + said.stderr
    said = command("export", url, "-", "--format", "jsonl")
    assert len(said.stdout.splitlines()) == ROWS


@pytest.mark.parametrize(
    ("url", "error", "what"),
    [
        (
            "s3://key:secret@nowhere/x?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1",
            CaptureError,
            "there is no bucket nowhere",
        ),
        (
            "s3://key:secret@lab/none?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1",
            CaptureError,
            "s3://lab/none: contains no capture",
        ),
        ("s3x://lab/none", LocalProtocolError, "s3x://lab/none: .*s3"),
        ("s3://lab/none?colour=red", LocalProtocolError, "s3://lab/none: .*colour"),
        ("s3://", LocalProtocolError, "names no folder"),
    ],
)
def test_what_cannot_be_read_is_told(s3, url, error, what):
    with pytest.raises(error, match=what) as raised:
        capture.open(url.format(port=s3.port))
    assert "secret" not in str(raised.value)


def test_a_store_that_does_not_answer_is_told(recorded):
    url = "s3://key:secret@lab/x?scheme=http&endpoint_override=127.0.0.1:1&region=us-east-1"
    with pytest.raises(CaptureError, match="s3://lab/x: ") as raised:
        capture.ship(recorded, url)
    assert "secret" not in str(raised.value)


def test_who_is_not_let_in_is_told_what_to_do(recorded, s3, url):
    capture.ship(recorded, url)
    advice = (
        r"s3://lab/runs/.*INVALID_ACCESS_KEY_ID.*: the store does not know you.* AWS_ACCESS_KEY_ID .*s3://KEY:SECRET@"
    )
    with s3.knowing_nobody():
        for ask in (capture.open, capture.verify, lambda url: capture.ship(recorded, url)):
            with pytest.raises(CaptureError, match=advice) as raised:
                ask(url)
            assert str(raised.value).count("AWS_ACCESS_KEY_ID") == 1
            assert "key:secret@" not in str(raised.value)
    assert len(capture.open(url)) == ROWS


def test_a_bucket_that_is_not_there_is_named(recorded, s3):
    url = s3.url("x", bucket="nobucket")
    for ask in (capture.open, capture.verify, lambda url: capture.ship(recorded, url)):
        with pytest.raises(CaptureError, match=r"s3://nobucket/x: .*there is no bucket nobucket"):
            ask(url)


def test_a_path_is_no_url(tmp_path):
    assert location_of(tmp_path) == tmp_path
    assert location_of("file:///a%20b/c") == location_of("/a b/c")
    url = Url("s3://me:word@lab/runs/x/?region=eu")
    assert (str(url), os.fspath(url / "y"), url.name, (url / "y").name) == (
        "s3://lab/runs/x",
        "s3://me:word@lab/runs/x/y?region=eu",
        "x",
        "y",
    )
    with pytest.raises(LocalProtocolError, match="this takes paths of this machine alone"):
        capture.ship("s3://lab/x", tmp_path / "y")
    with pytest.raises(CaptureError, match="nowhere"):
        capture.ship(tmp_path / "nowhere", tmp_path / "y")


@pytest.fixture(params=["store", "directory"])
def place(request, url, tmp_path):
    """A place to copy to, and what puts a file there."""
    if request.param == "directory":
        there = tmp_path / "there"
        return (
            there,
            lambda name, content: (there / name).write_bytes(content),
            lambda name: (there / name).read_bytes(),
        )
    s3, folder = request.getfixturevalue("s3"), request.getfixturevalue("folder")
    return url, lambda name, content: s3.put(f"{folder}/{name}", content), lambda name: s3.get(f"{folder}/{name}")


def test_nothing_is_deleted_that_the_target_has_otherwise(recorded, place):
    there, put, get = place
    capture.ship(recorded, there)
    spoilt = bytearray(get("0000000002.parquet"))
    spoilt[60] ^= 1
    put("0000000002.parquet", bytes(spoilt))
    refused = (
        r"does not have 0000000002\.parquet as it is here, where it stays: .* delete the file there and ship again"
    )
    with pytest.raises(CaptureError, match=refused):
        capture.ship(recorded, there, delete_shipped=True)
    assert published(recorded) == [(number, number) for number in range(2, SEGMENTS)]
    target(location_of(there)).remove("0000000002.parquet")
    done = capture.ship(recorded, there, delete_shipped=True)
    assert (done.segments, done.deleted) == (1, SEGMENTS - 3)
    assert capture.verify(there).problems == ()


@pytest.mark.parametrize("way", ["path", "link", "file", "local"])
@pytest.mark.parametrize("deletes", [False, True])
def test_a_capture_is_not_shipped_to_itself(recorded, tmp_path, way, deletes):
    (tmp_path / "link").symlink_to(recorded)
    there = {"path": recorded / ".." / recorded.name, "link": tmp_path / "link"}.get(way, f"{way}://{recorded}")
    before = sorted(recorded.rglob("*"))
    with pytest.raises(LocalProtocolError, match="is the capture itself: choose another folder"):
        capture.ship(recorded, there, delete_shipped=deletes)
    assert sorted(recorded.rglob("*")) == before


def test_a_hard_link_is_no_copy(recorded, tmp_path):
    there = tmp_path / "there"
    capture.ship(recorded, there)
    linked = there / "0000000001.parquet"
    linked.unlink()
    linked.hardlink_to(recorded / linked.name)
    with pytest.raises(CaptureError, match=r"does not have 0000000001\.parquet as it is here"):
        capture.ship(recorded, there, delete_shipped=True)
    assert published(recorded) == [(number, number) for number in range(1, SEGMENTS)]
    linked.unlink()
    assert capture.ship(recorded, there, delete_shipped=True).deleted == SEGMENTS - 2
    assert capture.verify(there).problems == ()


def test_a_merged_file_that_has_other_rows_is_not_to_be_deleted(recorded, tmp_path):
    there, other = tmp_path / "there", tmp_path / "other"
    capture.ship(recorded, there)
    capture.compact(there)
    (merged,) = there.glob("*.parquet")
    size = merged.stat().st_size
    merged.write_bytes(b"\0" * size)
    with pytest.raises(CaptureError, match="another folder takes a new copy"):
        capture.ship(recorded, there, delete_shipped=True)
    assert capture.ship(recorded, other, delete_shipped=True).deleted == SEGMENTS - 1


def test_nothing_is_deleted_for_the_name_of_a_merged_file(recorded, place):
    there, put, get = place
    capture.ship(recorded, there)
    add(recorded, 2)
    put("0000000001-9999999999.parquet", b"")
    kept = {path.name: path.read_bytes() for path in recorded.glob("*.parquet")}
    done = capture.ship(recorded, there, delete_shipped=True)
    assert (done.segments, done.already, done.deleted) == (2, SEGMENTS, SEGMENTS + 1)
    assert {name: get(name) for name in kept} == kept


def test_what_is_merged_there_is_deleted_here_once_its_rows_are_the_same(recorded, tmp_path):
    there = tmp_path / "there"
    capture.ship(recorded, there)
    capture.compact(there)
    assert published(there) == [(0, SEGMENTS - 1)]
    assert capture.ship(recorded, there, delete_shipped=True).deleted == SEGMENTS - 1
    assert capture.verify(there).problems == ()


def test_no_link_is_followed_in_a_directory(recorded, tmp_path):
    there, victim = tmp_path / "there", tmp_path / "victim"
    capture.ship(recorded, there)
    add(recorded, 1)
    victim.write_text("kept")
    for name in (f".{SEGMENTS:010}.parquet.partial", "_capture/.manifest.parquet.partial"):
        (there / name).symlink_to(victim)
    capture.ship(recorded, there)
    assert victim.read_text() == "kept"
    assert not any(path.is_symlink() for path in there.rglob("*"))
    assert capture.verify(there).problems == ()
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (other / "_capture").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CaptureError, match="_capture is not a directory"):
        capture.ship(recorded, other)
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_segment_of_another_size_is_not_read(recorded, tmp_path):
    with (recorded / "0000000002.parquet").open("wb") as segment:
        segment.truncate(10 << 40)
    with pytest.raises(CaptureError, match=r"0000000002\.parquet: is not as it was published, and is not copied"):
        capture.ship(recorded, tmp_path / "there")


@pytest.mark.parametrize("watches", [False, True])
def test_a_store_that_does_not_answer_is_left_at_once(recorded, watches):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        url = f"s3://key:secret@lab/x?scheme=http&endpoint_override={where}&region=us-east-1"
        arguments = [sys.executable, "-m", "trunkline", "capture", "ship", recorded, url]
        process = subprocess.Popen(arguments + ["--watch"] * watches, stdout=subprocess.DEVNULL)
        with silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            assert process.wait(5) == (0 if watches else 130)


@pytest.mark.parametrize("watches", [False, True])
def test_what_retention_has_deleted_between_two_runs_is_missed(recorded, tmp_path, watches):
    there = tmp_path / "there"
    capture.ship(recorded, there)
    add(recorded, 4)
    for number in range(SEGMENTS + 2):
        (recorded / f"{number:010}.parquet").unlink()
    if watches:
        watching = watch(recorded, there)
        assert json.loads(watching.stdout.readline())["event"] == "ready"
        assert json.loads(watching.stdout.readline())["missed"] == 2
        watching.send_signal(signal.SIGTERM)
        assert watching.wait(30) == 0
        watching.stdout.close()
        return
    said = command("ship", recorded, there, "--json")
    assert (said.returncode, json.loads(said.stdout.splitlines()[0])["missed"]) == (1, 2)
    # It is said once.
    assert command("ship", recorded, there).returncode == 0


def test_a_copy_that_was_moved_away_is_made_anew(recorded, tmp_path):
    there, moved = tmp_path / "there", tmp_path / "moved"
    shipment = Shipment(recorded, there)
    shipment.round(lambda _done, _all: None)
    there.rename(moved)
    add(recorded)
    shipment.round(lambda _done, _all: None)
    assert len(published(moved)) == SEGMENTS
    assert seqs(capture.open(there)) == seqs(capture.open(recorded))
