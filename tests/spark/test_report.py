import base64
import hashlib
import re
from html.parser import HTMLParser

import msgpack
import pytest
import reference as wire

from peers.recorded import line
from trunkline import capture, spark
from trunkline.errors import CaptureError, LocalProtocolError
from trunkline.spark._paths import spark_path

SECOND = 10**9


class Page(HTMLParser):
    """The text of a page, and what it would load."""

    def __init__(self, text):
        super().__init__()
        self.words, self.loads, self.names = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in {"src", "href"} and not value.startswith("#")]
        self.names += [value for name, value in attributes if name in {"aria-label", "aria-labelledby"}]
        self.loads += [tag] * (tag in {"script", "link", "iframe", "object"})

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def captured(tmp_path):
    """Makes a capture of messages, each with a time and an endpoint."""

    def make(*messages):
        lines = tmp_path / "messages.jsonl"
        with lines.open("w") as file:
            for at, endpoint, *frames in messages:
                file.write(line(frames, at, endpoint=endpoint))
        capture.import_(lines, tmp_path / "capture")
        return tmp_path / "capture"

    return make


def test_a_report_counts_what_was_recorded(captured, tmp_path, reported):
    empty = msgpack.packb({})
    path = captured(
        (10 * SECOND, "one", wire.b(0, sender="a", kind=1), empty),
        (11 * SECOND, "one", wire.b(1, sender="a"), b"xx"),
        (12 * SECOND, "one", wire.b(4, sender="a"), b"xx"),  # 2 and 3 are missing
        (12 * SECOND, "one", wire.b(3, sender="a"), b"xx"),  # it comes late, and is no gap
        (13 * SECOND, "one", wire.b(5, sender="a", kind=2), empty),
        (14 * SECOND, "one", wire.b(9, sender="a", kind=1), empty),  # a run of its own
        (15 * SECOND, "one", wire.b(10, sender="a", kind=2), empty),
        (15 * SECOND, "one", b"junk", b""),  # only a speaks here
        (12 * SECOND, "two", wire.s(sender="s"), b"x" * 100),
        (13 * SECOND, "two", wire.two([1, {}, [b"abc"]], [5, {}, []], sender="c")),  # 2, 3 and 4 are missing
        (14 * SECOND, "two", b"junk", b""),  # two speak here
        (14 * SECOND, "two", wire.s(sender="s")),
    )
    report = reported(path)
    cdtp = report.section(spark.CdtpSection)
    a, c, s, unknown = cdtp.senders
    assert (a.sender, a.variants, a.messages, a.missing, a.malformed) == ("a", ("B",), 7, 2, {"bad_header": 1})
    assert (a.first_received_at_ns, a.last_received_at_ns, a.rate) == (10 * SECOND, 15 * SECOND, 7 / 5)
    assert (c.sender, c.messages, c.missing, c.rate) == ("c", 2, 3, None)
    assert (s.sender, s.variants, s.messages, s.bytes, s.missing) == (
        "s",
        ("S",),
        1,
        len(wire.s(sender="s")) + 100,
        None,
    )
    assert (unknown.sender, unknown.messages, unknown.malformed) == (None, 0, {"bad_header": 1, "missing_payload": 1})
    assert (report.rows, cdtp.messages, cdtp.missing) == (12, 10, 5)
    assert report.malformed == cdtp.malformed == {"bad_header": 2, "missing_payload": 1}
    assert report.bytes == sum(sender.bytes for sender in cdtp.senders) == capture.open(path).info().bytes
    lines = cdtp.table().splitlines()
    assert lines[0].split()[:4] == ["sender", "header", "messages", "bytes"]
    assert lines[-1].startswith("(unknown sender)")
    assert lines[-1].endswith("1 bad_header, 1 missing_payload")
    assert cdtp.run_count == 3
    assert [(run.sender, run.ordinal, run.messages, run.missed, run.condition) for run in cdtp.runs] == [
        ("c", 0, 2, 3, "INCOMPLETE|ABORTED"),
        ("a", 1, 3, 2, "INCOMPLETE"),
        ("a", 2, 0, 0, "GOOD"),
    ]
    assert cdtp.conditions == {"GOOD": 1, "INCOMPLETE": 1, "INCOMPLETE|ABORTED": 1}
    page = Page(report.path.read_text())
    # Our own script, and nothing external.
    assert page.loads == ["script"]
    assert {"senders", "runs", "rate", "volume", "timeline", "sizes", "gaps", "errors"} <= set(page.names)
    assert len(re.findall("<svg", report.path.read_text())) == 6
    assert [file.name for file in tmp_path.iterdir() if "report" in file.name] == ["report.html"]


def test_missing_is_the_same_number_for_senders_and_runs(captured, reported):
    """Also if two share a name, which are counted as one."""
    path = captured(
        *((10 * SECOND + at, "one", wire.b(number, sender="a"), b"x") for at, number in enumerate((1, 2, 5))),
        *((11 * SECOND + at, "two", wire.b(number, sender="a"), b"x") for at, number in enumerate((2, 9))),
        (12 * SECOND, "two", wire.b(4, sender="b"), b"x"),
    )
    cdtp = reported(path).section(spark.CdtpSection)
    assert [(sender.sender, sender.missing) for sender in cdtp.senders] == [("a", 5), ("b", 0)]
    assert {run.sender: run.missed for run in cdtp.runs} == {"a": 5, "b": 0}
    assert cdtp.missing == sum(run.missed for run in cdtp.runs)


def test_sums_of_missing_numbers_stop_at_the_largest_there_is(captured, reported):
    once = [(SECOND, "one", wire.b(number, sender="once"), b"x") for number in (0, 2**63 - 2)]
    # One that skips as many in each of several runs skips more than a number holds.
    often = [
        (at * SECOND, "one", *frames)
        for at in (2, 3, 4)
        for frames in (
            (wire.b(0, kind=1, sender="often"), b"\x80"),
            (wire.b(2**63 - 2, sender="often"), b"x"),
            (wire.b(2**63 - 1, kind=2, sender="often"), b"\x80"),
        )
    ]
    cdtp = reported(captured(*once, *often)).section(spark.CdtpSection)
    assert {sender.sender: sender.missing for sender in cdtp.senders} == {"once": 2**63 - 3, "often": 2**64 - 1}


def test_names_from_the_network_are_only_text(captured, reported):
    names = ["<script>alert(1)</script>", "$\\frac{1}{2}$", "\x1b[2Jevil\n", "\u202edesrever", "日本", "x" * 5000, ""]
    path = captured(*((at * SECOND, "e", wire.s(sender=name), b"x" * 3**at) for at, name in enumerate(names)))
    report = reported(path)
    cdtp = report.section(spark.CdtpSection)
    assert {sender.sender for sender in cdtp.senders} == {name[:200] for name in names}
    text = report.path.read_text()
    assert text.count("<script") == 1
    script = text.partition("<script>")[2].partition("</script>")[0]
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{known}'; img-src data:"
    assert policy in text.partition("<style")[0]
    assert not {"\x1b", "\u202e"} & set(text + cdtp.table())
    assert "$\\frac{1}{2}$" in "".join(Page(text).words)


def test_senders_without_number_are_folded(captured, reported):
    path = captured(*((at, "e", wire.b(at % 3, sender=f"s{at // 3:03}"), b"x") for at in range(660)))
    report = reported(path)
    cdtp = report.section(spark.CdtpSection)
    *known, others = cdtp.senders
    assert [sender.sender for sender in known] == [f"s{at:03}" for at in range(200)]
    assert (others.sender, others.others, others.messages, others.missing) == (None, 20, 60, 0)
    assert "20 more senders" in cdtp.table()
    *runs, more = cdtp.runs
    assert (len(runs), cdtp.run_count) == (200, 220)
    assert (more.sender, more.condition, more.others, more.messages, more.missed) == (None, None, 20, 60, 0)
    assert sum(run.bytes for run in cdtp.runs) == report.bytes
    text = report.path.read_text()
    assert ">20 more runs</th>" in text
    assert "In the last row: 20 INCOMPLETE and ABORTED." in text


def test_a_report_of_nothing(session, tmp_path):
    rows = session.createDataFrame([], spark.capture_schema())
    report = spark.report(rows, tmp_path / "report.html")
    assert (report.section(spark.CdtpSection).senders, report.rows, report.first_received_at_ns) == ((), 0, None)
    assert report.shown == []
    assert "Nothing was recorded" in report.path.read_text()


def test_what_cannot_be_reported_leaves_the_old_page(session, tmp_path):
    page = tmp_path / "report.html"
    page.write_text("old")
    with pytest.raises(CaptureError, match="nowhere"):
        spark.report(tmp_path / "nowhere", page)
    with pytest.raises(LocalProtocolError, match="received_at_ns"):
        spark.report(session.createDataFrame([], "header binary"), page)
    with pytest.raises(FileNotFoundError):
        spark.report(tmp_path, tmp_path / "nowhere" / "report.html")
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


def test_a_path_is_no_pattern(tmp_path, reported):
    rows = capture.import_(sorted(wire.DATA.glob("*1.0.2.jsonl.gz")), tmp_path / "run[1] at 12:30")
    capture.import_(sorted(wire.DATA.glob("*0.5*.jsonl.gz")), tmp_path / "run1 at 12:30")
    assert reported(tmp_path / "run[1] at 12:30").rows == rows


def test_a_name_need_not_be_text(tmp_path, reported):
    path = tmp_path / "b\udcff"
    rows = capture.import_(sorted(wire.DATA.glob("*1.0.2.jsonl.gz")), path)
    assert reported(path).rows == rows
    # Java takes no such name.
    with pytest.raises(LocalProtocolError, match=r"b\\xff' is not UTF-8, and Spark takes no other name"):
        spark_path(path)


def test_a_file_that_somebody_puts_beside_the_segments_is_passed_over(tmp_path, reported):
    path = tmp_path / "capture"
    rows = capture.import_(sorted(wire.DATA.glob("*1.0.2.jsonl.gz")), path)
    (path / "README.txt").write_text("of the capture")
    assert reported(path).rows == rows
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("words")
    with pytest.raises(CaptureError, match=r"is not a capture: it contains a\.txt"):
        reported(tmp_path / "other")
