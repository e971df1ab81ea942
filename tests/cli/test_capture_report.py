"""`trunkline capture report`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from peers.cdtp import BOR, EOR, batch
from peers.commands import besides_progress, release, spec
from peers.recorded import write
from peers.waiting import until
from trunkline import capture


def test_a_report_takes_no_spark(run, recorded, tmp_path):
    out, err = run("capture", "report", recorded, "report.html")
    assert (out, besides_progress(err)) == ("report.html\n", "")
    page = (tmp_path / "report.html").read_text()
    assert "D.one" in page
    assert "D.three" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "recorded.jsonl", "report.html"]


def test_a_report_of_what_is_selected(run, recorded, tmp_path):
    out, _ = run("capture", "report", recorded, "one.html", "--sender", "D.one", "--json")
    found = json.loads(out)
    assert (found["event"], found["path"], found["rows"]) == ("report", "one.html", 1)
    assert found["selected"] == "sender D.one"
    (sender,) = found["sections"]["cdtp"]["senders"]
    assert (sender["sender"], sender["messages"]) == ("D.one", 1)
    out, _ = run("capture", "report", recorded, "one.html", "--where", "type = 'DAT' and sender like 'D.t%'", "--json")
    assert json.loads(out)["rows"] == 2
    assert "D.one" not in (tmp_path / "one.html").read_text()


def test_a_report_replaces_a_report_and_nothing_else(run, recorded, tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    _, err = run("capture", "report", recorded, "precious.txt", returncode=1)
    assert "--overwrite" in err
    assert precious.read_text() == "precious"
    run("capture", "report", recorded, "precious.txt", "--overwrite")
    run("capture", "report", recorded, "precious.txt")
    assert precious.read_text().startswith("<!DOCTYPE html>")


@pytest.fixture
def in_batches(run, tmp_path):
    """A run of CDTP2 with two data messages of three records each."""
    frames = [[batch([0], BOR)], [batch([1, 2, 3])], [batch([4, 5, 6])], [batch([7], EOR)]]
    write(tmp_path / "batches.jsonl", frames, step_ns=10**9)
    run("capture", "import", "batches.jsonl", "--capture", "batches")
    return "batches"


def test_what_is_selected_of_a_message_of_several_records(run, in_batches):
    where = ("--where", "sequence in (2, 5)")
    out, _ = run("capture", "cat", in_batches, *where, "--format", "{sequence}")
    assert out == "2\n5\n"
    out, _ = run("capture", "cat", in_batches, "--type", "DAT", "--head", 2, "--format", "{sequence}")
    assert out == "1\n2\n"
    out, _ = run("capture", "cat", in_batches, "--tail", 3, "--format", "{type} {sequence}")
    assert out == "DAT 5\nDAT 6\nEOR 7\n"
    out, _ = run("capture", "cat", in_batches, *where, "--json")
    rows = list(map(json.loads, out.splitlines()))
    assert [[message["sequence"] for message in row["messages"]] for row in rows] == [[2], [5]]
    out, _ = run("capture", "export", in_batches, "some.h5", *where, "--json")
    assert json.loads(out)["rows"] == 2


@pytest.mark.parametrize("chosen", ["--type=DAT", "--where=sequence in (2, 5)", "--since=1970-01-01T00:00:01"])
def test_a_part_of_a_run_is_no_bad_run(run, in_batches, tmp_path, chosen):
    run("capture", "report", in_batches, "whole.html")
    assert "GOOD" in (tmp_path / "whole.html").read_text()
    run("capture", "report", in_batches, "part.html", chosen)
    page = (tmp_path / "part.html").read_text()
    assert "Bad runs" not in page
    assert ("Missing" in page) == chosen.startswith("--since")
    assert "cannot be determined from" in page


def test_a_report_that_cannot_be_made(run, recorded, tmp_path):
    _, err = run("capture", "report", "nothing", "report.html", returncode=1)
    assert err.startswith("trunkline: error: nothing: ")
    _, err = run("capture", "report", recorded, "none/report.html", returncode=1)
    assert "No such file or directory" in err
    _, err = run("capture", "report", recorded, "capture/report.html", returncode=1)
    assert not list(tmp_path.glob("**/report.html"))


def many(number):
    """Messages of five senders."""
    for sequence in range(number // 5):
        for sender in "abcde":
            yield release(f"D.{sender}", 0, sequence, b"x")


@pytest.mark.parametrize("rows", [0, 60_000])
def test_a_report_that_is_cut_off_leaves_nothing(run, tmp_path, rows):
    """At the first rows, and in the middle of the counting."""
    write(tmp_path / "recorded.jsonl", many(100_000))
    run("capture", "import", "recorded.jsonl", "--capture", "capture")
    (tmp_path / "scratch").mkdir()
    code = "import os, signal, sys\nfrom trunkline import capture\nfrom trunkline.__main__ import main\nreport = capture.report\n"
    code += f"def cut(rows):\n    if rows >= {rows}: os.kill(os.getpid(), signal.SIGINT)\n"
    code += "capture.report = lambda *a, on_progress, **k: report(*a, on_progress=cut, **k)\n"
    code += "sys.argv = ['trunkline', 'capture', 'report', 'capture', 'report.html']\nmain()\n"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout, besides_progress(found.stderr)) == (130, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "recorded.jsonl", "scratch"]
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_a_report_of_a_damaged_capture(run, recorded, tmp_path, damage):
    [segment] = recorded.glob("*.parquet")
    whole = segment.read_bytes()
    # The first page is behind the four letters that every file begins with.
    segment.write_bytes(whole[:-10] if damage == "cut" else whole[:4] + bytes(1000) + whole[1004:])
    _, err = run("capture", "report", recorded, "report.html", returncode=1)
    assert besides_progress(err).startswith(f"trunkline: error: {segment}: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "recorded.jsonl"]


def messages(name, first, count):
    """A run of one sender from a number on, without its end."""
    return [release(name, 0, sequence, b"x") for sequence in range(first, first + count)]


def test_a_report_follows_a_capture(start, run, tmp_path):
    write(tmp_path / "first.jsonl", messages("D.one", 0, 10))
    write(tmp_path / "more.jsonl", messages("D.two", 0, 5), start_ns=10**12)
    run("capture", "import", "first.jsonl", "--capture", "capture")
    command = start("capture", "report", "capture", "report.html", "--follow", "0.1", "--json")
    assert command.event("report")["rows"] == 10
    page = tmp_path / "report.html"
    assert 'data-refresh="0.1"' in page.read_text()
    run("capture", "import", "more.jsonl", "--capture", "capture")
    found = command.event("report")
    senders = found["sections"]["cdtp"]["senders"]
    assert {sender["sender"]: sender["messages"] for sender in senders} == {"D.one": 10, "D.two": 5}
    assert sum(sum(buckets.values()) for buckets in found["sections"]["cdtp"]["rates"].values()) == 15
    assert all(int(bucket) < 120 for buckets in found["sections"]["cdtp"]["rates"].values() for bucket in buckets)
    command.signal(signal.SIGINT)
    command.end()
    assert "data-refresh" not in page.read_text()
    assert "D.two" in page.read_text()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".part") == []


def test_a_report_that_follows_is_named_once(start, run, tmp_path):
    write(tmp_path / "first.jsonl", messages("D.one", 0, 10))
    write(tmp_path / "more.jsonl", messages("D.two", 0, 5), start_ns=10**12)
    run("capture", "import", "first.jsonl", "--capture", "capture")
    command = start("capture", "report", "capture", "report.html", "--follow", "0.1")
    page = tmp_path / "report.html"
    until(page.exists)
    run("capture", "import", "more.jsonl", "--capture", "capture")
    until(lambda: "D.two" in page.read_text())
    command.signal(signal.SIGINT)
    assert command.end()[0] == "report.html\n"
    assert "data-refresh" not in page.read_text()


@pytest.mark.parametrize(
    "words",
    [("2",), ("--follow", "--sender", "D.one"), ("--follow", "0"), ("--follow", "precious")],
)
def test_what_cannot_be_followed(run, recorded, tmp_path, words):
    _, err = run("capture", "report", recorded, "report.html", *words, returncode=2)
    assert "Traceback" not in err
    assert not (tmp_path / "report.html").exists()


def test_a_report_is_short_in_a_notebook(run, tmp_path):
    write(tmp_path / "runs.jsonl", [spec(f"<b>{number:03}", b"x") for number in range(300)])
    run("capture", "import", "runs.jsonl", "--capture", "c")
    found = capture.report(tmp_path / "c", tmp_path / "c.html")
    assert (
        repr(found) == f"<Report '{tmp_path}/c.html': 300 messages; CDTP (senders 300, runs 0, bad runs 0, missing 0)>"
    )
    shown = found._repr_html_()
    assert "<td>300</td>" in shown
    assert len(shown) < 1000


def test_tiles_and_columns_of_a_page_are_in_order(run, tmp_path):
    write(tmp_path / "runs.jsonl", [release("D", 0, number, b"x") for number in (1, 3)])
    run("capture", "import", "runs.jsonl", "--capture", "c")
    run("capture", "report", "c", "c.html")
    page = (tmp_path / "c.html").read_text()
    # What may be bad comes first, and tiles fill their rows.
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)<', page)
    assert heads[:3] == ["sender", "missing", "malformed"]
    assert '<dl class="tiles" style="--wide: 7; --middle: 4">' in page
    keys = re.findall(r'<a href="#([^"]*)">', page)
    assert len(keys) >= 8
    assert all(f'id="{key}"' in page for key in keys)
