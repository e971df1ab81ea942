"""`trunkline spark`."""

from __future__ import annotations

import json
import signal
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet
import pytest

from peers.commands import batch, release, spec
from peers.processes import descendants, is_gone
from peers.recorded import line
from peers.scraping import health, scraped, value
from trunkline import capture

DATA = Path(__file__).parent.parent / "data"

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def recorded(run, push, tmp_path):
    messages = [spec("D.one", tags={"run": 7}), [b"nonsense", b"x"], release("D.two", 0, 3, b"abc")]
    messages.append(batch("D.three", [1, {}, [b"12"]], [2, {}, []]))
    run("cdtp", "record", "--capture", "capture", "--connect", push.endpoint, "--count", "4", feed=(push, messages))
    return tmp_path / "capture"


def java_of(command):
    """The JVM of a command, once it is there."""
    while True:
        assert command.process.poll() is None, command.process.stderr.read()
        for child in descendants(command.process.pid):
            # Before, it asks Javas for their version.
            with suppress(FileNotFoundError, ProcessLookupError):
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"java") and b"org.apache.spark.deploy.SparkSubmit" in words:
                    return child
        time.sleep(0.05)


def test_decode_writes_a_table(run_in_jvm, recorded, tmp_path):
    arguments = ("spark", "decode", recorded, "out", "--protocol", "cdtp", "--json")
    out, _ = run_in_jvm(*arguments, "--tags", "run=bigint")
    assert json.loads(out) == {"event": "decoded", "rows": 5, "path": "out"}
    table = pyarrow.parquet.read_table(tmp_path / "out").sort_by([("seq", "ascending"), ("record", "ascending")])
    assert table.column("sender").to_pylist() == ["D.one", None, "D.two", "D.three", "D.three"]
    assert table.column("tag_run").to_pylist() == [7, None, None, None, None]
    assert table.column("error").to_pylist() == [None, "bad_header", None, None, None]
    assert table.column("_corrupt_record").to_pylist()[1] == b"nonsense"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "out"]
    _, err = run_in_jvm(*arguments, returncode=1)
    assert "out already exists: choose another name" in " ".join(err.split())


def test_decode_says_that_all_is_of_another_protocol(run_in_jvm, recorded, s3):
    url = s3.url("decode/one")
    capture.ship(recorded, url)
    for number, place in enumerate((recorded, url)):
        out, err = run_in_jvm("spark", "decode", place, f"out{number}", "--protocol", "dcp", "--json")
        assert json.loads(out)["rows"] == 0
        assert "none of 4 rows is dcp: name the protocol that was recorded, cdtp" in err


def test_decode_writes_what_is_selected(run_in_jvm, recorded, tmp_path):
    """Of the two records of a message, one."""
    arguments = ("spark", "decode", recorded, "out", "--protocol", "cdtp", "--json")
    out, _ = run_in_jvm(*arguments, "--where", "sequence >= 2")
    assert json.loads(out)["rows"] == 2
    table = pyarrow.parquet.read_table(tmp_path / "out").sort_by("seq")
    assert table.select(["sender", "record", "sequence"]).to_pylist() == [
        {"sender": "D.two", "record": 0, "sequence": 3},
        {"sender": "D.three", "record": 1, "sequence": 2},
    ]
    _, err = run_in_jvm("spark", "decode", recorded, "runs", "--protocol", "cdtp", "--run", "9", returncode=1)
    assert err.startswith("trunkline: error: no run '9'")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "out"]


def test_a_path_is_no_pattern(run, recorded, tmp_path):
    """Neither of the capture, of what is written, nor of scratch: and beside it is what the pattern would match."""
    capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", tmp_path / "run1")
    recorded.rename(tmp_path / "run[1]")
    scratch = tmp_path / "t[1]"
    scratch.mkdir()
    arguments = (
        "spark",
        "decode",
        "run[1]",
        "12:30 {out}*",
        "--protocol",
        "cdtp",
        "--where",
        "sequence >= 2",
        "--json",
    )
    out, _ = run(*arguments, env={"TMPDIR": str(scratch)})
    assert json.loads(out)["rows"] == 2
    table = pyarrow.parquet.read_table(tmp_path / "12:30 {out}*")
    assert sorted(table.column("sender").to_pylist()) == ["D.three", "D.two"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["12:30 {out}*", "run1", "run[1]", "t[1]"]
    assert list(scratch.iterdir()) == []


def test_a_folder_of_captures_is_one_table_and_one_report(run_in_jvm, recorded, tmp_path):
    folder = tmp_path / "runs" / "deep"
    folder.mkdir(parents=True)
    recorded.rename(folder / "one")
    rows = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", folder / "two")
    out, _ = run_in_jvm("spark", "decode", "runs", "out", "--protocol", "cdtp", "--json")
    decoded = json.loads(out)["rows"]
    assert decoded == pyarrow.parquet.read_table(tmp_path / "out").num_rows
    assert len(set(pyarrow.parquet.read_table(tmp_path / "out")["capture_id"].to_pylist())) == 2
    out, _ = run_in_jvm("spark", "report", "runs", "out.html", "--json")
    assert json.loads(out)["rows"] == 4 + rows
    assert "D.three" in {sender["sender"] for sender in json.loads(out)["sections"]["cdtp"]["senders"]}
    _, err = run_in_jvm("spark", "report", "runs", "out.html", "--sender", "D.three", returncode=2)
    assert "messages are selected of one capture" in " ".join(err.split())
    (tmp_path / "empty").mkdir()
    _, err = run_in_jvm("spark", "decode", "empty", "none", "--protocol", "cdtp", returncode=1)
    assert err.splitlines()[-1] == "trunkline: error: empty: contains no capture"


def test_that_nothing_matches_is_said_and_is_no_error(run_in_jvm, recorded):
    for arguments in (("decode", recorded, "none", "--protocol", "cdtp"), ("report", recorded, "none.html")):
        _, err = run_in_jvm("spark", *arguments, "--sender", "nobody")
        assert err.splitlines()[-1] == f"trunkline: no message in {recorded} matches the selection"


def test_failfast_fails_and_leaves_nothing(run_in_jvm, recorded, tmp_path):
    out, err = run_in_jvm(
        "spark", "decode", recorded, "out", "--protocol", "cdtp", "--mode", "FAILFAST", "--tags", "none", returncode=1
    )
    assert out == ""
    assert err.splitlines()[-1].startswith("trunkline: error: ")
    assert "bad_header" in err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["capture"]


def test_report_writes_a_page(run, recorded, tmp_path):
    out, _ = run("spark", "report", recorded, "out.html", "--json")
    found = json.loads(out)
    assert (found["event"], found["path"]) == ("report", "out.html")
    assert "D.three" in {sender["sender"] for sender in found["sections"]["cdtp"]["senders"]}
    page = (tmp_path / "out.html").read_text()
    assert "D.three" in page
    assert "http" not in page.partition("<body")[2].replace("http://www.w3.org/", "")


def test_a_report_of_what_is_selected(run_in_jvm, recorded, tmp_path):
    run_in_jvm("spark", "report", recorded, "out.html", "--sender", "D.three")
    page = (tmp_path / "out.html").read_text()
    assert "D.three" in page
    assert "D.two" not in page


@pytest.mark.parametrize(
    ("command", "number"),
    [(("decode", "out", "--protocol", "cdtp"), signal.SIGINT), (("report", "out"), signal.SIGTERM)],
    ids=("decode", "report"),
)
def test_a_signal_cuts_it_off(start, recorded, tmp_path, command, number):
    name, *rest = command
    running = start("spark", name, recorded, *rest)
    java = java_of(running)
    running.signal(number)
    running.end(130)
    assert [path.name for path in tmp_path.iterdir()] == ["capture"]
    assert is_gone(java)


@pytest.mark.parametrize("command", [("decode", "out", "--protocol", "cdtp"), ("report", "out")], ids=lambda c: c[0])
def test_a_segment_that_is_cut_short_is_named_in_one_line(run, run_in_jvm, recorded, tmp_path, command):
    (segment,) = recorded.glob("*.parquet")
    segment.write_bytes(segment.read_bytes()[:1000])
    name, *rest = command
    # One of them with a JVM of its own, whose standard error is that of the command.
    out, err = (run if name == "decode" else run_in_jvm)("spark", name, recorded, *rest, returncode=1)
    assert out == ""
    *progress, line = [line for line in err.splitlines() if "incubator modules" not in line]
    assert all(each.startswith("trunkline: ") and each.endswith((": 0", ": 0 of 1")) for each in progress)
    assert line.startswith("trunkline: error: ")
    assert segment.name in line
    assert "is not a Parquet file" in line or "Invalid Parquet file" in line
    assert "org.apache" not in line
    assert [path.name for path in tmp_path.iterdir()] == ["capture"]


@pytest.mark.parametrize("command", [("decode", "--protocol", "cdtp"), ("report",)], ids=lambda c: c[0])
def test_what_cannot_be_written_is_said_before_spark_is_started(run, recorded, command):
    name, *rest = command
    _, err = run("spark", name, recorded, "/proc/nowhere/out", *rest, returncode=1)
    (line,) = err.splitlines()
    assert "/proc/nowhere" in line


def test_stream_decodes_what_is_there_and_what_comes_later(run_in_jvm, recorded, tmp_path):
    arguments = ("spark", "stream", recorded, "out", "--protocol", "cdtp", "--tags", "run=bigint", "--json")
    out, _ = run_in_jvm(*arguments, "--trigger", "available-now")
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines == [
        {"event": "batch", "id": 0, "rows": 5, "rows_with_error": 1, "segments_behind": 0},
        {
            "event": "stopped",
            "reason": "eof",
            "stats": {"batches": 1, "rows": 5, "rows_with_error": 1, "segments_behind": 0},
        },
    ]
    lines = tmp_path / "lines.jsonl"
    lines.write_text(line(release("D.two", 0, 4, b"abc")))
    capture.import_(lines, recorded)
    out, _ = run_in_jvm(*arguments, "--trigger", "available-now")
    assert json.loads(out.splitlines()[0])["rows"] == 1
    table = pyarrow.parquet.read_table([*(tmp_path / "out").glob("*.parquet")])
    assert sorted(filter(None, table.column("sender").to_pylist())) == ["D.one", "D.three", "D.three", "D.two", "D.two"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "lines.jsonl", "out"]


def test_stream_goes_on_until_a_signal_comes(start, recorded, tmp_path):
    (tmp_path / "runs/docs").mkdir(parents=True)
    command = start("spark", "stream", "runs", "out", "--protocol", "cdtp", "--trigger", "0.2", "--json")
    command.logged(f"{tmp_path}/runs: there is no capture in it yet, at any depth")
    recorded.rename(tmp_path / "runs/one")
    assert command.event("batch")["rows"] == 5
    java = java_of(command)
    # A capture that begins later is found.
    lines = tmp_path / "lines.jsonl"
    lines.write_text(line(release("D.two", 0, 4, b"abc")))
    capture.import_(lines, tmp_path / "runs/two")
    assert command.event("batch")["rows"] == 1
    command.signal(signal.SIGINT)
    out, err = command.end()
    assert json.loads(out)["reason"] == "signal"
    assert err.splitlines() in ([], ["WARNING: Using incubator modules: jdk.incubator.vector"])
    assert is_gone(java)


def test_stream_may_go_on_without_what_was_deleted(run_in_jvm, recorded, tmp_path, jvm):
    stream = ("spark", "stream", recorded, "out", "--protocol", "cdtp", "--trigger", "available-now", "--json")
    stream += ("--where", "sender = 'D.two'", "--max-bytes-per-trigger", "1")
    assert json.loads(run_in_jvm(*stream)[0].splitlines()[-1])["stats"]["rows"] == 1
    lines = tmp_path / "lines.jsonl"
    for number in (4, 5):
        lines.write_text(line(release("D.two", 0, number, b"abc")))
        capture.import_(lines, recorded)
    (recorded / "0000000001.parquet").unlink()
    _, err = run_in_jvm(*stream, returncode=1)
    assert "1 segment was deleted before being read: 1; give --no-fail-on-data-loss to read on without them" in err
    out, _ = run_in_jvm(*stream, "--no-fail-on-data-loss")
    assert json.loads(out.splitlines()[-1])["stats"]["rows"] == 1
    assert "1 segment was deleted before being read: 1\n" in jvm.said()
    latest = ("spark", "stream", recorded, "new", "--protocol", "cdtp", "--trigger", "available-now", "--json")
    out, _ = run_in_jvm(*latest, "--starting-offsets", "latest")
    assert json.loads(out.splitlines()[-1])["stats"]["rows"] == 0
    _, err = run_in_jvm(*latest, "--starting-offsets", "first", returncode=1)
    assert "expected earliest, latest or JSON" in err


def test_stream_into_a_table_of_other_options_is_refused(run_in_jvm, recorded):
    stream = ("spark", "stream", recorded, "out", "--trigger", "available-now", "--protocol")
    run_in_jvm(*stream, "cdtp", "--tags", "run=bigint")
    _, err = run_in_jvm(*stream, "cdtp", "--tags", "run=string", returncode=1)
    assert "tags was run bigint and is run string; choose another OUT, or set the options as they were" in err
    _, err = run_in_jvm(*stream, "dcp", "--checkpoint", "out/_checkpoint", returncode=1)
    assert "protocol was cdtp and is dcp; tags was run bigint and is not set" in err
    assert "choose another OUT and another --checkpoint" in err


def test_stream_starts_after_a_kill_in_its_first_moment(run_in_jvm, recorded, tmp_path):
    offsets = tmp_path / "out" / "_checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.9b83b40b-32b2-49a3-a887-429e6dc4e50d.tmp", "..0.9b83b40b-32b2-49a3-a887-429e6dc4e50d.tmp.crc"):
        (offsets / name).touch()
    stream = ("spark", "stream", recorded, "out", "--protocol", "cdtp", "--trigger", "available-now", "--json")
    assert json.loads(run_in_jvm(*stream)[0].splitlines()[-1])["stats"]["rows"] == 5
    assert json.loads(run_in_jvm(*stream)[0].splitlines()[-1])["stats"]["rows"] == 0, "what was read is not forgotten"


def test_stream_ends_where_there_is_no_capture_yet(run_in_jvm, tmp_path):
    (tmp_path / "runs/docs").mkdir(parents=True)
    out, _ = run_in_jvm("spark", "stream", "runs", "out", "--protocol", "cdtp", "--trigger", "available-now", "--json")
    assert json.loads(out)["stats"]["rows"] == 0


def test_stream_serves_its_counters(start, recorded, jvm):
    arguments = (recorded, "out", "--protocol", "cdtp", "--trigger", "0.2", "--metrics", "0", "--json")
    command = start("spark", "stream", *arguments, env=jvm.environment)
    url = command.ready()["metrics_url"]
    command.event("batch")
    assert health(url) == (200, "serving")
    found = scraped(url)
    assert value(found, "trunkline_spark_stream_rows_total") == 5
    assert value(found, "trunkline_spark_stream_rows_with_error_total") == 1
    assert value(found, "trunkline_spark_stream_segments_behind") == 0
    command.signal(signal.SIGTERM)
    command.end()
    with pytest.raises(ConnectionRefusedError):
        health(url)


def test_stream_says_what_is_wrong(run, recorded, tmp_path):
    for arguments, code, words in (
        ((tmp_path / "none", "out"), 1, "does not exist"),
        ((recorded, "out", "--trigger", "soon"), 2, "takes available-now, or the seconds"),
        ((recorded, "out", "--tags", "run"), 2, "--tags takes"),
    ):
        _, err = run("spark", "stream", *arguments, "--protocol", "cdtp", returncode=code)
        assert words in " ".join(err.split())
    (tmp_path / "other").touch()
    _, err = run("spark", "stream", recorded, "other", "--protocol", "cdtp", returncode=1)
    assert "other: is a file: choose another name" in err
    # A segment that is gone before it is read, and an option that no message satisfies.
    lines = tmp_path / "lines.jsonl"
    for sequence in (4, 5):
        lines.write_text(line(release("D.two", 0, sequence, b"abc")))
        capture.import_(lines, recorded)
    capture.open(recorded).segments[1].unlink()
    _, err = run("spark", "stream", recorded, "out", "--protocol", "cdtp", returncode=1)
    last = err.splitlines()[-1]
    assert "trunkline: error: " in last
    assert "1 segment was deleted before being read: 1" in last
    noise = ("incubator", "Ctrl-C stops")
    assert [line for line in err.splitlines() if not any(word in line for word in noise)] == [last]
