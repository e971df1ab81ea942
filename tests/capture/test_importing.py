"""Messages of other recordings, imported into a capture."""

import gzip
import json
import subprocess
import sys

import pytest

from peers import cdtp as wire
from peers.recorded import line
from trunkline import capture, cdtp, dcp
from trunkline.errors import CaptureError

FILES = [wire.DATA / f"{release}.jsonl.gz" for release in wire.RELEASES]

# As `capture cat --json` prints a row.
PRINTED = {
    "received_at_ns": 1,
    "protocol": "cdtp",
    "endpoint": None,
    "peer": None,
    "direction": "in",
    "topic": None,
    "reply_to": None,
    "envelope": [],
    "header": None,
    "payload": [],
    "error": None,
}


def frames_of(path):
    return [[row["header"], *row["payload"]] for row in capture.open(path).rows()]


@pytest.mark.req("CDTP-23")
@pytest.mark.parametrize("release", wire.RELEASES)
def test_recorded_releases_come_in_bit_for_bit_and_decode(tmp_path, release):
    messages = wire.recorded(release)
    assert capture.import_(wire.DATA / f"{release}.jsonl.gz", tmp_path) == len(messages)
    assert frames_of(tmp_path) == messages
    recorded = capture.open(tmp_path)
    decoded = list(recorded)
    assert len(decoded) >= len(messages)
    assert recorded.skipped == 0
    with gzip.open(wire.DATA / f"{release}.jsonl.gz", "rt") as lines:
        expected = [(row["received_at_ns"], row["endpoint"]) for row in map(json.loads, lines)]
    assert [(row["received_at_ns"], row["endpoint"]) for row in recorded.rows()] == expected


def test_several_files_and_imports_make_one_capture(tmp_path):
    assert capture.import_(FILES[:2], tmp_path, segment_bytes=100_000) == 4248
    first = capture.open(tmp_path).info()
    assert (first.messages, first.segments > 3) == (4248, True)
    assert capture.import_(FILES[2], tmp_path) == 12
    both = capture.open(tmp_path)
    assert both.info().capture_id == first.capture_id
    assert [row["seq"] for row in both.rows()] == list(range(4260))
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.suffix != ".parquet") == [
        ".lock",
        "_capture",
    ]


def test_plain_lines_and_what_they_say(tmp_path):
    lines = tmp_path / "lines"
    lines.write_text(
        line([wire.header_s(), b"x"])
        + "\n"
        + line([b"bad"], endpoint="tcp://127.0.0.1:1", direction="out")
        + line([b"", b"DGBX\x01", b"\x04", b"echo", b"", b""], protocol="dcp", peer=b"\x00\xff")
        + line([b"", b"DGBX\x01", b"\x07"], protocol="dcp")
    )
    assert capture.import_(str(lines), tmp_path / "capture") == 4
    good, bad, other, worse = capture.open(tmp_path / "capture").rows()
    assert (good["error"], good["endpoint"], good["direction"]) == (None, None, "in")
    assert (bad["error"], bad["endpoint"], bad["direction"]) == ("bad_header", "tcp://127.0.0.1:1", "out")
    assert (other["protocol"], other["envelope"], other["topic"]) == ("dcp", [b""], "echo")
    assert (other["peer"], other["error"], worse["peer"], worse["error"]) == (b"\x00\xff", None, None, "bad_type")
    recorded = capture.open(tmp_path / "capture")
    messages = list(recorded)
    assert ([type(message) for message in messages], recorded.skipped) == ([cdtp.Message, dcp.Message], 2)
    for protocol, skipped in (("cdtp", 1), ("dcp", 1), ("mc0", 0), ("mtl", 0), ("cdt", 0)):
        of_one = list(recorded.messages(protocol))
        assert of_one == [message for message in messages if type(message).__module__ == f"trunkline.{protocol}"]
        assert recorded.skipped == skipped


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("no json\n", "Expecting value"),
        ("[]\n", "not a recorded message"),
        ("{}\n", "received_at_ns is missing"),
        ('{"received_at_ns": 1}\n', "frames is missing"),
        ('{"received_at_ns": 1, "frames": ["?"]}\n', "base64"),
        ('{"received_at_ns": 9223372036854775808, "frames": []}\n', "not a recorded message"),
        ('{"received_at_ns": "now", "frames": []}\n', "not a recorded message"),
        ('{"received_at_ns": 1, "frames": [], "protocol": "udp"}\n', "unknown protocol"),
        ('{"received_at_ns": 1, "payload": []}\n', "header is missing"),
        (json.dumps({**PRINTED, "error": "all is lost"}) + "\n", "unknown error"),
        (json.dumps({**PRINTED, "payload": [{"hex": ""}]}) + "\n", "base64 is missing"),
        (json.dumps({**PRINTED, "payload": 7}) + "\n", "not a recorded message"),
        ("[" * 100_000 + "\n", "not a recorded message"),
    ],
)
def test_a_bad_line_is_named_and_nothing_comes_in(tmp_path, bad, why):
    lines = tmp_path / "lines.jsonl"
    lines.write_text(line([wire.header_s(), b"x"]) + bad)
    with pytest.raises(CaptureError, match=rf"lines\.jsonl, line 2: .*{why}"):
        capture.import_([FILES[0], lines], tmp_path / "capture")
    assert not (tmp_path / "capture").exists()


def test_a_line_without_end_is_refused_before_it_is_read(tmp_path):
    lines = tmp_path / "lines.jsonl.gz"
    with gzip.open(lines, "wb", compresslevel=1) as file:
        file.write(line([wire.header_s(), b"x"]).encode())
        for _ in range(300):
            file.write(b"a" * (1 << 20))
    # What the process that starts another had in memory counts in what the system says of both, but for this.
    read = (
        "import sys; from trunkline import capture, errors\n"
        "try: capture.import_(*sys.argv[1:])\n"
        "except errors.CaptureError as error: print(error)\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM:')).split()[1])"
    )
    command = [sys.executable, "-W", "ignore", "-c", read, lines, tmp_path / "capture"]
    refused, rss_kib = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert "line 2: not a recorded message (longer than 64 MiB)" in refused
    assert int(rss_kib) < 300 << 10
    assert not (tmp_path / "capture").exists()


@pytest.mark.parametrize("spoil", [lambda whole: whole[:-100], lambda whole: whole + b"junk"], ids=["cut", "longer"])
def test_a_file_that_cannot_be_unpacked_brings_nothing_in(tmp_path, spoil):
    spoilt = tmp_path / "spoilt.gz"
    spoilt.write_bytes(spoil(FILES[0].read_bytes()))
    with pytest.raises(CaptureError, match=r"spoilt\.gz: cannot be unpacked"):
        capture.import_(spoilt, tmp_path / "capture")
    assert not (tmp_path / "capture").exists()


def test_an_import_cut_off_leaves_the_capture_as_it_was(tmp_path):
    capture.import_(FILES[0], tmp_path)
    before = capture.open(tmp_path).read_all()

    def files():
        yield from FILES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture.import_(files(), tmp_path, segment_bytes=10_000)
    assert capture.open(tmp_path).read_all().equals(before)
    assert capture.import_(FILES[1], tmp_path) == 2124
    assert [row["seq"] for row in capture.open(tmp_path).rows()] == list(range(4248))


def test_a_capture_in_use_takes_no_import(tmp_path):
    with cdtp.Recorder(tmp_path, bind="tcp://127.0.0.1:*"), pytest.raises(CaptureError, match="is being written"):
        capture.import_(FILES[2], tmp_path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        capture.import_(tmp_path / "absent", tmp_path / "capture")
    assert not (tmp_path / "capture").exists()
