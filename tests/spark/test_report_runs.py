"""Runs in a report: the bad ones first, what each was configured with, and when it was."""

import html
import json
import re

import msgpack
import pytest
import reference as wire

from peers.cdtp import batch
from trunkline import capture, spark

S = 10**9
START = 1_795_251_125 * S  # 2026-11-21 08:52:05


@pytest.fixture
def captured(captured):
    """Makes a capture of messages of CDTP, each with a time and frames."""
    return lambda *messages: captured(*((START + at, "cdtp", "in", None, frames) for at, *frames in messages))


def run(at, sender, *numbers, config=None, metadata=None, ends=True):
    """A run that begins at this second and goes on for one, of data with these sequence numbers."""
    yield at * S, wire.b(0, sender=sender, kind=1), msgpack.packb(config or {})
    for number in numbers:
        yield at * S + S // 2, wire.b(number, sender=sender), b"x"
    if ends:
        yield (at + 1) * S, wire.b(numbers[-1] + 1, sender=sender, kind=2), msgpack.packb(metadata or {})


def test_bad_runs_are_listed_first_and_all_are_counted(captured, reported):
    rows = [*run(0, "bad", 1, 3), *run(2, "bad", 1, ends=False)]
    rows += [row for at in range(4, 214) for row in run(at, "good", 1)]
    rows += [*run(300, "bad", 2)]
    report = reported(captured(*rows))
    cdtp = report.section(spark.CdtpSection)
    assert cdtp.conditions == {"GOOD": 210, "INCOMPLETE": 2, "ABORTED": 1}
    assert (cdtp.run_count, len(cdtp.runs), cdtp.runs[-1].others) == (213, 201, 13)
    assert [(run.condition, run.ordinal) for run in cdtp.runs[:4]] == [
        ("INCOMPLETE", 3),
        ("ABORTED", 2),
        ("INCOMPLETE", 1),
        ("GOOD", 210),
    ]
    assert [run.ordinal for run in cdtp.runs[3:-1]] == list(range(210, 13, -1))
    text = report.path.read_text()
    counts = re.sub("<[^>]*>", "", text.partition('class="conditions">')[2].partition("</p>")[0])
    assert counts == "GOOD 210 · INCOMPLETE 2 · ABORTED 1"
    assert "In the last row: 13 GOOD." in text
    assert re.search(r"<dt>Bad runs</dt><dd class=\"bad\">3<", text)


def test_a_run_shows_what_it_was_configured_with(captured, reported):
    config = {"threshold": 12.5, "<b>mask": [1, 2], "site": {"crate": "\u202eevil"}}
    rows = [*run(0, "a", 1, config=config, metadata={"run_id": "<i>one"}), *run(2, "b", 1, config={"all": "ä<" * 2000})]
    report = reported(captured(*rows))
    b, a = report.section(spark.CdtpSection).runs
    assert json.loads(a.config) == config
    assert json.loads(a.metadata) == {"run_id": "<i>one"}
    assert (len(b.config), b.metadata) == (2000, "{}")
    text = report.path.read_text()
    said = re.findall(r"<details><summary>(.)</summary><dl>(.*?)</dl></details>", text, re.DOTALL)
    cut = html.escape(b.config)
    assert said == [
        ("b", f"<dt>configuration</dt><dd>{cut}…</dd>"),
        (
            "a",
            (
                "<dt>configuration</dt><dd>threshold: 12.5\n&lt;b&gt;mask: [1, 2]\n"
                "site: {&quot;crate&quot;: &quot;\\u202eevil&quot;}</dd><dt>metadata</dt><dd>run_id: &lt;i&gt;one</dd>"
            ),
        ),
    ]


def test_runs_are_drawn_by_when_they_were(captured, reported):
    rows = [*run(0, "a<b>", 1, 2), *run(10, "a<b>", 1, 5), *run(12, "b", 1, metadata={"run_id": "<i>"})]
    report = reported(captured(*rows))
    section = report.section(spark.CdtpSection)
    assert [(bar.sender, bar.ordinal, bar.first_received_at_ns - START) for bar in section.run_counts.drawn] == [
        ("a<b>", 2, 10 * S),
        ("b", 1, 12 * S),
        ("a<b>", 1, 0),
    ]
    plot = report.path.read_text().partition('id="timeline"')[2].partition("</figure>")[0]
    bars = re.findall(r'<rect x="([\d.]+)" [^>]*var\(--(\w+)\)[^>]*><title>([^<]*)</title>', plot)
    assert {(title, tone) for _, tone, title in bars} == {
        ("a&lt;b&gt;, run 1: GOOD, from 2026-11-21 08:52:05.000, 1.0 s", "good"),
        ("a&lt;b&gt;, run 2: INCOMPLETE, from 2026-11-21 08:52:15.000, 1.0 s", "bad"),
        ("b, run 1 (&lt;i&gt;): GOOD, from 2026-11-21 08:52:17.000, 1.0 s", "good"),
    }
    begins = {title[-30:]: float(left) for left, _, title in bars}
    first, second, third = (begins[title] for title in sorted(begins))
    # Two seconds take a fifth of what ten do.
    assert (third - second) / (second - first) == pytest.approx(0.2, abs=0.01)


def test_of_many_senders_some_have_a_row(captured, reported):
    rows = [row for at in range(30) for row in run(at, f"s{at:02}", *range(1, 40 - at))]
    report = reported(captured(*rows))
    plot = report.path.read_text().partition('id="timeline"')[2].partition("</figure>")[0]
    assert re.findall(r"<title>(s\d\d), run 1: ", plot) == [f"s{at:02}" for at in range(24)]
    assert "24 of 30 runs, of the 24 senders with the most messages" in plot


@pytest.mark.usefixtures("session")
def test_a_report_of_some_records_counts_these_alone(captured):
    path = captured((0, batch([1, 2, 3])), (S, batch([4, 5, 6])))
    selection = capture.Selection(where="sequence in (2, 5, 6)")
    by_spark = spark.report(path, path.parent / "a.html", name="some", selection=selection)
    locally = capture.report(path, path.parent / "b.html", name="some", selection=selection)
    for found in (by_spark, locally):
        section = found.sections["cdtp"]
        (sender,) = section.senders
        assert (sender.messages, sender.bytes, sender.missing) == (3, 15, None)
        assert section.runs == ()
        assert sum(sum(times.values()) for times in section.counts.rates.values()) == 3
